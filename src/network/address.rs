//! Which addresses are the world's, and which are this machine's or this network's own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Blocks of IPv4 that are not the world's, from IANA's special-purpose registry (RFC 6890) and its successors.
const IPV4: [(Ipv4Addr, u32, &str); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "an address of this machine"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private address"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "an address of the provider's network"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "a loopback address"),
    // Before its block: where clouds keep their metadata.
    (Ipv4Addr::new(169, 254, 169, 254), 32, "a cloud's metadata service"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "a link-local address"),
    // Azure's agent and DNS: a public address that is answered within the machine's own network.
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud's metadata service"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private address"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "a reserved address"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "an address for documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a 6to4 relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private address"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "an address for benchmarks"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "an address for documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "an address for documentation"),
    // Multicast, reserved, broadcast.
    (Ipv4Addr::new(224, 0, 0, 0), 3, "a multicast or reserved address"),
];

/// Blocks of IPv6 that are not the world's: first what has a name, then everything outside of 2000::/3, of which alone
/// addresses are given out (RFC 4291).
const IPV6: [(Ipv6Addr, u32, &str); 13] = [
    (Ipv6Addr::UNSPECIFIED, 128, "an address of this machine"),
    (Ipv6Addr::LOCALHOST, 128, "a loopback address"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "a link-local address"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "a private address"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "a private address"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "a multicast address"),
    // Teredo, benchmarks, ORCHID and what else IANA keeps for protocols.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "a reserved address"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "an address for documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "a 6to4 address"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "an address for documentation"),
    (Ipv6Addr::UNSPECIFIED, 3, "a reserved address"),
    (Ipv6Addr::new(0x4000, 0, 0, 0, 0, 0, 0, 0), 2, "a reserved address"),
    (Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0), 1, "a reserved address"),
];

/// The prefix under which a network without IPv4 shows the world's IPv4 addresses (NAT64, RFC 6052).
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// What speaks against connecting to `address` unless it was named itself; `None` where it is the world's.
pub fn objection(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let bits = address.to_bits();
            let within =
                |(block, length, _): &&(Ipv4Addr, u32, &str)| (bits ^ block.to_bits()) >> (32 - length) == 0;
            IPV4.iter().find(within).map(|(_, _, what)| *what)
        }
        IpAddr::V6(address) if is_within(address, NAT64.0, NAT64.1) => {
            // The last four bytes are the IPv4 address that is meant.
            objection(Ipv4Addr::from_bits(address.to_bits() as u32).into())
        }
        IpAddr::V6(address) => IPV6
            .iter()
            .find(|(block, length, _)| is_within(address, *block, *length))
            .map(|(_, _, what)| *what),
    }
}

fn is_within(address: Ipv6Addr, block: Ipv6Addr, length: u32) -> bool {
    (address.to_bits() ^ block.to_bits()) >> (128 - length) == 0
}

#[cfg(test)]
mod tests {
    use super::objection;

    #[test]
    fn addresses_that_are_not_the_worlds_are_objected_to() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "169.254.1.1",
            "168.63.129.16",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001::1",
            "2001:10::1",
            "2001:2::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "100::1",
            "5f00::1",
            "4000::1",
            "8000::1",
        ] {
            assert!(objection(address.parse().unwrap()).is_some(), "{address}");
        }
    }

    #[test]
    fn the_worlds_addresses_are_not() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.1",
            "100.63.255.255",
            "100.128.0.1",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.1.1",
            "172.15.255.255",
            "172.32.0.1",
            "192.167.1.1",
            "198.17.1.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:200::1",
            "2003::1",
            "3ffe::1",
            "64:ff9b::1.1.1.1",
            "::ffff:1.1.1.1",
        ] {
            assert_eq!(objection(address.parse().unwrap()), None, "{address}");
        }
    }
}

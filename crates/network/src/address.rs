//! Which addresses are public, and which belong to this machine, its network, or nobody.

use if_addrs::{IfAddr, Interface};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Blocks of IPv4 that are not public, from IANA's special-purpose registry (RFC 6890) and its successors.
const IPV4: [(Ipv4Addr, u32, &str); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "an address of this machine"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private address"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "an address of the provider's network"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "a loopback address"),
    // Before its block: the metadata service of most clouds.
    (Ipv4Addr::new(169, 254, 169, 254), 32, "a cloud's metadata service"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "a link-local address"),
    // Azure's agent and DNS: a public address that is answered within the machine's network.
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

/// Blocks of IPv6 that are not public: first those with a name, then everything outside 2000::/3, the only block from
/// which addresses are assigned (RFC 4291).
const IPV6: [(Ipv6Addr, u32, &str); 13] = [
    (Ipv6Addr::UNSPECIFIED, 128, "an address of this machine"),
    (Ipv6Addr::LOCALHOST, 128, "a loopback address"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "a link-local address"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "a private address"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "a private address"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "a multicast address"),
    // Teredo, benchmarks, ORCHID and IANA's other protocol assignments.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "a reserved address"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "an address for documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "a 6to4 address"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "an address for documentation"),
    (Ipv6Addr::UNSPECIFIED, 3, "a reserved address"),
    (Ipv6Addr::new(0x4000, 0, 0, 0, 0, 0, 0, 0), 2, "a reserved address"),
    (Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0), 1, "a reserved address"),
];

/// The prefix under which a network without IPv4 maps IPv4 addresses (NAT64, RFC 6052).
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Returns the reason why `address` may only be connected to when it was named itself; `None` for a public address that
/// does not belong to this machine or to a network that it is attached to.
pub fn objection(address: IpAddr) -> Option<&'static str> {
    // Without a list of interfaces the fixed blocks still apply.
    reserved(address).or_else(|| attached(address, &if_addrs::get_if_addrs().unwrap_or_default()))
}

/// The same for the addresses of this machine's interfaces and for the networks that they are on: a firewall that protects
/// them from the internet does not protect them from this machine.
fn attached(address: IpAddr, interfaces: &[Interface]) -> Option<&'static str> {
    let address = address.to_canonical();
    if interfaces.iter().any(|interface| interface.ip() == address) {
        return Some("an address of this machine");
    }
    let is_neighbor = |interface: &Interface| match (&interface.addr, address) {
        (IfAddr::V4(own), IpAddr::V4(address)) => {
            let mask = own.netmask.to_bits();
            mask != 0 && (own.ip.to_bits() ^ address.to_bits()) & mask == 0
        }
        (IfAddr::V6(own), IpAddr::V6(address)) => {
            let mask = own.netmask.to_bits();
            mask != 0 && (own.ip.to_bits() ^ address.to_bits()) & mask == 0
        }
        _ => false,
    };
    interfaces.iter().any(is_neighbor).then_some("an address of this machine's local network")
}

fn reserved(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let bits = address.to_bits();
            let within =
                |(block, length, _): &&(Ipv4Addr, u32, &str)| (bits ^ block.to_bits()) >> (32 - length) == 0;
            IPV4.iter().find(within).map(|(_, _, what)| *what)
        }
        IpAddr::V6(address) if is_within(address, NAT64.0, NAT64.1) => {
            // The last four bytes are the mapped IPv4 address.
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
    use super::{attached, objection};
    use if_addrs::{IfAddr, IfOperStatus, Ifv4Addr, Ifv6Addr, Interface};

    #[test]
    fn addresses_that_are_not_public_have_an_objection() {
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
    fn public_addresses_have_none() {
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

    fn interface(addr: IfAddr) -> Interface {
        let oper_status = IfOperStatus::Up;
        Interface { name: "eth0".to_owned(), addr, index: None, oper_status, is_p2p: false }
    }

    #[test]
    fn the_machines_own_addresses_and_its_neighbors_have_an_objection() {
        let interfaces = [
            interface(IfAddr::V4(Ifv4Addr {
                ip: "8.8.4.77".parse().unwrap(),
                netmask: "255.255.255.0".parse().unwrap(),
                prefixlen: 24,
                broadcast: None,
            })),
            interface(IfAddr::V6(Ifv6Addr {
                ip: "2a00:1450::77".parse().unwrap(),
                netmask: "ffff:ffff:ffff:ffff::".parse().unwrap(),
                prefixlen: 64,
                broadcast: None,
            })),
        ];
        let objection = |address: &str| attached(address.parse().unwrap(), &interfaces);
        for own in ["8.8.4.77", "2a00:1450::77", "::ffff:8.8.4.77"] {
            assert_eq!(objection(own), Some("an address of this machine"), "{own}");
        }
        for neighbor in ["8.8.4.1", "8.8.4.255", "2a00:1450::1"] {
            assert_eq!(objection(neighbor), Some("an address of this machine's local network"), "{neighbor}");
        }
        for public in ["8.8.5.1", "8.8.3.255", "2a00:1450:0:1::1"] {
            assert_eq!(objection(public), None, "{public}");
        }
    }
}

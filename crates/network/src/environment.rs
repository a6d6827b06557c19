//! The variables by which programs inside find the proxy.

use super::PORT;
use super::rules::Rules;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Variables for every command while the proxy is there.
///
/// curl, git, pip, npm, cargo, go, apt and most HTTP libraries read the `*_proxy` ones: curl only in lower case, others only
/// in upper case. The sandbox's own loopback is reached without the proxy, except for addresses that the user named. A program that has
/// a list of its own shows a `pass`.
pub(super) fn variables(rules: &Rules, pass: Option<&str>) -> Vec<(String, String)> {
    let credentials = pass.map(|pass| format!("mcp:{pass}@")).unwrap_or_default();
    let proxy = format!("http://{credentials}127.0.0.1:{PORT}");
    let direct = direct(rules).join(",");
    let java = java();
    let mut variables = Vec::new();
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        variables.push((name.to_owned(), proxy.clone()));
        variables.push((name.to_uppercase(), proxy.clone()));
    }
    variables.push(("no_proxy".to_owned(), direct.clone()));
    variables.push(("NO_PROXY".to_owned(), direct));
    let further = [
        // Node's own `fetch` and `http`, from Node 22.21 and 24 on.
        ("NODE_USE_ENV_PROXY", "1"),
        // Debian's pip refuses to install beside the system's packages; in a sandbox that is harmless.
        ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
        ("MAVEN_OPTS", &java),
        ("GRADLE_OPTS", &java),
        ("SBT_OPTS", &java),
    ];
    variables.extend(further.map(|(name, value)| (name.to_owned(), value.to_owned())));
    variables
}

/// Hosts that are reached without the proxy.
fn direct(rules: &Rules) -> Vec<&'static str> {
    let own: [(&str, Option<IpAddr>); 3] = [
        ("localhost", None),
        ("127.0.0.1", Some(Ipv4Addr::LOCALHOST.into())),
        ("::1", Some(Ipv6Addr::LOCALHOST.into())),
    ];
    let is_direct =
        |(_, address): &(&str, Option<IpAddr>)| !address.is_some_and(|address| rules.names_host(address));
    own.into_iter().filter(is_direct).map(|(name, _)| name).collect()
}

/// System properties for Java, which reads no variables and excludes loopback by itself. Not in `JAVA_TOOL_OPTIONS`,
/// which every start of Java reports on stderr.
pub(super) fn java() -> String {
    ["http", "https"]
        .map(|scheme| format!("-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={PORT}"))
        .join(" ")
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_sandboxes_own_loopback_is_reached_directly_unless_it_was_named() {
        let direct = |list| {
            let rules = Rules::parse(list).unwrap();
            variables(&rules, None).into_iter().find(|(name, _)| name == "no_proxy").unwrap().1
        };
        assert_eq!(direct("example.com"), "localhost,127.0.0.1,::1");
        assert_eq!(direct("127.0.0.1:8443"), "localhost,::1");
    }
}

//! Credentials that programs inside use without holding them, with the programs that people use.

use crate::support::agent::{Agent, agent};
use crate::support::backends::BACKENDS;
use crate::support::site::{CERTIFICATE, Site};

const TOKEN: &str = "ghp_r3alT0kenOfTheUsers0123456789abcd";

/// A command in a sandbox of `backend`, with a credential for `site`.
fn with_credential(site: &Site, backend: &str, rule: &str, flag: &str, script: &str) -> Agent {
    let ca = tempfile::NamedTempFile::new().expect("a file").into_temp_path().keep().expect("it stays");
    std::fs::write(&ca, CERTIFICATE).expect("the certificate");
    let config = format!(
        "[credentials.site]\nhosts = [\"{}\"]\nenv = \"SITE_TOKEN\"\nvariables = [\"SITE_TOKEN\"]\nca = \"{}\"\n{rule}\n",
        site.host_and_port(),
        ca.display()
    );
    agent().config(&config).env("SITE_TOKEN", TOKEN).sandbox(backend).args([
        "exec",
        "--credential",
        flag,
        "sh",
        "-c",
        script,
    ])
}

fn on_each(test: impl Fn(&str)) {
    BACKENDS.iter().filter(|name| ["local", "docker"].contains(name)).for_each(|name| test(name));
}

#[test]
fn curl_sends_the_value_and_sees_the_placeholder() {
    on_each(|backend| {
        let site = Site::https().file("/hello", format!("hello {TOKEN}\n"));
        let script = format!(
            "curl -sS -H \"Authorization: Bearer $SITE_TOKEN\" -H \"X-Other: $SITE_TOKEN\" https://{}/hello; env; cat /proc/*/environ",
            site.host_and_port()
        );
        let finished = with_credential(&site, backend, "", "site", &script).run();
        assert!(finished.stdout.contains("hello ghp_"), "{}\n{}", finished.stdout, finished.stderr);
        assert!(!finished.stdout.contains(TOKEN) && !finished.stderr.contains(TOKEN), "{}", finished.stdout);
        let heads = site.requests();
        assert_eq!(heads.len(), 1, "{heads:?}");
        assert!(heads[0].to_lowercase().contains(&format!("authorization: bearer {}", TOKEN.to_lowercase())));
        assert_eq!(heads[0].matches(TOKEN).count(), 1, "only where the rule says: {heads:?}");
    });
}

#[test]
fn what_the_rule_does_not_cover_never_reaches_the_host() {
    let site = Site::https().file("/team/x", "x\n").file("/other", "other\n");
    let address = site.host_and_port();
    let requests = [
        "-X PUT https://SITE/team/x",
        "https://SITE/other",
        "--path-as-is https://SITE/team/../other",
        "--path-as-is https://SITE/team/%2e%2e/other",
        "-H 'Host: other.test' https://SITE/team/x",
        "-H 'Upgrade: h2c' -H 'Connection: upgrade' https://SITE/team/x",
        "-H 'Expect: something' https://SITE/team/x",
        "--request-target http://other.test/ https://SITE/team/x",
    ];
    let curl = |request: &str| format!("curl -sS {}; ", request.replace("SITE", &address));
    let script: String = requests.into_iter().map(curl).collect();
    let finished = with_credential(&site, "local", "paths = [\"/team\"]", "site", &script).run();
    let refusals = finished.stdout.matches("agent did not pass on this request").count();
    assert_eq!(refusals, requests.len(), "{}\n{}", finished.stdout, finished.stderr);
    assert!(site.requests().is_empty(), "{:?}", site.requests());
}

#[test]
fn a_second_request_on_the_connection_is_judged_too() {
    let site = Site::https().file("/team/x", "x\n").file("/other", "other\n");
    let address = site.host_and_port();
    let script =
        format!("curl -sS https://{address}/team/x https://{address}/team/x https://{address}/other");
    let finished = with_credential(&site, "local", "paths = [\"/team\"]", "site", &script).run();
    assert!(
        finished.stdout.starts_with("x\nx\nagent did not pass on"),
        "{}\n{}",
        finished.stdout,
        finished.stderr
    );
    assert_eq!((site.requests().len(), site.connections()), (2, 1), "{:?}", site.requests());
}

#[test]
fn a_redirect_to_another_host_carries_nothing() {
    let other = Site::http().file("/", "other\n");
    let site = Site::https().redirect("/", &format!("http://{}/", other.host_and_port()));
    let script = format!(
        "curl -sSL --location-trusted -H \"Authorization: Bearer $SITE_TOKEN\" https://{}/",
        site.host_and_port()
    );
    let command = with_credential(&site, "local", "", "site", &script);
    let finished = command.env("AGENT_NETWORK", other.host_and_port()).run();
    assert!(finished.stdout.contains("other"), "{}\n{}", finished.stdout, finished.stderr);
    assert!(site.requests()[0].contains(TOKEN) && !other.requests()[0].contains(TOKEN));
}

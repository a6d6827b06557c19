//! Questions about credentials, at a terminal.

use agent_testbed::terminal::{Builder, Terminal, terminal};
use agent_testing::endpoint::endpoint;
use agent_testing::private_site::{AUTHORITY, PrivateSite, on_host, private_repository};

const TOKEN: &str = "ghp_r3alT0kenOfTheUsers0123456789abcd";

/// A terminal whose configuration has the credential `site` for a host.
fn configured(site: &PrivateSite, rule: &str) -> Builder {
    let call = terminal();
    let config = format!(
        "[credentials.site]\nhosts = [\"{}\"]\nenv = \"A_TOKEN\"\nca = \"{AUTHORITY}\"\n{rule}\n",
        site.host(),
    );
    let directory = call.directory("agent").join("config");
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join("config.toml"), config).expect("the file");
    call
}

/// The prompt of a session which may reach the host.
fn start(call: &Builder, site: &PrivateSite, arguments: &[&str]) -> Terminal {
    let model = endpoint().start();
    let call = call.again().columns(180).endpoint(&model).env("A_TOKEN", TOKEN);
    let terminal = call.args(["--network", &site.host()]).args(arguments).start();
    terminal.wait_for_prompt();
    terminal
}

fn leave(mut terminal: Terminal) {
    terminal.wait_for_prompt();
    assert!(!terminal.screen().contains(TOKEN));
    terminal.ctrl_d();
    assert_eq!(terminal.wait(), 0);
}

/// Runs a command, and answers so many questions about the credential.
fn ask(terminal: &mut Terminal, command: &str, answers: &[&str], shown: &str) {
    let before = terminal.screen().matches("Use your credential site there?").count();
    terminal.type_line(&format!("!{command}; echo \"[{}]\"", "ended"));
    for (index, answer) in answers.iter().enumerate() {
        terminal.wait_until("the question", |screen| {
            screen.matches("Use your credential site there?").count() > before + index
        });
        terminal.wait_for("[once/session/project/never]");
        terminal.type_line(answer);
    }
    terminal.wait_for(shown);
    terminal.wait_for_prompt();
    assert_eq!(terminal.screen().matches("Use your credential site there?").count(), before + answers.len());
}

#[test]
fn a_credential_that_is_not_enabled_is_asked_about_when_its_host_refuses_a_request() {
    let site = PrivateSite::start(TOKEN, None)
        .file("/first", "one\n")
        .file("/second", "two\n")
        .file("/third", "three\n")
        .file("/fourth", "four\n");
    let fetch = |path: &str| format!("curl -sS https://{}/{path}", site.host());
    let call = configured(&site, "");
    let mut terminal = start(&call, &site, &[]);
    // The request that was refused is sent again.
    ask(&mut terminal, &fetch("first"), &["once"], "\none");
    ask(&mut terminal, &fetch("second"), &["session"], "\ntwo");
    ask(&mut terminal, &fetch("third"), &[], "\nthree");
    ask(&mut terminal, &format!("{} -X DELETE", fetch("first")), &[], "agent did not pass on");
    leave(terminal);

    let mut refused = start(&call, &site, &[]);
    ask(&mut refused, &fetch("first"), &["never"], "a token, please");
    // TLS passes untouched then: the host's certificate is shown, which nobody trusts inside.
    ask(&mut refused, &fetch("first"), &[], "certificate");
    leave(refused);

    let mut kept = start(&call, &site, &[]);
    ask(&mut kept, &fetch("fourth"), &["project"], "\nfour");
    leave(kept);
    let mut later = start(&call, &site, &[]);
    ask(&mut later, &fetch("fourth"), &[], "\nfour");
    leave(later);

    // It is taken back.
    let config = |arguments: &[&str]| call.again().args(["config"]).args(arguments).start();
    let mut allowed = config(&["allowed"]);
    allowed.wait_for("credential  site");
    assert_eq!(allowed.wait(), 0);
    assert_eq!(config(&["forget", "site"]).wait(), 0);
    let mut unknown = config(&["forget", "site"]);
    unknown.wait_for("not allowed for this project: \"site\"");
    assert_eq!(unknown.wait(), 2);
    let mut asked = start(&call, &site, &[]);
    ask(&mut asked, &fetch("fourth"), &["once"], "\nfour");
    leave(asked);
}

#[test]
fn a_push_is_shown_before_it_reaches_the_host() {
    let directory = private_repository();
    let site = PrivateSite::start(TOKEN, Some(directory.path()));
    let rule = "git = true\napply = [\"basic\"]\nenabled = true\nwrite = true";
    let mut terminal = start(&configured(&site, rule), &site, &[]);
    let commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m more";
    terminal.type_line(&format!(
        "!git clone -q https://{}/git/private.git copy; cd copy; {commit}; {commit}; git push -q origin HEAD:refs/heads/more; echo first $?",
        site.host()
    ));
    let question = format!(
        "wants to push to {}/git/private.git with your credential site: create more (2 commits).",
        site.host()
    );
    terminal.wait_for(&question);
    terminal.wait_for("[once/session/never]");
    terminal.type_line("once");
    terminal.wait_for("\nfirst 0");
    terminal.wait_for_prompt();
    let bare = directory.path().join("private.git");
    on_host(&bare, &["rev-parse", "more"]);

    terminal.type_line("!cd copy; git push -q origin :more; echo second $?");
    terminal.wait_for("delete more (0 commits). Allow it?");
    terminal.type_line("never");
    terminal.wait_for("\nsecond 1");
    terminal.wait_for_prompt();
    terminal.type_line("!cd copy; git push -q origin :more; echo third $?");
    terminal.wait_for("\nthird 1");
    terminal.wait_for_prompt();
    assert_eq!(terminal.screen().matches("Allow it?").count(), 2, "{}", terminal.screen());
    on_host(&bare, &["rev-parse", "more"]);
    leave(terminal);
}

//! What a sandbox sees of a project and of the tools around it beyond the files that git knows.

use crate::projects::Project;
use agent_testbed::backends::program_on_every_backend;
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::endpoint;
use serde_json::json;

#[test]
fn attack_41_secrets_and_sockets_among_what_git_ignores_are_not_there_and_are_named_once() {
    program_on_every_backend(|backend| {
        let project = Project::new();
        project.file(".gitignore", "node_modules/\nlocal/\n");
        project.file("a", "a\n");
        project.file("node_modules/dep/.env", "KEY=secret\n");
        project.file("node_modules/dep/.npmrc", "//registry.example/:_authToken=secret\n");
        project.file("node_modules/dep/index.js", "1\n");
        project.file("local/id_ed25519", "secret\n");
        project.file("local/notes", "notes\n");
        project.repository();
        let _socket =
            std::os::unix::net::UnixListener::bind(project.directory.join("local/socket")).expect("a socket");
        project.prepare("mkfifo local/pipe");
        let list =
            ["exec", "--", "sh", "-c", "find local node_modules ! -type d | sort; grep -rs secret . | wc -l"];
        let ran = project.agent().sandbox(backend).args(list).run().expect_code(0);
        assert_eq!(ran.stdout, "local/notes\nnode_modules/dep/index.js\n0\n");
        for hidden in ["local/id_ed25519 (secret)", "node_modules/dep/.env (secret)"] {
            assert!(ran.stderr.contains(hidden), "{}", ran.stderr);
        }
        let ran = project.agent().sandbox(backend).args(list).run().expect_code(0);
        assert!(!ran.stderr.contains("left out"), "{}", ran.stderr);
    });
}

/// A secret that was made during the session, in a place that git ignores, was visible inside from then on.
#[test]
fn attack_41_secrets_that_are_made_later_are_not_there_at_the_next_prompt() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "mkdir -p build/own && echo mine > build/own/.env; ls -A build" }))
        .text("First.")
        .tool_call(
            "run_commands",
            json!({ "command": "grep -rs CANARY . ; find build .venv | sort | tr '\\n' ' '; cat build/own/.env" }),
        )
        .text("Second.")
        .start();
    let terminal = terminal().endpoint(&model).file(".gitignore", "build/\n.venv/\n");
    let workspace = terminal.directory("workspace");
    let write = |name: &str, content: &str| {
        let path = workspace.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, content).expect("a file");
    };
    write("build/out.js", "1\n");
    let git = std::process::Command::new("git").args(["init", "-q"]).current_dir(&workspace).status();
    assert!(git.expect("git").success());
    let mut terminal = terminal.start();
    terminal.wait_for_prompt();
    terminal.type_line("go");
    terminal.wait_for("First.");
    terminal.wait_for_prompt();
    write("build/deep/er/.env", "KEY=CANARY\n");
    write("build/id_ed25519", "CANARY\n");
    write(".venv/pip/.netrc", "machine m login l password CANARY\n");
    write("build/other.js", "2\n");
    terminal.type_line("again");
    terminal.wait_for("Second.");
    terminal.wait_for("left out of what git ignores");
    terminal.type_line("/exit");
    terminal.wait();
    let result = model.requests().last().expect("a request").messages().last().expect("a result").to_string();
    for gone in ["CANARY", "id_ed25519", ".netrc", "er/.env"] {
        assert!(!result.contains(gone), "{result}");
    }
    assert!(result.contains("build/other.js") && result.contains("mine"), "{result}");
}

#[test]
fn attack_42_caches_are_written_to_inside_alone_and_credentials_beside_them_are_not_there() {
    program_on_every_backend(|backend| {
        let project = Project::new();
        project.file("a", "a\n");
        let home = |name: &str, content: &str| {
            let path = project.beside("home").join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(&path, content).expect("a file");
            path
        };
        let cached = home(".cargo/registry/cache/a.crate", "1\n");
        for credentials in [
            ".cargo/credentials.toml",
            ".npm/.npmrc",
            ".m2/settings-security.xml",
            ".gradle/gradle.properties",
            ".config/gcloud/credentials.db",
            ".config/composer/auth.json",
            ".pypirc",
            ".ssh/id_ed25519",
        ] {
            home(credentials, "password = stolen-value\n");
        }
        home(".npm/_cacache/x", "x");
        home(".m2/repository/x", "x");
        home(".config/composer/vendor/x", "x");
        home(
            ".npmrc",
            "registry=https://me:stolen-value@npm.example/\n//npm.example/:_authToken=stolen-value\n",
        );
        home(
            ".m2/settings.xml",
            "<settings><servers><server><password>stolen-value</password></server></servers></settings>",
        );
        let command = "cat ~/.npmrc; grep -rs stolen-value ~ /home/agent; echo 2 > ~/.cargo/registry/cache/a.crate && \
                   rm -r ~/.m2/repository/x && cat ~/.cargo/registry/cache/a.crate";
        let ran =
            project.agent().sandbox(backend).args(["exec", "--", "sh", "-c", command]).run().expect_code(0);
        assert_eq!(ran.stdout, "registry=https://npm.example/\n2\n", "{}", ran.stderr);
        assert_eq!(std::fs::read_to_string(cached).expect("it is there"), "1\n");
        assert!(project.beside("home").join(".m2/repository/x").exists());
    });
}

/// Nothing of it runs unasked, and what it leaves for later sessions leads nowhere on this machine.
#[test]
fn attack_72_the_setup_of_a_hostile_project_runs_only_when_approved_and_its_result_leads_nowhere() {
    program_on_every_backend(|backend| {
        let project = Project::new();
        let victim = project.beside("victim");
        std::fs::create_dir_all(&victim).expect("a directory");
        let links = "mkdir -p node_modules && ln -s \"$VICTIM\" node_modules/out && ln -s \"$VICTIM\" ~/.cargo && ln -s / ~/.npm && \
                     ln -s /etc ~/.config; mkfifo node_modules/pipe; true";
        let command = links.replace("$VICTIM", victim.to_str().expect("text"));
        let outside = project.beside("outside.toml");
        std::fs::write(&outside, "[workspace]\nsetup = \"echo ran >ran\"\n").expect("a file");
        std::fs::create_dir_all(project.directory.join(".agent")).expect("a directory");
        std::os::unix::fs::symlink(&outside, project.directory.join(".agent/config.toml")).expect("a link");
        project.file(".gitignore", "node_modules\n");
        project.file("a", "a\n");
        project.repository();
        // A link is not the project's file.
        project.agent().args(["sandbox", "setup", "--yes"]).run().expect_code(2);
        std::fs::remove_file(project.directory.join(".agent/config.toml")).expect("removed");
        project.file(
            ".agent/config.toml",
            &format!("[workspace]\nsetup = {{ command = {command:?}, network = \"full\" }}\n"),
        );
        let list = ["exec", "--", "sh", "-c", "ls node_modules; true"];
        let ran = project.agent().sandbox(backend).args(list).run().expect_code(0);
        assert_eq!(ran.stdout, "");
        let none = std::fs::read_to_string(project.directory.join(".agent/config.toml")).expect("a file");
        project.file(".agent/config.toml", &none.replace("\"full\"", "\"none\""));
        project.agent().args(["sandbox", "setup", "--yes"]).run().expect_code(0);
        std::fs::create_dir_all(project.beside("home").join(".cargo/registry")).expect("a cache");
        std::fs::create_dir_all(project.beside("home").join(".npm/_cacache")).expect("a cache");
        let write = [
            "exec",
            "--",
            "sh",
            "-c",
            "for d in node_modules/out ~/.cargo ~/.npm ~/.config; do echo x >$d/x; done; find node_modules",
        ];
        for _ in 0..2 {
            let ran = project.agent().sandbox(backend).args(write).run();
            assert!(
                ran.stdout.contains("out") && !ran.stdout.contains("pipe"),
                "{} {}",
                ran.stdout,
                ran.stderr
            );
            assert_eq!(std::fs::read_dir(&victim).expect("it is there").count(), 0);
            assert!(!std::path::Path::new("/x").exists() && !std::path::Path::new("/etc/x").exists());
        }
    });
}

#[test]
fn attack_75_a_dev_container_of_a_hostile_repository_widens_nothing() {
    program_on_every_backend(|backend| {
        let project = Project::new();
        let victim = project.beside("victim");
        std::fs::create_dir_all(&victim).expect("a directory");
        std::fs::write(victim.join("secret"), "CANARY").expect("a file");
        let victim = victim.to_str().expect("text");
        project.file("a", "a\n");
        project.file(
            ".devcontainer/devcontainer.json",
            &json!({
                "initializeCommand": format!("touch {victim}/initialized"),
                "runArgs": ["--privileged", "-v", "/:/host"],
                "privileged": true,
                "capAdd": ["SYS_ADMIN"],
                "securityOpt": ["seccomp=unconfined"],
                "mounts": [format!("source={victim},target=/victim,type=bind"), { "source": "/", "target": "/host", "type": "bind" }],
                "workspaceMount": "source=/,target=/workspace,type=bind",
                "workspaceFolder": victim,
                "appPort": ["0.0.0.0:8000:8000"],
                "features": { "./hostile": {} },
                "containerEnv": { "HOME_OF_HOST": "${localEnv:HOME}", "KEY": "${env:OPENAI_API_KEY}", "LD_PRELOAD": "/workspace/evil.so" },
                "postStartCommand": format!("touch {victim}/started"),
                "postCreateCommand": format!("cat {victim}/secret /victim/secret /host{victim}/secret >&2; touch {victim}/created; true"),
            })
            .to_string(),
        );
        project.repository();
        let approved = project.agent().args(["sandbox", "setup", "--yes"]).run().expect_code(0);
        assert!(approved.stdout.contains("no effect: mounts: "), "{}", approved.stdout);
        let look = format!(
            "env; cat {victim}/secret /victim/secret /host{victim}/secret; ls /host; grep -i -e ^capeff -e ^seccomp: /proc/self/status"
        );
        let ran = project.agent().sandbox(backend).args(["exec", "--", "sh", "-c", &look]).run();
        let plain = project.agent().sandbox(backend).args([
            "exec",
            "--",
            "sh",
            "-c",
            "grep -i -e ^capeff -e ^seccomp: /proc/self/status",
        ]);
        assert!(ran.stdout.ends_with(&plain.run().expect_code(0).stdout), "{}", ran.stdout);
        for word in ["CANARY", "HOME_OF_HOST", "KEY="] {
            assert!(
                !ran.stdout.contains(word) && !ran.stderr.contains(word),
                "{word}: {} {}",
                ran.stdout,
                ran.stderr
            );
        }
        let left: Vec<_> = std::fs::read_dir(victim).expect("it is there").collect();
        assert_eq!(left.len(), 1, "{left:?}");
    });
}

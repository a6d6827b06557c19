//! Pictures in terminals of each kind, byte for byte.

use agent::event::Event;
use agent::log::{ArtifactLimits, Artifacts, SessionId, Store};
use agent::picture::{Pixels, decode};
use agent_testbed::terminal::{Builder, Terminal, terminal};
use agent_testing::counterpart::has;
use agent_testing::endpoint::endpoint;
use agent_testing::session_samples::{record, started};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::time::{Duration, Instant};

const NOW: Duration = Duration::ZERO;
/// Makes the program wait longer for answers (a second), so that a busy machine does not fail the test.
const REMOTE: (&str, &str) = ("SSH_TTY", "/dev/pts/0");

/// 30 × 20 pixels, each of another colour.
fn gradient() -> Pixels {
    let rgb = (0..20).flat_map(|y| (0..30).flat_map(move |x| [x * 8, y * 12, 100])).collect();
    Pixels { width: 30, height: 20, rgb }
}

/// A session of the terminal's user with these files.
fn keep(terminal: &Builder, files: &[(&str, &str, &[u8])]) -> SessionId {
    let store = Store::at(terminal.directory("agent").join("data"));
    let (id, mut file) = store.create().unwrap();
    let Event::SessionStarted { version, model, base_url, sandbox, parent, .. } = started() else { panic!() };
    let workspace = terminal.directory("workspace").canonicalize().unwrap().display().to_string();
    let mut add = |event| file.append(&record(file.next_seq(), event)).unwrap();
    let (directory, added) = (String::new(), Vec::new());
    add(Event::SessionStarted { version, model, base_url, workspace, directory, added, sandbox, parent });
    let artifacts = Artifacts::of_session(&store.dir(&id), ArtifactLimits::default());
    for (name, media_type, bytes) in files {
        let artifact = artifacts.add(name, media_type, bytes).unwrap();
        add(Event::Artifact { artifact, tool_call: "call_1".to_owned() });
    }
    id
}

/// A terminal whose user's last session has shown the gradient.
fn with_gradient() -> Builder {
    let terminal = terminal().env(REMOTE.0, REMOTE.1);
    keep(&terminal, &[("plot.png", "image/png", &gradient().to_png().unwrap())]);
    terminal
}

/// Everything that `agent artifacts show` writes, with the line ends that it wrote.
fn shown(terminal: Builder) -> String {
    let mut terminal = terminal.args(["artifacts", "show"]).start();
    assert_eq!(terminal.wait(), 0, "{}", terminal.screen());
    output(&terminal)
}

fn output(terminal: &Terminal) -> String {
    String::from_utf8(terminal.raw()).unwrap().replace("\r\n", "\n")
}

/// Returns what is between the first `begin` and the next `end`.
fn between<'t>(text: &'t str, begin: &str, end: &str) -> &'t str {
    let rest = text.split_once(begin).unwrap_or_else(|| panic!("{begin:?} is not in {text:?}")).1;
    rest.split_once(end).unwrap_or_else(|| panic!("{end:?} is not in {rest:?}")).0
}

/// Returns whether a picture is in it, in any form that some terminal takes.
fn is_picture(text: &str) -> bool {
    ["\x1b_Ga=T", "\x1bP0;1;0q", "1337;File", "▀"].iter().any(|drawn| text.contains(drawn))
}

fn pixels_of(base64: &str) -> Pixels {
    decode(STANDARD.decode(base64).unwrap(), (1000, 1000), Duration::from_secs(60)).unwrap()
}

#[test]
fn kitty_gets_a_png_of_our_own_over_the_cells_that_it_takes() {
    let answers = "\x1b_Gi=31;OK\x1b\\\x1bP>|kitty(0.35.2)\x1b\\\x1b[6;10;10t\x1b[?62;c";
    let text = shown(with_gradient().answering(answers, NOW));
    let data = between(&text, "\x1b_Ga=T,f=100,t=d,q=2,c=3,m=0;", "\x1b\\\n");
    assert_eq!(pixels_of(data), gradient());
    let question = "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[>0q\x1b[16t\x1b[c";
    let picture = format!("\x1b_Ga=T,f=100,t=d,q=2,c=3,m=0;{data}\x1b\\\n");
    let (before, after) = text.split_once(&picture).unwrap();
    assert_eq!(before, format!("{question}plot.png\n"));
    assert!(after.starts_with("\x1b[2m    \x1b]8;;file://") && after.ends_with("\x1b[0m\n"), "{after:?}");
}

#[test]
fn kitty_is_known_by_its_name_where_it_tells_the_size_of_its_window() {
    let text = shown(with_gradient().env("TERM", "xterm-kitty"));
    // The pseudo-terminal has no size in pixels, so it is asked, and does not answer.
    assert!(text.contains("\x1b_Ga=T,f=100,t=d,q=2,c=3,m=0;"), "{text:?}");
}

#[test]
fn iterm_gets_the_file_as_one_sequence() {
    let text = shown(with_gradient().answering("\x1bP>|iTerm2 3.5.10\x1b\\\x1b[?64;1;2c", NOW));
    let sequence = between(&text, "\x1b]1337;File=inline=1;", "\x07\n");
    let (keys, data) = sequence.split_once(':').unwrap();
    let size = STANDARD.decode(data).unwrap().len();
    assert_eq!(keys, format!("size={size};width=3;preserveAspectRatio=1"));
    assert_eq!(pixels_of(data), gradient());
}

/// Python that draws the gradient as its last value, with the standard library alone.
const DRAWING: &str = "import struct, zlib
def chunk(kind, data): return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
class Picture:
    def _repr_png_(self):
        header = struct.pack('>IIBBBBB', 30, 20, 8, 2, 0, 0, 0)
        rows = b''.join(b'\\0' + bytes(part for x in range(30) for part in (x * 8, y * 12, 100)) for y in range(20))
        return b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', header) + chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b'')
";

/// Returns what a terminal is sent for the gradient, where its cells have 10 × 10 pixels.
fn kitty_sequence() -> String {
    format!("\x1b_Ga=T,f=100,t=d,q=2,c=3,m=0;{}\x1b\\\n", STANDARD.encode(gradient().to_png().unwrap()))
}

fn iterm_sequence() -> String {
    let png = gradient().to_png().unwrap();
    let (size, data) = (png.len(), STANDARD.encode(png));
    format!("\x1b]1337;File=inline=1;size={size};width=3;preserveAspectRatio=1:{data}\x07\n")
}

/// From the program in the sandbox to the terminal of each kind, byte for byte: by the tool, as a program, as a cell.
#[test]
fn what_code_draws_is_drawn_in_terminals_that_show_pictures_and_named_in_others() {
    let kitty = "\x1b_Gi=31;OK\x1b\\\x1b[6;10;10t\x1b[?62;c";
    let iterm = "\x1bP>|iTerm2 3.5.10\x1b\\\x1b[6;10;10t\x1b[?64;1;2c";
    let cell = format!("{DRAWING}Picture()");
    let script = format!(
        "{DRAWING}import os\nopen(os.environ['AGENT_DISPLAY_DIR'] + '/g.png', 'wb').write(Picture()._repr_png_())\n"
    );
    for (answers, expected) in
        [(kitty, Some(kitty_sequence())), (iterm, Some(iterm_sequence())), ("\x1b[?1;2c", None)]
    {
        let is_drawn = |text: &str| match &expected {
            Some(sequence) => assert_eq!(text.matches(sequence.as_str()).count(), 1, "{text:?}"),
            None => assert!(!is_picture(text), "{text:?}"),
        };
        let model = endpoint()
            .tool_call("run_code", json!({ "language": "python", "code": cell }))
            .text("Drawn.")
            .start();
        let user = terminal().env(REMOTE.0, REMOTE.1).answering(answers, NOW);
        let mut run = user.endpoint(&model).args(["run", "draw"]).start();
        assert_eq!(run.wait(), 0, "{}", run.screen());
        is_drawn(&output(&run));
        assert!(output(&run).contains("/artifacts/"), "{:?}", output(&run));
        let user = terminal().env(REMOTE.0, REMOTE.1).answering(answers, NOW);
        std::fs::write(user.directory("workspace").join("draw.py"), &script).unwrap();
        let mut code = user.args(["code", "draw.py", "--artifacts", "out"]).start();
        assert_eq!(code.wait(), 0, "{}", code.screen());
        is_drawn(&output(&code));
        assert!(output(&code).contains("    out/g.png"), "{:?}", output(&code));
    }
}

#[test]
fn other_terminals_get_the_name_of_the_picture_and_its_path() {
    let text = shown(with_gradient().answering("\x1b[?62;4;22c", NOW));
    let (_, rest) = text.split_once("plot.png\n").unwrap();
    assert!(rest.starts_with("\x1b[2m    \x1b]8;;file://") && rest.ends_with("\x1b[0m\n"), "{rest:?}");
    assert!(rest.contains("/artifacts/") && rest.lines().count() == 1, "{rest:?}");
}

#[test]
fn a_terminal_that_never_answers_gets_the_name_and_the_path_soon() {
    let terminal = terminal();
    keep(&terminal, &[("plot.png", "image/png", &gradient().to_png().unwrap())]);
    let started = Instant::now();
    let text = shown(terminal);
    assert!(text.contains("plot.png\n") && text.contains("/artifacts/") && !is_picture(&text), "{text:?}");
    assert!(started.elapsed() < Duration::from_secs(30));
}

/// The shell that started the program reads what was typed, and nothing of the answer.
#[test]
fn a_late_answer_is_not_typed_into_the_next_program() {
    let script = format!(
        "{} artifacts show; printf 'type: '; read -r line; printf 'got[%s]' \"$line\"",
        env!("CARGO_BIN_EXE_agent")
    );
    let shell = Builder::of("sh").env(REMOTE.0, REMOTE.1);
    keep(&shell, &[("plot.png", "image/png", &gradient().to_png().unwrap())]);
    let answers = "\x1b_Gi=31;OK\x1b\\\x1b[6;20;10t\x1b[?62;4;22c";
    let mut terminal = shell.answering(answers, Duration::from_millis(1500)).args(["-c", &script]).start();
    terminal.wait_for("type:");
    terminal.type_line("hello");
    assert_eq!(terminal.wait(), 0);
    let text = output(&terminal);
    assert!(text.ends_with("type: hello\ngot[hello]"), "{text:?}");
    assert!(text.contains("plot.png") && !is_picture(&text), "{text:?}");
    assert!(!text.contains("i=31;OK") && !text.contains("[?62"), "the answer was echoed: {text:?}");
}

#[test]
fn nothing_is_asked_and_nothing_drawn_where_nobody_looks_or_nobody_wants_it() {
    let piped = format!("{} artifacts show | cat", env!("CARGO_BIN_EXE_agent"));
    let never = format!("{} artifacts show --images never", env!("CARGO_BIN_EXE_agent"));
    let dumb = format!("TERM=dumb {} artifacts show", env!("CARGO_BIN_EXE_agent"));
    let in_ci = format!("CI=1 {} artifacts show", env!("CARGO_BIN_EXE_agent"));
    for script in [&piped, &never, &dumb, &in_ci] {
        let shell = Builder::of("sh").args(["-c", script]);
        keep(&shell, &[("plot.png", "image/png", &gradient().to_png().unwrap())]);
        let mut terminal = shell.start();
        assert_eq!(terminal.wait(), 0, "{script}");
        let text = output(&terminal);
        assert!(text.starts_with("plot.png\n") && text.contains("/artifacts/"), "{script}: {text:?}");
        assert!(
            !text.contains("\x1b[c") && !is_picture(&text) && !text.contains("\x1b_G"),
            "{script}: {text:?}"
        );
    }
}

#[test]
fn pictures_that_are_always_wanted_are_drawn_into_a_pipe_for_a_terminal_that_is_known_by_its_name() {
    for (term, is_drawn) in [("xterm-kitty", true), ("xterm-256color", false)] {
        let script =
            format!("TERM={term} {} artifacts show --images always | cat", env!("CARGO_BIN_EXE_agent"));
        let shell = Builder::of("sh").args(["-c", &script]);
        keep(&shell, &[("plot.png", "image/png", &gradient().to_png().unwrap())]);
        let mut terminal = shell.start();
        assert_eq!(terminal.wait(), 0);
        let text = output(&terminal);
        assert!(is_picture(&text) == is_drawn && !text.contains("\x1b[c"), "{text:?}");
    }
}

/// The collector calls none of these an image; a session file that was made by somebody else may.
#[test]
fn hostile_images_are_shown_nowhere() {
    let good = gradient().to_png().unwrap();
    let mut huge = good.clone();
    huge[16..24].copy_from_slice(&[0, 0, 200, 0, 0, 0, 200, 0]);
    let mut damaged = good.clone();
    let data = damaged.windows(4).position(|name| name == b"IDAT").unwrap();
    damaged[data + 9] ^= 0xff;
    let escape = b"\x1b_Ga=d\x1b\\\x1b]0;title\x07".to_vec();
    let trailer = [good.clone(), escape.clone()].concat();
    let files: [(&str, &str, &[u8]); 5] = [
        ("huge.png", "image/png", &huge),
        ("cut.png", "image/png", &good[..good.len() - 5]),
        ("damaged.png", "image/png", &damaged),
        ("escape.png", "image/png", &escape),
        ("trailer.png", "image/png", &trailer),
    ];
    for answers in ["\x1b_Gi=31;OK\x1b\\\x1b[?62;c", "\x1bP>|WezTerm 2024\x1b\\\x1b[?62;4c"] {
        let terminal = terminal().env(REMOTE.0, REMOTE.1).answering(answers, NOW);
        keep(&terminal, &files);
        let text = shown(terminal);
        for (name, ..) in files {
            assert!(text.contains(&format!("{name} is not shown: ")), "{text:?}");
        }
        assert!(!is_picture(&text) && !text.contains("title") && !text.contains("\x1b_Ga=d"), "{text:?}");
    }
}

#[test]
fn in_tmux_nothing_leaks_as_text() {
    if !has("tmux", "tmux") {
        return;
    }
    let script = format!("{} artifacts show; printf finished; sleep 100", env!("CARGO_BIN_EXE_agent"));
    let tmux = Builder::of("tmux").env(REMOTE.0, REMOTE.1);
    keep(&tmux, &[("plot.png", "image/png", &gradient().to_png().unwrap())]);
    let socket = tmux.directory("tmux");
    let arguments = ["-u", "-f", "/dev/null", "-S", socket.to_str().unwrap(), "new-session", &script];
    let terminal = tmux.args(arguments).start();
    terminal.wait_for("finished");
    let screen = terminal.screen();
    assert!(screen.starts_with("plot.png\n    /") && screen.contains("/artifacts/"), "{screen}");
    let ended = std::process::Command::new("tmux").arg("-S").arg(&socket).arg("kill-server").status();
    assert!(ended.unwrap().success());
}

#[test]
fn artifacts_are_listed_copied_and_never_overwritten() {
    let terminal = terminal();
    let png = gradient().to_png().unwrap();
    let id = keep(
        &terminal,
        &[
            ("plot.png", "image/png", &png),
            ("plot.png", "image/png", b"other"),
            ("t.csv", "text/csv", b"a,b\n"),
        ],
    );
    let workspace = terminal.directory("workspace");
    let run = |arguments: &[&str]| {
        let mut terminal = terminal.again().args(arguments).start();
        let code = terminal.wait();
        (code, output(&terminal))
    };
    let (code, list) = run(&["artifacts"]);
    assert_eq!((code, list.lines().count()), (0, 3), "{list}");
    assert!(list.lines().nth(2).unwrap().ends_with("  text/csv          t.csv"), "{list}");
    let (code, text) = run(&["artifacts", id.as_str(), "get", "t.csv", "-o", "out/"]);
    assert_eq!((code, text.as_str()), (0, "out/t.csv\n"));
    assert_eq!(std::fs::read(workspace.join("out/t.csv")).unwrap(), b"a,b\n");
    // The later one of the same name has its id in its name.
    let (code, text) = run(&["artifacts", "get"]);
    assert_eq!((code, text.lines().count()), (0, 3), "{text}");
    assert_eq!(std::fs::read(workspace.join("plot.png")).unwrap(), png);
    std::fs::write(workspace.join("t.csv"), "mine").unwrap();
    let (code, text) = run(&["artifacts", "get", "t.csv"]);
    assert!(code == 2 && text.contains("t.csv exists already") && text.contains("--force"), "{text}");
    assert_eq!(std::fs::read(workspace.join("t.csv")).unwrap(), b"mine");
    assert_eq!(run(&["artifacts", "get", "t.csv", "--force"]).0, 0);
    assert_eq!(std::fs::read(workspace.join("t.csv")).unwrap(), b"a,b\n");
    let (code, text) = run(&["artifacts", "get", "none"]);
    assert!(code == 2 && text.contains("has no artifact \"none\""), "{text}");
    let (code, text) = run(&["artifacts", "get", "-o", "file"]);
    assert!(code == 2 && text.contains("3 artifacts do not fit into one file"), "{text}");
    // A file that other programs obey has to be asked for.
    keep(&terminal, &[("package.json", "application/json", b"{}")]);
    let (code, text) = run(&["artifacts", "get"]);
    assert!(code == 2 && text.contains("package.json is not written"), "{text}");
    assert!(!workspace.join("package.json").exists());
    assert_eq!(run(&["artifacts", "get", "package.json"]).0, 0);
}

/// The copy has the ending of the type that was found out, whatever its name was.
#[test]
fn an_artifact_is_opened_by_the_machine_s_opener() {
    let terminal = terminal();
    let png = gradient().to_png().unwrap();
    keep(&terminal, &[("evil.desktop", "image/png", &png), ("x.png", "application/octet-stream", b"?")]);
    let bin = terminal.directory("bin");
    std::fs::create_dir(&bin).unwrap();
    let log = terminal.directory("opened");
    let opener = bin.join("xdg-open");
    std::fs::write(&opener, format!("#!/bin/sh\necho \"$1\" > {}\n", log.display())).unwrap();
    std::fs::set_permissions(&opener, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let run = |name: &str| {
        let mut terminal = terminal.again().env("PATH", &path).args(["artifacts", "open", name]).start();
        (terminal.wait(), output(&terminal))
    };
    assert_eq!(run("evil.desktop"), (0, String::new()));
    let opened = std::fs::read_to_string(&log).unwrap();
    assert!(opened.trim_end().ends_with(".png"), "{opened}");
    assert_eq!(std::fs::read(opened.trim_end()).unwrap(), png);
    let (code, text) = run("x.png");
    assert!(code == 2 && text.contains("x.png is of an unknown type"), "{text}");
}

#[test]
fn an_artifact_of_another_hash_is_not_shown() {
    let terminal = terminal().env(REMOTE.0, REMOTE.1).answering("\x1b_Gi=31;OK\x1b\\\x1b[?62;c", NOW);
    let id = keep(&terminal, &[("plot.png", "image/png", &gradient().to_png().unwrap())]);
    let store = Store::at(terminal.directory("agent").join("data"));
    let stored = std::fs::read_dir(store.dir(&id).join("artifacts")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&stored, Pixels { width: 1, height: 1, rgb: vec![0; 3] }.to_png().unwrap()).unwrap();
    let text = shown(terminal);
    assert!(text.contains("plot.png was changed on disk") && !is_picture(&text), "{text:?}");
}

#[test]
fn in_the_repl_a_picture_is_drawn_again_in_the_size_that_the_terminal_has_now() {
    let model = endpoint().text("Hello.").start();
    let kitty = "\x1b_Gi=31;OK\x1b\\\x1b[?62;c";
    let builder = terminal().endpoint(&model).env(REMOTE.0, REMOTE.1).answering(kitty, NOW);
    let second = builder.again().endpoint(&model).env(REMOTE.0, REMOTE.1).answering(kitty, NOW);
    let mut first = builder.start();
    first.wait_for_prompt();
    first.type_line("hello");
    first.wait_for("Hello.");
    first.wait_for_prompt();
    first.ctrl_d();
    assert_eq!(first.wait(), 0);
    let store = Store::at(second.directory("agent").join("data"));
    let id = store.last(None).unwrap();
    let wide = Pixels { width: 2000, height: 20, rgb: vec![9; 2000 * 20 * 3] };
    let artifacts = Artifacts::of_session(&store.dir(&id), ArtifactLimits::default());
    let artifact = artifacts.add("wide.png", "image/png", &wide.to_png().unwrap()).unwrap();
    let mut file = store.reopen(&id).unwrap().file;
    file.append(&record(file.next_seq(), Event::Artifact { artifact, tool_call: "c".to_owned() })).unwrap();
    drop(file);
    let workspace = second.directory("workspace");
    let mut repl = second.args(["resume", id.as_str()]).start();
    repl.wait_for_prompt();
    repl.type_line("/artifacts");
    repl.wait_for("image/png         wide.png");
    repl.wait_for_prompt();
    for (count, columns) in [(1, 100), (2, 60)] {
        repl.resize(columns);
        repl.type_line("/artifacts show");
        repl.wait_until("the path", |screen| screen.matches("/data/sessions/").count() == count);
        repl.wait_for_prompt();
        let text = output(&repl);
        assert!(text.contains(&format!("\x1b_Ga=T,f=100,t=d,q=2,c={columns},")), "{text:?}");
    }
    repl.type_line("/artifacts get wide.png copy.png");
    repl.wait_for("written: copy.png");
    assert_eq!(std::fs::read(workspace.join("copy.png")).unwrap(), wide.to_png().unwrap());
    repl.type_line("/artifacts get wide.png copy.png");
    repl.wait_for("copy.png exists already");
    repl.wait_for_prompt();
    repl.ctrl_d();
    assert_eq!(repl.wait(), 0);
}

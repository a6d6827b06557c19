//! A file that cannot be parsed, said when it is written. Parsers are used that execute nothing of it, where the sandbox has them.

use agent_sandbox::{Command, Outcome, Program, Sandbox};
use agent_tools::Collector;
use std::path::Path;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Characters of what the parser prints.
const MAX_REPORT: usize = 2_000;

const PYTHON: &str = "import ast, sys, traceback
try:
    ast.parse(open(sys.argv[1], 'rb').read(), sys.argv[1])
except (SyntaxError, ValueError) as error:
    print(''.join(traceback.format_exception_only(type(error), error)))
    sys.exit(1)
except Exception:
    pass";
/// The check of a script: bash takes more than `sh` does.
const SHELL: &str = "command -v bash >/dev/null && exec bash -n \"$0\"; exec sh -n \"$0\"";

/// Extensions, and the command that parses such a file. It ends with another status than 0 if it cannot.
const PARSERS: [(&[&str], &[&str]); 7] = [
    (&["py", "pyi"], &["python3", "-IS", "-W", "ignore", "-c", PYTHON]),
    (&["sh", "bash"], &["sh", "-c", SHELL]),
    (&["cjs", "mjs"], &["node", "--check"]),
    (&["rb"], &["ruby", "-c"]),
    (&["php"], &["php", "-l"]),
    (&["lua"], &["luac", "-p"]),
    (&["go"], &["gofmt", "-l", "-e"]),
];
/// Statuses of a shell for a program that is not there.
const NO_PARSER: [i32; 2] = [126, 127];

/// Returns the reason why the file cannot be parsed, in the parser's words; `None` where it can, or where that is not
/// known.
pub async fn error(sandbox: &Sandbox, path: &str) -> Option<String> {
    let path = sandbox.locate(Path::new(path));
    let extension = path.extension()?.to_str()?;
    let (_, parser) = PARSERS.iter().find(|(extensions, _)| extensions.contains(&extension))?;
    // A file that is not there cannot be parsed either.
    sandbox.stat(&path).await.ok()?;
    let argv = parser.iter().map(|word| (*word).into()).chain([path.into_os_string()]).collect();
    let command = Command {
        program: Program::Argv(argv),
        cwd: None,
        env: Vec::new(),
        timeout: Some(TIMEOUT),
        live_bytes: 64 << 10,
        stdin: false,
    };
    let mut collector = Collector::new(MAX_REPORT);
    // A connection that is broken is reported by the next step.
    let finished = sandbox.run(command, &mut |output| collector.push(output)).await.ok()?;
    let report = collector.finish(None).text.trim().to_owned();
    match finished.outcome {
        Outcome::Exited(0) => None,
        Outcome::Exited(code) if NO_PARSER.contains(&code) => None,
        Outcome::Exited(_) => Some(report).filter(|report| !report.is_empty()),
        _ => None,
    }
}

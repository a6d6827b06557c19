//! An interpreter that is kept from one call to the next: Python or Node, with a small driver of ours (`drivers/`).
//!
//! Requests go to the driver's standard input. What the program prints, on standard output and standard error alike, is the
//! command's standard output, so that it arrives in the order in which it was written; the driver's answers are the
//! command's standard error. Both come from the sandbox and are hostile: an answer has to bear the nonce of its request,
//! and is bounded; anything else ends the interpreter.

use super::Language;
use crate::error::Result;
use crate::event::Stream;
use crate::sandbox::{
    Command, Finished, Outcome, Output, Process, ProcessEvent, Program, Sandbox, wire::CHUNK,
};
use memchr::memmem;
use std::ffi::OsString;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How long a program has to end after an interrupt.
const GRACE: Duration = Duration::from_secs(2);
/// How long the end of the output may take to arrive after the answer.
const REST: Duration = Duration::from_secs(2);
/// The longest text of an answer, in bytes.
const MAX_TEXT: usize = 256 << 10;
/// The longest first line of an answer.
const MAX_HEADER: usize = 128;
/// Stands on both sides of the nonce that ends a cell's output.
const MARK: u8 = 0x1e;
/// The driver's exit code when the program has closed its descriptors.
const CHANNEL_CLOSED: i32 = 70;

const PYTHON: &str = include_str!("drivers/python.py");
const JAVASCRIPT: &str = include_str!("drivers/javascript.js");

/// A running interpreter.
pub struct Interpreter {
    language: Language,
    process: Process,
    /// What has arrived of answers.
    answers: Vec<u8>,
    /// Output behind the mark of the last cell: of threads and of processes in the background.
    early: Vec<u8>,
}

/// One cell.
pub struct Cell<'a> {
    /// The code.
    pub code: &'a str,
    /// The directory for what is shown, in the sandbox.
    pub display: &'a str,
    /// Whether libraries were installed since the last cell.
    pub has_new_libraries: bool,
    /// The time limit.
    pub timeout: Duration,
}

/// How a cell ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The interpreter answered, and can run the next cell.
    Answered {
        /// What it said.
        answer: Answer,
        /// Whether it was interrupted at the time limit.
        timed_out: bool,
    },
    /// The interpreter is gone, and its state with it.
    Gone(Gone),
}

/// Why an interpreter is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gone {
    /// Its process ended.
    Ended(Finished),
    /// It did not end when it was interrupted at the time limit, and was killed.
    Killed,
    /// What it answered is not an answer.
    Garbage,
}

impl Ended {
    /// Whether the program closed the descriptors that the interpreter is driven by.
    pub fn is_closed_channel(&self) -> bool {
        matches!(self, Self::Gone(Gone::Ended(finished)) if finished.outcome == Outcome::Exited(CHANNEL_CLOSED))
    }
}

/// The driver's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// How the code ended.
    pub status: Status,
    /// The exit code that a program would have had.
    pub exit_code: u8,
    /// The value of a last expression; empty where there is none.
    pub value: String,
    /// The exception with its traceback.
    pub error: String,
}

/// How a cell's code ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It came to its end.
    Ok,
    /// It asked for the end of the program, which is the end of the cell.
    Exit,
    /// An exception ended it.
    Error,
    /// An interrupt ended it.
    Interrupted,
}

impl Interpreter {
    /// Starts one with these further variables. It is not waited for: errors show with the first cell.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn start(
        sandbox: &Sandbox,
        language: Language,
        env: Vec<(OsString, OsString)>,
    ) -> Result<Self> {
        let (driver, argv) = match language {
            Language::JavaScript => (JAVASCRIPT, node()),
            _ => (PYTHON, python()),
        };
        let command = Command {
            program: Program::Argv(argv.into_iter().map(OsString::from).collect()),
            cwd: None,
            env,
            timeout: None,
            live_bytes: u64::MAX,
            stdin: true,
        };
        let process = sandbox.spawn(command).await?;
        // One that has ended already shows that with the first cell.
        let _ = process.write_stdin(driver.as_bytes()).await;
        Ok(Self { language, process, answers: Vec::new(), early: Vec::new() })
    }

    /// The language.
    pub fn language(&self) -> Language {
        self.language
    }

    /// Runs a cell to its end. Where the future is dropped, [`Interpreter::recover`] has to be called before the next one.
    ///
    /// # Errors
    /// The interpreter could not be started.
    pub async fn run(
        &mut self,
        cell: &Cell<'_>,
        nonce: &str,
        on_output: &mut (dyn FnMut(Output<'_>) + Send),
    ) -> Result<Ended> {
        let flags = u8::from(cell.has_new_libraries);
        let (display, code) = (cell.display.as_bytes(), cell.code.as_bytes());
        let mut request = format!("{nonce} {flags} {} {}\n", display.len(), code.len()).into_bytes();
        request.extend_from_slice(display);
        request.extend_from_slice(code);
        let early = std::mem::take(&mut self.early);
        if !early.is_empty() {
            on_output(Output::Data(Stream::Stdout, &early));
        }
        let deadline = Instant::now().checked_add(cell.timeout);
        self.follow(&request, nonce, deadline, on_output).await
    }

    /// Ends a cell whose future was dropped: interrupts the program and waits for its answer. Whether the interpreter can run
    /// the next cell.
    pub async fn recover(&mut self, nonce: &str) -> bool {
        let ended = self.follow(&[], nonce, Some(Instant::now()), &mut |_| {}).await;
        matches!(ended, Ok(Ended::Answered { .. }))
    }

    /// Kills it at once.
    pub fn kill(self) {
        self.process.signal(libc::SIGKILL);
    }

    /// Sends the request and reads until the answer and the mark are there.
    async fn follow(
        &mut self,
        request: &[u8],
        nonce: &str,
        deadline: Option<Instant>,
        on_output: &mut (dyn FnMut(Output<'_>) + Send),
    ) -> Result<Ended> {
        let mut mark = Mark::new(nonce);
        let mut answer = None;
        let mut limit = deadline;
        let mut interrupted = false;
        // In pieces, because a program that prints without being read reads nothing either.
        let mut pieces = request.chunks(CHUNK);
        let mut sending = pieces.next();
        loop {
            let process = &mut self.process;
            let event = tokio::select! {
                biased;
                () = at(limit) => None,
                event = next(process, &mut sending) => Some(event?),
            };
            match event {
                None if answer.is_some() => {}
                // It does not even read what it should run.
                None if sending.is_some() => return Ok(Ended::Gone(Gone::Killed)),
                None if interrupted => return Ok(Ended::Gone(Gone::Killed)),
                None => {
                    self.process.signal(libc::SIGINT);
                    interrupted = true;
                    limit = Instant::now().checked_add(GRACE);
                    continue;
                }
                Some(Step::Sent) => sending = pieces.next(),
                Some(Step::Event(ProcessEvent::Output(Stream::Stdout, bytes))) => {
                    mark.take(&bytes, on_output)
                }
                Some(Step::Event(ProcessEvent::Output(Stream::Stderr, bytes))) => {
                    self.answers.extend_from_slice(&bytes);
                }
                Some(Step::Event(ProcessEvent::Gap(bytes))) => on_output(Output::Gap(bytes)),
                Some(Step::Event(ProcessEvent::Finished(finished))) => {
                    mark.give_up(on_output);
                    return Ok(Ended::Gone(Gone::Ended(finished)));
                }
            }
            if answer.is_none() {
                match parse(&mut self.answers, nonce) {
                    Err(Garbage) => {
                        mark.give_up(on_output);
                        // An interpreter that is interrupted while it starts prints its own traceback there.
                        let gone = if interrupted { Gone::Killed } else { Gone::Garbage };
                        return Ok(Ended::Gone(gone));
                    }
                    Ok(Some(found)) => {
                        answer = Some(found);
                        limit = Instant::now().checked_add(REST);
                    }
                    Ok(None) => {}
                }
            }
            // The mark was written before the answer. Without it, the program has taken the descriptor away.
            let is_over = mark.is_found || limit.is_some_and(|limit| limit <= Instant::now());
            if let Some(answer) = answer.take_if(|_| is_over) {
                mark.give_up(on_output);
                self.early = std::mem::take(&mut mark.behind);
                return Ok(Ended::Answered { answer, timed_out: interrupted });
            }
        }
    }
}

/// What happens next to the process.
enum Step {
    Sent,
    Event(ProcessEvent),
}

async fn next(process: &mut Process, sending: &mut Option<&[u8]>) -> Result<Step> {
    let Some(piece) = *sending else { return Ok(Step::Event(process.next().await?)) };
    // Whatever arrives meanwhile waits in its window: the driver reads a whole request before it runs anything.
    match process.write_stdin(piece).await {
        Ok(()) => Ok(Step::Sent),
        Err(_) => {
            *sending = None;
            Ok(Step::Event(process.next().await?))
        }
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The driver is read from standard input, so that the list of processes stays readable. The descriptors get numbers that
/// a program does not come upon by counting, and are closed in what it starts.
fn python() -> Vec<String> {
    let first = fastrand::u16(200..900);
    let [channel, output, requests] = [0, 1, 2].map(|n| first + 7 * n);
    let start = format!(
        "import os\nchannel,output,requests=[os.dup2(f,t,False)for f,t in((2,{channel}),(1,{output}),(0,{requests}))]\n\
         requests=os.fdopen(requests,'rb')\n\
         exec(compile(requests.read({}),'<agent>','exec'))",
        PYTHON.len()
    );
    ["python3", "-c", &start].map(str::to_owned).into()
}

/// Node cannot change its standard streams; the shell does it before.
fn node() -> Vec<String> {
    let start = format!(
        "{{const f=require('fs'),b=Buffer.alloc({});for(let n=0;n<b.length;)n+=f.readSync(3,b,n,b.length-n,null);\
         globalThis.require=require;\
         require('vm').runInThisContext(b.toString(),{{filename:'agent-driver'}})((name)=>import(name))}}",
        JAVASCRIPT.len()
    );
    let shell = "exec 3<&0 4>&2 </dev/null 2>&1; exec node -e \"$0\"";
    ["sh", "-c", shell, &start].map(str::to_owned).into()
}

/// Finds the mark that ends a cell's output, and passes on what is before it.
struct Mark {
    mark: Vec<u8>,
    /// What may be the beginning of the mark.
    held: Vec<u8>,
    is_found: bool,
    behind: Vec<u8>,
}

impl Mark {
    fn new(nonce: &str) -> Self {
        let mark = [&[MARK], nonce.as_bytes(), &[MARK]].concat();
        Self { mark, held: Vec::new(), is_found: false, behind: Vec::new() }
    }

    fn take(&mut self, bytes: &[u8], on_output: &mut (dyn FnMut(Output<'_>) + Send)) {
        if self.is_found {
            self.behind.extend_from_slice(bytes);
            return;
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let pass = match memmem::find(&all, &self.mark) {
            Some(at) => {
                self.is_found = true;
                self.behind = all.split_off(at + self.mark.len());
                at
            }
            None => {
                let tail = all.len().saturating_sub(self.mark.len() - 1);
                let begin = memchr::memchr(MARK, &all[tail..]).map_or(all.len(), |at| tail + at);
                let begin = if self.mark.starts_with(&all[begin..]) { begin } else { all.len() };
                self.held = all[begin..].to_vec();
                begin
            }
        };
        if pass > 0 {
            on_output(Output::Data(Stream::Stdout, &all[..pass]));
        }
    }

    /// There is no mark to come: what was held back is output.
    fn give_up(&mut self, on_output: &mut (dyn FnMut(Output<'_>) + Send)) {
        if !self.held.is_empty() {
            on_output(Output::Data(Stream::Stdout, &std::mem::take(&mut self.held)));
        }
    }
}

/// Something that is not an answer.
#[derive(Debug, PartialEq, Eq)]
struct Garbage;

/// Takes an answer out of what has arrived; `None` while it is not whole.
fn parse(arrived: &mut Vec<u8>, nonce: &str) -> std::result::Result<Option<Answer>, Garbage> {
    let Some(end) = memchr::memchr(b'\n', arrived) else {
        return if arrived.len() > MAX_HEADER { Err(Garbage) } else { Ok(None) };
    };
    let header = std::str::from_utf8(&arrived[..end]).map_err(|_| Garbage)?;
    let fields: Vec<&str> = header.split(' ').collect();
    let [found, status, exit_code, value, error] = fields[..] else { return Err(Garbage) };
    let status = match status {
        "ok" => Status::Ok,
        "exit" => Status::Exit,
        "error" => Status::Error,
        "interrupted" => Status::Interrupted,
        _ => return Err(Garbage),
    };
    let exit_code = exit_code.parse().map_err(|_| Garbage)?;
    let length = |text: &str| text.parse().ok().filter(|length| *length <= MAX_TEXT).ok_or(Garbage);
    let (value, error): (usize, usize) = (length(value)?, length(error)?);
    if found != nonce {
        return Err(Garbage);
    }
    let (begin, whole) = (end + 1, end + 1 + value + error);
    if arrived.len() < whole {
        return Ok(None);
    }
    // There is one answer to each request.
    if arrived.len() > whole {
        return Err(Garbage);
    }
    let text = |from: usize, to: usize| String::from_utf8_lossy(&arrived[from..to]).into_owned();
    let answer =
        Answer { status, exit_code, value: text(begin, begin + value), error: text(begin + value, whole) };
    arrived.clear();
    Ok(Some(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output_of(pieces: &[&[u8]]) -> (String, bool, String) {
        let mut mark = Mark::new("abc");
        let mut printed = Vec::new();
        let mut on_output = |output: Output<'_>| {
            if let Output::Data(_, bytes) = output {
                printed.extend_from_slice(bytes);
            }
        };
        pieces.iter().for_each(|piece| mark.take(piece, &mut on_output));
        mark.give_up(&mut on_output);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&printed), mark.is_found, text(&mark.behind))
    }

    #[test]
    fn the_mark_is_found_wherever_the_output_is_cut() {
        let whole = b"one\x1e two\x1eabc\x1ethree";
        for cut in 0..whole.len() {
            let (a, b) = whole.split_at(cut);
            assert_eq!(output_of(&[a, b]), ("one\x1e two".into(), true, "three".into()), "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(output_of(&bytes), ("one\x1e two".into(), true, "three".into()));
        assert_eq!(output_of(&[b"no mark \x1eab"]), ("no mark \x1eab".into(), false, String::new()));
    }

    #[test]
    fn an_answer_is_taken_when_it_is_whole() {
        let whole = b"n1 error 1 2 3\nabxyz";
        let answer = Answer { status: Status::Error, exit_code: 1, value: "ab".into(), error: "xyz".into() };
        for cut in 0..whole.len() {
            assert_eq!(parse(&mut whole[..cut].to_vec(), "n1"), Ok(None), "cut at {cut}");
        }
        let mut arrived = whole.to_vec();
        assert_eq!(parse(&mut arrived, "n1"), Ok(Some(answer)));
        assert!(arrived.is_empty());
    }

    #[test]
    fn anything_else_is_not_an_answer() {
        for garbage in [
            "\n",
            "n2 ok 0 0 0\n",
            "n1 ok 0 0 0\nmore",
            "n1 ok 0 0\n",
            "n1 fine 0 0 0\n",
            "n1 ok 300 0 0\n",
            "n1 ok 0 99999999999 0\n",
            "n1 ok 0 -1 0\n",
        ] {
            assert_eq!(parse(&mut garbage.as_bytes().to_vec(), "n1"), Err(Garbage), "{garbage:?}");
        }
        assert_eq!(parse(&mut vec![b'x'; 1000], "n1"), Err(Garbage));
    }
}

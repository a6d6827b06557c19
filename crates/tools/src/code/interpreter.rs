//! An interpreter that is kept from one call to the next: Python or Node, with a small driver of ours (`drivers/`).
//!
//! Requests go to the driver's standard input. What the program prints, on standard output and standard error alike, is the
//! command's standard output, so that it arrives in the order in which it was written; the driver's answers are the
//! command's standard error. Both come from the sandbox and are hostile: an answer has to bear the nonce of its request,
//! and is bounded; anything else ends the interpreter.

use super::Language;
use super::answer::{Answer, Garbage, Mark, parse, take_ready};
use agent_base::error::Result;
use agent_event::Stream;
use agent_sandbox::{Command, Finished, Outcome, Output, Process, ProcessEvent, Program, Sandbox};
use std::ffi::OsString;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The time that a program has to end after an interrupt. It gets two of them, because one that comes between two cells
/// is lost.
const GRACE: Duration = Duration::from_secs(1);
const INTERRUPTS: u32 = 2;
/// The time limit for the end of the output to arrive after the answer.
const REST: Duration = Duration::from_secs(2);
/// The most that is taken of what is printed before the driver starts.
const MAX_BEFORE: usize = 64 << 10;
/// The driver's exit code when the program has closed its descriptors.
const CHANNEL_CLOSED: i32 = 70;

const PYTHON: &str = concat!(include_str!("drivers/notebook.py"), "\n", include_str!("drivers/python.py"));
const JAVASCRIPT: &str = include_str!("drivers/javascript.js");

/// A running interpreter.
pub struct Interpreter {
    language: Language,
    process: Process,
    /// Set if the driver has started.
    is_ready: bool,
    /// The bytes of answers that have arrived.
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
    /// Set if libraries were installed since the last cell.
    pub has_new_libraries: bool,
    /// Set if what is shown is for a notebook: see [`super::Request::is_notebook`].
    pub is_notebook: bool,
    /// The time limit.
    pub timeout: Duration,
}

/// The outcome of running a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The interpreter answered, and can run the next cell.
    Answered {
        /// Its answer.
        answer: Answer,
        /// Set if it was interrupted at the time limit.
        timed_out: bool,
    },
    /// The interpreter is gone, and its state with it.
    Gone(Gone),
}

/// The reason why an interpreter is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gone {
    /// It had not started, and has run nothing: its process ended, or was killed at the time limit.
    NotStarted(Option<Finished>),
    /// Its process ended.
    Ended(Finished),
    /// It did not end when it was interrupted at the time limit, and was killed.
    Killed,
    /// An answer that is not one.
    Garbage,
}

impl Ended {
    /// Returns whether the program closed the descriptors that the interpreter is driven by.
    pub fn is_closed_channel(&self) -> bool {
        matches!(self, Self::Gone(Gone::Ended(finished)) if finished.outcome == Outcome::Exited(CHANNEL_CLOSED))
    }
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
        Ok(Self { language, process, is_ready: false, answers: Vec::new(), early: Vec::new() })
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
        let flags = u8::from(cell.has_new_libraries) | u8::from(cell.is_notebook) << 1;
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

    /// Ends a cell whose future was dropped: interrupts the program and waits for its answer.
    ///
    /// # Errors
    /// Why the interpreter cannot run another cell.
    pub async fn recover(&mut self, nonce: &str) -> std::result::Result<(), Gone> {
        match self.follow(&[], nonce, Some(Instant::now()), &mut |_| {}).await {
            Ok(Ended::Answered { .. }) => Ok(()),
            Ok(Ended::Gone(gone)) => Err(gone),
            Err(_) => Err(Gone::Killed),
        }
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
        let mut interrupts = 0;
        // Beside the reading, because a program that prints without being read reads nothing either.
        let controls = self.process.controls();
        let mut sending = pin!(controls.write(request));
        let mut is_sent = request.is_empty();
        loop {
            let event = tokio::select! {
                biased;
                () = at(limit) => None,
                // One that has ended shows that next.
                _ = &mut sending, if !is_sent => {
                    is_sent = true;
                    continue;
                }
                event = self.process.next() => Some(event?),
            };
            match event {
                None if answer.is_some() => {}
                None if !self.is_ready => return Ok(Ended::Gone(Gone::NotStarted(None))),
                // It does not even read what it should run.
                None if !is_sent => return Ok(Ended::Gone(Gone::Killed)),
                None if interrupts == INTERRUPTS => return Ok(Ended::Gone(Gone::Killed)),
                None => {
                    self.process.signal(libc::SIGINT);
                    interrupts += 1;
                    limit = Instant::now().checked_add(GRACE);
                    continue;
                }
                Some(ProcessEvent::Output(Stream::Stdout, bytes)) => mark.take(&bytes, on_output),
                Some(ProcessEvent::Output(Stream::Stderr, bytes)) => {
                    self.answers.extend_from_slice(&bytes);
                }
                Some(ProcessEvent::Gap(bytes)) => on_output(Output::Gap(bytes)),
                Some(ProcessEvent::Finished(finished)) => {
                    mark.give_up(on_output);
                    return Ok(Ended::Gone(self.ended(finished, on_output)));
                }
            }
            if !self.has_started(on_output) {
                continue;
            }
            if answer.is_none() {
                match parse(&mut self.answers, nonce) {
                    Err(Garbage) => {
                        mark.give_up(on_output);
                        return Ok(Ended::Gone(Gone::Garbage));
                    }
                    Ok(Some(found)) => (answer, limit) = (Some(found), Instant::now().checked_add(REST)),
                    Ok(None) => {}
                }
            }
            // The mark was written before the answer. Without it, the program has taken the descriptor away.
            let is_over = mark.is_found || limit.is_some_and(|limit| limit <= Instant::now());
            if let Some(answer) = answer.take_if(|_| is_over) {
                mark.give_up(on_output);
                self.early = std::mem::take(&mut mark.behind);
                return Ok(Ended::Answered { answer, timed_out: interrupts > 0 });
            }
        }
    }

    /// Returns whether the driver runs. What was printed before is passed on: it is nobody's answer.
    fn has_started(&mut self, on_output: &mut (dyn FnMut(Output<'_>) + Send)) -> bool {
        if !self.is_ready {
            if let Some(before) = take_ready(&mut self.answers) {
                self.is_ready = true;
                on_output(Output::Data(Stream::Stdout, &before));
            } else {
                self.answers.drain(..self.answers.len().saturating_sub(MAX_BEFORE));
            }
        }
        self.is_ready
    }

    fn ended(&mut self, finished: Finished, on_output: &mut (dyn FnMut(Output<'_>) + Send)) -> Gone {
        if self.is_ready {
            return Gone::Ended(finished);
        }
        on_output(Output::Data(Stream::Stdout, &std::mem::take(&mut self.answers)));
        Gone::NotStarted(Some(finished))
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

//! `agent review`: a model looks for defects in a change, and writes none of its own.

mod change;
mod finding;
mod report;

use crate::cli::config::Config;
use crate::cli::console::Console;
use crate::cli::endpoint::{self, Connected};
use crate::cli::open::{StartingPoint, drive, open};
use crate::cli::options::{Options, PromptLimitArgs, RecordArg, ReplayArg, WorkArgs};
use crate::cli::print;
use crate::cli::signals::with_signals;
use crate::count_text::counted;
use crate::error::{Error, Kind, Result};
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::sandbox::Sandbox;
use crate::session::{AnswerSchema, Frontend, Session};
use crate::workspace::Mode;
use change::Change;
use clap::{Args, ValueEnum};
use finding::Severity;
use report::Report;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  agent review                         the branch since it left the default branch, with what is not committed
  agent review HEAD~3                  since this commit
  agent review --severity warning      end with 6 if a finding is a warning or an error
  agent review --format sarif main > review.sarif

Nothing is changed: the workspace is read-only in the sandbox. Findings whose file or line is not in the tree are left out.

Exit codes: 0 reviewed; 6 a finding is at least as bad as --severity says; others as for `agent run`";

/// `agent review`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReviewArgs {
    /// The commit, branch or tag that the change is compared with, from where they parted (default: the default branch)
    base: Option<String>,
    /// How the findings are printed
    #[arg(long, value_enum, default_value_t = Format::Text, help_heading = "Review")]
    format: Format,
    /// End with 6 if a finding is at least this bad
    #[arg(long, value_enum, value_name = "LEVEL", help_heading = "Review")]
    severity: Option<Severity>,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    limits: PromptLimitArgs,
    #[command(flatten)]
    record: RecordArg,
    #[command(flatten)]
    replay: ReplayArg,
}

/// The form of the findings on standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// FILE:LINE: LEVEL: what is wrong
    Text,
    /// One JSON object
    Json,
    /// SARIF 2.1.0, for code scanning
    Sarif,
}

/// Reviews the change, and prints what was found.
pub async fn review(machine: &Arc<Machine>, arguments: ReviewArgs) -> ExitCode {
    let ReviewArgs { base, format, severity, work, limits, record, replay } = arguments;
    let options = &Options::of(&[&work, &limits, &record, &replay]);
    drive(options, Console::without_answers(machine, options), async |console, slot| {
        if options.copy.workspace_mode == Some(Mode::Bind) {
            return Err(Error::usage(
                "--workspace-mode bind has no effect on a review, which changes nothing",
            )
            .hint("leave it out"));
        }
        let mut config = Config::load(machine, options)?;
        // Nothing is changed in directories beside the workspace either.
        let added =
            [&mut config.options.copy.add_dir, &mut config.file.workspace.add_dir].into_iter().flatten();
        added.filter(|directory| !directory.ends_with(":ro")).for_each(|directory| directory.push_str(":ro"));
        let schema = AnswerSchema::new(finding::schema()).map_err(Error::unexpected)?;
        let Connected { mut settings, notices } = endpoint::model(&mut config, None).await?;
        settings.answer_schema = Some(schema.value().clone());
        let session = slot.insert(open(&config, settings, StartingPoint::Workspace, console).await?);
        console.notices(notices)?;
        let report = with_signals(session.conversation.interrupt(), async {
            let sandbox = session.sandbox().await?;
            let change = Change::find(&sandbox, base.as_deref()).await?;
            find_defects(&change, &schema, &sandbox, session, console).await
        })
        .await?;
        console.screen.settle()?;
        match format {
            Format::Text => print::offer(report.text().as_bytes())?,
            Format::Json => print::json_line(&report.json())?,
            Format::Sarif => print::json_line(&report.sarif())?,
        }
        judge(&report, severity)
    })
    .await
}

/// Has the model look at the change, where there is one, without a way to change anything.
async fn find_defects(
    change: &Change,
    schema: &AnswerSchema,
    sandbox: &Sandbox,
    session: &mut Session,
    console: &Console,
) -> Result<Report> {
    let model = session.conversation.model_name().to_owned();
    let mut report = Report { base: change.base.clone(), model, findings: Vec::new(), dropped: 0 };
    if change.is_empty() {
        console.always_notice(format!("nothing has changed since {}", change.base))?;
        return Ok(report);
    }
    session.keep_read_only().await?;
    let text = session.prompt_of_program(&schema.in_prompt(&change.prompt())).await?.text;
    let answer = session.satisfy(schema, text).await?;
    let (findings, notices) = finding::findings(&answer, sandbox).await?;
    report.dropped = notices.len();
    notices.into_iter().try_for_each(|notice| console.always_notice(notice))?;
    report.findings = findings;
    Ok(report)
}

/// # Errors
/// `Check` where a finding is at least as bad as the call allows.
fn judge(report: &Report, severity: Option<Severity>) -> Result<()> {
    let Some(least) = severity else { return Ok(()) };
    let bad = report.findings.iter().filter(|finding| finding.severity >= least).count();
    match bad {
        0 => Ok(()),
        bad => Err(Error::new(
            Kind::Check,
            format!("{} of severity {} or above", counted(bad, "finding"), least.name()),
        )),
    }
}

//! `agent man`.

use crate::cli::print::offer;
use crate::cli::ui::json::output_error;
use crate::error::Result;
use crate::exit_code::ExitCode;
use clap_mangen::Man;

/// Prints the manual page of `program`, in roff: the program, and the options of each command.
pub fn man(mut program: clap::Command) -> Result<ExitCode> {
    program.build();
    let page = Man::new(program.clone());
    let mut roff = Vec::new();
    page.render(&mut roff).map_err(output_error)?;
    for command in program.get_subcommands().filter(|command| command.get_name() != "help") {
        let heading = command.get_display_name().unwrap_or_else(|| command.get_name()).replace('-', " ");
        roff.extend_from_slice(format!(".SH {}\n", heading.to_uppercase()).as_bytes());
        let page = Man::new(command.clone());
        page.render_description_section(&mut roff).map_err(output_error)?;
        page.render_options_section(&mut roff).map_err(output_error)?;
    }
    offer(&roff)?;
    Ok(ExitCode::Success)
}

//! Where other programs keep their servers.

use crate::cli::config::servers::foreign::{FoundServer, Variables, of_entries, of_json};
use crate::error::{Error, Result};
use crate::plain_file::{self, Links};
use clap::ValueEnum;
use serde_json::Value;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The largest file that is read, in bytes: Claude Code keeps much else in its own.
const MAX_BYTES: u64 = 64 << 20;

/// A program whose servers can be taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// Claude Code: ~/.claude.json, also what it has for this directory
    Claude,
    /// VS Code: mcp.json of the user's profile, .vscode/mcp.json
    Vscode,
    /// Cursor: ~/.cursor/mcp.json, .cursor/mcp.json
    Cursor,
    /// Codex: ~/.codex/config.toml
    Codex,
    /// Gemini CLI: ~/.gemini/settings.json
    Gemini,
}

/// A file and its servers.
pub struct ServersFile {
    pub path: PathBuf,
    /// Set if it is a file of the workspace, which may be anybody's.
    pub is_of_workspace: bool,
    pub found: Vec<FoundServer>,
}

/// The files of a program that exist, with their servers. Those of the workspace are not the user's.
///
/// # Errors
/// A file cannot be read.
pub fn sources(program: Program, home: &Path, workspace: &Path) -> Result<Vec<ServersFile>> {
    let (own, theirs) = (Variables::ByName, Variables::Refused);
    let files: Vec<(PathBuf, Variables)> = match program {
        Program::Claude => vec![(home.join(".claude.json"), own)],
        Program::Vscode => vec![
            (home.join(".config/Code/User/mcp.json"), own),
            (home.join("Library/Application Support/Code/User/mcp.json"), own),
            (workspace.join(".vscode/mcp.json"), theirs),
        ],
        Program::Cursor => {
            vec![(home.join(".cursor/mcp.json"), own), (workspace.join(".cursor/mcp.json"), theirs)]
        }
        Program::Codex => vec![(home.join(".codex/config.toml"), own)],
        Program::Gemini => vec![(home.join(".gemini/settings.json"), own)],
    };
    let mut sources = Vec::new();
    for (path, variables) in files {
        let links = if variables == own { Links::Follow } else { Links::Refuse };
        let text = match plain_file::read(&path, MAX_BYTES, links) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
            Err(error) => {
                return Err(Error::config(format!("{} cannot be read", path.display())).caused_by(error));
            }
        };
        let found = read(program, &text, variables, workspace)
            .map_err(|error| Error::config(format!("{}: {error}", path.display())))?;
        let is_of_workspace = variables == theirs;
        sources.push(ServersFile { path, is_of_workspace, found });
    }
    Ok(sources)
}

fn read(program: Program, text: &str, variables: Variables, workspace: &Path) -> Result<Vec<FoundServer>> {
    match program {
        Program::Claude => claude(text, workspace),
        Program::Vscode => of_json(text, "servers", variables),
        Program::Codex => {
            let table: toml::Table =
                toml::from_str(text).map_err(|error| Error::config(error.to_string()))?;
            let servers = table.get("mcp_servers").map(serde_json::to_value).transpose()?;
            let none = serde_json::Map::new();
            let servers = servers.as_ref().and_then(Value::as_object).unwrap_or(&none);
            Ok(of_entries(servers, variables))
        }
        Program::Cursor | Program::Gemini => match of_json(text, "mcpServers", variables) {
            // The file is for other settings too.
            Err(error) if program == Program::Gemini && error.to_string().contains("no object") => {
                Ok(Vec::new())
            }
            found => found,
        },
    }
}

/// Those for all directories, and those for this one.
fn claude(text: &str, workspace: &Path) -> Result<Vec<FoundServer>> {
    let settings: Value =
        serde_json::from_str(text).map_err(|error| Error::config("it is not valid JSON").caused_by(error))?;
    let here = settings.get("projects").and_then(|projects| projects.get(workspace.to_str()?));
    let tables =
        [here, Some(&settings)].into_iter().flatten().filter_map(|of| of.get("mcpServers")?.as_object());
    let mut found: Vec<FoundServer> = Vec::new();
    for server in tables.flat_map(|table| of_entries(table, Variables::ByName)) {
        if !found.iter().any(|other| other.name == server.name) {
            found.push(server);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_each_program_are_found() {
        let place = tempfile::tempdir().unwrap();
        let (home, workspace) = (place.path().join("home"), place.path().join("work"));
        let write = |path: PathBuf, text: &str| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let server = |name: &str| format!("{{\"{name}\": {{\"command\": \"x\"}}}}");
        write(
            home.join(".claude.json"),
            &format!(
                "{{\"mcpServers\": {}, \"projects\": {{\"{}\": {{\"mcpServers\": {}}}}}}}",
                server("all"),
                workspace.display(),
                server("here")
            ),
        );
        write(home.join(".config/Code/User/mcp.json"), &format!("{{\"servers\": {},}}", server("profile")));
        write(workspace.join(".vscode/mcp.json"), &format!("{{\"servers\": {}}}", server("folder")));
        write(home.join(".cursor/mcp.json"), &format!("{{\"mcpServers\": {}}}", server("cursor")));
        write(
            home.join(".codex/config.toml"),
            "model = \"m\"\n[mcp_servers.docs]\nurl = \"https://a.example/mcp\"\n",
        );
        write(home.join(".gemini/settings.json"), "{\"theme\": \"dark\"}");
        let names = |program| -> Vec<String> {
            let sources = sources(program, &home, &workspace).unwrap();
            sources.into_iter().flat_map(|source| source.found).map(|found| found.name).collect()
        };
        assert_eq!(names(Program::Claude), ["here", "all"]);
        assert_eq!(names(Program::Vscode), ["profile", "folder"]);
        assert_eq!(names(Program::Cursor), ["cursor"]);
        assert_eq!(names(Program::Codex), ["docs"]);
        assert!(names(Program::Gemini).is_empty());
        std::fs::write(home.join(".cursor/mcp.json"), "{").unwrap();
        assert!(sources(Program::Cursor, &home, &workspace).is_err());
    }
}

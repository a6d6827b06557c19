//! The names by which the model calls the tools of servers.

use agent_base::hash::Hash;

/// The longest name that every endpoint takes.
const MAX_NAME: usize = 64;
/// Bytes of the hash in a name that could not stay as it is.
const HASH_BYTES: usize = 6;

/// `mcp__server__tool`. It depends on nothing but the two names, so that it stays the same whatever else there is. A name that is too long
/// or has other characters than endpoints take gets a hash at its end.
pub fn tool_name(server: &str, tool: &str) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let clean: String = tool.chars().map(|c| if is_valid(c) { c } else { '_' }).collect();
    let name = format!("mcp__{server}__{clean}");
    if clean == tool && name.len() <= MAX_NAME && !tool.is_empty() {
        return name;
    }
    let hash = Hash::of(format!("{server}\0{tool}")).short(HASH_BYTES);
    // All of it is ASCII.
    let kept = name.len().min(MAX_NAME - 1 - hash.len());
    format!("{}_{hash}", &name[..kept])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_every_endpoint_and_no_other_tool_has_it() {
        assert_eq!(tool_name("git", "git_status"), "mcp__git__git_status");
        let long = tool_name("server", &"x".repeat(200));
        assert_eq!(long.len(), 64);
        assert_ne!(long, tool_name("server", &"x".repeat(201)));
        let (dot, slash) = (tool_name("s", "a.b"), tool_name("s", "a/b"));
        assert_ne!(dot, slash);
        for name in [&long, &dot, &slash, &tool_name("s", "größe"), &tool_name("s", "")] {
            assert!(
                name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
            );
        }
    }
}

//! The names of programs.

/// Returns whether the program is the named one, wherever it lies and whatever version its name ends in.
pub fn is_program(program: &str, name: &str) -> bool {
    let base = base_name(program);
    base == name || without_version(base) == name
}

/// The last component of a path.
pub fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// `python3.12` → `python`, `gcc-14` → `gcc`.
pub fn without_version(base: &str) -> &str {
    let name = base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if name.len() < base.len() { name.trim_end_matches('-') } else { name }
}

//! Making results comparable: values that differ in every run are replaced by placeholders.

use regex_lite::Regex;
use std::borrow::Cow;
use std::sync::LazyLock;

const RULES: [(&str, &str); 12] = [
    // 2026-11-20T15:30:12.345Z, 2026-11-20 15:30:12 +0100, 2026-11-20
    (r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?( ?(Z|[+-]\d\d:?\d\d))?)?", "<time>"),
    // Fri Nov 20 15:30:12 UTC 2026, Fri, 20 Nov 2026 15:30:12 GMT
    (
        r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +([A-Z][a-z]{2} +\d{1,2}|\d{1,2} +[A-Z][a-z]{2} +\d{4}) +\d\d:\d\d:\d\d( [A-Z]{2,5}| [+-]\d{4})?( \d{4})?",
        "<time>",
    ),
    // As in `ls -l`: Nov 20 15:30, Nov 20  2026
    (r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d{1,2} +(\d\d:\d\d|\d{4})\b", "<time>"),
    // 15:30:12.345
    (r"\b\d{1,2}:\d\d:\d\d([.,]\d+)?\b", "<time>"),
    // 0m0.013s, 1.2 s, 15ms, 3 minutes
    (r"\b\d+m\d+([.,]\d+)?s\b", "<duration>"),
    (
        r"\b\d+([.,]\d+)? ?(ns|µs|us|ms|s|secs?|seconds?|mins?|minutes?|hours?|nanoseconds?|microseconds?|milliseconds?)\b",
        "<duration>",
    ),
    // /tmp/tmp.Xy12ab, /var/tmp/x, /tmp/.agent/7
    (r#"(/var)?/tmp/[^\s'"`:,;()<>]+"#, "<temporary>"),
    // Python's and mktemp's names in other directories
    (r"\btmp[._]?[A-Za-z0-9_]{6,10}\b", "<temporary>"),
    (r"\b0x[0-9a-fA-F]{4,16}\b", "<address>"),
    // 127.0.0.1:43121, localhost:43121, [::1]:43121
    (r"(\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}|\blocalhost|\[[0-9a-f:]+\]):\d{2,5}\b", "<address>"),
    // pid 123, PID=123, process 123, "[1] 123" of a shell's job
    (r"(?i)\b(pid|process|ppid)\b([ =:#]*)\d+|^\[\d+\] \d+$", "<pid>"),
    // UUIDs, and the hash in target/debug/deps/name-0123456789abcdef
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|-[0-9a-f]{16}\b", "<id>"),
];

static COMPILED: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    // A test compiles every pattern.
    RULES.iter().filter_map(|(pattern, name)| Some((Regex::new(pattern).ok()?, *name))).collect()
});

/// The text with times, durations, temporary names, addresses, process ids and random ids replaced, and without white
/// space at the ends of lines.
pub fn normalise(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let mut line = Cow::Borrowed(line.trim_end());
        for (pattern, name) in COMPILED.iter() {
            if let Cow::Owned(changed) = pattern.replace_all(&line, *name) {
                line = Cow::Owned(changed);
            }
        }
        line
    });
    lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(COMPILED.len(), RULES.len());
    }

    #[test]
    fn values_of_one_run_are_not_differences() {
        for (one, other) in [
            ("exit code 0, 0.13 s\n42", "exit code 0, 1.90 s\n42"),
            ("real\t0m0.013s", "real\t1m2.900s"),
            ("test result: ok. finished in 0.02s", "test result: ok. finished in 12s"),
            ("1 passed in 15 ms", "1 passed in 7 ms"),
            ("at 2026-11-20T15:30:12.345Z", "at 2027-01-02T03:04:05Z"),
            ("Fri Nov 20 15:30:12 UTC 2026", "Sat Jan  2 03:04:05 UTC 2027"),
            ("Date: Fri, 20 Nov 2026 15:30:12 GMT", "Date: Sat, 02 Jan 2027 03:04:05 GMT"),
            ("-rw-r--r-- 1 agent agent 5 Nov 20 15:30 a", "-rw-r--r-- 1 agent agent 5 Jan  2  2026 a"),
            ("wrote /tmp/tmp.x8Gh2k", "wrote /tmp/tmp.QQ01zz"),
            ("see /tmp/.agent/17.", "see /tmp/.agent/4"),
            ("dir tmpab12cd_x removed", "dir tmpzz99yy_k removed"),
            ("<object at 0x7f3a5c2d10>", "<object at 0x7fffaa0010>"),
            ("listening on 127.0.0.1:43121", "listening on 127.0.0.1:50001"),
            ("started with pid 4711", "started with pid 9"),
            ("[1] 4711", "[1] 12"),
            ("Running deps/agent-0123456789abcdef", "Running deps/agent-fedcba9876543210"),
            ("id 6f1c2d3e-0000-4000-8000-0123456789ab", "id 11111111-2222-4333-8444-555555555555"),
            ("a  \nb\n\n", "a\nb"),
        ] {
            assert_eq!(normalise(one), normalise(other));
        }
    }

    #[test]
    fn other_values_are_differences() {
        for (one, other) in [
            ("exit code 0, 0.13 s\n42", "exit code 1, 0.13 s\n42"),
            ("50005000", "50005001"),
            ("pi is about 3.14548", "pi is about 3.14549"),
            ("version 1.2.3", "version 1.2.4"),
            ("ok 1900 no", "ok 1900 yes"),
            ("a\nb", "b\na"),
            ("3 failed", "2 failed"),
            ("  indented", "indented"),
        ] {
            assert_ne!(normalise(one), normalise(other));
        }
    }
}

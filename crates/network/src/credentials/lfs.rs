//! Requests of git LFS beside those that only read: large files, and locks on them.

/// The action of a request of git LFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LfsAction {
    /// It lists locks.
    List,
    /// Its body says whether files are downloaded or uploaded.
    Batch,
    /// It uploads a file, says that it is there, or sets or removes a lock.
    Write,
}

/// The first segments of the paths by which hosts of git serve their APIs: some of these take a path of the program's at the end.
const APIS: [&str; 3] = ["api", "repos", "rest"];
/// Digits of a file's hash.
const HASH_DIGITS: usize = 64;

/// Reads the action of a request, and the path of its repository; `None` where it is none of git LFS.
pub(super) fn read<'p>(method: &str, path: &'p str) -> Option<(LfsAction, &'p str)> {
    let (end, rest) = [".git/info/lfs/", ".git/gitlab-lfs/"].iter().find_map(|place| {
        let at = path.rfind(place)?;
        Some((at + ".git".len(), &path[at + place.len()..]))
    })?;
    let repository = &path[..end];
    if repository.split('/').nth(1).is_none_or(|first| APIS.contains(&first)) {
        return None;
    }
    let segments: Vec<_> = rest.split('/').collect();
    let action = match (method, &segments[..]) {
        ("POST", ["locks", "verify"]) => LfsAction::List,
        ("POST", ["objects", "batch"]) => LfsAction::Batch,
        ("POST", ["verify"] | ["locks"] | ["locks", _, "unlock"]) => LfsAction::Write,
        ("PUT", ["objects", hash]) if is_hash(hash) => LfsAction::Write,
        ("PUT", ["objects", hash, size]) if is_hash(hash) && is_size(size) => LfsAction::Write,
        _ => return None,
    };
    Some((action, repository))
}

fn is_hash(segment: &str) -> bool {
    segment.len() == HASH_DIGITS && segment.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_size(segment: &str) -> bool {
    !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether a batch downloads, however a server reads it: which of two equal keys counts, for instance.
pub(super) fn only_downloads(body: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(body) else { return false };
    let text = text.to_ascii_lowercase();
    text.contains("download") && !text.contains("upload") && !text.contains(['\\', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_lfs_are_known_by_their_methods_and_paths() {
        let hash = "5a".repeat(32);
        for (method, path, action) in [
            ("POST", "info/lfs/objects/batch", LfsAction::Batch),
            ("POST", "info/lfs/locks/verify", LfsAction::List),
            ("POST", "info/lfs/locks", LfsAction::Write),
            ("POST", "info/lfs/locks/12/unlock", LfsAction::Write),
            ("POST", "info/lfs/verify", LfsAction::Write),
            ("PUT", &format!("info/lfs/objects/{hash}"), LfsAction::Write),
            ("PUT", &format!("info/lfs/objects/{hash}/12"), LfsAction::Write),
            ("PUT", &format!("gitlab-lfs/objects/{hash}/12"), LfsAction::Write),
        ] {
            let whole = format!("/group/project.git/{path}");
            assert_eq!(read(method, &whole), Some((action, "/group/project.git")), "{method} {path}");
            assert_eq!(read(method, &format!("/group/project/{path}")), None, "{path}");
            assert_eq!(read(method, &format!("/repos/o/r/contents/x.git/{path}")), None, "{path}");
            assert_eq!(read("DELETE", &whole), None, "{path}");
        }
        for path in ["objects/x/12", &format!("objects/{hash}/x"), &format!("objects/{hash}/1/2"), "locks"] {
            assert_eq!(read("PUT", &format!("/g/p.git/info/lfs/{path}")), None, "{path}");
        }
    }

    #[test]
    fn only_a_batch_that_cannot_upload_is_a_download() {
        assert!(only_downloads(br#"{"operation": "download", "objects": [{"oid": "5a", "size": 1}]}"#));
        for body in [
            r#"{"operation": "upload"}"#,
            r#"{"operation": "download", "Operation": "UPLOAD"}"#,
            r#"{"operation": "download", "operation": "\u0075pload"}"#,
            "{}",
            "",
        ] {
            assert!(!only_downloads(body.as_bytes()), "{body}");
        }
    }
}

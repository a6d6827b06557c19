//! What of a repository's configuration the sandbox gets: settings that git needs inside, read as git reads them and written anew.

mod format;

use crate::userinfo::{ends_host, without_userinfo, without_userinfo_until};
use agent_base::secret_scan;
use format::{Config, Section, Setting, written};

/// Returns what of a git configuration git needs inside: no credentials, no programs that it starts on this machine, no settings
/// of other tools, no comments. `None` where that is all of it.
pub fn needed(config: &[u8]) -> Option<Vec<u8>> {
    let read = Config::read(config);
    let needed: Vec<Section> = read.sections.iter().filter_map(Section::needed).collect();
    let is_whole = needed == read.sections && !read.has_comments && !read.is_invalid;
    (!is_whole).then(|| written(&needed))
}

/// Returns whether a git configuration holds a password or token, in a URL or as a setting.
pub fn has_credentials(config: &[u8]) -> bool {
    // Beyond what git cannot read may be more.
    config.split(|&b| b == b'\n').any(|line| without_userinfo(line).is_some())
        || Config::read(config).sections.iter().any(Section::has_credentials)
}

impl Section {
    /// The section as the sandbox gets it, if git needs any of it there.
    fn needed(&self) -> Option<Self> {
        let name = std::str::from_utf8(&self.name).ok()?;
        let (_, names) = NEEDED.iter().find(|(needed, _)| *needed == name)?;
        let subsection = self.subsection.as_deref().map(|text| plain(text, ends_host));
        if subsection
            .as_ref()
            .is_some_and(|text| is_no_text(text) || text.contains(&b'\n') || has_token(text))
        {
            return None;
        }
        let is_needed = |setting: &&Setting| is_listed(names, &setting.name);
        let settings: Vec<Setting> =
            self.settings.iter().filter(is_needed).filter_map(Setting::needed).collect();
        (!settings.is_empty()).then(|| Self { name: self.name.clone(), subsection, settings })
    }

    fn has_credentials(&self) -> bool {
        self.subsection.as_ref().is_some_and(|text| without_userinfo(text).is_some() || has_token(text))
            || self.settings.iter().any(Setting::has_credentials)
    }
}

impl Setting {
    /// The setting as the sandbox gets it, if it may.
    fn needed(&self) -> Option<Self> {
        let is_url = matches!(self.name.as_slice(), b"url" | b"pushurl");
        let is_end: fn(u8) -> bool = if is_url { |byte| byte == b'/' } else { ends_host };
        let value = self.value.as_deref().map(|text| plain(text, is_end));
        // `submodule.NAME.update`: a command.
        let is_refused =
            |text: &Vec<u8>| is_no_text(text) || has_token(text) || text.trim_ascii_start().starts_with(b"!");
        (!value.as_ref().is_some_and(is_refused)).then(|| Self { name: self.name.clone(), value })
    }

    fn has_credentials(&self) -> bool {
        const WORDS: [&str; 5] = ["password", "smtppass", "token", "secret", "extraheader"];
        let name = String::from_utf8_lossy(&self.name);
        self.value.as_ref().is_some_and(|value| {
            let is_set = !value.is_empty() && WORDS.iter().any(|word| name.contains(word));
            is_set || without_userinfo(value).is_some() || has_token(value)
        })
    }
}

/// A text without a login before a host in it.
fn plain(text: &[u8], is_end: fn(u8) -> bool) -> Vec<u8> {
    without_userinfo_until(text, is_end).unwrap_or_else(|| text.to_owned())
}

/// git's functions end a text at its first NUL.
fn is_no_text(text: &[u8]) -> bool {
    text.contains(&0)
}

fn has_token(text: &[u8]) -> bool {
    secret_scan::find(text).is_some()
}

/// Returns whether a setting is one of these names, which have spaces between them; each is where there is none.
fn is_listed(names: &str, setting: &[u8]) -> bool {
    names.is_empty() || names.split(' ').any(|name| name.as_bytes() == setting)
}

/// Sections of a repository's configuration with the settings that git needs inside; all where none is named. None of them names a
/// program or holds a secret, but for what [`Setting::needed`] asks of values.
const NEEDED: [(&str, &str); 22] = [
    (
        "core",
        "abbrev attributesfile autocrlf bare bigfilethreshold checkroundtripencoding checkstat commentchar commentstring commitgraph \
         compression deltabasecachelimit eol excludesfile filemode filesreflocktimeout fsync fsyncmethod fsyncobjectfiles hidedotfiles \
         ignorecase ignorestat logallrefupdates longpaths loosecompression maxtreedepth multipackindex notesref packedgitlimit \
         packedgitwindowsize packedrefstimeout precomposeunicode prefersymlinkrefs preloadindex protecthfs protectntfs quotepath \
         repositoryformatversion safecrlf sharedrepository sparsecheckout sparsecheckoutcone splitindex symlinks trustctime untrackedcache \
         usereplacerefs warnambiguousrefs whitespace worktree",
    ),
    ("extensions", ""),
    (
        "remote",
        "fetch followremotehead mirror partialclonefilter promisor prune prunetags push pushdefault pushurl skipdefaultupdate skipfetchall \
         tagopt url",
    ),
    (
        "branch",
        "autosetupmerge autosetuprebase description gh-merge-base github-pr-owner-number merge mergeoptions pushremote rebase remote sort \
         vscode-merge-base",
    ),
    (
        "submodule",
        "active alternateerrorstrategy alternatelocation branch fetchjobs fetchrecursesubmodules ignore propagatebranches recurse shallow \
         update url",
    ),
    ("user", "email name useconfigonly"),
    ("init", "defaultbranch defaultobjectformat defaultrefformat"),
    ("pull", "ff octopus rebase twohead"),
    ("push", "autosetupremote default followtags negotiate recursesubmodules usebitmaps useforceifincludes"),
    (
        "fetch",
        "all fsckobjects negotiationalgorithm output parallel prune prunetags recursesubmodules showforcedupdates unpacklimit \
         writecommitgraph",
    ),
    (
        "rebase",
        "abbreviatecommands autosquash autostash backend forkpoint instructionformat maxlabellength missingcommitscheck rebasemerges \
         reschedulefailedexec stat updaterefs",
    ),
    (
        "merge",
        "autostash branchdesc conflictstyle defaulttoupstream directoryrenames ff log renamelimit renames renormalize stat suppressdest \
         verbosity",
    ),
    ("commit", "cleanup status template verbose"),
    ("tag", "sort"),
    (
        "status",
        "aheadbehind branch displaycommentprefix relativepaths renamelimit renames short showstash showuntrackedfiles submodulesummary",
    ),
    (
        "log",
        "abbrevcommit date decorate diffmerges excludedecoration follow graphcolors initialdecorationset mailmap showroot",
    ),
    ("color", ""),
    (
        "gc",
        "aggressivedepth aggressivewindow auto autodetach autopacklimit bigpackthreshold cruftpacks logexpiry maxcruftsize packrefs \
         pruneexpire reflogexpire reflogexpireunreachable rerereresolved rerereunresolved worktreepruneexpire writecommitgraph",
    ),
    (
        "pack",
        "allowpackreuse compression deltacachelimit deltacachesize depth indexversion packsizelimit threads usebitmaps usesparse window \
         windowmemory writebitmaps writereverseindex",
    ),
    ("index", ""),
    ("feature", ""),
    ("i18n", "commitencoding logoutputencoding"),
];

#[cfg(test)]
mod tests {
    use super::format::is_space;
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    /// The names and values that git reads from a file, where it can read all of it.
    fn listed(config: &[u8]) -> Option<Vec<(String, Option<Vec<u8>>)>> {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("config");
        std::fs::write(&file, config).expect("a file");
        let git =
            Command::new("git").args(["config", "--list", "-z", "-f"]).arg(&file).output().expect("git");
        let entries = git.stdout.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
        let divided = entries.map(|entry| {
            let mut parts = entry.splitn(2, |byte| *byte == b'\n');
            let name = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
            (name, parts.next().map(<[u8]>::to_owned))
        });
        git.status.success().then(|| divided.collect())
    }

    fn read(config: &[u8]) -> Option<Vec<(String, Option<Vec<u8>>)>> {
        let Config { sections, is_invalid, .. } = Config::read(config);
        let key = |section: &Section, setting: &Setting| {
            let name = Some(&section.name).filter(|name| !name.is_empty());
            let parts = [name, section.subsection.as_ref(), Some(&setting.name)];
            let parts = parts.into_iter().flatten().map(|part| String::from_utf8_lossy(part).into_owned());
            parts.collect::<Vec<_>>().join(".")
        };
        let of = |section: &Section| -> Vec<_> {
            section.settings.iter().map(|setting| (key(section, setting), setting.value.clone())).collect()
        };
        (!is_invalid).then(|| sections.iter().flat_map(of).collect())
    }

    fn is_needed(key: &str) -> bool {
        let (section, name) =
            (key.split('.').next().unwrap_or_default(), key.rsplit('.').next().unwrap_or_default());
        NEEDED.iter().any(|(needed, names)| *needed == section && is_listed(names, name.as_bytes()))
    }

    fn config() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            4 => prop::sample::select(vec![
                "[core]", "[http \"https://h/\"]", "[remote.Origin]", "[remote \"a\\\"b\"]", "[CORE \"x\"]", "[alias]\n",
                "[ core]", "[core \"a\\\n\"]",
            ]),
            5 => prop::sample::select(vec![
                "extraheader = SECRET", "bare = true", "url = https://u:PASSWORD@h/p", "fileMode", "editor=SECRET", "command = SECRET",
                "abbrev = \"7", "update = !SECRET", "worktree = a  b \t c  ", "eol=\\", "quotePath = \"a\\\\",
            ]),
            8 => prop::sample::select(vec![
                "\n", "\n", "\n", "\r\n", "\r", "\\", "\\\\", "\"", "#", ";", " ", "\t", "\\\n", "=", "\\n", "\\t", "\\\"", "]", "x", ".", "\u{feff}",
            ]),
        ];
        prop::collection::vec(piece, 0..25).prop_map(|pieces| pieces.concat().into_bytes())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        #[test]
        fn a_configuration_is_read_as_git_reads_it(config in config()) {
            // Up to 2.44 git made a space of each of the others between words.
            let spaced = |entries: Vec<(String, Option<Vec<u8>>)>| -> Vec<_> {
                let plain = |byte: u8| if is_space(byte) { b' ' } else { byte };
                let value = |value: Vec<u8>| value.into_iter().map(plain).collect::<Vec<u8>>();
                entries.into_iter().map(|(key, found)| (key, found.map(value))).collect()
            };
            prop_assert_eq!(read(&config).map(spaced), listed(&config).map(spaced));
        }

        #[test]
        fn of_what_is_copied_git_reads_nothing_but_what_it_needs(config in config()) {
            let copied = needed(&config).unwrap_or_else(|| config.clone());
            let settings = listed(&copied);
            prop_assert!(settings.is_some(), "{}", String::from_utf8_lossy(&copied));
            for (key, value) in settings.unwrap_or_default() {
                prop_assert!(is_needed(&key), "{key}");
                prop_assert!(!value.is_some_and(|value| value.starts_with(b"!")), "{key}");
            }
            prop_assert!(!copied.windows(9).any(|text| text == b"PASSWORD@"));
            prop_assert_eq!(needed(&copied), None);
        }
    }

    /// A comment that ended in a backslash made the lines after it a part of itself, and so did a backslash that is escaped.
    #[test]
    fn what_follows_a_backslash_at_the_end_of_a_comment_is_judged() {
        let secret =
            "[http \"https://h/\"]\n\textraheader = AUTHORIZATION: basic SECRET\n[core]\n\tsymlinks = true\n";
        for before in
            ["[core]\n; was C:\\temp\\\n", "[core]\nabbrev = 7 # \\\n", "[core]\nabbrev = C:\\\\dir\\\\\n"]
        {
            let config = format!("{before}{secret}");
            let copied = needed(config.as_bytes()).expect("it is not whole");
            let copied = String::from_utf8_lossy(&copied);
            assert!(!copied.contains("SECRET") && copied.contains("symlinks = true"), "{copied}");
        }
    }

    /// The name of a section was copied for each of its settings.
    #[test]
    fn a_long_name_of_a_section_costs_no_more_where_it_has_many_settings() {
        let config = format!("[remote \"{}\"]\n{}", "y".repeat(500_000), "url = a\n".repeat(50_000));
        let copied = needed(format!("{config}# end\n").as_bytes()).expect("a comment is left out");
        assert!(copied.len() < 2 * config.len(), "{}", copied.len());
    }

    #[test]
    fn settings_are_copied_by_their_names() {
        let made_by_clone = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
                             [remote \"origin\"]\n\turl = git@example.com:a/b.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
                             [branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n";
        assert_eq!(needed(made_by_clone.as_bytes()), None);
        let others = [
            "[core]\n\tsshcommand = x",
            "[core]\n\tnewSetting = x",
            "[lfs]\n\taccess = basic",
            "[submodule \"a\"]\n\tupdate = \"!x\"",
            "[branch \"a\"]\n\tdescription = ghp_x7Kq2mZ9vR4tB8wN1cJ6hL3pD5sF0gYaUeQi",
            "[remote \"a\"]\n\tproxy = x",
            "[core \"editor\0\"]\n\tbare = x",
            "# x",
        ];
        for other in others {
            assert_eq!(needed(other.as_bytes()).as_deref(), Some(&b""[..]), "{other}");
        }
        let url = |url: &str| format!("[remote \"a\"]\n\turl = {url}\n").into_bytes();
        for (config, copied) in [
            ("https://u:p@h/x", "https://h/x"),
            ("HTTPS://t@h/x", "HTTPS://h/x"),
            ("https://ghp_x7Kq2mZ9vR4tB8wN1cJ6hL3pD5sF0gYaUeQi@h/x", "https://h/x"),
            ("\"https://u:p q'@h/x\"", "https://h/x"),
            ("https://u:pa\\\nss@h/x", "https://h/x"),
        ] {
            assert_eq!(needed(&url(config)), Some(url(copied)), "{config}");
        }
        assert_eq!(needed(&url("ssh://git@h/x")), None);
    }
}

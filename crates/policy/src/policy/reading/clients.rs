//! Commands of clients and of other programs that only read, and start no program with the options that are known here. Any other option may
//! name a program, another configuration or another host, as one of podman does where it is installed as `docker`.

use super::super::findings::Word;
use super::plain::{begins, is_in};

/// A command, its options that take no value, and those that take one.
struct Client {
    command: &'static str,
    switches: &'static str,
    valued: &'static str,
}

const fn client(command: &'static str, switches: &'static str, valued: &'static str) -> Client {
    Client { command, switches, valued }
}

const CLIENTS: [Client; 36] = [
    client(
        "docker ps",
        "-a --all -q --quiet -l --latest -s --size --no-trunc",
        "-f --filter --format -n --last",
    ),
    client("docker images", "-a --all -q --quiet --digests --no-trunc", "-f --filter --format"),
    client("docker logs", "-f --follow -t --timestamps --details", "-n --tail --since --until"),
    // `docker info` starts each of the client's plugins, and `docker compose` is one that the project's files may name programs to.
    client("docker version", "", "-f --format"),
    client("docker stats", "-a --all --no-stream --no-trunc", "--format"),
    client("docker network ls", "-q --quiet --no-trunc", "-f --filter --format"),
    client("docker volume ls", "-q --quiet", "-f --filter --format"),
    client("docker inspect", "-s --size", "-f --format --type"),
    client(
        "kubectl get",
        "-A --all-namespaces -w --watch --watch-only --show-labels --show-kind --no-headers --ignore-not-found",
        "-n --namespace -o --output -l --selector -L --label-columns --field-selector --sort-by --context",
    ),
    client("kubectl describe", "-A --all-namespaces --show-events", "-n --namespace -l --selector --context"),
    client(
        "kubectl logs",
        "-f --follow -p --previous --timestamps --all-containers --prefix",
        "-n --namespace -c --container -l --selector --tail --since --since-time --context",
    ),
    client("kubectl config current-context", "", ""),
    client("kubectl config get-contexts", "--no-headers", "-o --output"),
    client(
        "kubectl top",
        "-A --all-namespaces --containers --no-headers --sum --show-capacity",
        "-n --namespace -l --selector --field-selector --sort-by --context",
    ),
    client("kubectl version", "--client", "-o --output --context"),
    client(
        "gh pr list",
        "-d --draft",
        "-s --state -L --limit -B --base -H --head -l --label -a --assignee -A --author -S --search --json -q --jq -R --repo",
    ),
    client("gh pr view", "-c --comments", "--json -q --jq -R --repo"),
    client("gh pr diff", "--name-only --patch", "--color -R --repo"),
    client("gh pr checks", "--required --watch --fail-fast", "-i --interval --json -q --jq -R --repo"),
    client("gh pr status", "-c --conflict-status", "--json -q --jq -R --repo"),
    client("gh repo view", "", "-b --branch --json -q --jq"),
    client("gh auth status", "-a --active", "--hostname"),
    client(
        "gh issue list",
        "",
        "-s --state -L --limit -l --label -m --milestone -a --assignee -A --author -S --search --json -q --jq -R --repo",
    ),
    client("gh issue view", "-c --comments", "--json -q --jq -R --repo"),
    client(
        "gh run list",
        "-a --all",
        "-s --status -L --limit -b --branch -c --commit -e --event -u --user --workflow --json -q --jq -R --repo",
    ),
    client(
        "gh run view",
        "-v --verbose --log --log-failed --exit-status",
        "-j --job --attempt --json -q --jq -R --repo",
    ),
    client("openssl rand", "-hex -base64", "-out"),
    client(
        "aws s3 ls",
        "--recursive --human-readable --summarize --no-cli-pager",
        "--profile --region --output --query --page-size",
    ),
    client("aws sts get-caller-identity", "--no-cli-pager", "--profile --region --output --query"),
    client(
        "systemctl status",
        "--no-pager -l --full -a --all -q --quiet --user --system --failed --plain --no-legend",
        "-n --lines -o --output -t --type --state",
    ),
    client(
        "systemctl list-units",
        "--no-pager -l --full -a --all -q --quiet --user --system --failed --plain --no-legend",
        "-t --type --state",
    ),
    client("systemctl is-active", "-q --quiet --user --system", ""),
    client(
        "journalctl",
        "--no-pager -f --follow -b --boot -k --dmesg -e --pager-end -x --catalog -r --reverse -q --quiet -a --all --user --system \
         --utc --no-hostname --disk-usage --list-boots",
        "-u --unit -n --lines -o --output -S --since -U --until -p --priority -t --identifier -g --grep",
    ),
    client(
        "nm",
        "-a -A -C -D -g -n -o -p -P -r -S -u --demangle --dynamic --defined-only --undefined-only --extern-only --numeric-sort --no-sort \
         --size-sort --print-size --print-file-name",
        "-f --format -t --radix",
    ),
    client(
        "objdump",
        "-a -C -d -D -f -h -l -p -r -R -s -S -t -T -w -x -z --demangle --disassemble --disassemble-all --syms --dynamic-syms --all-headers \
         --private-headers --file-headers --section-headers --full-contents --source --reloc --dynamic-reloc --line-numbers --wide \
         --no-show-raw-insn",
        "-j --section -m --architecture -M --disassembler-options --start-address --stop-address",
    ),
    client(
        "readelf",
        "-a -A -d -e -g -h -I -l -n -r -s -S -u -V -W --all --headers --file-header --program-headers --segments --section-headers --sections \
         --symbols --syms --dyn-syms --dynamic --relocs --notes --version-info --arch-specific --wide",
        "-x --hex-dump -p --string-dump -R --relocated-dump",
    ),
];

/// Returns whether a command is one that only reads. What is read in a pager may be a command to it.
pub fn only_reads(name: &str, arguments: &[Word]) -> bool {
    let row = CLIENTS.iter().find_map(|client| Some((begins(client.command, name, arguments)?, client)));
    let Some((at, client)) = row else { return false };
    let is_paged = name == "journalctl" || name == "systemctl" && arguments[0].text != "is-active";
    // Some take options from a file behind an at sign.
    let may_name_options = matches!(name, "nm" | "objdump" | "readelf")
        && arguments.iter().any(|word| !word.fixed || word.text.starts_with('@'));
    client.knows(&arguments[at..])
        && !may_name_options
        && (!is_paged || arguments.iter().any(|word| word.fixed && word.text == "--no-pager"))
}

impl Client {
    /// Returns whether all options are known, and none is the value of another one.
    fn knows(&self, arguments: &[Word]) -> bool {
        let is_value = |word: &Word| !word.text.starts_with('-') && !word.may_be_option();
        let mut is_awaited = false;
        arguments.iter().all(|word| {
            if is_value(word) {
                is_awaited = false;
                return true;
            }
            !std::mem::replace(&mut is_awaited, self.awaits_value(word)) && self.is_known(word)
        })
    }

    fn is_known(&self, word: &Word) -> bool {
        let (name, value) = word.text.split_once('=').unwrap_or((&word.text, ""));
        if is_in(self.switches, name) || is_in(self.valued, name) {
            return word.fixed || !value.is_empty() && word.is_one() && name.starts_with("--");
        }
        let Some((group, _)) = self.group(&word.text) else { return false };
        let is_switch = |letter: char| is_in(self.switches, &format!("-{letter}"));
        word.fixed && word.text.len() > 1 && group.chars().all(is_switch)
    }

    /// Returns whether the value of an option comes in the next word.
    fn awaits_value(&self, word: &Word) -> bool {
        is_in(self.valued, &word.text) || self.group(&word.text).is_some_and(|(_, value)| value == Some(""))
    }

    /// The letters of a group that take no value, and what stands behind the first one that does.
    fn group<'w>(&self, text: &'w str) -> Option<(&'w str, Option<&'w str>)> {
        let letters = text.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
        let takes_value = |letter: char| is_in(self.valued, &format!("-{letter}"));
        let divided = letters.split_once(takes_value);
        Some(divided.map_or((letters, None), |(group, value)| (group, Some(value))))
    }
}

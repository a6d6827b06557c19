//! Runs the steps of `action.yml` as GitHub's runner does: conditions, expressions, environment and outputs. Steps of other actions are noted.

use agent_testing::counterpart::root;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Names and their texts.
pub type Texts = BTreeMap<String, String>;

/// A run of the action.
pub struct ActionRun {
    action: Value,
    inputs: Texts,
    /// By step and name.
    outputs: BTreeMap<String, Texts>,
    /// The other actions that it would use, with what they get.
    pub used: Vec<(String, Texts)>,
    /// Whether all steps ended well.
    pub succeeded: bool,
}

impl ActionRun {
    /// Runs it in the directory `checkout`; `environment` is the runner's. `None` where the machine cannot read YAML.
    pub fn of(checkout: &Path, environment: &Texts, inputs: &[(&str, &str)]) -> Option<Self> {
        let script = "puts JSON.dump(YAML.load_file(ARGV[0]))";
        let file = root().join("action.yml");
        let read = Command::new("ruby").args(["-ryaml", "-rjson", "-e", script]).arg(file).output();
        let read = read.ok().filter(|output| output.status.success());
        let Some(read) = read else {
            agent_testing::skip::missing("ruby");
            return None;
        };
        let action: Value = serde_json::from_slice(&read.stdout).expect("JSON");
        let given = |name: &str| inputs.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
        let of_input = |(name, input): (&String, &Value)| {
            let default = input["default"].as_str().unwrap_or_default();
            (name.clone(), given(name).unwrap_or(default).to_owned())
        };
        let all = action["inputs"].as_object().expect("inputs").iter().map(of_input).collect();
        let mut run =
            Self { action, inputs: all, outputs: BTreeMap::new(), used: Vec::new(), succeeded: true };
        for step in run.action["runs"]["steps"].as_array().expect("steps").clone() {
            if run.succeeded && run.holds(step["if"].as_str()) {
                run.step(&step, checkout, environment);
            }
        }
        Some(run)
    }

    /// An output of the action.
    pub fn output(&self, name: &str) -> String {
        self.text(self.action["outputs"][name]["value"].as_str().expect("an output"))
    }

    fn step(&mut self, step: &Value, checkout: &Path, environment: &Texts) {
        if let Some(other) = step["uses"].as_str() {
            let with = self.texts(&step["with"]);
            self.used.push((other.to_owned(), with));
            return;
        }
        let file = checkout.with_file_name("step-output");
        fs::write(&file, "").expect("a file");
        let script = checkout.with_file_name("step.sh");
        fs::write(&script, step["run"].as_str().expect("a script")).expect("a file");
        let mut command = Command::new("bash");
        command
            .args(["--noprofile", "--norc", "-eo", "pipefail"])
            .arg(&script)
            .current_dir(checkout)
            .env_clear();
        command.envs(environment).envs(self.texts(&step["env"]));
        command.env("GITHUB_ACTION_PATH", root()).env("GITHUB_OUTPUT", &file);
        self.succeeded = command.output().expect("bash").status.success();
        let written = fs::read_to_string(&file).expect("the outputs");
        let pairs = written.lines().filter_map(|line| line.split_once('='));
        let outputs = pairs.map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        self.outputs.insert(step["id"].as_str().unwrap_or_default().to_owned(), outputs);
    }

    fn texts(&self, map: &Value) -> Texts {
        let pairs = map.as_object().into_iter().flatten();
        pairs.map(|(name, text)| (name.clone(), self.text(text.as_str().unwrap_or_default()))).collect()
    }

    /// A text whose expressions are replaced.
    fn text(&self, text: &str) -> String {
        let mut parts = text.split("${{");
        let mut whole = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (expression, rest) = part.split_once("}}").expect("the end of an expression");
            let values = expression.split("||").map(|name| self.value(name.trim()));
            whole += &values.into_iter().find(|value| !value.is_empty()).unwrap_or_default();
            whole += rest;
        }
        whole
    }

    fn value(&self, name: &str) -> String {
        match name.split('.').collect::<Vec<_>>()[..] {
            ["github", "token"] => "gh-secret".to_owned(),
            ["github", "action_repository"] => "somebody/agent".to_owned(),
            ["inputs", input] => self.text(&self.inputs[input]),
            ["steps", step, "outputs", output] => {
                self.outputs.get(step).and_then(|outputs| outputs.get(output)).cloned().unwrap_or_default()
            }
            _ => panic!("{name} is not an expression that this runner knows"),
        }
    }

    fn holds(&self, condition: Option<&str>) -> bool {
        let one = |part: &str| match (part.split_once("=="), part.split_once("!=")) {
            (Some((name, text)), _) => self.value(name.trim()) == text.trim().trim_matches('\''),
            (_, Some((name, text))) => self.value(name.trim()) != text.trim().trim_matches('\''),
            _ => panic!("{part} is not a condition that this runner knows"),
        };
        condition.is_none_or(|condition| condition.split("&&").all(one))
    }
}

//! What helps small models to change a program that is there.

use crate::small_models::{last_text, server, turn};
use crate::support::agent::{Finished, agent};
use crate::support::endpoint::Endpoint;
use serde_json::json;

/// A program whose function is to be completed.
const HALF: &str = "def half(n):\n    \"\"\"Half of n.\n\n    >>> half(4)\n    2.0\n    \"\"\"\n";

fn complete_half(model: &Endpoint, more: &[&str]) -> Finished {
    let call = agent().file("half.py", HALF).endpoint(model);
    call.args(["run", "Complete the function half in half.py.", "--json", "--apply"]).args(more).run()
}

fn edit_half(new: &str) -> String {
    turn(json!({ "tool": "edit_file", "path": "half.py", "old": "    2.0\n    \"\"\"", "new": new }))
}

const BODY: &str = "    2.0\n    \"\"\"\n    return n / 2";

fn answer() -> String {
    turn(json!({ "tool": "answer", "text": "It is complete." }))
}

#[test]
fn a_small_model_is_sent_the_files_that_its_prompt_names() {
    let model = server(1_500_000_000).text(&edit_half(BODY)).text(&answer()).text(&answer()).start();
    let finished = complete_half(&model, &[]).expect_code(0);
    let requests = model.chat_requests();
    assert!(last_text(&requests[0]).contains(HALF), "{}", requests[0]);
    assert_eq!(finished.events_of("attached")[0]["name"], "half.py");
    // A large one looks for itself.
    let model = server(70_000_000_000).text("It is complete.").start();
    complete_half(&model, &[]).expect_code(0);
    assert!(!model.chat_requests()[0].to_string().contains("Half of n"));
}

#[test]
fn a_program_that_was_to_be_changed_and_is_as_it_was_is_pointed_out() {
    let run_it = turn(json!({ "tool": "run_commands", "command": "sh -c true half.py" }));
    let model = server(1_500_000_000).text(&run_it).text(&answer()).text(&answer()).start();
    complete_half(&model, &[]).expect_code(0);
    let requests = model.chat_requests();
    let result = last_text(&requests[1]);
    assert!(result.contains("Now send the write_file for half.py"), "{result}");
    assert!(last_text(&requests[2]).contains("half.py is as it was"), "{}", requests[2]);
}

#[test]
fn a_program_is_not_replaced_by_lines_that_try_it_nor_written_into_another_file() {
    let write =
        |path: &str| turn(json!({ "tool": "write_file", "path": path, "content": "print(half(4))\n" }));
    let model = server(1_500_000_000)
        .text(&write("solution.py"))
        .text(&write("half.py"))
        .text(&edit_half(BODY))
        .text(&answer())
        .text(&answer())
        .start();
    let finished = complete_half(&model, &[]).expect_code(0);
    let requests = model.chat_requests();
    let (other, removal) = (last_text(&requests[1]), last_text(&requests[2]));
    assert!(
        other.contains("not written: the task is to change half.py, and not to write solution.py"),
        "{other}"
    );
    assert!(removal.contains("not written: this would remove half from half.py"), "{removal}");
    assert!(finished.host_file("half.py").is_some_and(|content| content.ends_with("return n / 2\n")));
    assert_eq!(finished.host_file("solution.py"), None);
}

#[test]
fn a_change_that_would_break_a_program_is_not_made() {
    let cut = "    2.0\n    \"\"\"\n    raise ValueError(";
    let new_file = json!({ "tool": "write_file", "path": "new.py", "content": "def f()\n    return 1\n" });
    let model = server(1_500_000_000)
        .text(&edit_half(cut))
        .text(&edit_half(BODY))
        .text(&turn(new_file))
        .text(&answer())
        .text(&answer())
        .start();
    let finished = complete_half(&model, &[]).expect_code(0);
    let requests = model.chat_requests();
    let refusal = last_text(&requests[1]);
    assert!(refusal.contains("syntax error in half.py, which is as it was"), "{refusal}");
    assert!(refusal.contains("was never closed") && refusal.contains("use ' for texts"), "{refusal}");
    // What was not right before is written, with the error.
    let note = last_text(&requests[3]);
    assert!(note.contains("wrote new.py") && note.contains("It has a syntax error:"), "{note}");
    assert!(finished.host_file("half.py").is_some_and(|content| content.ends_with("return n / 2\n")));
}

#[test]
fn examples_in_a_docstring_are_tried() {
    let wrong = BODY.replace("/ 2", "/ 3");
    let step = json!({ "tool": "run_commands", "command": "python3 -B -m doctest half.py" });
    let correct = json!({ "tool": "edit_file", "path": "half.py", "old": "n / 3", "new": "n / 2" });
    let model = server(1_500_000_000)
        .text(&edit_half(&wrong))
        .text(&answer())
        .text(&turn(step.clone()))
        .text(&turn(correct))
        .text(&turn(step.clone()))
        .text(&answer())
        .start();
    complete_half(&model, &[]).expect_code(0);
    let requests = model.chat_requests();
    let reminder = last_text(&requests[2]);
    assert!(reminder.contains("the examples in the docstring of half.py were not tried"), "{reminder}");
    assert!(reminder.contains(&step.to_string()), "{reminder}");
    assert!(last_text(&requests[3]).contains("Expected:\n    2.0\nGot:\n    1.3"), "{}", requests[3]);
}

#[test]
fn a_failed_check_is_reported_to_a_small_model_without_its_command() {
    let check =
        "python3 - <<'END'\nfrom half import half\nassert half(4) == 2, half(4)\nassert half(0) == 0\nEND";
    let wrong = BODY.replace("/ 2", "/ 3");
    let correct = json!({ "tool": "edit_file", "path": "half.py", "old": "n / 3", "new": "n / 2" });
    let model = server(1_500_000_000)
        .text(&edit_half(&wrong))
        .text(&answer())
        .text(&answer())
        .text(&turn(correct))
        .text(&answer())
        .text(&answer())
        .start();
    complete_half(&model, &["--check", check]).expect_code(0);
    let feedback = last_text(&model.chat_requests()[3]).to_owned();
    assert!(feedback.starts_with("The check of the task fails (exit code 1)."), "{feedback}");
    assert!(!feedback.contains("<<'END'"), "{feedback}");
    // The error says where it failed only by its number.
    let lines = "These lines of the command failed:\nfrom half import half\nassert half(4) == 2, half(4)\nassert half(0) == 0\n\n";
    assert!(feedback.contains(lines), "{feedback}");
    assert!(feedback.contains("half.py holds:\n") && feedback.contains("return n / 3"), "{feedback}");
    assert!(feedback.ends_with("Send the edit_file or write_file that corrects half.py."), "{feedback}");
}

#[test]
fn brackets_and_imports_that_a_program_lacks_are_added() {
    let program = "print(len(sys.argv)\n";
    let write = json!({ "tool": "write_file", "path": "count.py", "content": program });
    let model = server(1_500_000_000)
        .text(&turn(write))
        .text(&turn(json!({ "tool": "run_commands", "command": "python3 count.py" })))
        .text(&answer())
        .start();
    let prompt = "Write count.py that prints how many arguments it has, and run it.";
    let finished = agent().endpoint(&model).args(["run", prompt, "--json", "--apply"]).run().expect_code(0);
    let result = last_text(&model.chat_requests()[1]).to_owned();
    assert!(result.contains("The brackets at the end of the text were corrected."), "{result}");
    assert!(result.contains("Added what it lacked: `import sys`."), "{result}");
    assert_eq!(finished.host_file("count.py").as_deref(), Some("import sys\nprint(len(sys.argv))\n"));
}

#[test]
fn a_sentence_in_place_of_a_number_alone_comes_with_the_step_that_corrects_it() {
    let write = |text: &str| json!({ "tool": "write_file", "path": "answer.txt", "content": text });
    let model = server(1_500_000_000)
        .text(&turn(json!({ "tool": "run_commands", "command": "grep -rn PORT ." })))
        .text(&turn(write("PORT is 80.")))
        .text(&answer())
        .text(&turn(write("80")))
        .text(&turn(json!({ "tool": "answer", "text": "PORT is 80." })))
        .start();
    let prompt = "What is PORT? Write the number alone into answer.txt.";
    let call = agent().file("a.py", "PORT = 80\n").endpoint(&model);
    let finished = call.args(["run", prompt, "--json", "--apply"]).run().expect_code(0);
    let reminder = last_text(&model.chat_requests()[3]).to_owned();
    assert!(reminder.contains("answer.txt has a number and nothing else"), "{reminder}");
    assert!(reminder.ends_with(&format!("Send {}", write("80"))), "{reminder}");
    assert_eq!(finished.host_file("answer.txt").as_deref(), Some("80"));
}

#[test]
fn what_is_corrected_in_a_program_is_judged_again() {
    let write = json!({ "tool": "write_file", "path": "a.py", "content": "print(subprocess.run(['ls']))\n" });
    let model =
        server(1_500_000_000).text(&turn(write)).text(&answer()).text(&answer()).text(&answer()).start();
    let call = agent().config("[policy.deny.processes]\npython = { modules = [\"subprocess\"] }\n");
    let finished = call.endpoint(&model).args(["run", "Write a.py", "--json"]).run();
    assert_eq!(finished.events_of("denied").len(), 1, "{}", finished.stdout);
}

#[test]
fn a_follow_up_is_about_the_change_that_was_made() {
    let schema = json!({ "type": "object", "required": ["done"] }).to_string();
    let model = server(1_500_000_000)
        .text(&edit_half(&BODY.replace("    2.0", "    2")))
        .text(&turn(json!({ "tool": "answer", "text": "It is complete." })))
        .text(&turn(json!({ "tool": "answer", "text": "It is complete." })))
        .text(&turn(json!({ "tool": "answer", "text": "{\"done\": true}" })))
        .text(&turn(json!({ "tool": "answer", "text": "{\"done\": true}" })))
        .start();
    let call = agent().file("half.py", HALF).file("schema.json", schema).endpoint(&model);
    let prompt = "Complete the function half in half.py.";
    call.args(["run", prompt, "--output-schema", "schema.json", "--json"]).run().expect_code(0);
}

#[test]
fn a_function_is_written_anew_without_its_docstring_which_is_kept() {
    let write = |program: &str| turn(json!({ "tool": "write_file", "path": "half.py", "content": program }));
    let model = server(1_500_000_000)
        .text(&write(HALF))
        .text(&write("def half(n):\n    return n / 2\n"))
        .text(&answer())
        .text(&answer())
        .start();
    let finished = complete_half(&model, &[]).expect_code(0);
    let requests = model.chat_requests();
    let refusal = last_text(&requests[1]);
    assert!(refusal.contains("half in half.py would have no code, only a docstring"), "{refusal}");
    let result = last_text(&requests[2]);
    assert!(result.contains("The docstring was kept."), "{result}");
    assert_eq!(finished.host_file("half.py"), Some(format!("{HALF}    return n / 2\n")));
}

#[test]
fn a_docstring_that_is_to_be_removed_is_not_kept() {
    let program = "def half(n):\n    \"\"\"Half of n.\"\"\"\n    return n / 2\n";
    let without = "def half(n):\n    return n / 2\n";
    let write = json!({ "tool": "write_file", "path": "half.py", "content": without });
    let model = server(1_500_000_000)
        .text(&turn(json!({ "tool": "read_file", "path": "half.py" })))
        .text(&turn(write))
        .text(&answer())
        .start();
    let call = agent().file("half.py", program).endpoint(&model);
    let finished =
        call.args(["run", "Remove the docstring from half.py.", "--json", "--apply"]).run().expect_code(0);
    assert_eq!(finished.host_file("half.py").as_deref(), Some(without));
}

#[test]
fn something_that_was_to_be_added_to_a_program_and_is_not_there_is_pointed_out() {
    let edit = json!({ "tool": "edit_file", "path": "ops.py", "old": "    return a + b", "new": "    return a + b\n\n\ndef sub(a, b):\n    return a - b" });
    let model = server(1_500_000_000)
        .text(&turn(json!({ "tool": "run_commands", "command": "python3 ops.py" })))
        .text(&answer())
        .text(&turn(edit))
        .text(&answer())
        .start();
    let call = agent().file("ops.py", "def add(a, b):\n    return a + b\n").endpoint(&model);
    let prompt = "Add a function sub(a, b) that returns a - b to ops.py. Keep add.";
    let finished = call.args(["run", prompt, "--json", "--apply"]).run().expect_code(0);
    let reminder = last_text(&model.chat_requests()[2]).to_owned();
    assert!(reminder.contains("ops.py is as it was"), "{reminder}");
    assert!(finished.host_file("ops.py").is_some_and(|content| content.contains("def sub")));
}

#[test]
fn all_of_a_file_where_a_part_was_asked_for_is_pointed_out() {
    let words = "rose\nchrysanthemum\n";
    let write = |text: &str| turn(json!({ "tool": "write_file", "path": "answer.txt", "content": text }));
    let model = server(1_500_000_000)
        .text(&write(words))
        .text(&answer())
        .text(&write("chrysanthemum"))
        .text(&answer())
        .start();
    let call = agent().file("words.txt", words).endpoint(&model);
    let prompt = "Write the longest line of words.txt into answer.txt.";
    let finished = call.args(["run", prompt, "--json", "--apply"]).run().expect_code(0);
    let reminder = last_text(&model.chat_requests()[2]).to_owned();
    assert!(reminder.contains("answer.txt holds all of words.txt"), "{reminder}");
    assert_eq!(finished.host_file("answer.txt").as_deref(), Some("chrysanthemum"));
}

#[test]
fn a_program_of_several_functions_is_completed_without_losing_one() {
    let helper = "def double(n):\n    return 2 * n\n\n\n";
    let program = format!("{helper}{HALF}");
    let body = "def half(n):\n    return n / 2\n";
    let write = |program: &str| turn(json!({ "tool": "write_file", "path": "half.py", "content": program }));
    let model = server(1_500_000_000)
        .text(&turn(json!({ "tool": "read_file", "path": "half.py" })))
        .text(&write(body))
        .text(&write(&format!("{helper}{body}")))
        .text(&answer())
        .text(&answer())
        .start();
    let call = agent().file("half.py", &program).endpoint(&model);
    let finished = call.args(["run", "Complete half in half.py.", "--json", "--apply"]).run().expect_code(0);
    let requests = model.chat_requests();
    let hint = last_text(&requests[1]);
    assert!(hint.contains("Now send the edit_file or write_file that changes half.py."), "{hint}");
    let refusal = last_text(&requests[2]);
    assert!(refusal.contains("not written: this would remove double from half.py"), "{refusal}");
    assert_eq!(finished.host_file("half.py"), Some(format!("{program}    return n / 2\n")));
}

#[test]
fn complete_programs_that_look_incomplete_are_written() {
    // A class with a docstring alone, a property with its setter, and a docstring that is what is to be completed.
    let before = "class Empty(Exception):\n    \"\"\"Raised for nothing.\"\"\"\n\n\nclass Box:\n    @property\n    def size(self):\n        \"\"\"The size.\"\"\"\n        return self._size\n\n    @size.setter\n    def size(self, value):\n        self._size = value\n";
    let after = before.replace("Raised for nothing.", "Raised where nothing is left.");
    let write = json!({ "tool": "write_file", "path": "box.py", "content": after });
    let model = server(1_500_000_000)
        .text(&turn(json!({ "tool": "read_file", "path": "box.py" })))
        .text(&turn(write))
        .text(&answer())
        .start();
    let call = agent().file("box.py", before).endpoint(&model);
    let prompt = "Complete the docstring of Empty in box.py.";
    let finished = call.args(["run", prompt, "--json", "--apply"]).run().expect_code(0);
    assert_eq!(finished.host_file("box.py"), Some(after));
}

#[test]
fn a_name_that_was_to_be_renamed_comes_with_the_step_that_does_it() {
    let step = json!({ "tool": "run_commands", "command": "sed -i 's/\\bcalc\\b/compute/g' tool.py" });
    let run_it = turn(json!({ "tool": "run_commands", "command": "python3 tool.py" }));
    let model = server(1_500_000_000)
        .text(&run_it)
        .text(&answer())
        .text(&turn(step.clone()))
        .text(&run_it)
        .text(&answer())
        .start();
    let program = "def calc(a, b):\n    return a * b\n\n\nprint(calc(2, 3))\n";
    let call = agent().file("tool.py", program).endpoint(&model);
    let prompt = "Rename the function calc in tool.py to compute, everywhere in that file. Run it.";
    let finished = call.args(["run", prompt, "--json", "--apply"]).run().expect_code(0);
    let reminder = last_text(&model.chat_requests()[2]).to_owned();
    assert!(reminder.contains("tool.py is as it was") && reminder.contains(&step.to_string()), "{reminder}");
    assert_eq!(finished.host_file("tool.py"), Some(program.replace("calc", "compute")));
}

#[test]
fn a_number_that_was_counted_otherwise_than_a_command_listed_is_pointed_out() {
    let write = |number: &str| turn(json!({ "tool": "write_file", "path": "answer.txt", "content": number }));
    let list = "find . -type f -name '*.py'";
    let count = json!({ "tool": "run_commands", "command": format!("{list} | wc -l") });
    let model = server(1_500_000_000)
        .text(&turn(json!({ "tool": "run_commands", "command": list })))
        .text(&write("2"))
        .text(&turn(json!({ "tool": "answer", "text": "There are 2." })))
        .text(&turn(count.clone()))
        .text(&write("3"))
        .text(&turn(json!({ "tool": "answer", "text": "There are 3." })))
        .start();
    let call = agent().file("a.py", "").file("b.py", "").file("lib/c.py", "").endpoint(&model);
    let prompt = "Count the .py files here. Write the number alone into answer.txt.";
    let finished = call.args(["run", prompt, "--json", "--apply"]).run().expect_code(0);
    let reminder = last_text(&model.chat_requests()[3]).to_owned();
    assert!(reminder.contains("answer.txt holds 2") && reminder.contains("printed 3 lines"), "{reminder}");
    assert!(reminder.contains(&count.to_string()), "{reminder}");
    assert_eq!(finished.host_file("answer.txt").as_deref(), Some("3"));
}

#[test]
fn a_file_that_was_to_have_a_number_and_is_empty_is_pointed_out() {
    let write = |text: &str| turn(json!({ "tool": "write_file", "path": "answer.txt", "content": text }));
    let find = "grep Alan data/a.csv | awk '{print $2}' > answer.txt";
    let model = server(1_500_000_000)
        .text(&turn(json!({ "tool": "run_commands", "command": find })))
        .text(&turn(json!({ "tool": "answer", "text": "Alan is 41." })))
        .text(&write("41"))
        .text(&turn(json!({ "tool": "answer", "text": "Alan is 41." })))
        .start();
    let call = agent().file("data/a.csv", "name,age\nAlan,41\n").endpoint(&model);
    let prompt = "Write the age of Alan in data/a.csv, the number alone, into answer.txt.";
    let finished = call.args(["run", prompt, "--json", "--apply"]).run().expect_code(0);
    let reminder = last_text(&model.chat_requests()[2]).to_owned();
    assert!(reminder.contains("answer.txt has a number and nothing else"), "{reminder}");
    assert_eq!(finished.host_file("answer.txt").as_deref(), Some("41"));
}

#[test]
fn a_program_that_prints_all_of_a_file_or_does_not_open_it_is_pointed_out() {
    let run = |command: &str| turn(json!({ "tool": "run_commands", "command": command }));
    let write = |program: &str| turn(json!({ "tool": "write_file", "path": "first.py", "content": program }));
    let model = server(1_500_000_000)
        .text(&write("print(open('poem.txt').read(), end='')\n"))
        .text(&run("python3 first.py"))
        .text(&answer())
        .text(&write("import sys\nprint(sys.stdin.readline(), end='')\n"))
        .text(&run("python3 first.py < poem.txt"))
        .text(&answer())
        .text(&write("print(open('poem.txt').readline(), end='')\n"))
        .text(&run("python3 first.py"))
        .text(&answer())
        .start();
    let call = agent().file("poem.txt", "the sea\nthe sky\n").endpoint(&model);
    let prompt = "Write first.py, which prints the first line of poem.txt, and run it.";
    call.args(["run", prompt, "--json"]).run().expect_code(0);
    let requests = model.chat_requests();
    let reminder = last_text(&requests[3]);
    assert!(reminder.contains("`python3 first.py` printed all of poem.txt"), "{reminder}");
    let reminder = last_text(&requests[6]);
    assert!(reminder.contains("opens poem.txt itself"), "{reminder}");
}

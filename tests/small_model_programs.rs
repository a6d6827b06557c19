//! What helps small models to write a program that does what the task says.

use crate::small_models::{last_text, server, turn};
use crate::support::agent::{Finished, agent};
use crate::support::endpoint::Endpoint;
use serde_json::json;

fn write(path: &str, content: &str) -> String {
    turn(json!({ "tool": "write_file", "path": path, "content": content }))
}

fn run(command: &str) -> String {
    turn(json!({ "tool": "run_commands", "command": command }))
}

fn answer() -> String {
    turn(json!({ "tool": "answer", "text": "Done." }))
}

fn work(model: &Endpoint, prompt: &str) -> Finished {
    let call = agent().file("words.txt", "the sea\nthe sky\n").endpoint(model);
    call.args(["run", prompt, "--json", "--apply"]).run().expect_code(0)
}

#[test]
fn a_program_that_is_given_an_argument_of_which_the_task_says_nothing_takes_none() {
    let edit = json!({ "tool": "edit_file", "path": "letters.py", "old": "sys.argv[1]", "new": "'pear'" });
    let model = server(1_500_000_000)
        .text(&write("letters.py", "import sys\nprint(len(sys.argv[1]))\n"))
        .text(&run("python3 letters.py pear"))
        .text(&answer())
        .text(&turn(edit.clone()))
        .text(&run("python3 letters.py pear"))
        .text(&answer())
        .start();
    let finished = work(&model, "Write letters.py, which prints how many letters pear has. Run it.");
    let requests = model.chat_requests();
    let reminder = last_text(&requests[3]);
    assert!(
        reminder.contains("gives pear to the program") && reminder.contains(&edit.to_string()),
        "{reminder}"
    );
    // It ignores what it is still given.
    assert_eq!(finished.events_of("nudge").len(), 1);
    assert!(finished.host_file("letters.py").is_some_and(|content| content.contains("len('pear')")));
}

#[test]
fn a_list_of_numbers_is_compared_with_what_the_model_expects_without_having_seen_it() {
    let (old, new) = ("range(2, 9)", "range(2, 9, 2)");
    let edit = json!({ "tool": "edit_file", "path": "even.py", "old": old, "new": new });
    let model = server(1_500_000_000)
        .text(&write("even.py", "print(*range(2, 9), sep=',')\n"))
        .text(&run("python3 even.py"))
        .text(&answer())
        .text("```\n2, 4, 6, 8\n```")
        .text(&turn(edit.clone()))
        .text(&run("python3 even.py"))
        .text(&answer())
        .start();
    work(&model, "Write even.py that prints the even numbers from 2 through 8, then run it.");
    let requests = model.chat_requests();
    let question = requests[3].to_string();
    assert!(question.contains("Which numbers does the right program print?"), "{question}");
    assert!(!question.contains("2,3,4"), "it has not seen what the program printed: {question}");
    let reminder = last_text(&requests[4]);
    assert!(reminder.contains("`python3 even.py` printed:\n2,3,4,5,6,7,8"), "{reminder}");
    assert!(reminder.contains("seems to ask for: 2 4 6 8"), "{reminder}");
    assert!(reminder.ends_with(&edit.to_string()), "{reminder}");
    assert_eq!(requests.len(), 7, "it is asked once");
}

#[test]
fn an_answer_that_the_program_did_not_print_is_questioned_until_it_starts_over() {
    let answer = turn(json!({ "tool": "answer", "text": "There are 2160 minutes in 36 hours." }));
    let model = server(1_500_000_000)
        .text(&write("hours.py", "print(36 // 60)\n"))
        .text(&run("python3 hours.py"))
        .text(&answer)
        .text("2160")
        .text(&write("hours.py", "print(36 % 6)\n"))
        .text(&run("python3 hours.py"))
        .text(&answer)
        .text(&write("hours.py", "print(36 * 60)\n"))
        .text(&run("python3 hours.py"))
        .text(&answer)
        .start();
    let prompt = "Write hours.py which prints how many minutes there are in 36 hours, and execute it.";
    let finished = work(&model, prompt);
    let requests = model.chat_requests();
    let reminder = last_text(&requests[4]);
    assert!(reminder.contains("you answer 2160, but `python3 hours.py` printed:\n0\n"), "{reminder}");
    assert_eq!(finished.events_of("started_over").len(), 1);
    assert_eq!(finished.host_file("hours.py").as_deref(), Some("print(36 * 60)\n"));
}

#[test]
fn a_program_that_reads_an_empty_input_is_to_open_the_file_that_the_task_names() {
    let model = server(1_500_000_000)
        .text(&write("sorted.py", "import sys\nprint(*sorted(sys.stdin.read().split()), sep='\\n')\n"))
        .text(&run("python3 sorted.py words.txt"))
        .text(&answer())
        .text(&write("sorted.py", "print(*sorted(open('words.txt').read().split()), sep='\\n')\n"))
        .text(&run("python3 sorted.py"))
        .text(&answer())
        .start();
    work(&model, "Create sorted.py, which prints the words of words.txt in alphabetical order. Start it.");
    let requests = model.chat_requests();
    let reminder = last_text(&requests[3]);
    assert!(reminder.contains("sorted.py reads its standard input, in which there is nothing"), "{reminder}");
    assert!(reminder.contains("opens words.txt itself"), "{reminder}");
}

#[test]
fn a_program_that_prints_all_of_a_file_is_shown_how_to_print_the_line_that_is_asked_for() {
    let model = server(1_500_000_000)
        .text(&write("show.sh", "cat words.txt\n"))
        .text(&run("sh show.sh"))
        .text(&answer())
        .text(&write("show.sh", "head -n 1 words.txt\n"))
        .text(&run("sh show.sh"))
        .text(&answer())
        .start();
    work(&model, "Write show.sh, which prints the first line of words.txt, and run it.");
    let requests = model.chat_requests();
    let reminder = last_text(&requests[3]);
    assert!(reminder.contains("printed all of words.txt"), "{reminder}");
    assert!(reminder.contains("with `head -n 1 words.txt` in it"), "{reminder}");
}

#[test]
fn a_comma_behind_the_last_number_is_pointed_out() {
    let model = server(1_500_000_000)
        .text(&write("odd.py", "for i in (1, 3, 5): print(i, end=',')\n"))
        .text(&run("python3 odd.py"))
        .text(&answer())
        .text("1 3 5")
        .text(&write("odd.py", "print(1, 3, 5, sep=',')\n"))
        .text(&run("python3 odd.py"))
        .text(&answer())
        .start();
    work(&model, "Write odd.py that prints the odd numbers up to 5 separated by commas. Run it.");
    let requests = model.chat_requests();
    let reminder = last_text(&requests[4]);
    assert!(reminder.contains("ends with a comma"), "{reminder}");
}

#[test]
fn a_script_that_counts_more_than_files_gets_the_step_that_counts_them() {
    let old = "ls -la . | wc -l";
    let model = server(1_500_000_000)
        .text(&write("count.sh", &format!("echo $({old})\n")))
        .text(&run("sh count.sh"))
        .text(&answer())
        .text(&turn(json!({ "tool": "edit_file", "path": "count.sh", "old": old, "new": "find . -maxdepth 1 -type f | wc -l" })))
        .text(&run("sh count.sh"))
        .text(&answer())
        .start();
    work(&model, "Write count.sh that prints the number of files in this directory. Run it.");
    let requests = model.chat_requests();
    let reminder = last_text(&requests[3]);
    assert!(reminder.contains(r#""new":"find . -maxdepth 1 -type f | wc -l"}"#), "{reminder}");
}

#[test]
fn a_program_that_prints_unexpected_numbers_again_is_begun_anew() {
    let model = server(1_500_000_000)
        .text(&write("hours.py", "print(36 * 3600000)\n"))
        .text(&run("python3 hours.py"))
        .text(&answer())
        .text("2160")
        .text(&write("hours.py", "print(36 * 7200000)\n"))
        .text(&run("python3 hours.py"))
        .text(&answer())
        .text(&write("hours.py", "print(36 * 60)\n"))
        .text(&run("python3 hours.py"))
        .text(&answer())
        .start();
    let finished = work(&model, "Write hours.py that prints how many minutes 36 hours have, and run it.");
    assert_eq!(finished.events_of("started_over").len(), 1);
    assert_eq!(finished.events_of("nudge").len(), 2);
    assert_eq!(finished.host_file("hours.py").as_deref(), Some("print(36 * 60)\n"));
}

#[test]
fn a_function_is_added_to_those_that_are_there() {
    let model = server(1_500_000_000)
        .text(&turn(json!({ "tool": "read_file", "path": "ops.py" })))
        .text(&write("ops.py", "def sub(a, b):\n    return a - b\n"))
        .text(&write("ops.py", "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n"))
        .text(&answer())
        .start();
    let call = agent().file("ops.py", "def add(a, b):\n    return a + b\n").endpoint(&model);
    let prompt = "Add a function sub(a, b) that returns a - b to ops.py. Keep add.";
    let finished = call.args(["run", prompt, "--json", "--apply"]).run().expect_code(0);
    let requests = model.chat_requests();
    let refusal = last_text(&requests[2]);
    assert!(
        refusal.contains("this would remove add from ops.py. Send the write_file of ops.py with add"),
        "{refusal}"
    );
    assert!(finished.host_file("ops.py").is_some_and(|content| content.contains("def add")));
}

#[test]
fn a_program_that_reads_the_clock_for_a_task_that_says_nothing_of_it_is_pointed_out() {
    let model = server(1_500_000_000)
        .text(&write("hours.py", "import time\nprint(time.time() // 60 * 36)\n"))
        .text(&run("python3 hours.py"))
        .text(&answer())
        .text(&write("hours.py", "print(36 * 60)\n"))
        .text(&run("python3 hours.py"))
        .text(&answer())
        .text("2160 2160")
        .start();
    work(&model, "Write hours.py which prints how many minutes there are in 36 hours, and execute it.");
    let requests = model.chat_requests();
    let reminder = last_text(&requests[3]);
    assert!(reminder.contains("hours.py uses time.time()"), "{reminder}");
    assert_eq!(requests.len(), 7, "the numbers of the second program are as expected");
}

#[test]
fn a_list_in_brackets_is_not_separated_by_commas_alone() {
    let model = server(1_500_000_000)
        .text(&write("even.py", "print(list(range(2, 9, 2)))\n"))
        .text(&run("python3 even.py"))
        .text(&answer())
        .text("2 4 6 8")
        .text(&write("even.py", "print(*range(2, 9, 2), sep=',')\n"))
        .text(&run("python3 even.py"))
        .text(&answer())
        .start();
    work(
        &model,
        "Create even.py printing the even numbers from 2 through 8 separated by commas, then run it.",
    );
    let requests = model.chat_requests();
    let reminder = last_text(&requests[4]);
    assert!(reminder.contains("printed is in brackets") && reminder.contains("sep=','"), "{reminder}");
    assert_eq!(requests.len(), 7);
}

#[test]
fn a_program_that_calls_none_of_its_functions_gets_the_step_that_calls_the_last() {
    let edit = json!({
        "tool": "edit_file", "path": "sum.py", "old": "    print(sum(range(5)))", "new": "    print(sum(range(5)))\n\n\ntotal()"
    });
    let model = server(1_500_000_000)
        .text(&write("sum.py", "def total():\n    print(sum(range(5)))\n"))
        .text(&run("python3 sum.py"))
        .text(&answer())
        .text(&turn(edit.clone()))
        .text(&run("python3 sum.py"))
        .text(&answer())
        .text("10")
        .start();
    let finished = work(&model, "Write sum.py that prints the sum of the numbers from 0 to 4, and run it.");
    let requests = model.chat_requests();
    let reminder = last_text(&requests[3]);
    assert!(
        reminder.contains("sum.py calls none of its functions") && reminder.contains(&edit.to_string()),
        "{reminder}"
    );
    assert_eq!(finished.events_of("nudge").len(), 1);
}

#[test]
fn a_small_model_that_is_to_calculate_gets_a_note_to_do_it_with_a_program() {
    let program = "print(2 ** 100)\n";
    let model = server(1_500_000_000)
        .text(&write("/tmp/calc.py", program))
        .text(&run("python3 /tmp/calc.py"))
        .text(&turn(json!({ "tool": "answer", "text": "1267650600228229401496703205376" })))
        .start();
    let finished = work(&model, "Compute 2 to the power of 100.");
    let requests = model.chat_requests();
    assert!(last_text(&requests[0]).contains("Calculate it with a Python program"), "{}", requests[0]);
    assert!(last_text(&requests[2]).contains("1267650600228229401496703205376"), "{}", requests[2]);
    assert_eq!(finished.host_file("calc.py"), None, "nothing is left in the workspace");
}

#[test]
fn numbers_that_a_small_model_only_echoes_are_questioned() {
    let model = server(1_500_000_000)
        .text(&run("echo '1 1 2 3 5 8'"))
        .text(&answer())
        .text(&run("python3 -c 'print(1, 1, 2, 3, 5)'"))
        .text(&answer())
        .start();
    let finished = work(&model, "Show the first five Fibonacci numbers.");
    let requests = model.chat_requests();
    let reminder = last_text(&requests[2]);
    assert!(reminder.contains("nothing was calculated"), "{reminder}");
    assert_eq!(finished.events_of("nudge").len(), 1);
}

#[test]
fn an_answer_with_numbers_that_its_program_did_not_print_is_not_accepted_at_once() {
    let model = server(1_500_000_000)
        .text(&write("/tmp/calc.py", "print(5)\n"))
        .text(&run("python3 /tmp/calc.py"))
        .text(&turn(json!({ "tool": "answer", "text": "They are 1, 1, 2, 3, 7, 12, 19." })))
        .text(&write("/tmp/calc.py", "print(1, 1, 2, 3, 5, 8, 13)\n"))
        .text(&run("python3 /tmp/calc.py"))
        .text(&turn(json!({ "tool": "answer", "text": "They are 1, 1, 2, 3, 5, 8, 13." })))
        .start();
    let finished = work(&model, "Show the first seven Fibonacci numbers.");
    let requests = model.chat_requests();
    let reminder = last_text(&requests[3]);
    assert!(reminder.contains("did not print. It printed:\n5"), "{reminder}");
    assert_eq!(finished.events_of("nudge").len(), 1);
}

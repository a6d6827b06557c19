//! Whether a prompt asks for a result that has to be calculated.

use super::{asks_for_change, files_named, files_to_make, is_about_input, orders, orders_run, words};

/// Whether it asks for the result of a calculation with numbers that it names, and names no file.
pub fn is_calculation(prompt: &str) -> bool {
    let has_number = prompt.contains(|c: char| c.is_ascii_digit() || c == 'π')
        || words(prompt).any(|word| NUMBERS.contains(&word.as_str()));
    has_number
        && words(prompt).any(|word| CALCULATES.contains(&word.as_str()))
        && files_named(prompt).is_empty()
        && files_to_make(prompt).is_empty()
        && !is_about_input(prompt)
        && !asks_for_change(prompt)
        && !words(prompt).any(|word| OF_FILES.contains(&word.as_str()))
        && !orders_run(prompt)
        && !orders(prompt, &["describe", "explain", "review", "summarize", "why"])
}

/// Words of prompts that ask for a result.
const CALCULATES: [&str; 16] = [
    "average",
    "calculate",
    "compute",
    "digits",
    "estimate",
    "factorial",
    "factorials",
    "fibonacci",
    "median",
    "multiply",
    "prime",
    "primes",
    "root",
    "squared",
    "squares",
    "sum",
];
/// Words of prompts about what is in the files.
const OF_FILES: [&str; 8] = ["code", "file", "files", "find", "function", "repository", "where", "which"];
/// Numbers in words.
const NUMBERS: [&str; 14] = [
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twenty", "fifty", "hundred",
    "thousand", "million",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calculation_needs_no_file_of_the_users() {
        for prompt in [
            "What is 20 factorial?",
            "Print the first 20 numbers of the Fibonacci sequence.",
            "Sum the numbers from 1 to 10000.",
            "Estimate π with the Monte Carlo method, reproducibly, and draw the points.",
        ] {
            assert!(is_calculation(prompt), "{prompt}");
        }
        for prompt in [
            "Write sum.py that prints the sum of the numbers from 1 to 100.",
            "Print the sum of the numbers in in.txt.",
            "Add a function that computes the average of a list.",
            "Explain how the median is computed here.",
            "What is the root directory of this project?",
            "Sum up what this repository does.",
            "Show where the average is computed.",
            "Now run it again and tell me the sum of the first 10.",
            "What does this project do?",
        ] {
            assert!(!is_calculation(prompt), "{prompt}");
        }
    }
}

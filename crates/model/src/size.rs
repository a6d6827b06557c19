//! The size of a model as its name states it, and the form of the calls that goes with it.

use agent_event::CallForm;

/// Models with fewer parameters are small.
const SMALL: f64 = 4e9;

/// Returns whether a model of this size is a small one: it gets the compact form, and help, unless the user says otherwise.
pub fn is_small(parameters: f64) -> bool {
    parameters < SMALL
}

/// The form for a model of this size.
pub fn form_for_size(parameters: f64) -> CallForm {
    match is_small(parameters) {
        true => CallForm::Compact,
        false => CallForm::Native,
    }
}

/// The number of parameters that a model's name states: `qwen2.5-coder:1.5b`, `gemma-3-270m-it`. Of several numbers the
/// largest counts: `Qwen3-30B-A3B`.
pub fn parameters_in_name(name: &str) -> Option<f64> {
    // A path or an organisation in front says nothing about the model.
    let name = name.rsplit('/').next().unwrap_or(name);
    let words = name.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
    words.filter_map(parameters).reduce(f64::max)
}

/// `1.5B` or `270M` as a number.
pub fn parameters(word: &str) -> Option<f64> {
    let (number, unit) = word.split_at_checked(word.len().checked_sub(1)?)?;
    let factor = match unit {
        "b" | "B" => 1e9,
        "m" | "M" => 1e6,
        _ => return None,
    };
    let number: f64 = number.parse().ok().filter(|_| number.starts_with(|c: char| c.is_ascii_digit()))?;
    (number > 0.0 && number < 1e5).then_some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_read_from_the_name() {
        for (name, expected) in [
            ("Qwen2.5-Coder-1.5B-Instruct", Some(1.5e9)),
            ("llama3.2:1b", Some(1e9)),
            ("models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", Some(0.5e9)),
            ("gemma-3-270m-it", Some(270e6)),
            ("Qwen3-30B-A3B", Some(30e9)),
            ("org-7b/unknown", None),
            ("mixtral-8x7b", None),
            ("gpt-4.1-mini", None),
            ("b", None),
            ("", None),
        ] {
            assert_eq!(parameters_in_name(name), expected, "{name}");
        }
    }

    #[test]
    fn small_models_get_the_compact_form() {
        assert_eq!(form_for_size(1.5e9), CallForm::Compact);
        assert_eq!(form_for_size(7e9), CallForm::Native);
    }
}

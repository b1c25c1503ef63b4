//! What the tests of this crate share: the vectors at the workspace root (`tests/vectors`).

#![allow(dead_code, reason = "every test binary uses its own part of this")]
#![allow(clippy::unwrap_used, reason = "a vector that cannot be read fails its test")]

use serde_json::Value;

/// Runs `check` on all cases of a file that `select` picks; returns their number.
pub(crate) fn run_vectors(file: &str, select: impl Fn(&Value) -> bool, check: impl Fn(&Value)) -> usize {
    let path = format!("{}/../../tests/vectors/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let document: Value = serde_json::from_str(&text).unwrap();
    let cases: Vec<_> = document["cases"].as_array().unwrap().iter().filter(|case| select(case)).collect();
    for case in &cases {
        println!("{} {}", case["id"], case["name"]);
        check(case);
    }
    cases.len()
}

/// A field in words.
pub(crate) fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case[key].as_str().unwrap_or_else(|| panic!("{}: no {key}", case["id"]))
}

/// A field in hexadecimal digits.
pub(crate) fn bytes(case: &Value, key: &str) -> Vec<u8> {
    let digits = text(case, key);
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

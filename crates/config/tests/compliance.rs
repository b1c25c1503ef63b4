//! The compliance pages name tests; here every name is looked up, so that no page rests on a test
//! that is gone.
//!
//! A name in the last column of a table is a golden case (`siit/...`, with `*` for several), a
//! vector kind behind the word "vectors", a file, or the name of a test function, with its file in
//! front or without.

#![allow(clippy::unwrap_used, reason = "a page that cannot be read fails")]

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Verdicts that need no test. Every other row has to name one.
const UNTESTED: [&str; 3] = ["no", "not ours", "n/a"];

struct Known {
    cases: Vec<String>,
    functions: HashSet<String>,
    files: HashSet<String>,
    vectors: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

fn known() -> Known {
    let mut sources = Vec::new();
    files(&root().join("crates"), "rs", &mut sources);
    let mut functions = HashSet::new();
    for source in &sources {
        let text = fs::read_to_string(source).unwrap();
        let names = text.split("fn ").skip(1).filter_map(|rest| rest.split_once('(')).map(|(name, _)| name);
        functions.extend(names.map(|name| name.split('<').next().unwrap_or(name).to_owned()));
    }
    let mut cases = Vec::new();
    files(&root().join("tests/cases"), "toml", &mut cases);
    let mut vectors = Vec::new();
    files(&root().join("tests/vectors"), "json", &mut vectors);
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    Known {
        cases: cases
            .iter()
            .filter(|path| path.ends_with("case.toml"))
            .map(|path| {
                let case = path.parent().unwrap();
                let service = case.parent().unwrap().file_name().unwrap().to_string_lossy();
                format!("{service}/{}", case.file_name().unwrap().to_string_lossy())
            })
            .collect(),
        functions,
        files: sources.iter().chain(&vectors).map(name).collect(),
        vectors: vectors.iter().map(|path| fs::read_to_string(path).unwrap()).collect(),
    }
}

impl Known {
    fn has(&self, name: &str, before: &str) -> bool {
        if let Some((service, case)) =
            name.split_once('/').filter(|(service, _)| *service != "crates" && *service != "tests")
        {
            return self.cases.iter().any(|known| matches(&format!("{service}/{case}"), known));
        }
        let is_vector = before.trim_end_matches([' ', ',', '`']).ends_with("vectors") || before.contains("vectors `");
        let file = name.rsplit('/').next().unwrap_or(name);
        self.functions.contains(name.rsplit("::").next().unwrap_or(name))
            || self.files.contains(file)
            || is_vector && self.vectors.contains(&format!("\"kind\": \"{name}\""))
            || is_vector && self.vectors.contains(&format!("\"kind\":\"{name}\""))
    }
}

/// `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    rest.is_empty() || last == Some("")
}

#[test]
fn every_test_that_a_compliance_page_names_exists() {
    let known = known();
    let mut pages = Vec::new();
    files(&root().join("docs/rfc-compliance"), "md", &mut pages);
    let (mut problems, mut names) = (Vec::new(), 0);
    for page in pages {
        let file = page.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&page).unwrap();
        for (number, line) in (1..).zip(text.lines()) {
            // A bar in a table is written \| where it is none of the table's.
            let cells: Vec<&str> = line.trim().trim_matches('|').split(" | ").map(str::trim).collect();
            let [clause, verdict, .., tested] = cells[..] else { continue };
            if !line.starts_with('|') || clause == "clause" || verdict.starts_with("---") {
                continue;
            }
            let tested = tested.trim_end_matches('|').trim();
            if tested.is_empty() && !UNTESTED.contains(&verdict) {
                problems.push(format!("{file}:{number}: {clause}: no test is named"));
            }
            let words: Vec<&str> = tested.split('`').collect();
            for (at, name) in words.iter().enumerate().skip(1).step_by(2) {
                names += 1;
                if !known.has(name, &words[..at].join("`")) {
                    problems.push(format!("{file}:{number}: `{name}` is no test"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(names > 150, "only {names} names were found: the pages are read wrongly");
}

#[test]
fn patterns_match_as_in_a_shell() {
    assert!(matches("siit/eam-*-4to6", "siit/eam-192-0-2-1-4to6") && matches("siit/t29-*", "siit/t29-x"));
    assert!(!matches("siit/eam-*-4to6", "siit/eam-192-0-2-1-6to4") && !matches("siit/a", "siit/ab"));
}

//! Which crate may import which: the arrows of ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What each crate may depend on among ours. A crate that is missing here fails the test.
const ALLOWED: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("records", &[]),
    ("tables", &["wire", "records"]),
    ("engine", &["wire", "tables"]),
    ("io", &["wire", "tables", "engine"]),
    ("config", &["wire", "tables", "engine"]),
    ("fastpath", &["wire", "records", "tables", "engine", "io"]),
    ("daemon", &["wire", "tables", "engine", "io", "config", "fastpath"]),
    ("lab", &[]),
    ("generator", &["records"]),
    ("tester", &["wire", "tables", "lab", "generator", "io", "report"]),
    ("report", &[]),
    ("tombolo", &["wire", "tables", "engine", "io", "config", "daemon", "fastpath", "lab", "tester", "report"]),
];

#[test]
fn crates_import_only_what_the_architecture_allows() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let mut seen = 0;
    for entry in std::fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Ok(manifest) = std::fs::read_to_string(path.join("Cargo.toml")) else { continue };
        let may = allowed.get(name.as_str()).unwrap_or_else(|| panic!("crate {name} has no arrows in this test"));
        for import in imports(&manifest) {
            assert!(may.contains(&import.as_str()), "{name} must not import {import}");
        }
        seen += 1;
    }
    assert!(seen >= 9, "only {seen} crates were found");
}

/// Our crates among the dependencies that are built into the crate; those of its tests do not
/// count.
fn imports(manifest: &str) -> BTreeSet<String> {
    let mut imports = BTreeSet::new();
    let mut counts = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            counts = matches!(line, "[dependencies]" | "[build-dependencies]");
        } else if counts && let Some(rest) = line.strip_prefix("tombolo-") {
            imports.extend(rest.split(['.', ' ', '=']).next().map(str::to_owned));
        }
    }
    imports
}

//! Which crate may import which, which folder of the engine, and that no files import each other in
//! a circle: the arrows of ARCHITECTURE.md.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod circles;
mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use circles::{circles, describe, name};
use imports::{Module, Source, arrows, read, source};

/// What each crate may depend on among ours. A crate that is missing here fails the test.
const ALLOWED: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("records", &[]),
    ("tables", &["wire", "records"]),
    ("engine", &["wire", "tables"]),
    ("io", &["wire", "tables", "engine"]),
    ("config", &["wire", "tables", "engine"]),
    ("cluster", &["tables", "engine"]),
    ("import", &[]),
    ("init", &["io"]),
    ("fastpath", &["wire", "records", "tables", "engine", "io"]),
    ("daemon", &["wire", "records", "tables", "engine", "io", "config", "cluster", "fastpath"]),
    ("lab", &[]),
    ("generator", &["records"]),
    ("tester", &["wire", "records", "tables", "lab", "generator"]),
    ("report", &[]),
    (
        "tombolo",
        &[
            "wire", "tables", "engine", "io", "config", "daemon", "fastpath", "import", "init", "lab", "tester",
            "report",
        ],
    ),
];

/// Which folder of the engine may import which, besides itself. A folder that is missing here fails
/// the test.
const ENGINE_FOLDERS: &[(&str, &[&str])] = &[
    ("carry_over", &[ABOVE, "service", "mechanism", "mapping", ROOMS]),
    (ABOVE, &["service", "mechanism", "mapping", ROOMS]),
    ("service", &["mechanism", "mapping", ROOMS]),
    ("mechanism", &["mapping", ROOMS]),
    ("mapping", &[ROOMS]),
    (ROOMS, &["mechanism", "mapping"]),
];
/// Files at the engine's root that stand above its services: they know the list of them.
const ABOVE: &str = "root, above the services";
const FILES_ABOVE: &[&str] = &[
    "adoption",
    "allowed",
    "engine",
    "flush",
    "layout",
    "pcp",
    "pcp_request",
    "plan",
    "probe",
    "settle",
    "static_bindings",
    "sweep",
];
/// All other files at its root: types that everybody uses.
const ROOMS: &str = "root, a room";

#[test]
fn crates_import_only_what_the_architecture_allows() {
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let mut seen = 0;
    for (name, path) in crates() {
        let manifest = std::fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let may = allowed.get(name.as_str()).unwrap_or_else(|| panic!("crate {name} has no arrows in this test"));
        for import in imports(&manifest) {
            assert!(may.contains(&import.as_str()), "{name} must not import {import}");
        }
        seen += 1;
    }
    assert!(seen >= 9, "only {seen} crates were found");
}

/// Names and folders of our crates.
fn crates() -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.join("Cargo.toml").exists());
    paths.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path)).collect()
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

#[test]
fn no_files_of_a_crate_import_each_other_in_a_circle() {
    let mut found = String::new();
    for (crate_name, path) in crates() {
        for circle in circles(&arrows(&read(&path.join("src")))) {
            found += &format!("{crate_name}: {} files in a circle:\n{}", circle.len(), describe(&circle));
        }
    }
    assert!(found.is_empty(), "what several files use has a room of its own, below its users\n{found}");
}

#[test]
fn folders_of_the_engine_import_only_what_lies_below_them() {
    let engine = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/src");
    let wrong = wrong_arrows(&read(&engine));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The arrows between folders of the engine that the table does not allow.
fn wrong_arrows(sources: &[Source]) -> Vec<String> {
    let allowed: BTreeMap<_, _> = ENGINE_FOLDERS.iter().copied().collect();
    let mut wrong = Vec::new();
    for (from, targets) in arrows(sources).iter().filter(|(from, _)| !from.is_empty()) {
        let folder = folder_of(from, sources);
        let Some(may) = allowed.get(folder) else {
            wrong.push(format!("the folder {folder} has no arrows in this test"));
            continue;
        };
        for to in targets.iter().filter(|to| !to.is_empty()) {
            let target = folder_of(to, sources);
            if target != folder && !may.contains(&target) {
                wrong.push(format!("{} ({folder}) must not import {} ({target})", name(from), name(to)));
            }
        }
    }
    wrong
}

fn folder_of<'a>(module: &'a Module, sources: &[Source]) -> &'a str {
    let first = module[0].as_str();
    let is_folder = sources.iter().any(|source| source.module.len() > 1 && source.module[0] == first);
    match first {
        _ if is_folder => first,
        _ if FILES_ABOVE.contains(&first) => ABOVE,
        _ => ROOMS,
    }
}

/// A made-up crate: files and what stands in them.
fn tree(files: &[(&str, &str)]) -> Vec<Source> {
    files.iter().map(|(path, text)| source(Path::new(path), (*text).to_owned())).collect()
}

fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    circles(&arrows(&tree(files))).iter().map(describe).collect()
}

#[test]
fn a_circle_is_found_and_named_however_it_is_written() {
    let backs = [
        "use crate::a::A;",
        "use super::a::A;",
        "use super::{a::{A, C}, d::D};",
        "use crate::a as other;",
        "use crate::A;",
        "pub(crate) use crate::a::A;",
        "fn f() -> u8 { g(&[crate::a::A]) }",
        "fn f() { assert!(matches!(1, super::a::A)); }",
        "mod inner { fn f() { super::super::a::f() } }",
    ];
    for back in backs {
        let root = ("lib.rs", "mod a; mod b; mod d; pub use a::A;");
        let found = circles_of(&[root, ("a.rs", "use crate::b::B;"), ("b.rs", back), ("d.rs", "")]);
        assert_eq!(found, ["  a -> b\n  b -> a\n"], "{back}");
    }
}

#[test]
fn an_entrance_is_in_a_circle_if_it_has_what_those_behind_it_use() {
    let cellar = [("x/mod.rs", "mod y; fn f() { y::g() } pub struct Z;"), ("x/y.rs", "use super::Z; pub fn g() {}")];
    assert_eq!(circles_of(&cellar), ["  x -> x::y\n  x::y -> x\n"]);
    let handed_on = [
        ("x/mod.rs", "mod y; mod z; pub use z::Z; fn f() { y::g() }"),
        ("x/y.rs", "use super::Z; pub fn g() {}"),
        ("x/z.rs", "pub struct Z;"),
    ];
    assert_eq!(circles_of(&handed_on), [""; 0]);
    let root = [("lib.rs", "mod a; struct S; fn f() { a::g() }"), ("a.rs", "use crate::S;")];
    assert_eq!(circles_of(&root), ["  the root -> a\n  a -> the root\n"]);
}

#[test]
fn what_only_looks_like_a_circle_is_none() {
    let backs = [
        "// use crate::a::A;\n/// See [`crate::a`]. use crate::a::A;\nfn f() { g(\"use crate::a::A;\") }",
        "#[cfg(test)]\n#[expect(x)]\nmod tests { use crate::a::A; }\nfn f() {}",
        "#[cfg(test)] use crate::a::{A, C};",
        "pub(in crate::a) fn f() {}",
        "use other::a::A; fn f() { a::g(); other::a::g() }",
    ];
    for back in backs {
        assert_eq!(circles_of(&[("a.rs", "use crate::b::B;"), ("b.rs", back)]), [""; 0], "{back}");
    }
}

#[test]
fn an_arrow_against_the_folders_is_found() {
    let engine = |path, text| {
        let rest = [("service/mod.rs", ""), ("service/siit.rs", ""), ("mechanism/a.rs", ""), ("mapping/b.rs", "")];
        let rest = rest.into_iter().chain([("engine.rs", ""), ("verdict.rs", ""), ("plan.rs", "")]);
        let files: Vec<_> = rest.filter(|(other, _)| *other != path).chain([(path, text)]).collect();
        wrong_arrows(&tree(&files)).len()
    };
    assert_eq!(engine("engine.rs", "use crate::service::siit::Siit; use crate::plan::Plan;"), 0);
    assert_eq!(engine("service/siit.rs", "use crate::{mechanism::a, mapping::b, verdict::V}; use super::siit;"), 0);
    assert_eq!(engine("service/siit.rs", "use crate::plan::Plan;"), 1);
    assert_eq!(engine("mechanism/a.rs", "use crate::service::siit::Siit; use crate::mapping::b::B;"), 1);
    assert_eq!(engine("mapping/b.rs", "use crate::mechanism::a::A; use crate::service;"), 2);
    assert_eq!(engine("verdict.rs", "fn f() { crate::service::siit::g(crate::mapping::b::B) }"), 1);
    assert_eq!(engine("new/c.rs", ""), 1);
}

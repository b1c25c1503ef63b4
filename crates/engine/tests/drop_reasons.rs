//! `docs/drop-reasons.md` is written from the one list of reasons; this test keeps it so.

use std::fmt::Write as _;

use tombolo_engine::DropReason;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/drop-reasons.md");

/// With `TOMBOLO_WRITE_DOCS=1` the file is written instead of compared.
#[test]
fn the_documentation_lists_every_reason() {
    let mut page = String::from(
        "# Drop reasons\n\nWhy a packet was not forwarded. The name is the one in counters, metrics and logs.\n\n\
         | name | cause | what to do |\n|---|---|---|\n",
    );
    for reason in DropReason::ALL {
        writeln!(page, "| `{}` | {} | {} |", reason.name(), reason.cause().trim(), reason.remedy()).unwrap();
    }
    if std::env::var_os("TOMBOLO_WRITE_DOCS").is_some() {
        std::fs::write(PATH, &page).unwrap();
    }
    let found = std::fs::read_to_string(PATH).unwrap_or_default();
    assert!(found == page, "docs/drop-reasons.md is not what the code says; run this test with TOMBOLO_WRITE_DOCS=1");
}

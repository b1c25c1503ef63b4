//! Compiles the generator's BPF program with clang, with the records of `src/layout.rs` in a
//! generated header.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use tombolo_records::{clang, header};

#[path = "src/layout.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the crate; only the descriptions are wanted here")]
mod layout;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-changed=src/layout.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let header = header(&layout::constants(), &layout::records());
    fs::write(out.join("layout.h"), header).unwrap_or_else(|why| panic!("cannot write layout.h: {why}"));
    clang::compile(Path::new("bpf/generator.bpf.c"), &out);
}

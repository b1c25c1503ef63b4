//! Compiles the BPF program that measures the kernel's route lookup.

use std::env;
use std::path::{Path, PathBuf};

use tombolo_records::clang;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    clang::compile(Path::new("bpf/route_lookup.bpf.c"), &out);
}

//! Compiles the BPF program that measures the kernel's route lookup.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("route_lookup.bpf.o");
    let mut command = Command::new(&clang);
    command.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v3"]);
    // Debian keeps `asm/types.h` in a folder of the architecture; other systems have it in
    // /usr/include itself.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let multiarch = Path::new("/usr/include").join(format!("{arch}-linux-gnu"));
    if multiarch.is_dir() {
        command.arg("-I").arg(multiarch);
    }
    command.args(["-c", "bpf/route_lookup.bpf.c", "-o"]).arg(&out);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!(
            "{clang} could not compile bpf/route_lookup.bpf.c ({status}); its messages are above. libbpf's headers are needed: apt-get install libbpf-dev"
        ),
        Err(why) => panic!(
            "cannot run {clang}: {why}. The kernel's route lookup is measured by a BPF program in C: apt-get install clang libbpf-dev, or set CLANG"
        ),
    }
}

//! Compiles the generator's BPF program with clang.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("generator.bpf.o");
    let mut command = Command::new(&clang);
    command.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v3"]);
    for include in multiarch_includes() {
        command.arg("-I").arg(include);
    }
    command.args(["-c", "bpf/generator.bpf.c", "-o"]).arg(&out);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!(
            "{clang} could not compile bpf/generator.bpf.c ({status}); its messages are above. libbpf's headers are needed: apt-get install libbpf-dev"
        ),
        Err(why) => panic!(
            "cannot run {clang}: {why}. The tester's packet generator is BPF C: apt-get install clang libbpf-dev, or set CLANG"
        ),
    }
}

/// The folder that holds `asm/types.h` on Debian's multiarch layout; other systems have it in
/// /usr/include itself.
fn multiarch_includes() -> Vec<PathBuf> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let path = Path::new("/usr/include").join(format!("{arch}-linux-gnu"));
    if path.is_dir() { vec![path] } else { Vec::new() }
}

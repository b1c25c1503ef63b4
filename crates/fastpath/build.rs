//! Compiles the programs of `bpf/` with clang, one object for each `*.bpf.c`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let files = fs::read_dir("bpf").unwrap_or_else(|why| panic!("cannot read the folder bpf: {why}"));
    for source in files.filter_map(|file| Some(file.ok()?.path())) {
        let name = source.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(stem) = name.strip_suffix(".bpf.c") {
            compile(&clang, &source, &out.join(format!("{stem}.bpf.o")));
        }
    }
}

fn compile(clang: &str, source: &Path, object: &Path) {
    let mut command = Command::new(clang);
    command.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v3"]);
    // Debian keeps `asm/types.h` in a folder of the architecture; other systems have it in /usr/include itself.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let multiarch = Path::new("/usr/include").join(format!("{arch}-linux-gnu"));
    if multiarch.is_dir() {
        command.arg("-I").arg(multiarch);
    }
    match command.arg("-c").arg(source).arg("-o").arg(object).status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!(
            "{clang} could not compile {} ({status}); its messages are above. libbpf's headers are needed: apt-get install libbpf-dev",
            source.display()
        ),
        Err(why) => {
            panic!("cannot run {clang}: {why}. The fast path is BPF C: apt-get install clang libbpf-dev, or set CLANG")
        }
    }
}

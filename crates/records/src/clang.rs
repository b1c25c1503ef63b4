//! Compiling programs for BPF, in build scripts.

use std::env;
use std::path::Path;
use std::process::Command;

/// Compiles `source` with clang, or what `CLANG` names, to an object in the folder `out`, which may
/// hold generated headers: `name.bpf.c` to `name.bpf.o`.
///
/// # Panics
/// If it cannot be compiled; the message says what to install.
pub fn compile(source: &Path, out: &Path) {
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let object = out.join(source.file_stem().unwrap_or_default()).with_extension("bpf.o");
    let mut command = Command::new(&clang);
    command.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v3", "-I"]).arg(out);
    // Debian keeps `asm/types.h` in a folder of the architecture; other systems have it in
    // /usr/include itself.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let multiarch = Path::new("/usr/include").join(format!("{arch}-linux-gnu"));
    if multiarch.is_dir() {
        command.arg("-I").arg(multiarch);
    }
    let source = source.display();
    match command.arg("-c").arg(source.to_string()).arg("-o").arg(&object).status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!(
            "{clang} could not compile {source} ({status}); its messages are above. libbpf's headers are needed: apt-get install libbpf-dev"
        ),
        Err(why) => {
            panic!("cannot run {clang}: {why}. {source} is BPF C: apt-get install clang libbpf-dev, or set CLANG")
        }
    }
    assert!(object.is_file(), "{clang} made no object of {source}");
}

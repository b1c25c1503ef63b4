//! Compiling programs for BPF, in build scripts.

use std::env;
use std::path::Path;
use std::process::Command;

/// The kernel's name of a processor, by which the programs know what it does; libbpf's macros go by
/// it, too.
fn name_in_the_kernel(arch: &str) -> &str {
    match arch {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => other,
    }
}

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
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    command.arg(format!("-D__TARGET_ARCH_{}", name_in_the_kernel(&arch)));
    // Debian keeps `asm/types.h` in a folder of the architecture, or of the cross compiler; other
    // systems have it in /usr/include itself.
    let folders = [format!("/usr/include/{arch}-linux-gnu"), format!("/usr/{arch}-linux-gnu/include")];
    if let Some(folder) = folders.iter().find(|folder| Path::new(folder).join("asm").is_dir()) {
        command.arg("-I").arg(folder);
    }
    command.arg("-c").arg(source);
    // For whoever wants to know what other compilers make of it: scripts/check-clang.sh.
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    let _ = std::fs::write(object.with_extension("words"), words.join("\n"));
    let source = source.display();
    match command.arg("-o").arg(&object).status() {
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

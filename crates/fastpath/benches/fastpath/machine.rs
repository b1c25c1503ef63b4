//! The machine that the figures are from.

use std::fs;
use std::path::Path;

/// Processor, cores, kernel, and what the kernel does against faults of the processor.
pub(crate) fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{}, {cores} cores, Linux {}; mitigations: {}", processor(), kernel.trim(), mitigations())
}

/// What a program may take of the memory before the machine has none.
pub(crate) fn available_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.unwrap_or_default() * 1024
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.split('\t').next().is_some_and(|key| key.trim() == name));
        line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, value)| value.trim()).to_owned()
    };
    format!(
        "{}, family {}, model {}, stepping {}",
        field("model name"),
        field("cpu family"),
        field("model"),
        field("stepping")
    )
}

fn mitigations() -> String {
    let files = fs::read_dir(Path::new("/sys/devices/system/cpu/vulnerabilities"));
    let mut all: Vec<String> = files
        .into_iter()
        .flatten()
        .filter_map(|file| {
            let path = file.ok()?.path();
            let what = fs::read_to_string(&path).ok()?;
            let name = path.file_name()?.to_str()?;
            (what.trim() != "Not affected").then(|| format!("{name}: {}", what.trim()))
        })
        .collect();
    all.sort();
    if all.is_empty() { "none needed".into() } else { all.join(" | ") }
}

//! What a measurement was taken on. A figure without it means nothing to anybody else.

use std::{collections::BTreeMap, fs, process::Command, thread};

use serde::{Deserialize, Serialize};

/// The machine and the programs that measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
    /// The first CPU's model name.
    pub cpu: String,
    /// The CPUs this process may run on.
    pub cpus: usize,
    /// Main memory in KiB.
    pub memory_kib: u64,
    /// Runnable processes, averaged over the minute before: what else was going on.
    pub load_average: f64,
    /// Whether the CPU admits to a hypervisor.
    pub virtual_machine: bool,
    /// The distribution's name.
    pub system: String,
    /// Programs and their versions.
    pub tools: BTreeMap<String, String>,
}

impl Machine {
    /// Describes this machine, and asks `tools` for their versions with `--version`.
    #[must_use]
    pub fn describe(tools: &[&str]) -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let system = read("/etc/os-release");
        let system = system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        Self {
            kernel: kernel(),
            cpu: field(&cpuinfo, "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cpus: thread::available_parallelism().map_or(1, usize::from),
            memory_kib: memory.trim_end_matches(" kB").parse().unwrap_or_default(),
            load_average: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or_default(),
            virtual_machine: field(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")),
            system: system.unwrap_or("unknown").trim_matches('"').to_owned(),
            tools: tools.iter().map(|tool| ((*tool).to_owned(), version_of(tool, &["--version"]))).collect(),
        }
    }
}

/// The kernel's release.
#[must_use]
pub fn kernel() -> String {
    read("/proc/sys/kernel/osrelease").trim().to_owned()
}

/// The first line that a program prints about its version; `unknown` when it prints none.
#[must_use]
pub fn version_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().filter(|line| !line.is_empty()).unwrap_or("unknown").to_owned()
}

/// The version of a Debian package; `unknown` where there is no dpkg.
#[must_use]
pub fn package_version(package: &str) -> String {
    version_of("dpkg-query", &["-W", "-f", "${Version}", package])
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The value of the first `key : value` line.
fn field(text: &str, key: &str) -> Option<String> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.into_iter().find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_memory_and_cpus() {
        let machine = Machine::describe(&["no-such-program"]);
        assert!(!machine.kernel.is_empty() && machine.memory_kib > 0 && machine.cpus > 0, "{machine:?}");
        assert_eq!(machine.tools["no-such-program"], "unknown");
    }
}

//! What a measurement was taken on. A figure without it means nothing to anybody else.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
    thread,
};

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
    /// What the kernel does about each weakness of the CPU, by the weakness' name; those that it has not are left out.
    #[serde(default)]
    pub mitigations: BTreeMap<String, String>,
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
            mitigations: mitigations(),
            system: system.unwrap_or("unknown").trim_matches('"').to_owned(),
            tools: tools.iter().map(|tool| ((*tool).to_owned(), version_of(tool, &["--version"]))).collect(),
        }
    }
}

/// What the kernel says of the CPU's weaknesses.
fn mitigations() -> BTreeMap<String, String> {
    let files = fs::read_dir("/sys/devices/system/cpu/vulnerabilities").into_iter().flatten().flatten();
    let named = files.filter_map(|file| {
        let said = fs::read_to_string(file.path()).ok()?;
        Some((file.file_name().into_string().ok()?, said.trim().to_owned()))
    });
    named.filter(|(_, said)| said != "Not affected").collect()
}

/// Of the processors `0..there`, one for each physical core that has none of those that are taken:
/// two threads of a core share its units, so that the second is no second core.
#[must_use]
pub fn one_thread_a_core(taken: &[usize], there: usize) -> Vec<usize> {
    let siblings = |cpu: usize| {
        let list = read(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
        let list = cpu_list(&list);
        if list.is_empty() { vec![cpu] } else { list }
    };
    first_of_each_core(taken, there, siblings)
}

fn first_of_each_core(taken: &[usize], there: usize, siblings: impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
    let mut used: BTreeSet<usize> = taken.iter().flat_map(|cpu| siblings(*cpu)).collect();
    (0..there)
        .filter(|cpu| {
            used.insert(*cpu) && {
                used.extend(siblings(*cpu));
                true
            }
        })
        .collect()
}

/// Reads the kernel's form: `0-3,8`.
fn cpu_list(text: &str) -> Vec<usize> {
    let ranges = text.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
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
    fn the_second_thread_of_a_core_is_no_core() {
        // Four cores of two threads: 0 and 4, 1 and 5, ...
        let siblings = |cpu: usize| cpu_list(&format!("{},{}", cpu % 4, cpu % 4 + 4));
        assert_eq!(first_of_each_core(&[0], 8, siblings), [1, 2, 3]);
        assert_eq!(first_of_each_core(&[5], 8, siblings), [0, 2, 3]);
        assert_eq!(cpu_list("0-2,7\n"), [0, 1, 2, 7]);
        let alone = |cpu: usize| vec![cpu];
        assert_eq!(first_of_each_core(&[0], 2, alone), [1]);
    }

    #[test]
    fn this_machine_has_a_kernel_memory_and_cpus() {
        let machine = Machine::describe(&["no-such-program"]);
        assert!(!machine.kernel.is_empty() && machine.memory_kib > 0 && machine.cpus > 0, "{machine:?}");
        assert_eq!(machine.tools["no-such-program"], "unknown");
    }
}

//! What this machine has and lacks for the gateway, and what works without what it lacks.
//!
//! Everything is tried, not guessed from version numbers, where trying leaves nothing behind.

use std::path::Path;

use tombolo_config::{FastPath as Wanted, Host};
use tombolo_daemon::accelerator::{PassedBy, choose};
use tombolo_daemon::error_chain::in_one_line;
use tombolo_engine::Plan;
use tombolo_engine::plan::OwnAddresses;
use tombolo_fastpath::{FastPath, Mode, PinnedMemory, Settings};
use tombolo_io::host::Forwarding;
use tombolo_io::links;
use tombolo_io::netfilter::ForeignRules;
use tombolo_tables::Tables;
use tombolo_tables::hash::HashKey;
use tombolo_tables::tables::Capacity;

use super::doctor_check::{Check, State};

const ENGINE_ONLY: &str =
    "everything works without the fast path, more slowly, and known sessions wait while the gateway restarts";

/// What was found.
pub(super) fn checks() -> Vec<Check> {
    let mut checks =
        vec![kernel(), tun(), capabilities(), forwarding(), source_check(), btf(), bpf_file_system(), jit()];
    checks.push(fast_path());
    let by = PassedBy { netfilter: foreign_rules(), routing: false };
    checks.push(netfilter(by.netfilter.as_deref()));
    checks.extend(interfaces(&by));
    checks
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn kernel() -> Check {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let found = format!("Linux {release}");
    match version {
        (..5, _) | (5, ..17) => Check::lacks("kernel", State::Warning, found, ENGINE_ONLY, "Linux 5.17 or later"),
        (5, _) | (6, ..6) => Check::lacks(
            "kernel",
            State::Warning,
            found,
            "the TC program is a filter, which is not replaced in one instant",
            "Linux 6.6 or later",
        ),
        _ => Check::ok("kernel", found),
    }
}

fn tun() -> Check {
    let without = "the gateway cannot run; tombolo check, translate and explain work";
    match std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun") {
        Ok(_) => Check::ok("tun", "/dev/net/tun can be opened"),
        Err(error) => {
            let remedy = "modprobe tun, or pass the device to the container (--device /dev/net/tun)";
            let state = if Path::new("/dev/net/tun").exists() { State::Warning } else { State::Missing };
            Check::lacks("tun", state, format!("/dev/net/tun: {error}"), without, remedy)
        }
    }
}

fn capabilities() -> Check {
    const NET_ADMIN: u64 = 1 << 12;
    const SYS_ADMIN: u64 = 1 << 21;
    const BPF: u64 = 1 << 39;
    let status = read("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default();
    let held = u64::from_str_radix(line.trim(), 16).unwrap_or(0);
    let remedy = "run as root, or with systemd's AmbientCapabilities=CAP_NET_ADMIN CAP_BPF";
    if held & NET_ADMIN == 0 {
        let without = "the gateway cannot run; tombolo check, translate and explain work";
        Check::lacks("capabilities", State::Missing, "CAP_NET_ADMIN is lacking", without, remedy)
    } else if held & (BPF | SYS_ADMIN) == 0 {
        Check::lacks("capabilities", State::Warning, "CAP_NET_ADMIN, but not CAP_BPF", ENGINE_ONLY, remedy)
    } else {
        Check::ok("capabilities", "CAP_NET_ADMIN and CAP_BPF")
    }
}

fn forwarding() -> Check {
    let remedies = Forwarding::read().remedies();
    if remedies.is_empty() {
        return Check::ok("forwarding", "the host forwards packets of both families");
    }
    let found = "the host does not forward packets";
    Check::lacks("forwarding", State::Warning, found, "packets do not pass the host", &remedies.join("; "))
}

/// Translated packets come in, as the kernel sees them, from addresses that are routed elsewhere.
fn source_check() -> Check {
    let strict: Vec<String> = std::fs::read_dir("/proc/sys/net/ipv4/conf")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| read(&entry.path().join("rp_filter").display().to_string()).as_deref() == Some("1"))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name != "default" && name != "lo")
        .collect();
    if strict.is_empty() {
        return Check::ok("source-check", "no interface checks sources strictly (rp_filter)");
    }
    Check::lacks(
        "source-check",
        State::Warning,
        format!("rp_filter is strict on {}", strict.join(", ")),
        "the kernel drops what the fast path has translated in TC, and what a host inside sends by another interface",
        "sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.INTERFACE.rp_filter=0, or fastpath = \"off\" there",
    )
}

fn btf() -> Check {
    match Path::new("/sys/kernel/btf/vmlinux").exists() {
        true => Check::ok("btf", "the kernel has its types (/sys/kernel/btf/vmlinux)"),
        false => Check::lacks(
            "btf",
            State::Warning,
            "the kernel has no types",
            "the fast path loads without; bpftool shows less",
            "a kernel with CONFIG_DEBUG_INFO_BTF",
        ),
    }
}

fn bpf_file_system() -> Check {
    let mounts = read("/proc/self/mounts").unwrap_or_default();
    if mounts.lines().any(|line| line.split(' ').nth(1) == Some("/sys/fs/bpf")) {
        return Check::ok("bpf-file-system", "mounted at /sys/fs/bpf");
    }
    let remedy = "the gateway mounts it at its start if it may; or mount -t bpf bpf /sys/fs/bpf";
    Check::lacks("bpf-file-system", State::Warning, "not mounted at /sys/fs/bpf", ENGINE_ONLY, remedy)
}

fn jit() -> Check {
    match read("/proc/sys/net/core/bpf_jit_enable").as_deref() {
        Some("0") => Check::lacks(
            "bpf-jit",
            State::Warning,
            "programs are interpreted",
            "the fast path is several times slower",
            "sysctl -w net.core.bpf_jit_enable=1",
        ),
        Some(_) => Check::ok("bpf-jit", "programs are compiled in the kernel"),
        None => Check::ok("bpf-jit", "not to be seen here; most kernels always compile"),
    }
}

/// Loads the programs over tables of their own, and takes all away again. Nothing is attached.
fn fast_path() -> Check {
    let remedy = "see the other lines; the programs were compiled with the gateway, no compiler is needed here";
    match try_fast_path() {
        Ok(()) => Check::ok("fast-path", "the kernel takes the programs (no compiler is needed here)"),
        Err(error) => Check::lacks("fast-path", State::Warning, in_one_line(&*error), ENGINE_ONLY, remedy),
    }
}

fn try_fast_path() -> Result<(), Box<dyn std::error::Error>> {
    let directory = Path::new("/sys/fs/bpf/tombolo").join(format!("doctor-{}", std::process::id()));
    let capacity = Capacity { subscribers: 10, bindings: 10, sessions: 10, outside_slots: 10, leases: 0 };
    let own = OwnAddresses::default();
    let plan = Plan {
        pcp: tombolo_engine::plan::PcpAddresses::default(),
        services: Vec::new(),
        retired: Vec::new(),
        cluster: None,
        rows: tombolo_engine::row::Rows::default(),
        times: tombolo_engine::mechanism::napt::Times::default(),
        capacity,
        own,
    };
    let result = PinnedMemory::open(&directory, "doctor").map_err(Into::into).and_then(|mut memory| {
        let tables = Tables::new(&mut memory, capacity, HashKey::new([1; 4]))?;
        FastPath::load(&memory, &tables, &plan, Settings::default())?;
        Ok(())
    });
    let _ = PinnedMemory::remove(&directory);
    result
}

fn foreign_rules() -> Option<String> {
    ForeignRules::watch().and_then(|mut rules| rules.find()).ok().flatten()
}

/// A firewall is no fault, but the fast path gives way to it.
fn netfilter(place: Option<&str>) -> Check {
    match place {
        None => Check::ok("netfilter", "no rules on the way of what is forwarded"),
        Some(place) => Check::lacks(
            "netfilter",
            State::Warning,
            format!("{place} is on the way of what is forwarded"),
            "fastpath = \"auto\" leaves all packets to the engine, so that none passes it by",
            "fastpath_netfilter = true, where it may see packets as they are translated; or fastpath = \"tc\", where it may miss them",
        ),
    }
}

fn interfaces(by: &PassedBy) -> Vec<Check> {
    let Ok(links) = links::ethernet() else { return Vec::new() };
    let auto = Host { fastpath: Wanted::Auto, ..Host::default() };
    let check = |link: &links::Link| {
        let choice = choose(link, None, &auto, by);
        let programs = match choice.modes {
            [] => format!("none, since {}", choice.why),
            [Mode::Xdp, ..] => "XDP if its driver has it, and TC".to_owned(),
            _ => "TC".to_owned(),
        };
        Check::ok(&link.name, format!("{}; with fastpath = \"auto\": {programs}", link.kind))
    };
    links.iter().map(check).collect()
}

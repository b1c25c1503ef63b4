//! What the process takes of its host, under the names that client libraries of Prometheus give it.

use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::unistd::{SysconfVar, sysconf};

use super::exposition::{Page, one};

/// Processor time, memory, files and start of this process.
pub(super) fn render(page: &mut Page, uptime: f64) {
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
        let times = [usage.user_time(), usage.system_time()];
        #[expect(clippy::cast_precision_loss, reason = "seconds of a process")]
        let seconds: f64 = times.iter().map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6).sum();
        page.counter("process_cpu_seconds_total", "User and system CPU time in seconds.", one(seconds));
    }
    if let Some([size, resident]) = pages() {
        page.gauge("process_virtual_memory_bytes", "Virtual memory in bytes.", one(size));
        page.gauge("process_resident_memory_bytes", "Resident memory in bytes, shared tables included.", one(resident));
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        // One of them is that of the folder.
        page.gauge("process_open_fds", "Open file descriptors.", one(files.count().saturating_sub(1)));
    }
    if let Ok((limit, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
        page.gauge("process_max_fds", "Open file descriptors at most.", one(limit));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let help = "Time at which the gateway was ready, in seconds since 1970.";
    page.gauge("process_start_time_seconds", help, one(format!("{:.0}", now - uptime)));
}

/// Memory in bytes: all, and what is in the processor's reach.
fn pages() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let page = u64::try_from(sysconf(SysconfVar::PAGE_SIZE).ok()??).ok()?;
    let mut words = text.split(' ').map(|word| word.parse::<u64>().ok().map(|pages| pages * page));
    Some([words.next()??, words.next()??])
}

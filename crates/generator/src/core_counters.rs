//! What cores count of their work: cycles, instructions and misses of the last cache, where the processor has counters
//! and lets this machine read them. Virtual machines mostly have none; nothing is made up for them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};

/// From include/uapi/linux/perf_event.h.
const PERF_TYPE_HARDWARE: u32 = 0;
const PERF_COUNT_HW_CPU_CYCLES: u64 = 0;
const PERF_COUNT_HW_INSTRUCTIONS: u64 = 1;
const PERF_COUNT_HW_CACHE_MISSES: u64 = 3;
/// `PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING`.
const WITH_TIMES: u64 = 1 | 2;

/// `struct perf_event_attr` as it first was (`PERF_ATTR_SIZE_VER0`), which every kernel takes.
#[derive(Default)]
#[repr(C)]
struct EventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const _: () = assert!(size_of::<EventAttr>() == 64);

/// What some cores counted together, user space, kernel and interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreWork {
    /// Cycles.
    pub cycles: u64,
    /// Instructions.
    pub instructions: u64,
    /// Accesses that no cache answered; `None` where only the other two are counted.
    pub cache_misses: Option<u64>,
}

/// Counters of cores, running.
pub struct CoreCounters {
    cycles: Vec<Counter>,
    instructions: Vec<Counter>,
    cache_misses: Option<Vec<Counter>>,
}

impl CoreCounters {
    /// Begins to count on these cores; `None` where the machine has no counters, or not for us.
    pub fn begin(cores: &[usize]) -> Option<CoreCounters> {
        let on_all = |event| cores.iter().map(|core| Counter::open(PERF_TYPE_HARDWARE, event, *core)).collect();
        Some(CoreCounters {
            cycles: io::Result::ok(on_all(PERF_COUNT_HW_CPU_CYCLES))?,
            instructions: io::Result::ok(on_all(PERF_COUNT_HW_INSTRUCTIONS))?,
            cache_misses: on_all(PERF_COUNT_HW_CACHE_MISSES).ok(),
        })
    }

    /// What was counted since; `None` if a counter did not run at all, as where others hold all of them.
    pub fn end(self) -> Option<CoreWork> {
        let sum = |counters: Vec<Counter>| counters.into_iter().map(Counter::read).sum::<Option<u64>>();
        Some(CoreWork {
            cycles: sum(self.cycles)?,
            instructions: sum(self.instructions)?,
            cache_misses: self.cache_misses.and_then(sum),
        })
    }
}

/// One counter of one core.
struct Counter(File);

impl Counter {
    fn open(kind: u32, event: u64, core: usize) -> io::Result<Counter> {
        let attr = EventAttr {
            kind,
            size: u32::try_from(size_of::<EventAttr>()).map_err(|_| io::ErrorKind::InvalidInput)?,
            config: event,
            read_format: WITH_TIMES,
            ..EventAttr::default()
        };
        let core = i32::try_from(core).map_err(|_| io::ErrorKind::InvalidInput)?;
        let (any_thread, no_group, close_on_exec) = (-1, -1, 8_u64);
        // SAFETY: attr is a whole attribute of the size that it names; the others are integers.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attr, any_thread, core, no_group, close_on_exec)
        };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel has just given this descriptor to nobody else.
        Ok(Counter(File::from(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// The count; where more events are counted than the processor has counters for, for the whole time what was
    /// counted in a part of it.
    fn read(mut self) -> Option<u64> {
        let mut answer = [0; 24];
        self.0.read_exact(&mut answer).ok()?;
        let mut words = answer.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
        let (count, enabled, running) = (words.next()?, words.next()?, words.next()?);
        scaled(count, enabled, running)
    }
}

fn scaled(count: u64, enabled: u64, running: u64) -> Option<u64> {
    let whole = u128::from(count) * u128::from(enabled);
    whole.checked_div(u128::from(running)).and_then(|count| u64::try_from(count).ok())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const PERF_TYPE_SOFTWARE: u32 = 1;
    const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;

    #[test]
    fn what_was_counted_in_a_part_of_the_time_is_scaled() {
        assert_eq!(scaled(10, 100, 100), Some(10));
        assert_eq!(scaled(10, 100, 25), Some(40));
        assert_eq!(scaled(0, 100, 0), None);
    }

    #[test]
    fn a_counter_of_a_core_counts_what_the_kernel_counts_there() {
        // The clock of a core is an event that every machine has. It counts from when it is opened.
        let begun = Instant::now();
        let Ok(counter) = Counter::open(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, 0) else {
            println!("SKIP: a counter of a core: not without CAP_PERFMON");
            return;
        };
        std::thread::sleep(Duration::from_millis(20));
        let (counted, elapsed) = (counter.read().unwrap_or(0), begun.elapsed());
        let elapsed = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        assert!((15_000_000..=elapsed).contains(&counted), "{counted} ns of {elapsed} ns");
    }

    #[test]
    fn without_hardware_there_are_no_figures() {
        match CoreCounters::begin(&[0]) {
            None => println!("SKIP: cycles of a core: this machine has no counters"),
            Some(counters) => {
                std::thread::sleep(Duration::from_millis(5));
                assert!(counters.end().is_none_or(|work| work.cycles > 0 && work.instructions > 0));
            }
        }
    }
}

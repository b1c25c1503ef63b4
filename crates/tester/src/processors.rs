//! How busy the machine's processors were, by the kernel's own count (`/proc/stat`).

use std::fs;

/// What each processor had done at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Busy and all ticks, by processor.
    ticks: Vec<(u64, u64)>,
}

impl Work {
    /// Of now.
    #[must_use]
    pub fn now() -> Work {
        Work::of(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn of(text: &str) -> Work {
        let processors = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
        let ticks = processors.map(|line| {
            let numbers: Vec<u64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
            let all: u64 = numbers.iter().take(8).sum();
            // Idle, and idle with a disk to wait for.
            let idle: u64 = numbers.iter().skip(3).take(2).sum();
            (all - idle, all)
        });
        Work { ticks: ticks.collect() }
    }

    /// How busy each was since, in percent.
    #[must_use]
    pub fn percent_since(&self, earlier: &Work) -> Vec<f64> {
        let both = self.ticks.iter().zip(&earlier.ticks);
        let percent = |((busy, all), (busy_before, all_before)): (&(u64, u64), &(u64, u64))| {
            let (busy, all) = (busy.saturating_sub(*busy_before), all.saturating_sub(*all_before));
            if all == 0 { 0.0 } else { 100.0 * busy as f64 / all as f64 }
        };
        both.map(percent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_for_disks_is_not_busy() {
        let before = Work::of("cpu  1 1\ncpu0 100 0 100 700 100 0 0 0 0 0\ncpu1 0 0 0 50 0 0 0 0 0 0\nintr 5\n");
        let after = Work::of("cpu  1 1\ncpu0 120 0 110 760 110 0 0 0 0 0\ncpu1 0 0 40 60 0 0 0 0 0 0\nintr 6\n");
        assert_eq!(after.percent_since(&before), [30.0, 80.0]);
        assert_eq!(before.percent_since(&before), [0.0, 0.0]);
        assert!(!Work::now().ticks.is_empty());
    }
}

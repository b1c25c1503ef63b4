//! The monotonic clock, the only one that the gateway's state knows. BPF reads the same one
//! (`bpf_ktime_get_ns`).

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[must_use]
pub fn monotonic_nanos() -> u64 {
    // The clock exists in every Linux and the call only fails for clocks that do not.
    let Ok(now) = clock_gettime(ClockId::CLOCK_MONOTONIC) else { return 0 };
    now.tv_sec().cast_unsigned() * 1_000_000_000 + now.tv_nsec().cast_unsigned()
}

/// Nanoseconds of `CLOCK_BOOTTIME`: the same, and it goes on while the host sleeps.
#[must_use]
pub fn boottime_nanos() -> u64 {
    // As above.
    let Ok(now) = clock_gettime(ClockId::CLOCK_BOOTTIME) else { return 0 };
    now.tv_sec().cast_unsigned() * 1_000_000_000 + now.tv_nsec().cast_unsigned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_clock_runs_and_never_goes_back() {
        let first = super::monotonic_nanos();
        assert!(first > 0);
        assert!(super::monotonic_nanos() >= first);
    }
}

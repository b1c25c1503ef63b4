//! How long before its first frame a run's threads are started.

use std::time::Duration;

/// Threads get ready in the time that the runs before needed: where one began late the next get more,
/// where they do not it becomes a little shorter again. A moment in which the machine was away does not
/// make it long for good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lead(Duration);

impl Lead {
    /// Page pools and threads of one core took some 13 ms on two processors that others share.
    pub(crate) const SHORTEST: Lead = Lead(Duration::from_millis(30));
    const LONGEST: Duration = Duration::from_millis(120);
    const MORE: Duration = Duration::from_millis(10);
    const LESS: Duration = Duration::from_micros(100);
    /// A run that begins so late was not ready.
    const LATE: Duration = Duration::from_millis(1);

    pub(crate) fn as_ns(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// A run began so late.
    pub(crate) fn note(&mut self, late: Duration) {
        let next = if late >= Lead::LATE { self.0 + Lead::MORE } else { self.0.saturating_sub(Lead::LESS) };
        self.0 = next.clamp(Lead::SHORTEST.0, Lead::LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lead after so many runs that get ready in this time.
    fn after(runs: u32, ready: Duration) -> Lead {
        let mut lead = Lead::SHORTEST;
        (0..runs).for_each(|_| lead.note(ready.saturating_sub(lead.0)));
        lead
    }

    #[test]
    fn a_slow_machine_gets_what_it_needs_and_a_fast_one_no_more() {
        assert_eq!(after(100, Duration::from_millis(13)).0, Lead::SHORTEST.0);
        assert!((55..=70).contains(&after(50, Duration::from_millis(60)).0.as_millis()));
        assert_eq!(after(50, Duration::from_secs(1)).0, Lead::LONGEST);
    }

    #[test]
    fn a_moment_in_which_the_machine_was_away_is_forgotten() {
        let mut lead = after(3, Duration::from_secs(1));
        (0..300).for_each(|_| lead.note(Duration::ZERO));
        assert_eq!(lead.0, Lead::SHORTEST.0);
    }
}

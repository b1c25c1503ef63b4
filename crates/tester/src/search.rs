//! Binary search for the highest rate (or burst, or number of sessions) that passes.
//!
//! RFC 2544 section 26.1 says how to search; RFC 9004 section 5.3 asks for binary search with loss
//! verification (ETSI GS NFV-TST 009 clause 12.3): a failure counts only when it happens again. The
//! result is the highest value that *passed*. siitperf's scripts print the last value tested
//! instead, which may be one that failed.
//!
//! A trial can also be *invalid*: the tester did not do its part. It is repeated, and if it stays
//! invalid the value bounds the search from above like a failure, but the result says that the
//! tester, not the gateway, set the limit.

use serde::{Deserialize, Serialize};

/// How one value came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All criteria met.
    Passed,
    /// The gateway did not meet them.
    Failed,
    /// The tester did not do its part; nothing is known of the gateway.
    Invalid,
}

/// How a trial of a search came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The verdict.
    pub verdict: Verdict,
    /// A failure that no accident explains: it counts at once, without loss verification.
    pub beyond_doubt: bool,
}

impl From<Verdict> for Attempt {
    fn from(verdict: Verdict) -> Attempt {
        Attempt { verdict, beyond_doubt: false }
    }
}

/// What to search, and how hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    /// Largest value to try.
    pub max: u64,
    /// Once this did not pass and nothing else has, the search ends: what fails everywhere is not
    /// worth a trial at one frame a second. 0 searches down to 1.
    pub floor: u64,
    /// The search ends when highest passing and lowest failing value are at most this far apart.
    pub resolution: u64,
    /// Or, if that is more, this many parts in a million of the highest passing value.
    pub resolution_ppm: u64,
    /// Times a failing value is tried again before it counts as failing (TST 009 "loss
    /// verification"; 0 is plain RFC 2544).
    pub verify_failures: u32,
    /// Times an invalid trial is repeated.
    pub repeat_invalid: u32,
    /// Start here instead of in the middle, and widen: for a value known from before.
    pub hint: Option<u64>,
    /// Times that the search goes on upwards from what it has found: a moment in which the machine was
    /// slower, and which outlasted the verification of a failure, is over then.
    pub second_looks: u32,
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Highest value that passed; 0 if none did.
    pub highest_passing: u64,
    /// Lowest value that did not pass; `None` if the largest passed.
    pub lowest_not_passing: Option<u64>,
    /// The tester could not offer the value above, so the gateway may be able to do more.
    pub limited_by_tester: bool,
    /// Trials made.
    pub trials: u32,
}

/// A search was ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl Search {
    /// Searches with `trial(value, bounds)`; `bounds` is the interval that is left, for a progress
    /// display.
    ///
    /// # Errors
    /// What `trial` returns as error.
    pub fn run<A: Into<Attempt>, E>(self, mut trial: impl FnMut(u64, (u64, u64)) -> Result<A, E>) -> Result<Found, E> {
        let mut searching = self.begin();
        while let Some((value, bounds)) = searching.wanted() {
            searching.note(trial(value, bounds)?.into());
        }
        Ok(searching.found)
    }

    /// Begins a search whose trials are somebody else's to make, one for each call of [`Searching::note`].
    #[must_use]
    pub fn begin(self) -> Searching {
        self.begin_in_steps(self.hint.map_or(0, |hint| hint / 16))
    }

    /// The same, with so long a first step from the hint: for a value that is known well.
    #[must_use]
    pub fn begin_in_steps(self, first_step: u64) -> Searching {
        Searching {
            search: self,
            found: Found { highest_passing: 0, lowest_not_passing: None, limited_by_tester: false, trials: 0 },
            high: self.max,
            // Around a hint the steps double until the limit is between two trials; from then on,
            // bisection.
            step: self.hint.map_or(0, |_| first_step.max(self.resolution).max(1)),
            next: self.hint.map_or_else(|| 0_u64.midpoint(self.max), |hint| hint.clamp(1, self.max)),
            failures: 0,
            invalid: 0,
            looks: self.second_looks,
        }
    }
}

/// A search under way.
#[derive(Clone, Debug)]
pub struct Searching {
    search: Search,
    found: Found,
    high: u64,
    step: u64,
    next: u64,
    /// Attempts at the value that is tried.
    failures: u32,
    invalid: u32,
    /// Second looks that are left.
    looks: u32,
}

impl Searching {
    /// The value to try, and the interval that is left; `None` once the search has ended.
    #[must_use]
    pub fn wanted(&self) -> Option<(u64, (u64, u64))> {
        let Search { max, floor, .. } = self.search;
        let low = self.found.highest_passing;
        let is_near = self.high - low <= self.resolution();
        let is_hopeless = low == 0 && self.high <= floor;
        let value = match self.found.lowest_not_passing {
            _ if !is_near && !is_hopeless => self.next,
            // The interval closed under the largest value itself, which was never tried.
            None if low < max => max,
            _ => return None,
        };
        Some((value, (low, self.high)))
    }

    /// Takes down how an attempt at the value that is wanted came out.
    pub fn note(&mut self, attempt: Attempt) {
        let Some((value, _)) = self.wanted() else { return };
        self.found.trials += 1;
        match attempt.verdict {
            Verdict::Passed => self.found.highest_passing = value,
            Verdict::Failed if self.failures < self.search.verify_failures && !attempt.beyond_doubt => {
                self.failures += 1;
                return;
            }
            Verdict::Invalid if self.invalid < self.search.repeat_invalid => {
                self.invalid += 1;
                return;
            }
            verdict => {
                self.high = value;
                self.found.lowest_not_passing = Some(value);
                self.found.limited_by_tester = verdict == Verdict::Invalid;
            }
        }
        (self.failures, self.invalid) = (0, 0);
        let low = self.found.highest_passing;
        self.next = match (self.step, low, self.found.lowest_not_passing) {
            (1.., 0, Some(high)) if high > self.step => high - self.step,
            (1.., 1.., None) if self.search.max - low > self.step => low + self.step,
            _ => low.midpoint(self.high),
        };
        self.step = self.step.saturating_mul(2);
        if self.wanted().is_none() && self.looks > 0 && (1..self.search.max).contains(&low) {
            self.looks -= 1;
            self.high = self.search.max;
            self.found.lowest_not_passing = None;
            self.step = 2 * self.resolution().max(1);
            self.next = low.saturating_add(self.step).min(self.search.max);
        }
    }

    /// How near to each other the highest passing and the lowest failing value have to be.
    fn resolution(&self) -> u64 {
        let Search { resolution, resolution_ppm, .. } = self.search;
        resolution.max(self.found.highest_passing.saturating_mul(resolution_ppm) / 1_000_000)
    }

    /// What was found so far; all of it once nothing is wanted any more.
    #[must_use]
    pub fn found(&self) -> Found {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Search = Search {
        max: 10_000,
        floor: 0,
        resolution: 1,
        resolution_ppm: 0,
        verify_failures: 0,
        repeat_invalid: 0,
        hint: None,
        second_looks: 0,
    };

    fn capable_of(limit: u64) -> impl FnMut(u64, (u64, u64)) -> Result<Verdict, Interrupted> {
        move |value, _| Ok(if value <= limit { Verdict::Passed } else { Verdict::Failed })
    }

    #[test]
    fn every_limit_is_found_exactly_with_and_without_hint() {
        for limit in (0..=10_000).step_by(7) {
            for hint in [None, Some(1), Some(limit), Some(limit + 3), Some(9_999_999)] {
                let found = Search { hint, ..PLAIN }.run(capable_of(limit)).unwrap();
                assert_eq!(found.highest_passing, limit, "hint {hint:?}");
                assert!(found.trials <= 32, "{} trials for {limit} with hint {hint:?}", found.trials);
            }
        }
    }

    #[test]
    fn a_second_look_finds_what_a_slow_moment_hid() {
        let slow_until = |moment: u32| {
            let mut trials = 0;
            move |value, _| {
                trials += 1;
                let limit = if trials <= moment { 4000 } else { 5000 };
                Ok::<_, Interrupted>(if value <= limit { Verdict::Passed } else { Verdict::Failed })
            }
        };
        let search = Search { hint: Some(5000), verify_failures: 2, second_looks: 3, ..PLAIN };
        for moment in 0..80 {
            let found = search.run(slow_until(moment)).unwrap();
            // One that is over while the last look ends is seen by no other.
            let is_too_late = found.highest_passing <= 4001 && found.trials <= moment + 3;
            assert!(found.highest_passing == 5000 || is_too_late, "{moment}: {found:?}");
            assert!(found.lowest_not_passing == Some(found.highest_passing + 1));
        }
        assert_eq!(search.run(slow_until(30)).unwrap().highest_passing, 5000);
        assert_eq!(Search { second_looks: 0, ..search }.run(slow_until(30)).unwrap().highest_passing, 4000);
        let all = Search { second_looks: 3, ..PLAIN }.run(capable_of(u64::MAX)).unwrap();
        assert_eq!((all.highest_passing, all.lowest_not_passing), (10_000, None));
        assert_eq!(Search { second_looks: 3, ..PLAIN }.run(capable_of(0)).unwrap().highest_passing, 0);
    }

    #[test]
    fn the_result_passed_and_is_within_the_resolution() {
        let search = Search { resolution: 100, ..PLAIN };
        for limit in (0..10_000).step_by(13) {
            let found = search.run(capable_of(limit)).unwrap();
            assert!(found.highest_passing <= limit && limit < found.highest_passing + 100);
        }
    }

    #[test]
    fn a_relative_resolution_serves_small_and_large_limits_alike() {
        let search = Search { max: 4_000_000, resolution_ppm: 20_000, ..PLAIN };
        for limit in [100, 5_000, 222_222, 3_999_000] {
            let found = search.run(capable_of(limit)).unwrap();
            let missed = limit - found.highest_passing;
            assert!(missed * 50 <= limit, "{} of {limit}", found.highest_passing);
        }
    }

    #[test]
    fn the_largest_value_can_pass() {
        let found = PLAIN.run(capable_of(u64::MAX)).unwrap();
        assert_eq!((found.highest_passing, found.lowest_not_passing), (10_000, None));
    }

    #[test]
    fn a_tester_at_its_limit_is_told_from_a_gateway_at_its_limit() {
        let slow_tester =
            |value, _| Ok::<_, Interrupted>(if value > 5000 { Verdict::Invalid } else { Verdict::Passed });
        let found = PLAIN.run(slow_tester).unwrap();
        assert_eq!((found.highest_passing, found.limited_by_tester), (5000, true));
        let mixed = |value, _| {
            Ok::<_, Interrupted>(match value {
                0..=4000 => Verdict::Passed,
                4001..=5000 => Verdict::Failed,
                _ => Verdict::Invalid,
            })
        };
        let found = PLAIN.run(mixed).unwrap();
        assert_eq!((found.highest_passing, found.limited_by_tester), (4000, false));
    }

    #[test]
    fn one_accidental_failure_is_forgiven_when_failures_are_verified() {
        let mut accidents = 1;
        let found = Search { verify_failures: 1, ..PLAIN }
            .run(|value, _| {
                if value == 5000 && accidents > 0 {
                    accidents -= 1;
                    return Ok::<_, Interrupted>(Verdict::Failed);
                }
                Ok(if value <= 8000 { Verdict::Passed } else { Verdict::Failed })
            })
            .unwrap();
        assert_eq!(found.highest_passing, 8000);
    }

    #[test]
    fn a_failure_beyond_doubt_is_not_verified() {
        let mut tried = Vec::new();
        let attempt = |value: u64| match value {
            0..=4000 => Attempt::from(Verdict::Passed),
            4001..=6000 => Attempt::from(Verdict::Failed),
            _ => Attempt { verdict: Verdict::Failed, beyond_doubt: true },
        };
        let found = Search { max: 16_000, verify_failures: 1, ..PLAIN }
            .run(|value, _| {
                tried.push(value);
                Ok::<_, Interrupted>(attempt(value))
            })
            .unwrap();
        assert_eq!((found.highest_passing, &tried[..4]), (4000, &[8000, 4000, 6000, 6000][..]));
    }

    #[test]
    fn what_fails_everywhere_is_not_tried_below_the_floor() {
        let mut tried = Vec::new();
        let found = Search { max: 1_000_000, floor: 1000, ..PLAIN }
            .run(|value, _| {
                tried.push(value);
                Ok::<_, Interrupted>(Verdict::Failed)
            })
            .unwrap();
        assert_eq!((found.highest_passing, tried.iter().min()), (0, Some(&976)));
        let low = Search { max: 1_000_000, floor: 1000, ..PLAIN }.run(capable_of(500_000)).unwrap();
        assert_eq!(low.highest_passing, 500_000);
    }

    #[test]
    fn an_interruption_ends_the_search() {
        let mut left = 3;
        let result = PLAIN.run(|_, _| {
            left -= 1;
            if left == 0 { Err(Interrupted) } else { Ok(Verdict::Passed) }
        });
        assert_eq!(result, Err(Interrupted));
    }
}

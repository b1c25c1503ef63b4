//! DNS64 resolution performance (RFC 8219 section 9).
//!
//! The tester is the client, which asks for AAAA records, and the authoritative server, which has A
//! records only: one query makes the resolver ask twice and synthesize the answer (RFC 6147). A rate
//! passes when every query has the right answer within the timeout; the highest is searched.
//!
//! ```text
//!            1 AAAA?                2 AAAA?
//!   client ----------> resolver ---------------> authority
//!          <----------          <---------------
//!           6 AAAA               3 nothing  4 A?  5 A
//! ```
//!
//! Before that the tester answers itself: an authority that is slow would be counted as the
//! resolver's slowness. It has to answer 2 * 1.1 times the rate within a quarter of the timeout, so
//! no rate above that part of what the self-test reached is tried.

mod authority;
mod client;
mod names;
mod resolver;
mod sockets;

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

pub use client::{Answers, Asked};
pub use names::{Names, Shares};
pub use resolver::Resolver;

use super::measured::Measured;
use crate::bench::BenchError;
use crate::effort::Effort;
use crate::machine::Machine;
use crate::readings::{Reading, Readings, summarise};
use crate::results::ResultFile;
use crate::search::{Attempt, Found, Verdict};
use resolver::Rig;

const QUANTITY: &str = "DNS64 resolution rate";
/// RFC 8219 section 9.1: one second is the default and the most.
pub const TIMEOUT: Duration = Duration::from_secs(1);
/// RFC 8219 section 9.2.2: how much faster the tester has to be, and within which part of the
/// timeout.
const SELF_TEST_FACTOR: f64 = 2.0 * 1.1;
const SELF_TEST_TIMEOUT_PART: f64 = 0.25;
/// More than any resolver answers on one core.
const HIGHEST_RATE: u64 = 200_000;
/// A search ends where this part of the highest rate does not pass: a trial of one query proves
/// nothing.
const LOWEST_RATE_PART: u64 = 64;
const SELF_TEST_SECONDS: f64 = 0.4;
const SELF_TEST_REPETITIONS: u32 = 3;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Dns64Plan {
    /// The resolver.
    pub resolver: Resolver,
    /// Lengths and repetitions.
    pub effort: Effort,
    /// A later answer is none.
    pub timeout: Duration,
    /// Names that the resolver knows, and names with AAAA records of their own.
    pub shares: Shares,
    /// Core of the client and of the authority, and that of the resolver.
    pub cores: (usize, usize),
    /// Highest rate to try; what the self-test allows where absent.
    pub max_rate: Option<u64>,
}

/// What the tester can do without a resolver.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Dns64SelfTest {
    /// Queries a second that the tester's own authority answered.
    pub answered_rate: u64,
    /// So many a second can be asked of a resolver.
    pub highest_rate: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Dns64Result {
    /// The tester alone.
    pub self_test: Dns64SelfTest,
    /// What answered.
    pub resolver: String,
    /// One for each repetition.
    pub measured: Vec<Measured>,
}

impl Dns64Plan {
    /// Measures; `heard` is told of every trial.
    ///
    /// # Errors
    /// If the resolver or the tester's sockets do not work here.
    pub fn run(
        &self,
        results: &mut ResultFile,
        heard: &mut dyn FnMut(&Asked, &Answers),
    ) -> Result<Dns64Result, BenchError> {
        let mut rig = Rig::open(&self.resolver, self.cores)?;
        let self_test = self.self_test(&mut rig)?;
        results.write(&json!({
            "record": "run", "procedure": "dns64", "machine": Machine::describe(&[]), "resolver": rig.version,
            "effort": self.effort, "timeout_ms": milliseconds(self.timeout), "shares": self.shares,
            "tester_self_test": self_test, "form": self.effort.form,
        }))?;
        let mut names = Names::new(self.shares, rig.prefix);
        rig.wait_until_it_answers(&mut names)?;
        let mut measured = Vec::new();
        let mut hint = None;
        for repetition in 1..=self.effort.repetitions.max(1) {
            let one = self.measure(&mut rig, &mut names, self_test, &mut hint, results, heard)?;
            results.write(&json!({ "record": "result", "repetition": repetition, "measured": one }))?;
            measured.push(one);
        }
        let resolver = self.resolver.to_string();
        let readings = (1..).zip(measured.iter().map(Reading::of)).collect();
        let readings = Readings::from([((resolver.clone(), QUANTITY.to_owned()), readings)]);
        summarise(&readings, &[resolver]).iter().try_for_each(|summary| results.write(summary))?;
        Ok(Dns64Result { self_test, resolver: rig.version.clone(), measured })
    }

    /// The rate that the tester's own authority answers, asked by the tester's own client. The best of
    /// some: other work on the machine only takes away.
    fn self_test(&self, rig: &mut Rig) -> Result<Dns64SelfTest, BenchError> {
        let timeout = self.timeout.mul_f64(SELF_TEST_TIMEOUT_PART);
        let mut names = Names::new(Shares { cached: 0, with_aaaa: 100 }, rig.prefix);
        rig.authority.set_shares(names.shares);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few times a rate")]
        let enough = self.max_rate.map_or(HIGHEST_RATE, |rate| (rate as f64 * SELF_TEST_FACTOR) as u64 + 2);
        let max = enough.min(HIGHEST_RATE);
        let mut best = 0;
        for _ in 0..SELF_TEST_REPETITIONS {
            let found = self.search(max, Some(max), |rate| {
                let asked = Asked { rate, seconds: SELF_TEST_SECONDS, timeout };
                rig.ask_the_authority(&asked, &mut names)
            })?;
            best = best.max(found.highest_passing);
            if best == max {
                break;
            }
        }
        rig.authority.set_shares(self.shares);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a rate")]
        let highest_rate = (best as f64 / SELF_TEST_FACTOR) as u64;
        Ok(Dns64SelfTest { answered_rate: best, highest_rate })
    }

    fn measure(
        &self,
        rig: &mut Rig,
        names: &mut Names,
        self_test: Dns64SelfTest,
        hint: &mut Option<u64>,
        results: &mut ResultFile,
        heard: &mut dyn FnMut(&Asked, &Answers),
    ) -> Result<Measured, BenchError> {
        let max = self.max_rate.unwrap_or(u64::MAX).min(self_test.highest_rate);
        let mut last = Answers::default();
        let found = self.search(max, *hint, |rate| {
            rig.warm(names)?;
            let asked = Asked { rate, seconds: self.effort.trial_seconds, timeout: self.timeout };
            let answers = rig.ask_the_resolver(&asked, names)?;
            results.write(&json!({ "record": "trial", "rate": rate, "answers": answers }))?;
            heard(&asked, &answers);
            if answers.verdict() != Verdict::Passed {
                last = answers.clone();
            }
            std::thread::sleep(Duration::from_millis(self.effort.pause_ms));
            Ok(answers)
        })?;
        *hint = Some(found.highest_passing);
        let details = json!({
            "trials": found.trials, "lowest_not_passing": found.lowest_not_passing, "search_max": max,
            "timeout_ms": milliseconds(self.timeout), "shares": self.shares,
        });
        let measured = Measured::rate(QUANTITY, found.highest_passing as f64, "queries/s", details);
        Ok(match found.highest_passing {
            0 => measured.without_value(format!("no rate passed; the last trial: {}", last.why())),
            _ => measured.searched(&found),
        })
    }

    fn search(
        &self,
        max: u64,
        hint: Option<u64>,
        mut trial: impl FnMut(u64) -> Result<Answers, BenchError>,
    ) -> Result<Found, BenchError> {
        let search = self.effort.search(max, max / LOWEST_RATE_PART, hint);
        let hopeless = f64::from(self.effort.hopeless_loss_percent);
        search.run(|rate, _| {
            if tombolo_lab::interrupted() {
                return Err(BenchError::Interrupted);
            }
            let answers = trial(rate)?;
            Ok(Attempt { verdict: answers.verdict(), beyond_doubt: answers.missing_percent() > hopeless })
        })
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

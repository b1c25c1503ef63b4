//! Goes through the phases, and collects what was seen of each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tombolo_lab::{Lab, dropped_by_links};

use super::attacker::Attacker;
use super::bed::Bed;
use super::failures::Failures;
use super::mishap;
use super::phase::{Act, PHASES, Seen};
use super::traffic::Traffic;
use super::witness::Witnesses;

/// Whose links count.
const NODES: [&str; 3] = ["client", "gateway", "server"];
/// A phase is no shorter and no longer than this.
const SHORTEST: Duration = Duration::from_millis(1500);
const LONGEST: Duration = Duration::from_secs(10);
/// What was cut must be back after this.
const PATIENCE: Duration = Duration::from_secs(20);
/// The hosts' first flows need some time before they are watched.
const WARM_UP: Duration = Duration::from_millis(1500);

/// The phases under way.
pub(super) struct Siege {
    witnesses: Witnesses,
    failures: Arc<Failures>,
    length: Duration,
    /// Phases so far, each with its place in the list and its stretch of the witnesses.
    seen: Vec<(usize, usize, Seen)>,
    kills: u32,
    slowest_start: Duration,
}

impl Siege {
    /// Opens the witnesses' flows; all phases are to fit into `total`.
    pub(super) fn start(lab: &Lab, failures: &Arc<Failures>, total: Duration) -> anyhow::Result<Self> {
        let witnesses = Witnesses::start(lab, failures)?;
        std::thread::sleep(WARM_UP);
        let phases = u32::try_from(PHASES.len()).unwrap_or(u32::MAX);
        let length = (total / phases).clamp(SHORTEST, LONGEST);
        Ok(Self {
            witnesses,
            failures: Arc::clone(failures),
            length,
            seen: Vec::new(),
            kills: 0,
            slowest_start: Duration::ZERO,
        })
    }

    /// The phase that comes next.
    pub(super) fn name(&self) -> &'static str {
        PHASES[self.seen.len() % PHASES.len()].name
    }

    /// The next phase.
    pub(super) fn phase(&mut self, lab: &Lab, mut bed: Bed, traffic: &Traffic) -> anyhow::Result<Bed> {
        let place = self.seen.len() % PHASES.len();
        let phase = &PHASES[place];
        self.witnesses.next();
        let stretch = self.seen.len() + 1;
        let (drops, opened, begin) = (dropped_by_links(lab, &NODES)?, traffic.opened(), Instant::now());
        let mut seen = Seen { name: phase.name, ..Seen::default() };
        match phase.act {
            Act::Nothing => {}
            Act::Forge { node, forger } => {
                let attacker = Attacker::start(lab, node, forger, self.witnesses.known(), seed(stretch))?;
                self.rest(begin, &mut bed);
                seen.acts = self.end(attacker);
            }
            Act::ForgeBothWays { forger } => {
                let known = self.witnesses.known();
                let attackers =
                    ["client", "server"].map(|node| Attacker::start(lab, node, forger, known.clone(), seed(stretch)));
                self.rest(begin, &mut bed);
                for attacker in attackers {
                    seen.acts += self.end(attacker?);
                }
            }
            Act::Reload => {
                while begin.elapsed() < self.length {
                    bed.gateway.signal(Signal::SIGHUP)?;
                    seen.acts += 1;
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
            Act::FlapLinks => self.cut(&mut seen, || mishap::flap_links(lab))?,
            Act::FlushRoutes => self.cut(&mut seen, || mishap::flush_routes(lab))?,
            Act::ChangeMacs => {
                let round = u8::try_from(stretch % 250).unwrap_or(0);
                self.cut(&mut seen, || mishap::change_macs(lab, round))?;
            }
            Act::Kill => {
                let mut killed = None;
                self.cut(&mut seen, || {
                    killed = Some(bed.kill_and_start(lab)?);
                    Ok(())
                })?;
                let Some(started) = killed else { anyhow::bail!("the gateway did not start again") };
                bed = started;
                self.kills += 1;
            }
        }
        self.rest(begin, &mut bed);
        self.slowest_start = self.slowest_start.max(bed.ready_in);
        seen.dropped_by_links = dropped_by_links(lab, &NODES)?.saturating_sub(drops);
        let [worked, failed] = traffic.opened();
        (seen.opened, seen.refused) = (worked - opened[0], failed - opened[1]);
        self.seen.push((place, stretch, seen));
        Ok(bed)
    }

    /// Waits for the end of the phase.
    fn rest(&self, begin: Instant, bed: &mut Bed) {
        while begin.elapsed() < self.length && !tombolo_lab::interrupted() {
            std::thread::sleep((self.length.saturating_sub(begin.elapsed())).min(Duration::from_millis(500)));
            bed.sample();
        }
    }

    /// Does what cuts flows off, and waits until all are heard again.
    fn cut(&self, seen: &mut Seen, act: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        act()?;
        seen.acts = 1;
        self.witnesses.forget();
        let begin = Instant::now();
        match tombolo_lab::wait_until("every flow is answered", PATIENCE, || self.witnesses.all_heard().then_some(())) {
            Ok(()) => seen.back_after_ms = Some(u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX)),
            Err(_) => self.failures.add(format!("{}: flows were not back after {PATIENCE:?}", seen.name)),
        }
        Ok(())
    }

    fn end(&self, attacker: Attacker) -> u64 {
        attacker.stop().unwrap_or_else(|error| {
            self.failures.add(error);
            0
        })
    }

    /// Ends the witnesses' flows: what was seen of each kind of phase, kills, and the slowest start.
    pub(super) fn finish(mut self) -> (Vec<Seen>, u32, Duration) {
        self.witnesses.stop();
        let mut all: Vec<Seen> = Vec::new();
        for (place, stretch, mut seen) in std::mem::take(&mut self.seen) {
            let (asked, lost, exchanges) = self.witnesses.saw(stretch);
            (seen.asked, seen.lost, seen.exchanges) = (asked, lost, exchanges);
            for failure in seen.failures(PHASES[place].act) {
                self.failures.add(failure);
            }
            match all.get_mut(place) {
                Some(before) => before.add(&seen),
                None => all.push(seen),
            }
        }
        (all, self.kills, self.slowest_start)
    }
}

/// Each phase has another.
fn seed(stretch: usize) -> u32 {
    u32::try_from(stretch).unwrap_or(1).wrapping_mul(0x9e37_79b9)
}

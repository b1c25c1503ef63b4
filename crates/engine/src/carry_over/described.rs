//! The part of a plan that state depends on, as lines of the text beside the tables
//! ([`tombolo_tables::former::description`]).
//!
//! ```text
//! service NAME KIND BLOCK     in the order of their numbers, those of earlier plans included ("-" for numbers
//!                             that none has); ports in a block, 0 without blocks
//! range SERVICE FIRST LAST FIRST_PORT LAST_PORT FIRST_SLOT
//! ports SERVICE DIGEST        which ports, and in which portions they are handed out
//! slices SERVICE DIGEST       in a cluster: whose it hands out here
//! state NAME NUMBER           of sessions
//! capacity SUBSCRIBERS BINDINGS SESSIONS SLOTS LEASES
//! ```

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;
use std::str::FromStr;

use tombolo_tables::former::{Description, DescriptionError};
use tombolo_tables::session::State;

use crate::mapping::pool::{Owner, Pool, PoolRange};
use crate::mechanism::napt::session_state;
use crate::plan::Plan;

/// The lines about `plan`.
#[must_use]
pub fn describe(plan: &Plan) -> String {
    let mut text = String::new();
    let capacity = plan.capacity;
    let _ = writeln!(
        text,
        "capacity {} {} {} {} {}",
        capacity.subscribers, capacity.bindings, capacity.sessions, capacity.outside_slots, capacity.leases
    );
    for (state, name) in session_state::NAMES {
        let _ = writeln!(text, "state {name} {}", state.0);
    }
    let numbers = plan.services.iter().chain(&plan.retired).map(|service| u16::from(service.number) + 1);
    for number in (0..=u8::MAX).take(numbers.max().unwrap_or(0).into()) {
        let Some(service) = plan.service_ever(number) else {
            text.push_str("service - - 0\n");
            continue;
        };
        let block = service.kind.pool().and_then(|pool| pool.allocation().block_size()).unwrap_or(0);
        let _ = writeln!(text, "service {} {} {block}", service.name, service.kind.name());
    }
    for (number, service) in plan.numbered() {
        let Some(pool) = service.kind.pool() else { continue };
        for PoolRange { first, last, span, first_slot, .. } in pool.ranges() {
            let _ = writeln!(text, "range {number} {first} {last} {} {} {first_slot}", span.start(), span.end());
        }
        let mut ports = DefaultHasher::new();
        format!("{:?}", pool.allocation()).hash(&mut ports);
        pool.ranges().iter().for_each(|range| format!("{:?}", range.ports).hash(&mut ports));
        let _ = writeln!(text, "ports {number} {:x}", ports.finish());
        if let Some((slices, cluster)) = pool.slices().zip(plan.cluster.as_deref()) {
            let mut digest = DefaultHasher::new();
            slices.hash(&mut digest);
            cluster.is_agreed().hash(&mut digest);
            // Which these are is kept beside the tables, where it changes.
            if !cluster.is_agreed() {
                (0..slices.slicing().count()).for_each(|slice| cluster.owns(slice).hash(&mut digest));
            }
            let _ = writeln!(text, "slices {number} {:x}", digest.finish());
        }
    }
    text
}

/// A service of a plan that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerService {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Ports in a block, where it had blocks.
    pub block_size: Option<u32>,
    /// Its outside addresses with the ports that had slots.
    pub(super) pool: Pool,
}

/// What the lines say.
#[derive(Debug, Clone, Default)]
pub struct FormerPlan {
    /// The services, by number.
    pub services: Vec<FormerService>,
    /// What the numbers of states mean now, by their numbers of then.
    pub(super) states: Vec<Option<State>>,
}

impl FormerPlan {
    /// Reads the lines.
    ///
    /// # Errors
    /// [`DescriptionError::Lacks`], with the line that makes no sense.
    pub fn parse(description: &Description) -> Result<Self, DescriptionError> {
        let mut plan = Self { services: Vec::new(), states: vec![None; 256] };
        for line in description.lines("state") {
            plan.state(line).ok_or_else(|| DescriptionError::Lacks(format!("state {line}")))?;
        }
        let mut ranges: Vec<Vec<PoolRange>> = Vec::new();
        for line in description.lines("service") {
            let service = service(line).ok_or_else(|| DescriptionError::Lacks(format!("service {line}")))?;
            plan.services.push(service);
            ranges.push(Vec::new());
        }
        for line in description.lines("range") {
            range(line, &mut ranges).ok_or_else(|| DescriptionError::Lacks(format!("range {line}")))?;
        }
        for (service, ranges) in plan.services.iter_mut().zip(ranges) {
            service.pool = Pool::new(ranges);
        }
        Ok(plan)
    }

    fn state(&mut self, line: &str) -> Option<()> {
        let (name, number) = line.split_once(' ')?;
        *self.states.get_mut(number.parse::<usize>().ok()?)? = session_state::named(name);
        Some(())
    }
}

fn service(line: &str) -> Option<FormerService> {
    let [name, kind, block] = words(line)?;
    let block: u32 = block.parse().ok()?;
    Some(FormerService {
        name: name.to_owned(),
        kind: kind.to_owned(),
        block_size: (block != 0).then_some(block),
        pool: Pool::default(),
    })
}

fn range(line: &str, ranges: &mut [Vec<PoolRange>]) -> Option<()> {
    let [service, first, last, first_port, last_port, first_slot] = words(line)?;
    let (first, last): (Ipv4Addr, Ipv4Addr) = (parse(first)?, parse(last)?);
    let span = parse(first_port)?..=parse(last_port)?;
    let first_slot = parse(first_slot)?;
    let range = PoolRange { first, last, ports: Default::default(), span, first_slot, owner: Owner::default() };
    let fits = first <= last && !range.span.is_empty();
    if !fits || range.slots().and_then(|slots| range.first_slot.checked_add(slots)).is_none() {
        return None;
    }
    ranges.get_mut(parse::<usize>(service)?)?.push(range);
    Some(())
}

fn words<const N: usize>(line: &str) -> Option<[&str; N]> {
    line.split_ascii_whitespace().collect::<Vec<_>>().try_into().ok()
}

fn parse<T: FromStr>(word: &str) -> Option<T> {
    word.parse().ok()
}

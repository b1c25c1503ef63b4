//! Far ends of softwires that are known by a name (`aftr = "aftr.example.net"`): the resolver is asked for them again and
//! again, and services follow what it says.
//!
//! Read first: RFC 6334 section 4.
//!
//! The system's resolver tells no lifetimes, and is asked every few seconds: one that caches, as a router's does, asks
//! further when the name's lifetime is over. An address is kept as long as the answer still has it, so that a name with
//! several does not move with their order; and when there is no answer at all.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use tombolo_config::check_far_end;
use tombolo_engine::Plan;
use tombolo_engine::mechanism::FarEndName;

use crate::question::Question;

/// The part of the gateway, in its health.
pub(crate) const PART: &str = "far end";
/// How often the resolver is asked.
const PAUSE: Duration = Duration::from_secs(3);
/// How often while a name has no address.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a start, or a reload, waits for the first answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the resolver says of a name.
pub(crate) type Answer = (FarEndName, io::Result<Vec<Ipv6Addr>>);

/// What is known of names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FarEnds(BTreeMap<FarEndName, Known>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Known {
    address: Option<Ipv6Addr>,
    /// What was wrong with the last answer.
    trouble: Option<String>,
}

impl FarEnds {
    /// The same, asked for those names of a plan of which nothing is known, before it serves.
    pub(crate) fn for_plan(mut self, plan: &Plan) -> Self {
        let unknown: BTreeSet<_> = wanted(plan).into_iter().filter(|name| !self.0.contains_key(name)).collect();
        let mut asking = Asking::default();
        asking.ask(&self, unknown, Instant::now());
        self.learn(asking.0.answer_within(PATIENCE).unwrap_or_default());
        self
    }

    /// Takes answers.
    pub(crate) fn learn(&mut self, answers: Vec<Answer>) {
        for (name, answer) in answers {
            let known = self.0.entry(name).or_default();
            let (usable, trouble) = usable(answer);
            let address = known.address.filter(|address| usable.contains(address)).or(usable.first().copied());
            *known = Known { address: address.or(known.address), trouble };
        }
    }

    /// True if both have the same addresses.
    pub(crate) fn has_addresses_of(&self, other: &Self) -> bool {
        let addresses = |ends: &Self| -> BTreeMap<_, _> {
            ends.0.iter().filter_map(|(name, known)| Some((name.clone(), known.address?))).collect()
        };
        addresses(self) == addresses(other)
    }

    /// Completes a plan.
    pub(crate) fn complete(&self, plan: &mut Plan) {
        for service in &mut plan.services {
            let Some((name, ends)) = service.kind.named_end_mut() else { continue };
            let known = self.0.get(name).and_then(|known| known.address);
            let found = known.filter(|address| *address != ends.local).unwrap_or(Ipv6Addr::UNSPECIFIED);
            ends.remote = found;
        }
    }

    /// What is wrong for the services of a plan.
    pub(crate) fn faults(&self, plan: &Plan) -> Vec<String> {
        let fault = |service: &tombolo_engine::plan::Service| {
            let (name, ends) = service.kind.named_end()?;
            let known = self.0.get(name);
            let trouble = known.and_then(|known| known.trouble.clone());
            if !ends.awaits_far_end() {
                let trouble = trouble?;
                return Some(format!(
                    "service {}: {name} stays {}, where it was last: {trouble}",
                    service.name, ends.remote
                ));
            }
            let own = known.and_then(|known| known.address).filter(|address| *address == ends.local);
            let trouble = trouble.or(own.map(|own| format!("its address {own} is this end's own")));
            let trouble =
                trouble.unwrap_or_else(|| "the resolver has not answered yet (see /etc/resolv.conf)".to_owned());
            Some(format!(
                "service {} waits for an address of {name}: {trouble}; what its hosts send is refused until then",
                service.name
            ))
        };
        plan.services.iter().filter_map(fault).collect()
    }

    /// Says where names have moved to.
    pub(crate) fn say(&self, before: &Self) {
        for (name, known) in &self.0 {
            let former = before.0.get(name).and_then(|known| known.address);
            if let Some(address) = known.address.filter(|address| Some(*address) != former) {
                let former = former.map(tracing::field::display);
                tracing::info!(%name, %address, former, "far end found");
            }
        }
    }
}

/// Names that services of a plan know their far ends by.
pub(crate) fn wanted(plan: &Plan) -> BTreeSet<FarEndName> {
    plan.services.iter().filter_map(|service| service.kind.named_end()).map(|(name, _)| name.clone()).collect()
}

/// Addresses at which a softwire can end, and what is wrong if there are none.
fn usable(answer: io::Result<Vec<Ipv6Addr>>) -> (Vec<Ipv6Addr>, Option<String>) {
    let found = match answer {
        Ok(found) => found,
        Err(error) => return (Vec::new(), Some(format!("the resolver has no answer ({error}; see /etc/resolv.conf)"))),
    };
    let usable: Vec<_> = found.iter().copied().filter(|address| check_far_end(*address).is_ok()).collect();
    let trouble = usable.is_empty().then(|| match found.first() {
        None => "it has no IPv6 address".to_owned(),
        Some(other) => format!("no softwire can end at its address {other}"),
    });
    (usable, trouble)
}

/// The resolver as it is asked.
#[derive(Debug, Default)]
pub(crate) struct Asking(Question<Vec<Answer>>);

impl Asking {
    /// Asks for names if it is time to; what was answered meanwhile.
    pub(crate) fn follow(&mut self, far_ends: &FarEnds, names: BTreeSet<FarEndName>, now: Instant) -> Vec<Answer> {
        let answers = self.0.answer().unwrap_or_default();
        if answers.is_empty() {
            self.ask(far_ends, names, now);
        }
        answers
    }

    fn ask(&mut self, far_ends: &FarEnds, names: BTreeSet<FarEndName>, now: Instant) {
        if names.is_empty() {
            return;
        }
        let has_address = |name| far_ends.0.get(name).is_some_and(|known: &Known| known.address.is_some());
        let pause = if names.iter().all(has_address) { PAUSE } else { AGAIN };
        let resolve = |name: FarEndName| {
            let answer = tombolo_io::resolver::ipv6_addresses(name.as_str());
            (name, answer)
        };
        self.0.ask("resolver", (pause, now), move || names.into_iter().map(resolve).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B4: &str = "[[service]]\nkind = \"b4\"\ninside = [\"10.0.0.0/24\"]\naddress = \"2001:db8:1::b4\"\n\
                      aftr = \"aftr.example.net\"\n";

    fn plan() -> Plan {
        tombolo_config::parse("test.toml", B4).unwrap().plan
    }

    fn answered(far_ends: &mut FarEnds, addresses: &[&str]) -> (Ipv6Addr, Vec<String>) {
        let name = FarEndName::new("aftr.example.net").unwrap();
        far_ends.learn(vec![(name, Ok(addresses.iter().map(|address| address.parse().unwrap()).collect()))]);
        let mut plan = plan();
        far_ends.complete(&mut plan);
        let remote = plan.services[0].kind.named_end().unwrap().1.remote;
        (remote, far_ends.faults(&plan))
    }

    #[test]
    fn a_name_without_an_address_is_waited_for() {
        let mut far_ends = FarEnds::default();
        let fault = far_ends.faults(&plan()).concat();
        assert!(fault.contains("service b4 waits for an address of aftr.example.net") && fault.contains("resolv.conf"));
        for (answer, why) in [
            (&[][..], "no IPv6 address"),
            (&["fe80::1"][..], "no softwire can end at its address fe80::1"),
            (&["2001:db8:1::b4"][..], "this end's own"),
        ] {
            let (remote, faults) = answered(&mut far_ends, answer);
            assert!(remote.is_unspecified() && faults.concat().contains(why), "{faults:?}");
        }
    }

    #[test]
    fn an_address_is_kept_until_the_answer_has_others() {
        let mut far_ends = FarEnds::default();
        let [one, other] = ["2001:db8::1", "2001:db8::2"];
        let at = |text: &str| text.parse::<Ipv6Addr>().unwrap();
        assert_eq!(answered(&mut far_ends, &[one, other]), (at(one), vec![]));
        assert_eq!(answered(&mut far_ends, &[other, one]), (at(one), vec![]), "in another order");
        assert_eq!(answered(&mut far_ends, &["::1", other]), (at(other), vec![]));
        let (remote, faults) = answered(&mut far_ends, &[]);
        assert_eq!(remote, at(other), "the last one, where there is none");
        assert!(faults.concat().contains("stays 2001:db8::2"), "{faults:?}");
    }
}

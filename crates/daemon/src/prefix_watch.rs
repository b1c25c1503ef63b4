//! The thread that listens to routers, and has the configuration read again when the prefix that
//! they advertise changes or is not confirmed in time. Without a prefix it asks routers and the resolver until
//! there is one.
//!
//! Read first: RFC 8781 sections 4 and 5.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tombolo_io::router::{Advertisement, Routers};
use tombolo_io::worker::StopSignal;
use tombolo_wire::Prefix64;

use crate::discovery::{self, first_valid};
use crate::question::Question;
use crate::reload::Wish;
use crate::running::Running;
use crate::threads::{self, Guarded};

/// The least time between two changes: whoever forges advertisements shall not keep the gateway
/// busy with them.
const PAUSE: Duration = Duration::from_secs(5);
/// How often the listener looks whether it is to stop.
const PERIOD: Duration = Duration::from_millis(500);
/// How often the network is asked while there is no prefix.
const AGAIN: Duration = Duration::from_secs(2);
/// How often routers are asked how long the prefix in use is good for, and how long each has to answer (RFC 4861 section 10:
/// `MAX_RTR_SOLICITATIONS`, `RTR_SOLICITATION_INTERVAL`).
const QUESTIONS: u8 = 3;
const ANSWER: Duration = Duration::from_secs(4);
/// The part of the gateway, in its health.
const PART: &str = "prefix";

/// What an advertisement means to who uses `current`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// It is good for so long.
    Confirmed(Duration),
    /// It is to be found out again which prefix there is.
    Changed,
    /// Nothing.
    Nothing,
}

fn meaning(heard: &Advertisement, current: Option<Prefix64>) -> Meaning {
    let about = heard.prefixes.iter().find(|option| Some(option.prefix) == current);
    match about {
        Some(option) if option.lifetime > 0 => Meaning::Confirmed(Duration::from_secs(option.lifetime.into())),
        Some(_) => Meaning::Changed,
        None if first_valid(heard).is_some() => Meaning::Changed,
        None => Meaning::Nothing,
    }
}

/// How long what is in use is good for (RFC 8781 section 5).
#[derive(Debug)]
struct Term {
    /// When it is to be found out again which prefix there is; nothing until a router has confirmed it.
    expires: Option<Instant>,
    /// When that was found out last.
    began: Instant,
    /// How often routers were asked for it since, and when last.
    asked: (u8, Option<Instant>),
}

impl Term {
    const fn from(began: Instant) -> Self {
        Self { expires: None, began, asked: (0, None) }
    }

    /// True if routers are to be asked now how long it is. What was found at the start, or by the resolver, has a term only if
    /// a router says so, and unasked that may take half an hour.
    fn is_to_be_asked_for(&mut self, now: Instant) -> bool {
        let (times, last) = self.asked;
        let is_due = self.expires.is_none() && times < QUESTIONS && last.is_none_or(|last| last + ANSWER <= now);
        if is_due {
            self.asked = (times + 1, Some(now));
        }
        is_due
    }

    fn hear(&mut self, meaning: Meaning, now: Instant) {
        match meaning {
            Meaning::Confirmed(lifetime) => self.expires = Some(now + lifetime),
            Meaning::Changed => self.expires = Some(now),
            Meaning::Nothing => {}
        }
    }

    /// True once, and of terms that follow each other not more often than `PAUSE` allows, unless the gateway `waits` for
    /// a prefix.
    fn is_over(&mut self, waits: bool, now: Instant) -> bool {
        let is_over = self.expires.is_some_and(|expires| expires <= now) && (waits || self.began + PAUSE <= now);
        if is_over {
            *self = Self::from(now);
        }
        is_over
    }
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct PrefixWatch(JoinHandle<()>);

impl PrefixWatch {
    /// Starts it for services that were without a prefix before the network was asked, the first of which is
    /// number `service`; it ends when `stop` is given.
    pub(crate) fn start(service: u8, running: &Arc<Running>, stop: StopSignal) -> Option<Self> {
        let routers = Routers::open().inspect_err(|error| tracing::warn!("routers are not listened to: {error}")).ok();
        let guarded = Guarded { name: "prefix-watch", stop: stop.clone(), health: Arc::clone(&running.health) };
        let running = Arc::clone(running);
        let thread = threads::spawn(guarded, move || listen(routers.as_ref(), service, &running, &stop));
        thread.inspect_err(|error| tracing::warn!("routers are not listened to: {error}")).ok().map(Self)
    }

    /// Waits for its end.
    pub(crate) fn join(self) {
        let _ = self.0.join();
    }
}

fn listen(routers: Option<&Routers>, service: u8, running: &Arc<Running>, stop: &StopSignal) {
    let mut term = Term::from(Instant::now());
    let mut search = Search::default();
    while !stop.is_given() {
        let heard = match routers.map(|routers| routers.receive(PERIOD)) {
            Some(Ok(heard)) => heard,
            Some(Err(error)) => return tracing::warn!("routers are not listened to any more: {error}"),
            None => {
                std::thread::sleep(PERIOD);
                None
            }
        };
        let now = Instant::now();
        let Some((name, current)) = in_use(running, service) else {
            running.health.set(PART, Vec::new());
            continue;
        };
        if let Some(heard) = heard {
            term.hear(meaning(&heard, current), now);
        }
        let waits = current.is_none();
        if !waits && term.is_to_be_asked_for(now) {
            solicit(routers);
        }
        running.health.set(PART, waits.then(|| lack(&name)).into_iter().collect());
        if waits && search.has_found(routers, now) {
            term.hear(Meaning::Changed, now);
        }
        if term.is_over(waits, now) {
            tracing::info!("the prefix that the network has for its PLAT is another one, or over");
            let wish = Wish { forget_prefix: true, ..Wish::default() };
            if let Err(error) = running.reload(wish) {
                tracing::error!("the old prefix stays in use: {error}");
            }
        }
    }
}

/// The name of service number `service`, and its prefix, which is that of all that leave it to the network; `None`
/// if a reload has taken it away.
fn in_use(running: &Running, service: u8) -> Option<(String, Option<Prefix64>)> {
    let plan = running.plan.load();
    let name = plan.service(service)?.name.clone();
    let prefix = discovery::in_use(&plan, &name);
    Some((name, prefix))
}

/// What a service lacks that uses no prefix now.
fn lack(service: &str) -> String {
    format!(
        "service {service} waits for the prefix of its PLAT: no router advertises one, and the resolver knows none; what \
         its hosts send is refused until then"
    )
}

fn solicit(routers: Option<&Routers>) {
    if let Some(Err(error)) = routers.map(Routers::solicit) {
        tracing::debug!("routers cannot be asked for the prefix of the PLAT: {error}");
    }
}

/// The network is asked again and again, as long as there is no prefix: routers and the resolver, neither of which
/// waits for the other.
#[derive(Debug, Default)]
struct Search {
    resolver: Question<bool>,
    /// When the routers were asked last.
    solicited: Option<Instant>,
}

impl Search {
    /// Whether the resolver knows a prefix now. What routers answer is heard as all that they say.
    fn has_found(&mut self, routers: Option<&Routers>, now: Instant) -> bool {
        if let Some(routers) = routers
            && self.solicited.is_none_or(|solicited| solicited + AGAIN <= now)
        {
            self.solicited = Some(now);
            solicit(Some(routers));
        }
        let known = || discovery::is_known(tombolo_io::resolver::ipv6_addresses);
        self.resolver.answer().unwrap_or_else(|| {
            self.resolver.ask("resolver", (AGAIN, now), known);
            false
        })
    }
}

#[cfg(test)]
mod tests {
    use tombolo_wire::Pref64Option;

    use super::*;

    #[test]
    fn an_advertisement_confirms_changes_or_says_nothing() {
        let (one, other) = ("2001:db8:64::/96".parse().unwrap(), "64:ff9b::/96".parse().unwrap());
        let heard = |prefixes: &[(Prefix64, u16)]| Advertisement {
            router: "fe80::1".parse().unwrap(),
            prefixes: prefixes.iter().map(|&(prefix, lifetime)| Pref64Option { prefix, lifetime }).collect(),
        };
        assert_eq!(meaning(&heard(&[]), Some(one)), Meaning::Nothing);
        assert_eq!(meaning(&heard(&[(other, 600), (one, 16)]), Some(one)), Meaning::Confirmed(Duration::from_secs(16)));
        assert_eq!(meaning(&heard(&[(one, 0)]), Some(one)), Meaning::Changed);
        assert_eq!(meaning(&heard(&[(other, 600)]), Some(one)), Meaning::Changed);
        assert_eq!(meaning(&heard(&[(other, 0)]), Some(one)), Meaning::Nothing);
        assert_eq!(first_valid(&heard(&[(one, 0), (other, 600)])), Some(other));
    }
    #[test]
    fn a_prefix_is_used_for_its_lifetime_and_for_as_long_as_it_is_confirmed() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let confirmed = |seconds| Meaning::Confirmed(Duration::from_secs(seconds));
        let mut term = Term::from(begin);
        assert!(!term.is_over(false, at(100_000)), "no router has said how long");
        term.hear(confirmed(16), at(0));
        term.hear(Meaning::Nothing, at(5));
        term.hear(confirmed(16), at(10));
        assert!(!term.is_over(false, at(25)), "it was confirmed after 10 seconds");
        assert!(term.is_over(false, at(26)));
        assert!(!term.is_over(false, at(27)), "once");
        // Another one comes too soon after that; who waits for a prefix has it at once.
        term.hear(Meaning::Changed, at(28));
        assert!(!term.is_over(false, at(30)) && term.is_over(true, at(30)));
        term.hear(confirmed(0), at(31));
        assert!(!term.is_over(false, at(34)) && term.is_over(false, at(35)));
    }

    #[test]
    fn routers_are_asked_three_times_for_a_term_and_not_once_it_is_known() {
        let begin = Instant::now();
        let mut term = Term::from(begin);
        let asked = |term: &mut Term| -> Vec<u64> {
            let seconds = 0..60;
            seconds.filter(|n| term.is_to_be_asked_for(begin + Duration::from_secs(*n))).collect()
        };
        assert_eq!(asked(&mut term), [0, 4, 8]);
        let mut term = Term::from(begin);
        term.hear(Meaning::Confirmed(Duration::from_secs(600)), begin);
        assert!(asked(&mut term).is_empty());
    }
}

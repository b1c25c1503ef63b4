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
    let (mut expires, mut changed) = (None, Instant::now());
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
        match heard.map(|heard| meaning(&heard, current)) {
            Some(Meaning::Confirmed(lifetime)) => expires = Some(now + lifetime),
            Some(Meaning::Changed) => expires = Some(now),
            Some(Meaning::Nothing) | None => {}
        }
        let waits = current.is_none();
        running.health.set(PART, waits.then(|| lack(&name)).into_iter().collect());
        if waits && search.has_found(routers, now) {
            expires = Some(now);
        }
        if expires.is_some_and(|expires| expires <= now) && (waits || changed + PAUSE <= now) {
            (expires, changed) = (None, now);
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
            if let Err(error) = routers.solicit() {
                tracing::debug!("routers cannot be asked for the prefix of the PLAT: {error}");
            }
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
}

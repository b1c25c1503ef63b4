//! The thread that listens to routers, and has the configuration read again when the prefix that
//! they advertise changes or is not confirmed in time.
//!
//! Read first: RFC 8781 sections 4 and 5.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tombolo_engine::plan::ServiceKind;
use tombolo_io::router::{Advertisement, Routers};
use tombolo_io::worker::StopSignal;
use tombolo_wire::Prefix64;

use crate::discovery::first_valid;
use crate::running::{Running, Wish};
use crate::threads::{self, Guarded};

/// The least time between two changes: whoever forges advertisements shall not keep the gateway
/// busy with them.
const PAUSE: Duration = Duration::from_secs(5);
/// How often the listener looks whether it is to stop.
const PERIOD: Duration = Duration::from_millis(500);

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
    /// Starts it for service number `service`; it ends when `stop` is given.
    pub(crate) fn start(service: u8, running: &Arc<Running>, stop: StopSignal) -> Option<Self> {
        let routers =
            Routers::open().inspect_err(|error| tracing::warn!("routers are not listened to: {error}")).ok()?;
        let guarded = Guarded { name: "prefix-watch", stop: stop.clone(), health: Arc::clone(&running.health) };
        let running = Arc::clone(running);
        let thread = threads::spawn(guarded, move || listen(&routers, service, &running, &stop));
        thread.inspect_err(|error| tracing::warn!("routers are not listened to: {error}")).ok().map(Self)
    }

    /// Waits for its end.
    pub(crate) fn join(self) {
        let _ = self.0.join();
    }
}

fn listen(routers: &Routers, service: u8, running: &Arc<Running>, stop: &StopSignal) {
    let (mut expires, mut changed) = (None, Instant::now());
    while !stop.is_given() {
        let heard = match routers.receive(PERIOD) {
            Ok(heard) => heard,
            Err(error) => return tracing::warn!("routers are not listened to any more: {error}"),
        };
        let now = Instant::now();
        match heard.map(|heard| meaning(&heard, prefix_in_use(running, service))) {
            Some(Meaning::Confirmed(lifetime)) => expires = Some(now + lifetime),
            Some(Meaning::Changed) => expires = Some(now),
            Some(Meaning::Nothing) | None => {}
        }
        if expires.is_some_and(|expires| expires <= now) && changed + PAUSE <= now {
            (expires, changed) = (None, now);
            tracing::info!("the prefix that routers advertise has changed");
            if let Err(error) = running.reload(Wish::default()) {
                tracing::error!("the old prefix stays in use: {error}");
            }
        }
    }
}

/// The prefix of service number `service`, which is that of all that leave it to the network.
fn prefix_in_use(running: &Running, service: u8) -> Option<Prefix64> {
    match &running.plan.load().service(service)?.kind {
        ServiceKind::Siit(siit) => siit.mapping.prefix,
        _ => None,
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

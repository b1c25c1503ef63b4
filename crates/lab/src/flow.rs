//! Flows of numbered datagrams to a server that sends them back, and what a fault does to them.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{LabError, Namespace, release::Release};

/// From one datagram of a flow to the next.
const PACE: Duration = Duration::from_millis(4);
/// Whoever sends is later than that only if the machine has something else to do.
const PUNCTUAL: Duration = Duration::from_millis(5);
/// How long is waited for a datagram before somebody looks whether that is over.
const LOOK: Duration = Duration::from_millis(200);
/// From one question of a host that nobody knows to the next.
const QUESTION: Duration = Duration::from_millis(20);
/// All is well for so long before a fault,
const BEFORE: Duration = Duration::from_millis(300);
/// and for so long is looked at what comes after.
const AFTER: Duration = Duration::from_millis(1500);

/// A flow: numbered datagrams to the server, and what comes back.
#[derive(Debug)]
pub struct Flow {
    name: String,
    socket: UdpSocket,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The number of the first datagram that is remembered.
    first: usize,
    sent: Vec<Instant>,
    back: BTreeMap<usize, Instant>,
}

/// What a fault did to a flow.
#[derive(Debug, Clone)]
pub struct Effect {
    /// The flow.
    pub name: String,
    /// Datagrams that were not answered.
    pub lost: usize,
    /// The longest time without an answer, from the first datagram that was lost to the next one that was not.
    pub silence: Duration,
    /// When that began, since the fault.
    pub began: Duration,
    /// How long the machine kept whoever sends waiting besides, all in all: a busy one keeps routing daemons and gateways waiting as well.
    pub stalled: Duration,
}

impl Effect {
    /// Whether it was silent for `limit` at most, and for what the machine took besides. Where nothing may be lost a busy machine is no excuse.
    #[must_use]
    pub fn is_within(&self, limit: Duration) -> bool {
        self.silence <= if limit.is_zero() { limit } else { limit + self.stalled }
    }
}

impl Flow {
    /// One from an address of a host, at any port if that is 0, to the server at `to`.
    ///
    /// # Errors
    /// [`LabError::System`] when the address cannot be bound, or there is no route.
    pub fn open(host: &Namespace, name: String, from: SocketAddr, to: SocketAddr) -> Result<Self, LabError> {
        let open = || -> std::io::Result<UdpSocket> {
            let socket = UdpSocket::bind(from)?;
            socket.connect(to)?;
            socket.set_read_timeout(Some(LOOK))?;
            Ok(socket)
        };
        let socket = host.run(open)?.map_err(|e| LabError::system(format!("send from {from} to {to}"), e))?;
        Ok(Self { name, socket, seen: Mutex::default() })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address that it comes from.
    #[must_use]
    pub fn source(&self) -> Option<IpAddr> {
        self.socket.local_addr().ok().map(|address| address.ip())
    }

    /// Sends the next datagram.
    pub fn send(&self) {
        self.send_next();
    }

    /// Sends one, and waits for its own answer: what comes of others before is not it. False if there is none for a fifth of a second.
    pub fn ask(&self) -> bool {
        let number = self.send_next();
        while self.receive() {
            if number.is_some_and(|number| self.seen().back.contains_key(&number)) {
                return true;
            }
        }
        false
    }

    /// Takes in what comes back. False if nothing does, for a fifth of a second.
    pub fn receive(&self) -> bool {
        let mut bytes = [0; 8];
        let Ok(8) = self.socket.recv(&mut bytes) else { return false };
        self.seen().back.entry(usize::from_be_bytes(bytes)).or_insert_with(Instant::now);
        true
    }

    fn send_next(&self) -> Option<usize> {
        let mut seen = self.seen();
        let number = seen.first + seen.sent.len();
        let is_sent = self.socket.send(&number.to_be_bytes()).is_ok();
        if is_sent {
            seen.sent.push(Instant::now());
        }
        is_sent.then_some(number)
    }

    /// Asks every 20 ms: how long after `since` the first answer came; `None` if there was none within `limit`.
    #[must_use]
    pub fn first_answer(&self, since: Instant, limit: Duration) -> Option<Duration> {
        // Without the shorter limit it asks less often; that is no error.
        let _ = self.socket.set_read_timeout(Some(QUESTION));
        let answered = || {
            while since.elapsed() < limit {
                self.send();
                if self.receive() {
                    return Some(since.elapsed());
                }
            }
            None
        };
        let found = answered();
        let _ = self.socket.set_read_timeout(Some(LOOK));
        found
    }

    /// What became of the datagrams that were sent from `since` on: how many were lost, the longest silence, and when that began.
    fn outcome(&self, since: Instant) -> (usize, Duration, Instant) {
        let seen = self.seen();
        let sent = (seen.first..).zip(&seen.sent).filter(|(_, at)| **at >= since);
        let (mut lost, mut longest, mut quiet_since) = (0, (Duration::ZERO, since), None);
        let longer = |longest: (Duration, Instant), from: Instant, to: Instant| longest.max((to - from, from));
        for (number, at) in sent {
            let is_back = seen.back.contains_key(&number);
            lost += usize::from(!is_back);
            match (is_back, quiet_since) {
                (false, None) => quiet_since = Some(*at),
                (true, Some(from)) => {
                    longest = longer(longest, from, *at);
                    quiet_since = None;
                }
                _ => {}
            }
        }
        if let Some((from, last)) = quiet_since.zip(seen.sent.last()) {
            longest = longer(longest, from, *last);
        }
        let (silence, began) = longest;
        (lost, silence, began)
    }

    /// Forgets what was sent until now.
    fn forget(&self) {
        let mut seen = self.seen();
        seen.first += seen.sent.len();
        seen.sent.clear();
        seen.back.clear();
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What these flows notice of a fault, each of which sends 250 datagrams a second: from 0.3 s before it to 1.5 s after it.
pub fn under_load<T>(flows: &[Flow], fault: impl FnOnce() -> T) -> (T, Vec<Effect>) {
    flows.iter().for_each(Flow::forget);
    let stop = AtomicBool::new(false);
    let since = Instant::now();
    let fault_at = since + BEFORE;
    let (done, stalled) = std::thread::scope(|scope| {
        let ends = Release(&stop);
        let stop = &stop;
        for flow in flows {
            scope.spawn(move || while flow.receive() || !stop.load(Ordering::Acquire) {});
        }
        let sending = scope.spawn(move || send_until(flows, stop));
        std::thread::sleep(BEFORE);
        let done = fault();
        std::thread::sleep(AFTER);
        drop(ends);
        (done, sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let of = |flow: &Flow| {
        let (lost, silence, began) = flow.outcome(since);
        let began = began.saturating_duration_since(fault_at);
        Effect { name: flow.name.clone(), lost, silence, began, stalled }
    };
    (done, flows.iter().map(of).collect())
}

/// Sends until it is over, and says for how long this thread was kept waiting besides.
fn send_until(flows: &[Flow], stop: &AtomicBool) -> Duration {
    let mut stalled = Duration::ZERO;
    while !stop.load(Ordering::Acquire) {
        let began = Instant::now();
        flows.iter().for_each(Flow::send);
        std::thread::sleep(PACE.saturating_sub(began.elapsed()));
        let late = began.elapsed().saturating_sub(PACE);
        stalled += if late > PUNCTUAL { late } else { Duration::ZERO };
    }
    stalled
}

/// How long each of them waits for its first answer, all at the same time; `None` if there was none within `limit` after `since`.
#[must_use]
pub fn first_answers(flows: &[Flow], since: Instant, limit: Duration) -> Vec<Option<Duration>> {
    std::thread::scope(|scope| {
        let asking = |flow| scope.spawn(move || Flow::first_answer(flow, since, limit));
        let threads: Vec<_> = flows.iter().map(asking).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flow of which datagrams were sent every 10 ms, and these came back.
    fn flow(count: usize, back: &[usize]) -> (Flow, Instant) {
        let since = Instant::now();
        let sent =
            (0..count).map(|number| since + Duration::from_millis(10) * u32::try_from(number).unwrap()).collect();
        let back = back.iter().map(|number| (*number, since)).collect();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        (Flow { name: "one".to_owned(), socket, seen: Mutex::new(Seen { first: 0, sent, back }) }, since)
    }

    #[test]
    fn silence_is_from_the_first_lost_datagram_to_the_next_answered_one() {
        let of = |count, back: &[usize]| {
            let (flow, since) = flow(count, back);
            let (lost, silence, began) = flow.outcome(since);
            (lost, silence.as_millis(), (began - since).as_millis())
        };
        assert_eq!(of(5, &[0, 1, 2, 3, 4]), (0, 0, 0));
        assert_eq!(of(6, &[0, 3, 5]), (3, 20, 10));
        assert_eq!(of(4, &[0]), (3, 20, 10), "until the last one that was sent");
        let (flow, since) = flow(6, &[3, 4, 5]);
        assert_eq!(flow.outcome(since + Duration::from_millis(20)).0, 1, "of those since then");
        flow.forget();
        flow.seen().sent.extend([since; 2]);
        flow.seen().back.insert(7, since);
        assert_eq!(flow.outcome(since).0, 1, "numbers go on");
    }
    #[test]
    fn a_busy_machine_excuses_silence_and_no_loss_where_nothing_may_be_lost() {
        let millis = Duration::from_millis;
        let effect =
            Effect { name: "one".to_owned(), lost: 3, silence: millis(30), began: millis(0), stalled: millis(20) };
        assert!(effect.is_within(millis(10)) && !effect.is_within(millis(9)) && !effect.is_within(Duration::ZERO));
    }
}

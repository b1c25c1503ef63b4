//! The client: asks at a rate, and finds for each query whether the right answer came in time.

use std::cell::Cell;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{RData, RecordType};
use serde::Serialize;

use super::authority::is_nothing;
use super::names::{Names, number_of, spelled};
use crate::search::Verdict;

/// Queries leave in bursts of what this holds.
const BURST: Duration = Duration::from_micros(500);
/// A client that ends later than this part of the planned time, and this, did not keep the rate.
const OVERRUN_TOLERATED: f64 = 0.001;
const OVERRUN_TOLERATED_FLAT: Duration = Duration::from_millis(5);
/// Identifications of one socket.
const IDS: usize = 1 << 16;
/// Longest answer that is read.
const LONGEST: usize = 1500;

/// What to ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// Queries a second.
    pub rate: u64,
    /// For so long.
    pub seconds: f64,
    /// A later answer is none.
    pub timeout: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Answers {
    /// Queries sent.
    pub sent: u64,
    /// Right answers in time.
    pub right: u64,
    /// Right answers after the timeout.
    pub late: u64,
    /// Answers without the expected record.
    pub wrong: u64,
    /// Why the first wrong answer was wrong.
    pub first_wrong: Option<String>,
    /// Median time to the right answers, milliseconds; to the client's burst.
    pub median_ms: Option<f64>,
    /// How much later than planned the last query left, milliseconds, where that was too late.
    pub overrun_ms: Option<f64>,
    /// Datagrams that the tester's sockets had no room for.
    pub dropped_by_tester: u64,
    /// Queries that came to the authority meanwhile.
    pub authority_queries: u64,
}

impl Answers {
    /// Whether every query was answered in time, or whose fault it is that not.
    pub fn verdict(&self) -> Verdict {
        match (self.overrun_ms.is_some() || self.dropped_by_tester > 0, self.right == self.sent && self.wrong == 0) {
            (true, _) => Verdict::Invalid,
            (false, true) => Verdict::Passed,
            (false, false) => Verdict::Failed,
        }
    }

    /// Queries without a right answer in time, percent.
    pub fn missing_percent(&self) -> f64 {
        self.sent.saturating_sub(self.right) as f64 * 100.0 / self.sent.max(1) as f64
    }

    /// Why it did not pass.
    pub fn why(&self) -> String {
        let mut reasons = Vec::new();
        if let Some(ms) = self.overrun_ms {
            reasons.push(format!("the client ended {ms:.1} ms late"));
        }
        let silent = self.sent.saturating_sub(self.right + self.late + self.wrong);
        for (count, what) in [
            (self.dropped_by_tester, "datagrams had no room in the tester's sockets"),
            (silent, "queries were not answered"),
            (self.late, "answers came after the timeout"),
            (self.wrong, "answers were wrong"),
        ] {
            if count > 0 {
                reasons.push(format!("{count} {what} (of {} queries)", self.sent));
            }
        }
        reasons.extend(self.first_wrong.clone());
        reasons.join("; ")
    }
}

/// A query that has no answer yet.
#[derive(Clone, Copy)]
struct Open {
    name: u32,
    sent: Instant,
}

/// Sockets of a client, and their open queries.
pub(super) struct Client {
    sockets: Vec<UdpSocket>,
    server: SocketAddr,
    /// The number of the next query. Identifications go on with it from trial to trial: what answers a query of an earlier trial late
    /// is no answer to one of this.
    next: Cell<u64>,
}

/// A trial under way.
struct Trial<'a> {
    client: &'a Client,
    names: &'a mut Names,
    asked: &'a Asked,
    /// Number of its first query.
    first: u64,
    /// By socket and identification.
    open: Vec<Vec<Option<Open>>>,
    unanswered: u64,
    delays: Vec<Duration>,
    answers: Answers,
}

impl Client {
    /// Asks this server through these sockets.
    ///
    /// # Errors
    /// If one cannot be made non-blocking.
    pub(super) fn new(sockets: Vec<UdpSocket>, server: SocketAddr) -> io::Result<Client> {
        sockets.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
        // The first identification of each is that of what the server is taught.
        let next = Cell::new(sockets.len() as u64);
        Ok(Client { sockets, server, next })
    }

    /// The most that can be open at once: each query has an identification of its own.
    fn most_open(&self) -> u64 {
        (self.sockets.len() * IDS) as u64
    }

    /// Asks, and waits for the answers.
    ///
    /// # Errors
    /// If a socket does not work, or more queries would be open than can be told apart.
    pub(super) fn ask(&self, asked: &Asked, names: &mut Names) -> io::Result<Answers> {
        if asked.rate as f64 * asked.timeout.as_secs_f64() * 1.5 > self.most_open() as f64 {
            return Err(io::Error::other(format!("at {} queries/s too many would be open at once", asked.rate)));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of queries")]
        let queries = ((asked.rate as f64 * asked.seconds) as u64).max(1);
        let mut trial = Trial {
            client: self,
            names,
            asked,
            first: self.next.get(),
            open: vec![vec![None; IDS]; self.sockets.len()],
            unanswered: 0,
            delays: Vec::new(),
            answers: Answers::default(),
        };
        self.next.set(trial.first + queries);
        trial.send_all(queries)?;
        trial.wait()?;
        Ok(trial.finish())
    }

    /// Asks for each of these names, a few at a time, until all are answered; false if they are not in
    /// time.
    ///
    /// # Errors
    /// If a socket does not work.
    pub(super) fn teach(
        &self,
        names: &Names,
        known: impl Iterator<Item = u32>,
        patience: Duration,
    ) -> io::Result<bool> {
        let began = Instant::now();
        let mut buffer = [0; LONGEST];
        for name in known {
            let mut is_known = false;
            while !is_known {
                if began.elapsed() > patience {
                    return Ok(false);
                }
                let sent = self.sockets[0].send_to(&query(0, name)?, self.server);
                sent.map(drop).or_else(|error| if is_nothing(&error) { Ok(()) } else { Err(error) })?;
                let asked = Instant::now();
                while !is_known && asked.elapsed() < Duration::from_millis(200) {
                    match self.sockets[0].recv_from(&mut buffer) {
                        Ok((length, _)) => is_known = check(&buffer[..length], name, names.expected(name)).is_ok(),
                        Err(error) if is_nothing(&error) => thread::sleep(Duration::from_micros(200)),
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(true)
    }
}

impl Trial<'_> {
    fn send_all(&mut self, queries: u64) -> io::Result<()> {
        let began = Instant::now();
        let due = |query: u64| began + Duration::from_secs_f64(query as f64 / self.asked.rate as f64);
        let burst = (self.asked.rate as f64 * BURST.as_secs_f64()).ceil().max(1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few queries")]
        let burst = burst as u64;
        let mut next = 0;
        while next < queries {
            let now = Instant::now();
            let at = due(next);
            if now < at {
                let busy = self.receive()?;
                let left = at.saturating_duration_since(Instant::now());
                if !busy && !left.is_zero() {
                    thread::sleep(left.min(BURST));
                }
                continue;
            }
            for _ in 0..burst.min(queries - next) {
                self.send(next)?;
                next += 1;
            }
            self.receive()?;
        }
        let overrun = Instant::now().saturating_duration_since(due(queries));
        let tolerated = OVERRUN_TOLERATED_FLAT.max(Duration::from_secs_f64(self.asked.seconds * OVERRUN_TOLERATED));
        self.answers.overrun_ms = (overrun > tolerated).then_some(overrun.as_secs_f64() * 1000.0);
        Ok(())
    }

    fn send(&mut self, number: u64) -> io::Result<()> {
        let count = usize::try_from(self.first + number).unwrap_or(0);
        let sockets = self.client.sockets.len();
        let (socket, id) = (count % sockets, count / sockets % IDS);
        let name = self.names.choose(number);
        let bytes = query(u16::try_from(id).unwrap_or(0), name)?;
        while let Err(error) = self.client.sockets[socket].send_to(&bytes, self.client.server) {
            if !is_nothing(&error) {
                return Err(error);
            }
            self.receive()?;
        }
        self.open[socket][id] = Some(Open { name, sent: Instant::now() });
        self.unanswered += 1;
        self.answers.sent += 1;
        Ok(())
    }

    /// Until every query is answered, or the last one has had its time.
    fn wait(&mut self) -> io::Result<()> {
        let last = Instant::now();
        while self.unanswered > 0 && last.elapsed() <= self.asked.timeout {
            if !self.receive()? {
                thread::sleep(Duration::from_micros(200));
            }
        }
        Ok(())
    }

    /// Takes what has arrived; whether anything had.
    fn receive(&mut self) -> io::Result<bool> {
        let mut buffer = [0; LONGEST];
        let mut any = false;
        for socket in 0..self.client.sockets.len() {
            // Not for ever: the next query may be due.
            for _ in 0..64 {
                match self.client.sockets[socket].recv_from(&mut buffer) {
                    Ok((length, from)) if from == self.client.server => {
                        any = true;
                        self.take(socket, &buffer[..length]);
                    }
                    Ok(_) => {}
                    Err(error) if is_nothing(&error) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(any)
    }

    fn take(&mut self, socket: usize, answer: &[u8]) {
        let Some(id) = answer.first_chunk::<2>().map(|id| u16::from_be_bytes(*id)) else { return };
        let place = &mut self.open[socket][usize::from(id)];
        let Some(open) = *place else { return };
        *place = None;
        self.unanswered -= 1;
        let delay = open.sent.elapsed();
        match check(answer, open.name, self.names.expected(open.name)) {
            Ok(()) if delay <= self.asked.timeout => {
                self.answers.right += 1;
                self.delays.push(delay);
            }
            Ok(()) => self.answers.late += 1,
            Err(why) => {
                self.answers.wrong += 1;
                self.answers.first_wrong.get_or_insert(why);
            }
        }
    }

    fn finish(mut self) -> Answers {
        self.delays.sort_unstable();
        let median = self.delays.get(self.delays.len() / 2);
        Answers { median_ms: median.map(|delay| delay.as_secs_f64() * 1000.0), ..self.answers }
    }
}

/// A query for the AAAA record of a name.
fn query(id: u16, name: u32) -> io::Result<Vec<u8>> {
    let spelled = spelled(name).ok_or_else(|| io::Error::other("a name that cannot be spelled"))?;
    let mut message = Message::new();
    message
        .set_id(id)
        .set_message_type(MessageType::Query)
        .set_op_code(OpCode::Query)
        .set_recursion_desired(true)
        .add_query(Query::query(spelled, RecordType::AAAA));
    message.to_vec().map_err(io::Error::other)
}

/// Whether an answer is the right one; in words why not.
fn check(answer: &[u8], name: u32, expected: Ipv6Addr) -> Result<(), String> {
    let answer = Message::from_vec(answer).map_err(|error| format!("an answer cannot be read: {error}"))?;
    let asked = answer.queries().first().and_then(|question| number_of(question.name()));
    if answer.message_type() != MessageType::Response || asked != Some(name) {
        return Err("an answer is to another question".to_owned());
    }
    if answer.response_code() != ResponseCode::NoError {
        return Err(format!("an answer says {}", answer.response_code()));
    }
    let found: Vec<Ipv6Addr> = answer
        .answers()
        .iter()
        .filter_map(|record| match record.data() {
            RData::AAAA(address) => Some(address.0),
            _ => None,
        })
        .collect();
    match found[..] {
        [one] if one == expected => Ok(()),
        [] => Err("an answer has no AAAA record".to_owned()),
        _ => Err(format!("an answer has {found:?}, not {expected}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procedure::dns64::authority::answer;
    use crate::procedure::dns64::names::Shares;

    const SHARES: Shares = Shares { cached: 0, with_aaaa: 100 };

    /// A server that answers twenty queries only when the next ones come.
    fn hold_twenty(server: &UdpSocket) {
        let mut buffer = [0; LONGEST];
        let mut held = Vec::new();
        for number in 0..40 {
            let (length, client) = server.recv_from(&mut buffer).unwrap();
            held.push((answer(&buffer[..length], SHARES).unwrap(), client));
            if number >= 20 {
                for (answer, client) in held.drain(..) {
                    server.send_to(&answer, client).unwrap();
                }
            }
        }
    }

    #[test]
    fn answers_that_come_in_the_next_trial_are_none_of_its_own() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let at = server.local_addr().unwrap();
        let client = Client::new(vec![UdpSocket::bind("127.0.0.1:0").unwrap()], at).unwrap();
        let mut names = Names::new(SHARES, Ipv6Addr::UNSPECIFIED);
        let asked = Asked { rate: 2000, seconds: 0.01, timeout: Duration::from_millis(300) };
        thread::scope(|scope| {
            scope.spawn(|| hold_twenty(&server));
            let first = client.ask(&asked, &mut names).unwrap();
            assert_eq!((first.sent, first.right, first.late, first.wrong), (20, 0, 0, 0), "{first:?}");
            let second = client.ask(&asked, &mut names).unwrap();
            assert_eq!((second.sent, second.right, second.late, second.wrong), (20, 20, 0, 0), "{second:?}");
        });
    }
}

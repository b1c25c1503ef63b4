//! The authoritative server of the tester's zone: a thread that answers from arithmetic.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tombolo_generator::pin_to;

use super::names::{Shares, address, number_of, own_aaaa, zone};

const TTL: u32 = 3600;
/// How often a thread that hears nothing looks whether it is to end.
const PATIENCE: Duration = Duration::from_millis(50);
/// Longest query that is read.
const LONGEST: usize = 1500;

/// It answers until it is dropped.
pub(super) struct Authority {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    with_aaaa: AtomicU32,
    queries: AtomicU64,
}

impl Authority {
    /// Answers on these sockets, on this core.
    pub(super) fn start(sockets: Vec<UdpSocket>, core: usize) -> io::Result<Authority> {
        let shared = Arc::new(Shared::default());
        let mut threads = Vec::new();
        for socket in sockets {
            socket.set_read_timeout(Some(PATIENCE))?;
            let shared = Arc::clone(&shared);
            let body = move || {
                pin_to(0, &[core])?;
                serve(&socket, &shared)
            };
            threads.push(thread::Builder::new().name("authority".to_owned()).spawn(body)?);
        }
        Ok(Authority { shared, threads })
    }

    /// Which names have AAAA records from now on.
    pub(super) fn set_shares(&self, shares: Shares) {
        self.shared.with_aaaa.store(shares.with_aaaa, Ordering::Release);
    }

    /// Queries that it has answered.
    pub(super) fn queries(&self) -> u64 {
        self.shared.queries.load(Ordering::Acquire)
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn serve(socket: &UdpSocket, shared: &Shared) -> io::Result<()> {
    let mut buffer = [0; LONGEST];
    while !shared.stop.load(Ordering::Acquire) {
        let (length, client) = match socket.recv_from(&mut buffer) {
            Ok(received) => received,
            Err(error) if is_nothing(&error) => continue,
            Err(error) => return Err(error),
        };
        let shares = Shares { cached: 0, with_aaaa: shared.with_aaaa.load(Ordering::Acquire) };
        if let Some(answer) = answer(&buffer[..length], shares) {
            shared.queries.fetch_add(1, Ordering::Release);
            // A full queue loses the answer; the socket's owner counts it.
            let _ = socket.send_to(&answer, client);
        }
    }
    Ok(())
}

pub(super) fn is_nothing(error: &io::Error) -> bool {
    // An ICMP error to an earlier answer is the resolver's business.
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::ConnectionRefused)
}

/// The answer to a query; none to what is no query.
pub(super) fn answer(query: &[u8], shares: Shares) -> Option<Vec<u8>> {
    let query = Message::from_vec(query).ok()?;
    let question = query.queries().first().filter(|_| query.message_type() == MessageType::Query)?;
    let mut answer = Message::new();
    answer
        .set_id(query.id())
        .set_message_type(MessageType::Response)
        .set_authoritative(true)
        .set_recursion_desired(query.recursion_desired())
        .add_query(question.clone());
    let data = number_of(question.name()).and_then(|name| match question.query_type() {
        RecordType::A => Some(RData::A(A(address(name)))),
        RecordType::AAAA => own_aaaa(shares, name).map(|own| RData::AAAA(AAAA(own))),
        _ => None,
    });
    match data {
        Some(data) => {
            answer.add_answer(Record::from_rdata(question.name().clone(), TTL, data));
        }
        // The name is there, the record is not (RFC 2308 section 2.2).
        None => {
            answer.set_response_code(ResponseCode::NoError).add_name_server(start_of_authority()?);
        }
    }
    answer.to_vec().ok()
}

fn start_of_authority() -> Option<Record> {
    let zone = zone()?;
    let host = |label: &str| Name::from_ascii(label).ok()?.append_domain(&zone).ok();
    let soa = SOA::new(host("ns")?, host("hostmaster")?, 1, 3600, 600, 86_400, 60);
    Some(Record::from_rdata(zone, TTL, RData::SOA(soa)))
}

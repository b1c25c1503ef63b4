//! A forwarder with planted faults: what it does wrong is known exactly, so what the tester reports
//! can be checked.
//!
//! It forwards IPv4 and IPv6 frames between its two ports in user space, decrements the hop limit,
//! and damages every Nth frame that it forwards from inside to outside; where several faults would
//! meet, the first of the list is done. One thread, two packet sockets; the lab's kernel forwards
//! nothing.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tombolo_generator::{Ends, PacketSocket, Port, become_realtime, checksum, monotonic_ns, pin_to};

use super::faults::{Faults, Field};

/// The running forwarder.
pub struct FaultyForwarder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    flush: AtomicBool,
    dead_until_ns: AtomicU64,
    tuples: AtomicU64,
}

impl FaultyForwarder {
    /// Starts forwarding between two ports of the gateway; `left` and `right` are the link-layer
    /// addresses of the frames that leave there.
    ///
    /// # Errors
    /// If the ports cannot be opened.
    pub fn start(
        faults: Faults,
        inside: (&Port, Ends),
        outside: (&Port, Ends),
        core: usize,
    ) -> io::Result<FaultyForwarder> {
        let shared = Arc::new(Shared::default());
        let sides = [PacketSocket::open(inside.0)?, PacketSocket::open(outside.0)?];
        let mut forwarder = Forwarder {
            faults,
            sides,
            ends: [inside.1, outside.1],
            shared: Arc::clone(&shared),
            queue: VecDeque::new(),
            seen: HashMap::new(),
            count: 0,
            tokens_ns: 0,
            held: None,
        };
        let thread = thread::Builder::new().name("faulty".to_owned()).spawn(move || {
            pin_to(0, &[core])?;
            let _ = become_realtime(0, 1);
            forwarder.run()
        })?;
        Ok(FaultyForwarder { shared, thread: Some(thread) })
    }

    /// Forgets all four tuples.
    pub fn flush(&self) {
        self.shared.flush.store(true, Ordering::Release);
        while self.shared.flush.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Plays dead.
    pub fn reset(&self, faults: &Faults) {
        if faults.state != 0 {
            self.flush();
        }
        self.shared.dead_until_ns.store(monotonic_ns() + faults.outage * 1_000_000, Ordering::Release);
    }

    /// Different four tuples that were let through since the last flush.
    pub fn tuples(&self) -> u64 {
        self.shared.tuples.load(Ordering::Acquire)
    }
}

impl Drop for FaultyForwarder {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Forwarder {
    faults: Faults,
    sides: [PacketSocket; 2],
    ends: [Ends; 2],
    shared: Arc<Shared>,
    /// Frames that are held back: when, where to, what.
    queue: VecDeque<(u64, usize, Vec<u8>)>,
    /// Four tuples, and when each was last seen from inside.
    seen: HashMap<[u8; 36], u64>,
    count: u64,
    tokens_ns: u64,
    held: Option<Vec<u8>>,
}

impl Forwarder {
    fn run(&mut self) -> io::Result<()> {
        let mut frame = vec![0u8; 10_000];
        let mut idle_since = monotonic_ns();
        while !self.shared.stop.load(Ordering::Acquire) {
            if self.shared.flush.load(Ordering::Acquire) {
                self.seen.clear();
                self.count = 0;
                self.shared.tuples.store(0, Ordering::Release);
                self.shared.flush.store(false, Ordering::Release);
            }
            let mut busy = self.release()?;
            for side in 0..2 {
                while let Some(length) = self.sides[side].receive(&mut frame)? {
                    busy = true;
                    self.handle(side, &mut frame[..length])?;
                    self.release()?;
                }
            }
            let now = monotonic_ns();
            if busy || !self.queue.is_empty() {
                idle_since = now;
            } else if now - idle_since > 50_000_000 {
                // Between trials, let others work.
                self.let_go()?;
                thread::sleep(Duration::from_micros(200));
            }
        }
        Ok(())
    }

    /// Sends what has waited long enough.
    fn release(&mut self) -> io::Result<bool> {
        let mut any = false;
        while self.queue.front().is_some_and(|(due, ..)| *due <= monotonic_ns()) {
            if let Some((_, side, frame)) = self.queue.pop_front() {
                self.send(side, &frame)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// A frame that waits for a successor to swap with goes when none comes.
    fn let_go(&mut self) -> io::Result<()> {
        match self.held.take() {
            Some(frame) => self.send(1, &frame),
            None => Ok(()),
        }
    }

    fn handle(&mut self, from: usize, frame: &mut [u8]) -> io::Result<()> {
        let arrived = monotonic_ns();
        if arrived < self.shared.dead_until_ns.load(Ordering::Acquire) || !route(frame, &self.ends[1 - from]) {
            return Ok(());
        }
        if self.faults.rate != 0 && !self.has_token(arrived) {
            return Ok(());
        }
        if !(if from == 0 { self.is_admitted(frame, arrived) } else { self.is_answer(frame, arrived) }) {
            return Ok(());
        }
        let due = arrived + self.faults.delay * 1000;
        if from == 1 {
            return self.pass(due, 0, frame);
        }
        self.count += 1;
        let count = self.count;
        let every = |n: u64| n != 0 && count.is_multiple_of(n);
        if every(self.faults.loss) {
            return Ok(());
        }
        if every(self.faults.corrupt) {
            let last = frame.len() - 1;
            frame[last] ^= 0x20;
        } else if every(self.faults.misdirect) {
            change_destination_port(frame);
        } else if let Some(field) = self.faults.field_of(count) {
            change_header(frame, field);
        } else if every(self.faults.duplicate) {
            self.pass(due, 1, frame)?;
        } else if every(self.faults.reorder) {
            self.held = Some(frame.to_vec());
            return Ok(());
        }
        self.pass(due, 1, frame)?;
        match self.held.take() {
            Some(earlier) => self.pass(due, 1, &earlier),
            None => Ok(()),
        }
    }

    fn pass(&mut self, due: u64, side: usize, frame: &[u8]) -> io::Result<()> {
        if self.faults.delay == 0 {
            return self.send(side, frame);
        }
        self.queue.push_back((due, side, frame.to_vec()));
        Ok(())
    }

    /// Waits for room: a lost frame would be a fault that nobody planted.
    fn send(&self, side: usize, frame: &[u8]) -> io::Result<()> {
        while !self.sides[side].send(frame)? {
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn has_token(&mut self, now: u64) -> bool {
        let is_crowded = self.faults.crowd != 0 && self.seen.len() as u64 > self.faults.crowd;
        let cost = 1_000_000_000 / self.faults.rate * if is_crowded { 2 } else { 1 };
        self.tokens_ns = self.tokens_ns.max(now.saturating_sub(2_000_000));
        let granted = self.tokens_ns + cost <= now;
        if granted {
            self.tokens_ns += cost;
        }
        granted
    }

    fn is_admitted(&mut self, frame: &[u8], now: u64) -> bool {
        let known = self.seen.len() as u64;
        let tuple = tuple_of(frame);
        let Faults { capacity, state, keep, crowd, .. } = self.faults;
        if [capacity, state, keep, crowd] == [0; 4] {
            return true;
        }
        if let Some(last) = self.seen.get_mut(&tuple) {
            *last = now;
            return true;
        }
        let most = [self.faults.capacity, self.faults.keep].into_iter().find(|most| *most != 0);
        let room = most.is_none_or(|most| known < most);
        if room {
            self.seen.insert(tuple, now);
            self.shared.tuples.store(known + 1, Ordering::Release);
        }
        room || self.faults.keep != 0
    }

    /// Whether a frame from outside may come in.
    fn is_answer(&self, frame: &[u8], now: u64) -> bool {
        let lifetime = match self.faults.timeout {
            0 => u64::MAX,
            ms => ms * 1_000_000,
        };
        let last = self.seen.get(&answered_tuple_of(frame));
        self.faults.state == 0 || last.is_some_and(|last| now.saturating_sub(*last) < lifetime)
    }
}

/// The four tuple of an answer as the frame that it answers had it.
fn answered_tuple_of(frame: &[u8]) -> [u8; 36] {
    let mut tuple = tuple_of(frame);
    let half = if udp_offset(frame) == 34 { 4 } else { 16 };
    let (source, rest) = tuple.split_at_mut(half);
    source.swap_with_slice(&mut rest[..half]);
    let (source_port, destination_port) = tuple[32..].split_at_mut(2);
    source_port.swap_with_slice(destination_port);
    tuple
}

/// Rewrites the link-layer addresses and decrements the hop limit. False for what is not a unicast
/// UDP packet.
fn route(frame: &mut [u8], ends: &Ends) -> bool {
    let is_ipv4 = frame.len() >= 42 && frame[12..14] == [0x08, 0x00] && frame[23] == 17;
    let is_ipv6 = frame.len() >= 62 && frame[12..14] == [0x86, 0xdd] && frame[20] == 17;
    if !is_ipv4 && !is_ipv6 {
        return false;
    }
    frame[0..6].copy_from_slice(&ends.destination);
    frame[6..12].copy_from_slice(&ends.source);
    if is_ipv6 {
        frame[21] = frame[21].saturating_sub(1);
        return true;
    }
    frame[22] = frame[22].saturating_sub(1);
    write_ipv4_checksum(frame);
    true
}

fn udp_offset(frame: &[u8]) -> usize {
    if frame[12] == 0x08 { 34 } else { 54 }
}

/// Changes one field of a header, and what has to follow from it.
fn change_header(frame: &mut [u8], field: Field) {
    let is_ipv4 = frame[12] == 0x08;
    match (field, is_ipv4) {
        (Field::HopLimit, true) => frame[22] = frame[22].saturating_sub(2),
        (Field::HopLimit, false) => frame[21] = frame[21].saturating_sub(2),
        (Field::TrafficClass, true) => frame[15] ^= 0x20,
        (Field::TrafficClass, false) => frame[14] ^= 0x02,
        (Field::DontFragment, true) => frame[20] ^= 0x40,
        (Field::Identification, true) => frame[19] ^= 1,
        (Field::FlowLabel, false) => frame[17] ^= 1,
        (Field::LinkSource, _) => frame[11] ^= 1,
        _ => {}
    }
    if is_ipv4 {
        write_ipv4_checksum(frame);
    }
}

fn write_ipv4_checksum(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum);
}

/// Changes the destination port, and the checksum by as much (RFC 1624 section 3).
fn change_destination_port(frame: &mut [u8]) {
    let udp = udp_offset(frame);
    let read = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let (port, sum) = (read(udp + 2), read(udp + 6));
    let changed = port ^ 1;
    // 0 would say that there is no checksum (RFC 768).
    let sum = match !plus(plus(!sum, !port), changed) {
        0 => 0xffff,
        sum => sum,
    };
    frame[udp + 2..udp + 4].copy_from_slice(&changed.to_be_bytes());
    frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
}

/// The sum in one's complement.
fn plus(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

fn tuple_of(frame: &[u8]) -> [u8; 36] {
    let udp = udp_offset(frame);
    let addresses = if udp == 34 { 26..34 } else { 22..54 };
    let mut tuple = [0; 36];
    let length = addresses.len();
    tuple[..length].copy_from_slice(&frame[addresses]);
    tuple[32..].copy_from_slice(&frame[udp..udp + 4]);
    tuple
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of what the changed port and the checksum are in, whatever the rest adds to it.
    fn sum_of(rest: u16, frame: &[u8]) -> u16 {
        let word = |at: usize| u32::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
        let total = u32::from(rest) + word(36) + word(40);
        // A sum that is not 0 is 0 in one's complement as 0xffff.
        u16::try_from((total - 1) % 0xffff + 1).unwrap()
    }

    #[test]
    fn a_misdirected_frame_has_the_checksum_of_its_new_port() {
        for port in [0, 1, 53, 0x7fff, 0x8000, 0xfffe, 0xffff] {
            for sum in 1..=u16::MAX {
                let mut frame = [0_u8; 42];
                frame[12] = 0x08;
                frame[36..38].copy_from_slice(&u16::to_be_bytes(port));
                frame[40..42].copy_from_slice(&sum.to_be_bytes());
                // What the other words must add for the frame to be right.
                let rest = !plus(port, sum);
                change_destination_port(&mut frame);
                assert_eq!(sum_of(rest, &frame), 0xffff, "port {port}, checksum {sum:#x}");
                assert_ne!(frame[36..38], u16::to_be_bytes(port));
                assert_ne!(frame[40..42], [0, 0]);
            }
        }
    }
}

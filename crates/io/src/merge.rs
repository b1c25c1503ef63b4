//! Segments of TCP that leave one after the other in a batch leave as one super-packet, which the
//! kernel cuts again where a link cannot take it.
//!
//! Read first: `docs/decisions/tun-io.md`; Linux `net/ipv4/tcp_offload.c` (`tcp_gro_receive`,
//! `tcp_gso_segment`), whose rules these are.
//!
//! ```text
//! send --no TCP----------------------------------------------------------------> port
//!      --TCP, but not to be merged--> what is held of its connection, then it--> port
//!      --segment--> held, behind those before it in its connection
//!                       |  full, short, PSH, FIN, or the batch is over
//!                       +------------------------------------------------------> port
//! ```
//!
//! Super-packets cross the gateway whole. What is there to be merged came in singly, or out of a
//! softwire.
//!
//! Invariants: packets of a connection leave in the order in which they were sent. What the kernel
//! cuts out of a super-packet is byte by byte what would have left without merging. Nothing is held
//! when the batch is over.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use tombolo_engine::DropReason;
use tombolo_engine::packet::{Outbox, Packet};

use crate::queue::Buffer;
use crate::worker::{BATCH, Loss, Port};

use held::{Added, Held, Numbers};
use segment::{Class, Segment, classify};

mod held;
mod segment;
#[cfg(test)]
mod tests;

/// Connections of which something is held at once. Segments of one more leave singly: if another gave
/// way, connections that take turns would never merge.
const MOST_HELD: usize = 16;

const _: () = assert!(BATCH <= Numbers::BITS as usize);

/// A port whose segments of TCP leave merged.
#[derive(Debug)]
pub struct Merging<P> {
    port: P,
    held: Vec<Held>,
    /// Room for more. What was used last is taken first: it is in the cache.
    spare: Vec<Box<[u8]>>,
    /// Packets received in this batch.
    received: u32,
    /// Those of which something was not taken.
    lost: Numbers,
    losses: Vec<Loss>,
}

impl<P: Port> Merging<P> {
    /// Merges what is sent to `port`. Takes a mebibyte.
    #[must_use]
    pub fn new(port: P) -> Self {
        Self {
            port,
            held: Vec::with_capacity(MOST_HELD),
            spare: std::iter::repeat_with(Held::room).take(MOST_HELD).collect(),
            received: 0,
            lost: 0,
            losses: Vec::with_capacity(BATCH),
        }
    }

    /// Holds a segment, or sends it if nothing may follow it.
    fn take(&mut self, packet: &mut Packet<'_>, segment: Segment, number: Numbers) -> Result<(), DropReason> {
        let flow = segment.flow(packet.bytes());
        if let Some(index) = self.held.iter().position(|held| held.flow() == flow) {
            match self.held[index].add(packet, segment, number) {
                Added::MoreMayFollow => return Ok(()),
                Added::Last => {
                    self.release(index);
                    return Ok(());
                }
                Added::Not => self.release(index),
            }
        }
        if segment.is_last(packet.bytes()) {
            return self.port.send(packet);
        }
        let Some(room) = self.spare.pop() else { return self.port.send(packet) };
        self.held.push(Held::begin(room, packet, segment, number));
        Ok(())
    }

    /// Sends what is held of the connection, or of all between two addresses, that `flow` says.
    fn release_flow(&mut self, flow: &[u8]) {
        while let Some(index) = self.held.iter().position(|held| held.flow().starts_with(flow)) {
            self.release(index);
        }
    }

    fn release(&mut self, index: usize) {
        let mut held = self.held.swap_remove(index);
        if let Err(reason) = self.port.send(&mut held.close()) {
            self.lose(held.numbers(), reason);
        }
        self.spare.push(held.into_room());
    }

    fn lose(&mut self, numbers: Numbers, reason: DropReason) {
        let new = numbers & !self.lost;
        self.lost |= new;
        let is_new = |number: &usize| new & 1 << number != 0;
        self.losses.extend((0..BATCH).filter(is_new).map(|number| Loss { number, reason }));
    }
}

impl<P: Port> Outbox for Merging<P> {
    /// Sends one packet, or holds it until the batch is over. Of what is held, [`Port::flush`] says
    /// what was not taken.
    fn send(&mut self, packet: &mut Packet<'_>) -> Result<(), DropReason> {
        // Outside a batch there is nothing to wait for.
        let Some(last) = self.received.checked_sub(1) else { return self.port.send(packet) };
        match classify(packet) {
            Class::Apart => self.port.send(packet),
            Class::InOrder(flow) => {
                self.release_flow(&packet.bytes()[flow]);
                self.port.send(packet)
            }
            Class::Segment(segment) => self.take(packet, segment, 1 << last),
        }
    }
}

impl<P: Port> Port for Merging<P> {
    fn recv<'b>(&mut self, buffer: &'b mut Buffer) -> io::Result<Option<Packet<'b>>> {
        if self.received == 0 {
            self.lost = 0;
            self.losses.clear();
        }
        let packet = self.port.recv(buffer)?;
        self.received += u32::from(packet.is_some());
        Ok(packet)
    }

    fn flush(&mut self) -> &[Loss] {
        while !self.held.is_empty() {
            self.release(0);
        }
        self.received = 0;
        &self.losses
    }
}

impl<P: AsFd> AsFd for Merging<P> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

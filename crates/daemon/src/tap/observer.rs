//! The workers' side: a packet's first bytes before and after, while somebody looks on.

use std::sync::Arc;

use tombolo_engine::counters::Whose;
use tombolo_engine::packet::{Outbox, Packet};
use tombolo_engine::{Engine, Now, Plan, Verdict};
use tombolo_fastpath::tap::SHOWN;
use tombolo_io::clock::monotonic_nanos;

use super::seen::{End, Path, Seen};
use super::summary::Summary;
use super::{Open, Taps, kept};

/// What a worker has of the taps.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    open: Open,
    received: Vec<u8>,
    sent: Vec<u8>,
}

impl Observer {
    /// Nobody looks on.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes up who looks on now.
    pub(crate) fn follow(&mut self, taps: &Taps) {
        self.open = taps.open();
    }

    /// Has the engine take a packet, and shows it to those who want to see it. What became of it, and whose it was.
    #[cold]
    pub(crate) fn process(
        &mut self,
        engine: &mut Engine,
        plan: &Arc<Plan>,
        packet: &mut Packet<'_>,
        now: Now,
        outbox: &mut dyn Outbox,
    ) -> (Verdict, Whose) {
        let Self { open, received, sent } = self;
        let length = packet.len();
        received.clear();
        received.extend_from_slice(&packet.bytes()[..length.min(kept(open))]);
        sent.clear();
        let mut sent_length = 0;
        let mut shown = |packet: &mut Packet<'_>| {
            if sent.is_empty() {
                sent_length = packet.len();
                sent.extend_from_slice(&packet.bytes()[..sent_length.min(SHOWN)]);
            }
            outbox.send(packet)
        };
        let (verdict, whose) = engine.observe(plan, packet, now, &mut shown);
        let seen = Seen {
            time: monotonic_nanos(),
            path: Path::Engine,
            interface: None,
            // Whose a packet is that no service has is not known.
            side: whose.service.map(|_| whose.side),
            service: whose.service,
            end: End::Verdict(verdict),
            received: Summary::of(received, length),
            sent: Summary::of(sent, sent_length),
            bytes: None,
        };
        open.iter().for_each(|tap| tap.offer(plan, &seen, Some((received, length))));
        (verdict, whose)
    }
}

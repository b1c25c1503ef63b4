//! What the programs show of packets while somebody traces (`bpf/tap.h`).
//!
//! The programs that show anything are an object of their own, which is loaded instead of the ordinary
//! one; so without a trace not an instruction is different.

use aya::Ebpf;
use aya::maps::{Map, MapData, PerCpuArray, RingBuf};
use ipnet::IpNet;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::side::Side;
use tombolo_records::from_bytes;

use crate::error::FastPathError;
use crate::miss::Miss;
use crate::record::{TAP_ANY, TAP_FORWARDED, TAP_PREFIXES, TAP_XDP, TapEvent, TapPrefix, TapRecord, TapState, halves};

/// Bytes of a packet that are shown.
pub const SHOWN: usize = crate::record::TAP_BYTES;

// SAFETY: `Plain`: integers without padding; any bytes are valid.
unsafe impl aya::Pod for TapRecord {}
// SAFETY: as above.
unsafe impl aya::Pod for TapState {}

/// Which packets are shown: those for which all holds, as far as the programs can tell. Whoever asks
/// looks once more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watch {
    /// An address of the packet, as it comes or as it leaves, is in one of these; any address if there
    /// are none, or more than the programs have room for.
    pub any: Vec<IpNet>,
    /// It is of this protocol.
    pub space: Option<PortSpace>,
    /// It has this port, as it comes or as it leaves.
    pub port: Option<u16>,
}

/// Which program has seen a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// XDP.
    Xdp,
    /// TC.
    Tc,
}

/// What became of it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Translated and sent on.
    Forwarded {
        /// Where it came from.
        side: Side,
        /// The number of its service.
        service: u8,
    },
    /// Left to the next stage, and at last to the engine.
    Passed(Miss),
}

/// A packet that the programs have shown.
#[derive(Debug, Clone, Copy)]
pub struct Sighting<'e> {
    /// Nanoseconds of the monotonic clock.
    pub time: u64,
    /// Where it was seen.
    pub stage: Stage,
    /// The number of the interface that it came in through.
    pub interface: u32,
    /// What became of it.
    pub fate: Fate,
    /// Its first bytes as it came.
    pub received: &'e [u8],
    /// Bytes of it as it came.
    pub received_length: usize,
    /// Its first bytes as it left; none if it did not.
    pub sent: &'e [u8],
    /// Bytes of it as it left.
    pub sent_length: usize,
}

impl Watch {
    /// As the programs have it.
    pub(crate) fn record(&self) -> TapRecord {
        let mut record = TapRecord {
            space: self.space.map_or(TAP_ANY, |space| space as u32),
            port: self.port.map_or(0, |port| port.to_be().into()),
            ..TapRecord::default()
        };
        if self.any.len() <= TAP_PREFIXES {
            for (entry, prefix) in record.any.iter_mut().zip(&self.any) {
                *entry = prefix_record(*prefix);
                record.prefixes += 1;
            }
        }
        record
    }
}

fn prefix_record(prefix: IpNet) -> TapPrefix {
    match prefix {
        IpNet::V4(prefix) => TapPrefix {
            bits: [prefix.network().to_bits().to_be().into(), 0],
            mask: [prefix.netmask().to_bits().to_be().into(), 0],
            is_ipv4: 1,
        },
        IpNet::V6(prefix) => {
            TapPrefix { bits: halves(prefix.network().to_bits()), mask: halves(prefix.netmask().to_bits()), is_ipv4: 0 }
        }
    }
}

/// The packets that programs show, as they wait to be looked at.
pub(crate) struct Tap {
    ring: RingBuf<MapData>,
    states: PerCpuArray<MapData, TapState>,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").finish_non_exhaustive()
    }
}

impl Tap {
    /// That of the programs of a trace.
    ///
    /// # Errors
    /// [`FastPathError::Map`].
    pub(crate) fn of(programs: &mut Ebpf) -> Result<Self, FastPathError> {
        fn map<M: TryFrom<Map>>(programs: &mut Ebpf, name: &'static str) -> Result<M, FastPathError> {
            let map = programs.take_map(name).and_then(|map| M::try_from(map).ok());
            map.ok_or(FastPathError::Map(name))
        }
        Ok(Self { ring: map(programs, "tap_events")?, states: map(programs, "tap_states")? })
    }

    /// Hands out what waits, the first one first.
    pub(crate) fn take(&mut self, each: &mut dyn FnMut(&Sighting<'_>)) {
        while let Some(item) = self.ring.next() {
            if let Some(event) = from_bytes::<TapEvent>(item.get(..size_of::<TapEvent>()).unwrap_or_default()) {
                each(&Sighting::of(&event));
            }
        }
    }

    /// Packets that found no room.
    pub(crate) fn lost(&self) -> u64 {
        self.states.get(&0, 0).map_or(0, |states| states.iter().map(|state| state.lost).sum())
    }
}

impl<'e> Sighting<'e> {
    fn of(event: &'e TapEvent) -> Self {
        let (received_length, sent_length) = (event.received_length as usize, event.sent_length as usize);
        Self {
            time: event.time,
            stage: if event.stage == TAP_XDP { Stage::Xdp } else { Stage::Tc },
            interface: event.interface,
            fate: if event.fate == TAP_FORWARDED {
                let side = if event.side == Side::Inside as u8 { Side::Inside } else { Side::Outside };
                Fate::Forwarded { side, service: event.service }
            } else {
                Fate::Passed(Miss::ALL.get(usize::from(event.miss)).copied().unwrap_or(Miss::NotOurs))
            },
            received: &event.received[..received_length.min(SHOWN)],
            received_length,
            sent: &event.sent[..sent_length.min(SHOWN)],
            sent_length,
        }
    }
}

#[cfg(test)]
mod tests {
    use tombolo_records::Plain as _;

    use super::*;

    #[test]
    fn prefixes_are_as_on_the_wire_and_too_many_are_any() {
        let watch = Watch {
            any: vec!["198.51.100.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
            space: Some(PortSpace::Tcp),
            port: Some(80),
        };
        let record = watch.record();
        assert_eq!((record.prefixes, record.port), (2, u32::from(80_u16.to_be())));
        let bytes: Vec<u8> = Vec::from(TapPrefix::bytes_of(&record.any[..2]));
        assert_eq!((&bytes[..4], &bytes[16..20]), (&[198, 51, 100, 0][..], &[255, 255, 255, 0][..]));
        assert_eq!((&bytes[40..44], &bytes[56..60]), (&[0x20, 1, 0x0d, 0xb8][..], &[255; 4][..]));
        let many = Watch { any: vec!["192.0.2.1/32".parse().unwrap(); TAP_PREFIXES + 1], ..Watch::default() };
        assert_eq!((many.record().prefixes, many.record().space), (0, TAP_ANY));
    }
}

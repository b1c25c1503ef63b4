//! Subscribers of a cluster that were given a slice, as the programs look them up (`bpf/slice.h`).

use aya::maps::{HashMap, Map, MapData};
use aya::{Ebpf, EbpfLoader};
use tombolo_engine::mapping::slices::PoolSlices;

use crate::error::FastPathError;
use crate::record::PinKey;

const NAME: &str = "slice_pins";

// SAFETY: `Plain`: integers without padding; any bytes are valid.
unsafe impl aya::Pod for PinKey {}

/// The pins of one plan, to be copied into its programs' map.
#[derive(Default)]
pub(crate) struct Pins(Vec<(PinKey, u32)>);

impl Pins {
    /// Those of pools, each with the place of its service in the plan.
    pub(crate) fn new<'p>(pools: impl Iterator<Item = (u8, &'p PoolSlices)>) -> Self {
        let pins = pools.flat_map(|(place, slices)| {
            let key = move |(ipv6, ipv4): ([u8; 16], [u8; 4])| {
                let [first, second] = crate::record::halves(u128::from_be_bytes(ipv6));
                PinKey { address: [first, second], address4: u32::from_ne_bytes(ipv4), place: place.into() }
            };
            slices.pins().map(move |(subscriber, slice)| (key(subscriber), slice.into()))
        });
        Self(pins.collect())
    }

    /// Makes the map as large as that; the kernel makes none without elements.
    pub(crate) fn size(&self, loader: &mut EbpfLoader<'_>) {
        loader.map_max_entries(NAME, u32::try_from(self.0.len().max(1)).unwrap_or(u32::MAX));
    }

    /// Fills it, before any packet is there.
    pub(crate) fn fill(&self, programs: &mut Ebpf) -> Result<(), FastPathError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let fail = || FastPathError::Map(NAME);
        let map: &mut Map = programs.map_mut(NAME).ok_or_else(fail)?;
        let mut pins: HashMap<&mut MapData, PinKey, u32> = map.try_into().map_err(|_| fail())?;
        self.0.iter().try_for_each(|(key, slice)| pins.insert(key, slice, 0).map_err(|_| fail()))
    }
}

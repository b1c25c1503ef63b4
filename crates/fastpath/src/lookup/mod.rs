//! What the programs look up of a plan, in arrays of their own: explicit mappings, softwires, rules, which
//! subscribers were given a slice of the cluster, and what they have seen of outside ports. They are made anew with each plan and go with its programs, so that a reload exchanges
//! both in one instant.

mod array;
mod map_rules;
mod mappings;
mod pins;
mod shortcuts;
mod softwires;

use aya::{Ebpf, EbpfLoader};
use tombolo_engine::mapping::slices::PoolSlices;

use self::array::Content;
use self::map_rules::MapRules;
use self::mappings::Mappings;
use self::pins::Pins;
use self::shortcuts::Shortcuts;
use self::softwires::Softwires;
use crate::error::FastPathError;
use crate::record::PlanRecord;
use crate::service::Table;

/// The tables of one plan.
#[derive(Default)]
pub(crate) struct LookupTables {
    mappings: Mappings,
    softwires: Softwires,
    rules: MapRules,
    pins: Pins,
    shortcuts: Shortcuts,
}

impl LookupTables {
    /// Of pools that are cut into slices, with the places of their services.
    pub(crate) fn new<'p>(
        tables: impl Iterator<Item = Table<'p>>,
        pools: impl Iterator<Item = (u8, &'p PoolSlices)>,
    ) -> Result<Self, FastPathError> {
        let mut made = Self { pins: Pins::new(pools), ..Self::default() };
        for table in tables {
            match table {
                Table::Mappings(rows) => made.mappings = Mappings::new(rows).map_err(FastPathError::Explicit)?,
                Table::Softwires(lwaftr) => made.softwires = Softwires::new(lwaftr),
                Table::Rules(domain) => {
                    let fail = |error| FastPathError::Table("mapping rules", error);
                    made.rules = MapRules::new(domain).map_err(fail)?;
                }
            }
        }
        Ok(made)
    }

    /// Writes down where the tables begin and end. To be called when the services are there.
    pub(crate) fn complete(&mut self, plan: &mut PlanRecord, subscribers: u32) {
        self.mappings.complete(plan);
        plan.softwire_first_block = self.softwires.first_block();
        plan.map_ipv4 = self.rules.bounds();
        self.shortcuts = Shortcuts::assign(plan, subscribers);
    }

    /// Makes the arrays of the programs as large as the tables.
    pub(crate) fn size<'l, 'g>(&self, loader: &'l mut EbpfLoader<'g>) -> &'l mut EbpfLoader<'g> {
        self.contents().for_each(|content| content.size(loader));
        self.pins.size(loader);
        self.shortcuts.size(loader);
        loader
    }

    /// Copies the tables into the arrays, before any packet is there.
    pub(crate) fn fill(&self, programs: &mut Ebpf) -> Result<(), FastPathError> {
        self.contents().try_for_each(|content| content.fill(programs))?;
        self.pins.fill(programs)
    }

    fn contents(&self) -> impl Iterator<Item = Content<'_>> {
        self.mappings.contents().into_iter().chain(self.softwires.contents()).chain(self.rules.contents())
    }
}

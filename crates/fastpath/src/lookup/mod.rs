//! What stateless services look up, in arrays of the programs' own: explicit mappings, softwires,
//! rules. They are made anew with each plan and go with its programs, so that a reload exchanges
//! both in one instant.

use aya::{Ebpf, EbpfLoader};
use tombolo_engine::Plan;
use tombolo_engine::plan::ServiceKind;

use crate::explicit::Explicit;
use crate::loader::FastPathError;
use crate::map_rules::MapRules;
use crate::plan::{KIND_LWAFTR, KIND_MAP_E_BR, KIND_MAP_T_BR, PlanRecord, explicit_rows};
use crate::softwires::Softwires;

pub(crate) struct Mirrors {
    explicit: Explicit,
    softwires: Softwires,
    rules: MapRules,
}

impl Mirrors {
    /// The tables of the services that `record` takes.
    pub(crate) fn new(plan: &Plan, record: &PlanRecord) -> Result<Self, FastPathError> {
        let mut mirrors = Self {
            explicit: Explicit::new(explicit_rows(plan)).map_err(FastPathError::Explicit)?,
            softwires: Softwires::default(),
            rules: MapRules::default(),
        };
        let rules = |domain| MapRules::new(domain).map_err(|error| FastPathError::Table("mapping rules", error));
        for (service, taken) in plan.services.iter().zip(&record.services) {
            match (&service.kind, taken.kind) {
                (ServiceKind::Lwaftr(lwaftr), KIND_LWAFTR) => {
                    mirrors.softwires = Softwires::new(lwaftr);
                }
                (ServiceKind::MapEBr(br), KIND_MAP_E_BR) => mirrors.rules = rules(&br.domain)?,
                (ServiceKind::MapTBr(br), KIND_MAP_T_BR) => mirrors.rules = rules(&br.domain)?,
                _ => {}
            }
        }
        Ok(mirrors)
    }

    /// The record with what the tables have made known.
    pub(crate) fn complete(&self, record: &PlanRecord) -> PlanRecord {
        PlanRecord { softwire_first_block: self.softwires.first_block(), map_ipv4: self.rules.span(), ..*record }
    }

    /// Makes the arrays of the programs as large as the tables.
    pub(crate) fn size<'l, 'g>(&self, loader: &'l mut EbpfLoader<'g>) -> &'l mut EbpfLoader<'g> {
        self.rules.size(self.softwires.size(self.explicit.size(loader)))
    }

    /// Copies the tables into the arrays, before any packet is there.
    pub(crate) fn fill(&self, programs: &Ebpf) -> Result<(), FastPathError> {
        self.explicit.fill(programs)?;
        self.softwires.fill(programs)?;
        self.rules.fill(programs)
    }
}

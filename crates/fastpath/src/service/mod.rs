//! What the programs know of a service: its record in the plan, and its table if it has one.
//!
//! Each service is taken apart field by field, so that a new setting of it does not compile until
//! it is said here what the fast path makes of it. What it cannot do is left to the engine, service
//! by service.

mod aftr;
mod b4;
mod lwaftr;
mod lwb4;
mod map_br;
mod map_ce;
mod nat44;
mod nat64;
mod parts;
mod pool;
mod siit;

use tombolo_engine::mapping::eam::Eam;
use tombolo_engine::mapping::map_domain::MapDomain;
use tombolo_engine::plan::ServiceKind;
use tombolo_engine::service::lwaftr::Lwaftr;

pub(crate) use parts::prefix_record;

use crate::record::ServiceRecord;

/// A service, as the programs have it.
pub(crate) trait FastRecord {
    /// Its record.
    ///
    /// # Errors
    /// Why it is left to the engine, in words.
    fn record(&self) -> Result<ServiceRecord, &'static str>;

    /// What it looks up in a table of the programs' own.
    fn table(&self) -> Option<Table<'_>> {
        None
    }

    /// It takes whatever is routed to the gateway.
    fn takes_everything(&self) -> bool {
        false
    }
}

/// What a table is made from. The programs have one table of each kind.
pub(crate) enum Table<'p> {
    /// Explicit address mappings.
    Mappings(&'p [Eam]),
    /// The softwires of a lwAFTR.
    Softwires(&'p Lwaftr),
    /// The rules of a MAP domain.
    Rules(&'p MapDomain),
}

macro_rules! fast_records {
    ($($kind:ident($module:ident::$service:ident) = $name:literal, $what:literal;)+) => {
        /// A service of the engine's list, as the programs have it.
        pub(crate) fn fast_record(kind: &ServiceKind) -> &dyn FastRecord {
            match kind { $(ServiceKind::$kind(service) => service,)+ }
        }
    };
}

tombolo_engine::for_each_service!(fast_records);

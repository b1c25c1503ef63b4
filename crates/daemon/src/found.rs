//! What a plan leaves open, as it is found around the gateway: the host's own addresses, whether there is native IPv4,
//! and where far ends are.
//!
//! Looked for at the start, with each plan, and whenever something changes ([`crate::found_watch`]).

use std::time::Instant;

use tombolo_config::SharedPool;
use tombolo_engine::Plan;
use tombolo_io::host::{Host, HostError};

use crate::far_ends::{self, FarEnds};
use crate::native::{self, Native};
use crate::own_address::{InUse, OwnAddresses};

/// What is found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) own: OwnAddresses,
    pub(crate) native: Native,
    pub(crate) far_ends: FarEnds,
}

impl Found {
    /// Looks for what `plan` and `pools` ask for, knowing what was found before. The resolver is not asked.
    pub(crate) fn look(
        &self,
        host: &mut Host,
        (plan, pools): (&Plan, &[SharedPool]),
        in_use: &InUse,
    ) -> Result<Self, HostError> {
        let own = OwnAddresses::look(host, pools, in_use)?;
        let native = match native::is_wanted(plan) {
            true => self.native.seen(host.native_ipv4()?, Instant::now()),
            false => Native::Unknown,
        };
        Ok(Self { own, native, far_ends: self.far_ends.clone() })
    }

    /// True if it was looked for all that a plan and its pools ask for.
    pub(crate) fn knows(&self, plan: &Plan, pools: &[SharedPool]) -> bool {
        self.own.knows(pools) && (self.native != Native::Unknown || !native::is_wanted(plan))
    }

    /// True if plans that are completed by either are the same.
    pub(crate) fn decides_as(&self, other: &Self) -> bool {
        self.own == other.own
            && self.native.is_there() == other.native.is_there()
            && self.far_ends.has_addresses_of(&other.far_ends)
    }

    /// Completes a plan. What of own addresses is left open, and why.
    pub(crate) fn complete(&self, plan: &mut Plan, pools: &[SharedPool]) -> Vec<String> {
        self.native.complete(plan);
        self.far_ends.complete(plan);
        if pools.is_empty() { Vec::new() } else { self.own.complete(plan, pools) }
    }

    /// Says what is not as it was before, and what that means for a plan.
    pub(crate) fn say(&self, before: &Self, plan: &Plan) {
        if self.own != before.own {
            tracing::info!("addresses shared with the host: {}; before: {}", self.own, before.own);
        }
        if self.native.is_there() != before.native.is_there() {
            self.native.say(plan);
        }
        self.far_ends.say(&before.far_ends);
    }
}

/// True if a plan leaves something open beside own addresses.
pub(crate) fn is_wanted(plan: &Plan) -> bool {
    native::is_wanted(plan) || !far_ends::wanted(plan).is_empty()
}

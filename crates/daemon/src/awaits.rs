//! What a configuration leaves to the network: a gateway that has not asked it at its start has given up what asking
//! takes.

use tombolo_engine::Plan;

use crate::{discovery, far_ends};

/// What services wait for the network to say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Awaits {
    /// The prefix of a PLAT: routers and the resolver are asked.
    pub prefix: bool,
    /// Addresses of far ends: the resolver is asked.
    pub far_ends: bool,
}

impl Awaits {
    /// What a plan asks for that is not complete yet.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        Self { prefix: discovery::awaiting(plan).is_some(), far_ends: !far_ends::wanted(plan).is_empty() }
    }

    /// True if the resolver is asked.
    #[must_use]
    pub fn asks_resolver(self) -> bool {
        self.prefix || self.far_ends
    }

    /// What a gateway that can ask for this cannot ask for, of what another plan wants: the key, as the file has it.
    pub(crate) fn lacks(self, wanted: Self) -> Option<&'static str> {
        if wanted.prefix && !self.prefix {
            return Some("prefix = \"auto\"");
        }
        (wanted.far_ends && !self.asks_resolver()).then_some("aftr = a name")
    }
}

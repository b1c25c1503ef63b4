//! Who may send to a binding from outside (RFC 4787 REQ-8, RFC 5382 REQ-3, RFC 6146 section 3.5,
//! RFC 7857 section 6).

use crate::mapping::pool::PortSpace;

/// Who may send to a binding from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Filtering {
    /// Anybody.
    #[default]
    EndpointIndependent,
    /// Remote addresses that the inside endpoint has sent to.
    AddressDependent,
}

/// Filtering, each protocol with its own (RFC 7857 section 6); others as what they are like
/// ([`PortSpace::like`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filters([Filtering; 3]);

impl Filters {
    /// What holds for `space`.
    #[inline]
    #[must_use]
    pub const fn of(self, space: PortSpace) -> Filtering {
        self.0[space.like() as usize]
    }

    /// The same, with another one for `space`.
    #[must_use]
    pub const fn with(mut self, space: PortSpace, filtering: Filtering) -> Self {
        self.0[space.like() as usize] = filtering;
        self
    }

    /// The one that holds for all protocols, if there is one.
    #[must_use]
    pub fn common(self) -> Option<Filtering> {
        let [first, ..] = self.0;
        self.0.iter().all(|filtering| *filtering == first).then_some(first)
    }
}

impl From<Filtering> for Filters {
    fn from(filtering: Filtering) -> Self {
        Self([filtering; 3])
    }
}

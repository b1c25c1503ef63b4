//! What becomes one transaction about slices.

use super::action::Compare;
use super::assignment::Assignment;

/// Slices in one transaction, at most.
pub(super) const AT_ONCE: usize = 64;

/// Slices that are claimed at once, all of one owner that is gone.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) compares: Vec<Compare>,
    pub(super) puts: Vec<(u16, Assignment)>,
}

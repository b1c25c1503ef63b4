//! What one procedure needs of another.

/// What is known of a gateway from before: one procedure needs what another found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Known {
    /// Throughput of each direction, frames a second; given by the user or measured.
    pub throughput: Option<u64>,
    /// The same where some loss is tolerated.
    pub tolerant_throughput: Option<u64>,
    /// The rate that half of the trials passed, of each direction, with that loss.
    pub passed_by_half: Option<u64>,
    /// Validated connection establishment rate.
    pub connection_rate: Option<u64>,
    /// Rate of phase 1 of stateful procedures, frames a second; given by the user.
    pub fill_rate: Option<u64>,
    /// Largest number of sessions of a series; 0 where the user did not say.
    pub sessions: u32,
}

//! How requests of PCP ended, as verdicts and counters have it.

use tombolo_wire::pcp::{Opcode, ResultCode};

/// How a request ended, for counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// What was asked for; none of what there is none of.
    pub opcode: Option<Opcode>,
    /// The result.
    pub code: ResultCode,
}

impl Answered {
    /// Names of what may be asked for, in the order of [`Self::place`].
    pub const OPCODES: [&'static str; 4] =
        [Opcode::ALL[0].name(), Opcode::ALL[1].name(), Opcode::ALL[2].name(), "other"];

    /// Its places in a table of opcodes and results.
    #[must_use]
    pub fn place(self) -> (usize, usize) {
        (self.opcode.map_or(Opcode::ALL.len(), |opcode| opcode as usize), self.code as usize)
    }
}

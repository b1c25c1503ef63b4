//! What a node has in memory of one slice: the blocks of its address, and who has them. It survives the process, not the host.

use tombolo_cluster::ownership::{Beginning, Epoch, Moment};

use crate::random::Random;

/// A block that a subscriber had is not another's for so long, in milliseconds. A tenth of what gateways do.
pub(crate) const PORT_REUSE: u64 = 12_000;
/// A copy is good for acting for so long, in milliseconds. A tenth as well.
pub(crate) const COPY_LASTS: u64 = 6000;
/// What was released rests for so long, in milliseconds: a backup that acts has perhaps not heard of it, and still translates by its
/// copy. Its clock may be slower.
pub(crate) const REST: u64 = (PORT_REUSE + COPY_LASTS) * 102 / 100;
/// A subscriber has a block for so long after its last packet, in milliseconds.
const IDLE: u64 = 4000;
/// Blocks of an address, and how many of them are kept offered.
pub(crate) const BLOCKS: usize = 12;
const OFFERS: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Offered,
    Granted {
        subscriber: u8,
        /// Since when, in true time: for the log.
        since: u64,
        used: Moment,
    },
    Resting {
        until: Moment,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) state: State,
    /// Rises with each change.
    pub(crate) version: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) epoch: Epoch,
    /// All of it is here, as of this epoch.
    pub(crate) whole: Option<Epoch>,
    pub(crate) blocks: [Block; BLOCKS],
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self { epoch: Epoch(0), whole: None, blocks: [Block { state: State::Free, version: 1 }; BLOCKS] }
    }

    pub(crate) fn set(&mut self, block: usize, state: State) {
        self.blocks[block].state = state;
        self.blocks[block].version += 1;
    }

    pub(crate) fn block_of(&self, wanted: u8) -> Option<usize> {
        self.blocks
            .iter()
            .position(|block| matches!(block.state, State::Granted { subscriber, .. } if subscriber == wanted))
    }

    pub(crate) fn subscriber_of(&self, block: usize) -> Option<u8> {
        if let State::Granted { subscriber, .. } = self.blocks[block].state { Some(subscriber) } else { None }
    }

    pub(crate) fn touch(&mut self, block: usize, now: Moment) {
        if let State::Granted { used, .. } = &mut self.blocks[block].state {
            *used = now;
        }
    }

    /// This node becomes the owner.
    pub(crate) fn begin(&mut self, epoch: Epoch, beginning: Beginning, now: Moment) {
        self.epoch = epoch;
        self.whole = Some(epoch);
        for block in 0..BLOCKS {
            let state = match (beginning, self.blocks[block].state) {
                (Beginning::Nothing, _) => State::Free,
                (Beginning::Copy, State::Offered) => State::Resting { until: now + REST },
                (Beginning::Copy, State::Granted { subscriber, since, .. }) => {
                    State::Granted { subscriber, since, used: now }
                }
                (_, state) => state,
            };
            self.set(block, state);
        }
    }

    /// The owner's sweep: what is idle is released, what has rested is free, and some of what is free is offered. Says what was released.
    pub(crate) fn sweep(&mut self, now: Moment, rest: u64, random: &mut Random) -> Vec<usize> {
        let mut released = Vec::new();
        for block in 0..BLOCKS {
            match self.blocks[block].state {
                State::Granted { used, .. } if now.since(used) >= IDLE => {
                    self.set(block, State::Resting { until: now + rest });
                    released.push(block);
                }
                State::Resting { until } if now >= until => self.set(block, State::Free),
                _ => {}
            }
        }
        let mut offered = self.blocks.iter().filter(|block| block.state == State::Offered).count();
        while offered < OFFERS
            && let Some(block) = random.choose(BLOCKS, |block| self.blocks[block].state == State::Free)
        {
            self.set(block, State::Offered);
            offered += 1;
        }
        released
    }
}

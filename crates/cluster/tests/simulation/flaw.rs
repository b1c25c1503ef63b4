//! Errors that are planted where agents are obeyed, to see whether they are found.

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Whoever takes itself for the owner grants, whatever the time is.
    DeadlineIgnored,
    /// Copies of a former owner are taken.
    EpochIgnored,
    /// Any free block is granted.
    NoOffers,
    /// A lease is counted on from when its renewal was answered.
    CountedFromAnswer,
    /// What was released is free at once.
    NoRest,
    /// What a transaction says of a slice's key is not compared.
    SliceNotCompared,
    /// A copy that goes on after another one is not told of again.
    CopyNotTold,
    /// Once everything was acknowledged, what is sent counts as acknowledged, and a slice is handed over before it is.
    NotAwaited,
    /// Whoever hands a slice over goes on to grant.
    NotFrozen,
    /// It is never said that everything is acknowledged.
    SettledNotTold,
    /// Whoever asks for a promise gets it, and whose promise it is does not know of it.
    PromiseForgotten,
    /// A promise is counted on from when it came.
    PromiseCountedFromAnswer,
}

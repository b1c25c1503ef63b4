//! The engine's source of numbers that cannot be guessed.

use rand_chacha::ChaCha8Rng;

/// The generator of ports and identifications: fast, and not to be predicted from what it gave.
pub type Random = ChaCha8Rng;

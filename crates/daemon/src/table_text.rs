//! The text beside the tables that says what they are made for ([`crate::migration::described`]). It is
//! written anew when a plan takes another one's place under which they lie otherwise, so that a process
//! that is killed at any moment leaves tables which the next one reads rightly.

use std::path::PathBuf;

use tombolo_engine::Plan;
use tombolo_fastpath::{PinnedMemory, PinnedMemoryError};
use tombolo_io::memory::{RunDirectory, RunDirectoryError};

use crate::migration::described;

/// Where the text is.
#[derive(Debug)]
pub enum TableText {
    /// Nowhere: the tables go with the process.
    Nowhere,
    /// In a run directory.
    Files(PathBuf),
    /// Among the kernel's arrays.
    Kernel(PathBuf),
}

/// The text cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum TableTextError {
    /// In the run directory.
    #[error(transparent)]
    Files(#[from] RunDirectoryError),
    /// In the kernel.
    #[error(transparent)]
    Kernel(#[from] PinnedMemoryError),
}

impl TableText {
    /// The tables hold what was made under `former`, and soon what is made under `plan`. No process may take
    /// them as they are. Says whether anything had to be written.
    ///
    /// # Errors
    /// [`TableTextError`]: nothing was changed.
    pub(crate) fn begin(&self, former: &Plan, plan: &Plan) -> Result<bool, TableTextError> {
        let text = described(plan);
        let differs = text != described(former);
        if differs {
            self.write(&format!("{text}\nunsettled"))?;
        }
        Ok(differs)
    }

    /// The tables hold what `plan` allows, and nothing else.
    ///
    /// # Errors
    /// [`TableTextError`]: the next process will carry over what is there.
    pub(crate) fn settle(&self, plan: &Plan) -> Result<(), TableTextError> {
        self.write(&described(plan))
    }

    fn write(&self, text: &str) -> Result<(), TableTextError> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Files(path) => Ok(RunDirectory::describe(path, text)?),
            Self::Kernel(path) => Ok(PinnedMemory::describe(path, text)?),
        }
    }
}

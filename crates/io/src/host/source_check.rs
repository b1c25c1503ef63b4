//! How strictly the kernel checks the sources of what comes from the device: its `rp_filter`.
//!
//! Read first: Linux `Documentation/networking/ip-sysctl.rst`. The stricter of this setting and that of all
//! devices holds, and "loose" is the higher number. A device without an address must not be loose: the kernel
//! drops everything then.

use std::fs::File;
use std::os::unix::fs::FileExt;

const LOOSE: &[u8] = b"2";

/// The setting of a device that goes with it.
#[derive(Debug)]
pub(super) struct SourceCheck {
    file: File,
    usual: Vec<u8>,
    is_loose: bool,
}

impl SourceCheck {
    /// Of a file that can be read and written, and stays open: a restricted process cannot open it.
    pub(super) fn of(file: File) -> Self {
        let mut usual = vec![0; 16];
        let length = file.read_at(&mut usual, 0).unwrap_or(0);
        usual.truncate(length);
        Self { file, usual, is_loose: false }
    }

    /// Has packets come in whose sources are elsewhere, or as usual.
    pub(super) fn set_loose(&mut self, is_loose: bool) {
        let value = if is_loose { LOOSE } else { &self.usual };
        // Where it cannot be written, most hosts are not strict either.
        if is_loose != self.is_loose && self.file.write_all_at(value, 0).is_ok() {
            self.is_loose = is_loose;
        }
    }
}

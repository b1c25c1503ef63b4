//! Packets that come in by an interface as if they had been received there (`bpf/inject.bpf.c`).

use aya::programs::{SchedClassifier, TestRun, TestRunOptions};
use aya::{Ebpf, EbpfLoader};

use crate::error::FastPathError;
use crate::part::part;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/inject.bpf.o"));
const PROGRAM: &str = "tombolo_inject";

/// An interface that packets are made to come in by.
#[derive(Debug)]
pub struct Injector(Ebpf);

impl Injector {
    /// One for interface number `interface` of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`FastPathError`].
    pub fn load(interface: u32) -> Result<Self, FastPathError> {
        let loaded = EbpfLoader::new().override_global("entrance", &interface, true).load(OBJECT);
        let mut programs = loaded.map_err(FastPathError::Load)?;
        let program = part::<SchedClassifier>(&mut programs, PROGRAM)?;
        program.load().map_err(|source| FastPathError::Program { program: PROGRAM, source })?;
        Ok(Self(programs))
    }

    /// Has a frame come in, Ethernet header first: the kernel goes by it also where the interface has
    /// none.
    ///
    /// # Errors
    /// [`FastPathError`]; the interface may be down.
    pub fn inject(&mut self, frame: &[u8]) -> Result<(), FastPathError> {
        let program = part::<SchedClassifier>(&mut self.0, PROGRAM)?;
        let mut unchanged = vec![0; frame.len()];
        let options = TestRunOptions { data_in: Some(frame), data_out: Some(&mut unchanged), ..TestRunOptions::new() };
        let failed = |source| FastPathError::Program { program: PROGRAM, source };
        let result = program.test_run(options).map_err(failed)?;
        match result.return_value.cast_signed() {
            0 => Ok(()),
            code => Err(FastPathError::Injected(std::io::Error::from_raw_os_error(-code))),
        }
    }
}

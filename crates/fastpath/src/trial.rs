//! The programs on single packets, without interface and neighbour: for tests that compare them
//! with the engine.

use aya::Ebpf;
use aya::programs::{Program, ProgramError, SchedClassifier, TestRun, TestRunOptions, Xdp};
use tombolo_engine::Plan;
use tombolo_tables::Tables;

use crate::counters::Counters;
use crate::error::FastPathError;
use crate::loader::{self, FastPath};
use crate::part::{TC, part};
use crate::pinned::PinnedMemory;
use crate::plan::{FastPlan, Settings};
use crate::record::InterfaceRecord;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/trial.bpf.o"));

/// Link-layer address of the interface that packets of a trial arrive at.
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The loopback interface, which the kernel runs tests on.
const LOOPBACK: u32 = 1;
/// The programs.
const PACKET: &str = "trial_xdp";
const HASH: &str = "trial_hash";
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;

/// What a program did with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial<'b> {
    /// It was translated: the frame.
    Translated(&'b [u8]),
    /// It was passed on, and left as it was.
    Passed,
    /// Another return value.
    Other(u32),
}

/// The programs of one plan, to be run on packets.
#[derive(Debug)]
pub struct Trials {
    xdp: Ebpf,
    tc: FastPath,
    buffer: Vec<u8>,
}

impl Trials {
    /// Loads the programs.
    ///
    /// # Errors
    /// [`FastPathError`].
    pub fn new(memory: &PinnedMemory, tables: &Tables, plan: &Plan, settings: Settings) -> Result<Self, FastPathError> {
        let fast_plan = FastPlan::new(plan, &tables.geometry(), &settings, [1, 2])?;
        let mut xdp = loader::load_object(OBJECT, memory.directory(), &fast_plan, None)?;
        for name in [PACKET, HASH] {
            let program = part::<Xdp>(&mut xdp, name)?;
            program.load().map_err(|source| FastPathError::Program { program: name, source })?;
        }
        let mut tc = FastPath::load(memory, tables, plan, settings)?;
        tc.set_interface(LOOPBACK, InterfaceRecord { number: LOOPBACK, mac: MAC, ..InterfaceRecord::default() })?;
        Ok(Self { xdp, tc, buffer: vec![0; 4096] })
    }

    /// Loads the programs of another object than this crate's: one that another compiler made of
    /// the same sources. They go again at once.
    ///
    /// # Errors
    /// [`FastPathError`]; the kernel's words name the instruction that it refuses.
    pub fn load_object(
        object: &[u8],
        memory: &PinnedMemory,
        tables: &Tables,
        plan: &Plan,
        settings: &Settings,
    ) -> Result<(), FastPathError> {
        let fast_plan = FastPlan::new(plan, &tables.geometry(), settings, [1, 2])?;
        let mut programs = loader::load_object(object, memory.directory(), &fast_plan, None)?;
        for (_, program) in programs.programs_mut() {
            let (name, loaded) = match program {
                Program::Xdp(program) => ("XDP", program.load()),
                Program::SchedClassifier(program) => ("TC", program.load()),
                _ => ("of another kind", Ok(())),
            };
            loaded.map_err(|source| FastPathError::Program { program: name, source })?;
        }
        Ok(())
    }

    /// Runs XDP on a frame.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn xdp(&mut self, frame: &[u8]) -> Result<Trial<'_>, ProgramError> {
        let Some(program) = self.xdp.program(PACKET) else { return Ok(Trial::Other(0)) };
        let options =
            TestRunOptions { data_in: Some(frame), data_out: Some(&mut self.buffer), ..TestRunOptions::new() };
        let result = <&Xdp>::try_from(program)?.test_run(options)?;
        Ok(match result.return_value {
            XDP_TX => Trial::Translated(&self.buffer[..result.data_size_out as usize]),
            XDP_PASS => Trial::Passed,
            other => Trial::Other(other),
        })
    }

    /// What the programs make of three words and a count of buckets: hash, tag, hash for the table
    /// beside, and the second bucket in front of the first.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn hash(&self, words: [u64; 3], buckets: u32) -> Result<[u64; 4], ProgramError> {
        let Some(program) = self.xdp.program(HASH) else { return Ok([0; 4]) };
        let [a, b, c] = words;
        let (mut frame, mut out) = ([0; 64], [0; 64]);
        for (bytes, word) in frame.chunks_exact_mut(8).zip([a, b, c, buckets.into()]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let options = TestRunOptions { data_in: Some(&frame), data_out: Some(&mut out), ..TestRunOptions::new() };
        <&Xdp>::try_from(program)?.test_run(options)?;
        let mut words =
            out.chunks_exact(8).map(|bytes| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)));
        Ok(std::array::from_fn(|_| words.next().unwrap_or(0)))
    }

    /// Runs TC on a frame.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn tc(&mut self, frame: &[u8]) -> Result<Trial<'_>, ProgramError> {
        let Some(program) = self.tc.program(TC) else { return Ok(Trial::Other(0)) };
        let options =
            TestRunOptions { data_in: Some(frame), data_out: Some(&mut self.buffer), ..TestRunOptions::new() };
        let result = <&SchedClassifier>::try_from(program)?.test_run(options)?;
        let bytes = &self.buffer[..result.data_size_out as usize];
        Ok(match result.return_value {
            u32::MAX if bytes != frame => Trial::Translated(bytes),
            u32::MAX => Trial::Passed,
            other => Trial::Other(other),
        })
    }

    /// What was counted.
    ///
    /// # Errors
    /// [`FastPathError::Map`].
    pub fn counters(&self) -> Result<Counters, FastPathError> {
        self.tc.counters()
    }
}

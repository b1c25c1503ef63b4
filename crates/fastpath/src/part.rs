//! A program of a loaded object, by its name.

use aya::Ebpf;
use aya::programs::ProgramError;

use crate::error::FastPathError;

/// The program for XDP.
pub(crate) const XDP: &str = "tombolo_xdp";
/// The program for TC.
pub(crate) const TC: &str = "tombolo_tc";

/// A program of the object.
pub(crate) fn part<'p, P>(programs: &'p mut Ebpf, name: &'static str) -> Result<&'p mut P, FastPathError>
where
    &'p mut P: TryFrom<&'p mut aya::programs::Program, Error = ProgramError>,
{
    let program = programs.program_mut(name).ok_or(FastPathError::Map(name))?;
    <&mut P>::try_from(program).map_err(|source| FastPathError::Program { program: name, source })
}

//! The program of TC as a filter, on kernels that have no links for it (before Linux 6.6).
//!
//! A filter belongs to its interface and to nobody else: it outlives the process, and nothing that is
//! pinned takes it along. So the program is pinned beside the links, under the number of the
//! interface, and says where a filter is to be taken off.

use std::io;
use std::path::{Path, PathBuf};

use aya::programs::tc::{NlOptions, TcAttachOptions, TcHandle, qdisc_add_clsact, qdisc_detach_program};
use aya::programs::{ProgramError, SchedClassifier, TcAttachType};
use nix::net::if_::if_indextoname;

use crate::part::TC;

/// Its place among other filters.
const PRIORITY: u16 = 0x7061;

/// What the names of such pins begin with. They are pins of links for whoever does not look closely.
const PINS: &str = "link-filter-";

fn pin(directory: &Path, interface: u32) -> PathBuf {
    directory.join(format!("{PINS}{interface}"))
}

/// Attaches the program in the place of an earlier one; between the two, packets go to the engine.
pub(crate) fn attach(
    program: &mut SchedClassifier,
    directory: &Path,
    name: &str,
    interface: u32,
) -> Result<(), ProgramError> {
    // Refused if it is there already.
    let _ = qdisc_add_clsact(name);
    let _ = take_off(directory, interface);
    program.pin(pin(directory, interface)).map_err(|error| ProgramError::IOError(io::Error::other(error)))?;
    let options = NlOptions { priority: PRIORITY, handle: TcHandle::new(0, 1), ..NlOptions::default() };
    let id = program.attach_with_options(name, TcAttachType::Ingress, TcAttachOptions::Netlink(options))?;
    // The filter is to stay when the process ends.
    std::mem::forget(program.take_link(id)?);
    Ok(())
}

/// Takes the filter off an interface of the calling thread's network namespace, if there is one.
///
/// # Errors
/// What the kernel says.
pub(crate) fn take_off(directory: &Path, interface: u32) -> io::Result<()> {
    take_off_by(&pin(directory, interface))
}

/// As [`take_off`], if `pin` is that of a filter; else it is removed and nothing more.
pub(crate) fn take_off_by(pin: &Path) -> io::Result<()> {
    let name = pin.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let interface = name.strip_prefix(PINS).and_then(|number| number.parse().ok());
    match std::fs::remove_file(pin) {
        Err(error) if interface.is_some() && error.kind() == io::ErrorKind::NotFound => return Ok(()),
        removed => removed?,
    }
    // The interface may be gone, and the filter with it.
    if let Some(name) = interface.and_then(|number| if_indextoname(number).ok())
        && let Ok(name) = name.into_string()
    {
        let _ = qdisc_detach_program(&name, TcAttachType::Ingress, TC);
    }
    Ok(())
}

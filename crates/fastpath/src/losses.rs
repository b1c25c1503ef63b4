//! What the kernel does not send of what XDP has redirected: `bpf/losses.bpf.c`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use aya::maps::{MapData, PerCpuArray};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf, EbpfLoader};

use crate::error::FastPathError;
use crate::part::part;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/losses.bpf.o"));

/// The programs, and the points of the kernel where they stand.
const PROGRAMS: [(&str, &str); 2] = [("tombolo_bulk", "xdp_devmap_xmit"), ("tombolo_refused", "xdp_redirect_err")];

/// The count, for as long as it is not dropped.
#[derive(Debug)]
pub(crate) struct Losses(Ebpf);

impl Losses {
    /// Begins to count what comes from interfaces of the calling thread's network namespace. The
    /// programs of `directory` know which those are.
    ///
    /// # Errors
    /// [`FastPathError`]: a kernel without type information, or without these points.
    pub(crate) fn load(directory: &Path) -> Result<Self, FastPathError> {
        let namespace = std::fs::metadata("/proc/thread-self/ns/net").map_err(|_| FastPathError::Map("lost"))?.ino();
        let namespace = u32::try_from(namespace).unwrap_or_default();
        let failed = |program| move |source| FastPathError::Program { program, source };
        let types = Btf::from_sys_fs().map_err(|error| FastPathError::Load(error.into()))?;
        let mut programs = EbpfLoader::new()
            .btf(Some(&types))
            .default_map_pin_directory(directory)
            .override_global("network_namespace", &namespace, true)
            .load(OBJECT)
            .map_err(FastPathError::Load)?;
        for (name, point) in PROGRAMS {
            let program = part::<BtfTracePoint>(&mut programs, name)?;
            program.load(point, &types).map_err(failed(name))?;
            program.attach().map_err(failed(name))?;
        }
        Ok(Self(programs))
    }

    /// Frames lost since [`load`](Self::load), on all processors.
    ///
    /// # Errors
    /// [`FastPathError::Map`].
    pub(crate) fn count(&self) -> Result<u64, FastPathError> {
        let fail = || FastPathError::Map("lost");
        let map = self.0.map("lost").ok_or_else(fail)?;
        let array: PerCpuArray<&MapData, u64> = map.try_into().map_err(|_| fail())?;
        Ok(array.get(&0, 0).map_err(|_| fail())?.iter().sum())
    }
}

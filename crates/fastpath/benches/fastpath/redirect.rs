//! What the kernel allows: an XDP program that sends each frame on as it came.

use aya::programs::Xdp;
use aya::programs::xdp::XdpMode;
use aya::{Ebpf, EbpfLoader};
use tombolo_lab::Lab;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/redirect.bpf.o"));

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The two programs, one for each way. Dropping it detaches them.
pub(crate) struct Redirect {
    _programs: [Ebpf; 2],
}

impl Redirect {
    pub(crate) fn start(lab: &Lab) -> Result<Self> {
        let start = |from: &str, to: &str| -> std::result::Result<Ebpf, String> {
            let number = |name: &str| nix::net::if_::if_nametoindex(name).map_err(|why| format!("{name}: {why}"));
            let mut programs = EbpfLoader::new()
                .override_global("exit_interface", &number(to)?, true)
                .load(OBJECT)
                .map_err(|why| why.to_string())?;
            let program = programs.program_mut("bare_redirect").ok_or("the object has no such program")?;
            let program: &mut Xdp = program.try_into().map_err(|why| format!("{why}"))?;
            program.load().map_err(|why| why.to_string())?;
            program.attach_to_if_index(number(from)?, XdpMode::Driver).map_err(|why| why.to_string())?;
            Ok(programs)
        };
        let node = lab.node("gateway")?;
        let out = node.run(|| start("inside0", "outside0"))??;
        Ok(Self { _programs: [out, node.run(|| start("outside0", "inside0"))??] })
    }
}

//! What the kernel allows, and what a table allows: an XDP program that sends each frame on as it came, at once or after it has read
//! one entry of a table, or two, or has claimed them.

use aya::programs::Xdp;
use aya::programs::xdp::XdpMode;
use aya::{Ebpf, EbpfLoader};
use tombolo_lab::Lab;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/redirect.bpf.o"));

/// As many as there are bindings: no hash table has so little room.
const ENTRIES: u32 = 1_000_000;
/// As many as the outside addresses of the homes have ports: where a packet to one of them finds which binding has it.
const SLOTS: u32 = 32 << 16;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What each frame waits for.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    Nothing,
    /// An entry of so many bytes.
    Entry(u32),
    /// A slot of four bytes, and then the entry that it names.
    SlotAndEntry(u32),
    /// A slot of so many bytes, that has all of the entry.
    Slot(u32),
    /// An entry of so many bytes and a slot of four, at once, which it writes.
    Claim(u32),
}

/// The two programs, one for each way. Dropping it detaches them.
pub(crate) struct Redirect {
    _programs: [Ebpf; 2],
}

impl Redirect {
    pub(crate) fn start(lab: &Lab, wait: Wait) -> Result<Self> {
        let (name, bytes, entries, slots) = match wait {
            Wait::Nothing => ("bare_redirect", 0, 0, 0),
            Wait::Entry(bytes) => ("redirect_by_entry", bytes, ENTRIES, 0),
            Wait::SlotAndEntry(bytes) => ("redirect_by_entry", bytes, ENTRIES, SLOTS),
            Wait::Slot(bytes) => ("redirect_by_entry", bytes, SLOTS, 0),
            Wait::Claim(bytes) => ("redirect_by_claim", bytes, ENTRIES, SLOTS),
        };
        let entry_words = bytes / 8;
        let start = |from: &str, to: &str| -> std::result::Result<Ebpf, String> {
            let number = |name: &str| nix::net::if_::if_nametoindex(name).map_err(|why| format!("{name}: {why}"));
            let mut programs = EbpfLoader::new()
                .override_global("exit_interface", &number(to)?, true)
                .override_global("entry_words", &entry_words, true)
                .override_global("entry_count", &entries, true)
                .override_global("slot_count", &slots, true)
                .map_max_entries("slots", slots.max(1))
                .map_max_entries("words", (entries * entry_words).max(1))
                .load(OBJECT)
                .map_err(|why| why.to_string())?;
            let program = programs.program_mut(name).ok_or("the object has no such program")?;
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

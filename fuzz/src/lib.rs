//! What the fuzz targets share: how an input becomes packets, and what must hold for packets that
//! leave.
//!
//! An input is a choice (one byte) and packets:
//!
//! ```text
//! | choice 1 | control 1 | length 2 | packet ... | control 1 | length 2 | packet ... |
//! ```
//!
//! Nothing here uses the engine's own code to judge its results.

use std::path::{Path, PathBuf};

/// Control bit: lengths and checksums of the packet are put right before it is used, or hardly a
/// mutated packet would get past the parser.
pub const REPAIR: u8 = 1;
/// Control bit: the packet is a TCP super-packet, as far as the offload says.
pub const SEGMENTS: u8 = 2;
/// Control bit: the transport checksum is partial.
pub const PARTIAL: u8 = 4;
/// Control bit: ten seconds pass before the packet.
pub const LATER: u8 = 8;
/// Longest packet of an input, in bytes.
pub const LONGEST: usize = 4000;

/// The packets of an input behind its choice, each with its control byte.
pub fn packets(mut data: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (&[control, high, low], rest) = data.split_first_chunk()?;
        let length = usize::from(u16::from_be_bytes([high, low])).min(rest.len()).min(LONGEST);
        let (packet, rest) = rest.split_at(length);
        data = rest;
        Some((control, packet))
    })
}

/// The reverse of [`packets`].
pub fn input(choice: u8, packets: impl IntoIterator<Item = (u8, Vec<u8>)>) -> Vec<u8> {
    let mut input = vec![choice];
    for (control, packet) in packets {
        input.push(control);
        input.extend(u16::try_from(packet.len()).unwrap_or(u16::MAX).to_be_bytes());
        input.extend(packet);
    }
    input
}

/// The configurations of the golden cases, and those of this folder, which have small pools: tables
/// are made anew for each input. In order.
pub fn configurations() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    let listed = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    for directory in
        listed(&root.join("tests/cases")).chain([root.join("fuzz/configurations")]).filter(|path| path.is_dir())
    {
        files.extend(listed(&directory).filter(|path| path.extension().is_some_and(|extension| extension == "toml")));
    }
    files.sort();
    files
}

/// Where things are in a packet, found without the engine.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub version: u8,
    pub protocol: u8,
    pub transport: usize,
    pub is_fragment: bool,
}

/// Walks to the transport header. `None` where there is none within the bytes.
pub fn layout(bytes: &[u8]) -> Option<Layout> {
    match bytes.first()? >> 4 {
        4 => {
            let transport = usize::from(bytes[0] & 15) * 4;
            let word = u16::from_be_bytes([*bytes.get(6)?, *bytes.get(7)?]);
            (bytes.len() >= 20 && transport >= 20 && bytes.len() >= transport).then(|| Layout {
                version: 4,
                protocol: bytes[9],
                transport,
                is_fragment: word & 0x3fff != 0,
            })
        }
        6 => {
            let (mut next, mut at, mut is_fragment) = (*bytes.get(6)?, 40, false);
            if bytes.len() < 40 {
                return None;
            }
            while let 0 | 43 | 44 | 60 = next {
                let header = bytes.get(at..at + 8)?;
                if next == 44 {
                    is_fragment |= u16::from_be_bytes([header[2], header[3]]) & 0xfff9 != 0;
                    (next, at) = (header[0], at + 8);
                } else {
                    (next, at) = (header[0], at + 8 + usize::from(header[1]) * 8);
                }
                if is_fragment {
                    break;
                }
            }
            (bytes.len() >= at).then_some(Layout { version: 6, protocol: next, transport: at, is_fragment })
        }
        _ => None,
    }
}

/// The packet without what may lie behind it, such as the padding of a short Ethernet frame.
pub fn trim(bytes: &[u8]) -> &[u8] {
    let word = |at: usize| bytes.get(at..at + 2).map_or(0, |pair| usize::from(u16::from_be_bytes([pair[0], pair[1]])));
    let length = match bytes.first().map(|first| first >> 4) {
        Some(4) => word(2),
        Some(6) => word(4) + 40,
        _ => bytes.len(),
    };
    &bytes[..length.min(bytes.len())]
}

/// RFC 1071, word by word.
pub fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

fn transport_sum(bytes: &[u8], layout: Layout) -> u16 {
    let transport = &bytes[layout.transport..];
    let length = match layout.protocol {
        17 if transport.len() >= 8 => {
            usize::from(u16::from_be_bytes([transport[4], transport[5]])).min(transport.len())
        }
        _ => transport.len(),
    };
    let addresses = if layout.version == 4 { &bytes[12..20] } else { &bytes[8..40] };
    let long = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    match (layout.version, layout.protocol) {
        (4, 1) => sum(&[transport]),
        _ => sum(&[addresses, &[0, layout.protocol], &long, &transport[..length]]),
    }
}

/// Offset of the checksum in the transport header.
fn checksum_at(layout: Layout) -> Option<usize> {
    match (layout.version, layout.protocol) {
        (_, 6) => Some(16),
        (_, 17) => Some(6),
        (4, 1) | (6, 58) => Some(2),
        _ => None,
    }
}

/// Puts lengths and checksums right, as far as there are headers. A UDP datagram without checksum
/// stays without.
pub fn repair(bytes: &mut [u8]) {
    let length = bytes.len();
    let short = |length: usize| u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    match bytes.first().map(|first| first >> 4) {
        Some(4) if length >= 20 => {
            bytes[2..4].copy_from_slice(&short(length));
            let header = (usize::from(bytes[0] & 15) * 4).clamp(20, length);
            bytes[10..12].fill(0);
            let checksum = !sum(&[&bytes[..header]]);
            bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        Some(6) if length >= 40 => bytes[4..6].copy_from_slice(&short(length - 40)),
        _ => return,
    }
    let Some(found) = layout(bytes).filter(|found| !found.is_fragment) else { return };
    let Some(at) = checksum_at(found).map(|at| found.transport + at).filter(|at| at + 2 <= length) else { return };
    if found.protocol == 17 && length >= found.transport + 8 {
        bytes[found.transport + 4..found.transport + 6].copy_from_slice(&short(length - found.transport));
        if bytes[at..at + 2] == [0, 0] {
            return;
        }
    }
    bytes[at..at + 2].fill(0);
    let checksum = !transport_sum(bytes, found);
    let checksum = if found.protocol == 17 && checksum == 0 { 0xffff } else { checksum };
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// What holds for every packet that leaves: version, lengths, the header checksum.
///
/// # Panics
/// If it does not hold.
pub fn check_structure(bytes: &[u8]) {
    let word = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    match bytes[0] >> 4 {
        4 => {
            assert_eq!(bytes[0] & 15, 5, "options in a packet that leaves");
            assert_eq!(word(2), bytes.len(), "total length");
            assert_eq!(sum(&[&bytes[..20]]), 0xffff, "header checksum");
        }
        6 => assert_eq!(word(4) + 40, bytes.len(), "payload length"),
        version => panic!("version {version}"),
    }
    assert!(layout(bytes).is_some(), "no transport in {bytes:02x?}");
}

/// Whether the transport checksum of a whole packet is right. `None` where there is none, or not
/// all of it.
pub fn transport_verifies(bytes: &[u8]) -> Option<bool> {
    let found = layout(bytes).filter(|found| !found.is_fragment)?;
    let at = found.transport + checksum_at(found)?;
    let field = bytes.get(at..at + 2)?;
    if found.protocol == 17 && field == [0, 0] {
        return None;
    }
    Some(transport_sum(bytes, found) == 0xffff)
}

/// True if the packet is an ICMP or ICMPv6 error, whole.
pub fn is_icmp_error(bytes: &[u8]) -> bool {
    let Some(found) = layout(bytes).filter(|found| !found.is_fragment) else { return false };
    let kind = bytes.get(found.transport);
    match (found.version, found.protocol, kind) {
        (4, 1, Some(3 | 4 | 5 | 11 | 12)) => true,
        (6, 58, Some(kind)) => *kind < 128,
        _ => false,
    }
}

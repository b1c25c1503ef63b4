//! Capture files: IP packets out of them and into them.
//!
//! Read first: draft-ietf-opsawg-pcap (the classic format), and the registry of link types.
//!
//! Link types: raw IP (101, and 228 and 229 for one version), Ethernet (1) with or without VLAN
//! tags. A packet comes with [`HEADROOM`] in front, like one from a TUN queue, so the engine cannot
//! tell them apart.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapReader, PcapWriter, RawPcapPacket};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_wire::ethernet::{HEADER_LENGTH, TYPE_IPV4, TYPE_IPV6, TYPE_VLAN};
use tombolo_wire::{read_u16, write_u16};

use crate::queue::{BUFFER_BYTES, Buffer};

/// Type of an outer VLAN tag (IEEE 802.1ad).
const TYPE_SERVICE_VLAN: u16 = 0x88a8;
const VLAN_TAG: usize = 4;

/// Longest packet that a file is announced to hold.
const SNAP_LENGTH: u32 = 262_144;

const NANOS_PER_SECOND: u32 = 1_000_000_000;

/// What stands in front of each IP packet of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkType {
    /// Nothing.
    #[default]
    RawIp,
    /// An Ethernet header; written with locally administered addresses.
    Ethernet,
}

/// A capture file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// Opening, reading or writing failed.
    #[error("{file}: {action} failed")]
    Access {
        /// Name of the file.
        file: String,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Not a capture file.
    #[error("{file} is not a pcap file; if it is pcapng, convert it with \"editcap -F pcap {file} NEW\"")]
    Format {
        /// Name of the file.
        file: String,
    },
    /// A capture of something else than IP.
    #[error("{file} has link type {link_type}; only raw IP (101) and Ethernet (1) can be read")]
    LinkType {
        /// Name of the file.
        file: String,
        /// Its link type.
        link_type: u32,
    },
    /// The file ends inside a packet, or a length in it is absurd.
    #[error("{file} is damaged after packet {packet}")]
    Damaged {
        /// Name of the file.
        file: String,
        /// The last good packet, counted from 1.
        packet: u64,
    },
}

/// Frames of a file that held no whole IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Skipped {
    /// Neither IPv4 nor IPv6, such as ARP; or longer than an IP packet can be.
    pub not_ip: u64,
    /// Captured only in part.
    pub cut_short: u64,
}

/// Reads the IP packets of a capture file.
#[derive(Debug)]
pub struct CaptureReader<R: Read> {
    file: String,
    reader: PcapReader<R>,
    link_type: LinkType,
    nanos_per_tick: u32,
    count: u64,
    skipped: Skipped,
}

impl CaptureReader<File> {
    /// Opens a file.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let file = path.display().to_string();
        match File::open(path) {
            Ok(source) => Self::new(&file, source),
            Err(source) => Err(CaptureError::Access { file, action: "opening it", source }),
        }
    }
}

impl<R: Read> CaptureReader<R> {
    /// Reads from `source`, which is called `file` in errors.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn new(file: &str, source: R) -> Result<Self, CaptureError> {
        let reader = PcapReader::new(source).map_err(|error| match error {
            PcapError::IoError(source) if source.kind() != io::ErrorKind::UnexpectedEof => {
                CaptureError::Access { file: file.to_owned(), action: "reading it", source }
            }
            _ => CaptureError::Format { file: file.to_owned() },
        })?;
        let header = reader.header();
        let link_type = match header.datalink {
            DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => LinkType::RawIp,
            DataLink::ETHERNET => LinkType::Ethernet,
            other => return Err(CaptureError::LinkType { file: file.to_owned(), link_type: other.into() }),
        };
        let nanos_per_tick = if header.ts_resolution == TsResolution::MicroSecond { 1000 } else { 1 };
        Ok(Self { file: file.to_owned(), reader, link_type, nanos_per_tick, count: 0, skipped: Skipped::default() })
    }

    /// What stands in front of each packet in the file.
    #[must_use]
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// Frames read so far, those that were passed over among them: the number of the last one.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.count
    }

    /// Frames passed over so far.
    #[must_use]
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// The next IP packet, and when it was captured (since 1970); `None` at the end of the file.
    ///
    /// # Errors
    /// [`CaptureError::Damaged`], [`CaptureError::Access`].
    pub fn next_packet<'b>(&mut self, buffer: &'b mut Buffer) -> Result<Option<(Duration, Packet<'b>)>, CaptureError> {
        let (at, length) = loop {
            let Some(frame) = self.reader.next_raw_packet() else { return Ok(None) };
            let frame = match frame {
                Ok(frame) => frame,
                Err(PcapError::IoError(source)) if source.kind() != io::ErrorKind::UnexpectedEof => {
                    return Err(CaptureError::Access { file: self.file.clone(), action: "reading it", source });
                }
                Err(_) => return Err(CaptureError::Damaged { file: self.file.clone(), packet: self.count }),
            };
            self.count += 1;
            match ip_packet(&frame.data, self.link_type) {
                Err(NoPacket::NotIp) => self.skipped.not_ip += 1,
                Err(NoPacket::CutShort) => self.skipped.cut_short += 1,
                Ok(_) if frame.orig_len > frame.incl_len => self.skipped.cut_short += 1,
                Ok(packet) if packet.len() > BUFFER_BYTES - HEADROOM => self.skipped.not_ip += 1,
                Ok(packet) => {
                    buffer.bytes_mut()[HEADROOM..HEADROOM + packet.len()].copy_from_slice(packet);
                    break (time_of(&frame, self.nanos_per_tick), packet.len());
                }
            }
        };
        Ok(Packet::new(buffer.bytes_mut(), HEADROOM, length, Offload::default()).map(|packet| (at, packet)))
    }
}

fn time_of(frame: &RawPcapPacket<'_>, nanos_per_tick: u32) -> Duration {
    let fraction = Duration::from_nanos(u64::from(frame.ts_frac) * u64::from(nanos_per_tick));
    Duration::from_secs(frame.ts_sec.into()) + fraction
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoPacket {
    NotIp,
    CutShort,
}

/// The IP packet of a frame, without the padding of short Ethernet frames.
fn ip_packet(frame: &[u8], link_type: LinkType) -> Result<&[u8], NoPacket> {
    let packet = match link_type {
        LinkType::RawIp => frame,
        LinkType::Ethernet => ethernet_payload(frame)?,
    };
    match packet.first().ok_or(NoPacket::CutShort)? >> 4 {
        4 | 6 => Ok(if link_type == LinkType::Ethernet { without_padding(packet) } else { packet }),
        _ => Err(NoPacket::NotIp),
    }
}

fn ethernet_payload(frame: &[u8]) -> Result<&[u8], NoPacket> {
    let mut offset = HEADER_LENGTH;
    loop {
        if frame.len() < offset {
            return Err(NoPacket::CutShort);
        }
        match read_u16(frame, offset - 2) {
            TYPE_VLAN | TYPE_SERVICE_VLAN => offset += VLAN_TAG,
            TYPE_IPV4 | TYPE_IPV6 => return Ok(&frame[offset..]),
            _ => return Err(NoPacket::NotIp),
        }
    }
}

/// Cuts what is behind the end of the packet by its own account. A length that makes no sense is
/// left to the engine to judge.
fn without_padding(packet: &[u8]) -> &[u8] {
    let length = match packet[0] >> 4 {
        4 if packet.len() >= 20 => usize::from(read_u16(packet, 2)),
        6 if packet.len() >= 40 => 40 + usize::from(read_u16(packet, 4)),
        _ => packet.len(),
    };
    if length >= 20 { &packet[..length.min(packet.len())] } else { packet }
}

/// Writes IP packets into a capture file, with times in nanoseconds.
#[derive(Debug)]
pub struct CaptureWriter<W: Write> {
    file: String,
    writer: PcapWriter<W>,
    link_type: LinkType,
    frame: Vec<u8>,
}

impl CaptureWriter<BufWriter<File>> {
    /// Makes a file, in place of one that is there.
    ///
    /// # Errors
    /// [`CaptureError::Access`].
    pub fn create(path: &Path, link_type: LinkType) -> Result<Self, CaptureError> {
        let file = path.display().to_string();
        match File::create(path) {
            Ok(sink) => Self::new(&file, BufWriter::new(sink), link_type),
            Err(source) => Err(CaptureError::Access { file, action: "making it", source }),
        }
    }
}

impl<W: Write> CaptureWriter<W> {
    /// Writes to `sink`, which is called `file` in errors.
    ///
    /// # Errors
    /// [`CaptureError::Access`].
    pub fn new(file: &str, sink: W, link_type: LinkType) -> Result<Self, CaptureError> {
        let header = PcapHeader {
            snaplen: SNAP_LENGTH,
            datalink: match link_type {
                LinkType::RawIp => DataLink::RAW,
                LinkType::Ethernet => DataLink::ETHERNET,
            },
            ts_resolution: TsResolution::NanoSecond,
            // One byte order whatever the machine: files of the same packets are the same.
            endianness: Endianness::Little,
            ..PcapHeader::default()
        };
        let writer = PcapWriter::with_header(sink, header).map_err(|error| write_error(file, error))?;
        Ok(Self { file: file.to_owned(), writer, link_type, frame: Vec::new() })
    }

    /// Writes one packet with its time (since 1970).
    ///
    /// # Errors
    /// [`CaptureError::Access`].
    pub fn write(&mut self, at: Duration, packet: &[u8]) -> Result<(), CaptureError> {
        self.write_part(at, packet, packet.len())
    }

    /// Writes the first bytes of a packet that has `length` bytes.
    ///
    /// # Errors
    /// [`CaptureError::Access`].
    pub fn write_part(&mut self, at: Duration, packet: &[u8], length: usize) -> Result<(), CaptureError> {
        self.frame.clear();
        if self.link_type == LinkType::Ethernet {
            self.frame.extend_from_slice(&ethernet_header(packet));
        }
        self.frame.extend_from_slice(packet);
        let number = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let missing = length.saturating_sub(packet.len());
        let record = RawPcapPacket {
            // The format ends in 2106.
            ts_sec: u32::try_from(at.as_secs()).unwrap_or(u32::MAX),
            ts_frac: at.subsec_nanos() % NANOS_PER_SECOND,
            incl_len: number(self.frame.len()),
            orig_len: number(self.frame.len() + missing),
            data: self.frame.as_slice().into(),
        };
        let result = self.writer.write_raw_packet(&record).map(|_| ());
        result.map_err(|error| write_error(&self.file, error))
    }

    /// Writes what is still in memory and gives back the sink.
    ///
    /// # Errors
    /// [`CaptureError::Access`].
    pub fn finish(self) -> Result<W, CaptureError> {
        let mut sink = self.writer.into_writer();
        let flushed = sink.flush();
        flushed.map_err(|source| CaptureError::Access { file: self.file, action: "writing it", source })?;
        Ok(sink)
    }
}

fn write_error(file: &str, error: PcapError) -> CaptureError {
    let source = match error {
        PcapError::IoError(source) => source,
        other => io::Error::other(other),
    };
    CaptureError::Access { file: file.to_owned(), action: "writing it", source }
}

fn ethernet_header(packet: &[u8]) -> [u8; HEADER_LENGTH] {
    let mut header = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0, 0];
    let is_ipv6 = packet.first().is_some_and(|byte| byte >> 4 == 6);
    write_u16(&mut header, 12, if is_ipv6 { TYPE_IPV6 } else { TYPE_IPV4 });
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::new(1_700_000_000, 123_456_789);

    /// An IPv4 packet of 24 bytes.
    fn ipv4() -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 24, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        packet.extend_from_slice(b"body");
        packet
    }

    /// An IPv6 packet of 44 bytes.
    fn ipv6() -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 4, 59, 64];
        packet.extend_from_slice(&[0x20; 32]);
        packet.extend_from_slice(b"body");
        packet
    }

    fn written(link_type: LinkType, packets: &[Vec<u8>]) -> Vec<u8> {
        let mut writer = CaptureWriter::new("test", Vec::new(), link_type).unwrap();
        for packet in packets {
            writer.write(TIME, packet).unwrap();
        }
        writer.finish().unwrap()
    }

    fn read_all(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, Skipped), CaptureError> {
        let mut reader = CaptureReader::new("test", bytes)?;
        let mut buffer = Buffer::new();
        let mut packets = Vec::new();
        while let Some((at, packet)) = reader.next_packet(&mut buffer)? {
            assert_eq!((at, packet.headroom()), (TIME, HEADROOM));
            packets.push(packet.bytes().to_vec());
        }
        Ok((packets, reader.skipped()))
    }

    #[test]
    fn packets_come_back_as_they_were_written() {
        let large: Vec<u8> = [vec![0x45], vec![7; 65_534]].concat();
        let packets = [ipv4(), ipv6(), large];
        let (found, skipped) = read_all(&written(LinkType::RawIp, &packets)).unwrap();
        assert_eq!(found, packets);
        assert_eq!(skipped, Skipped::default());
        let (found, _) = read_all(&written(LinkType::Ethernet, &packets[..2])).unwrap();
        assert_eq!(found, packets[..2]);
    }

    #[test]
    fn a_file_begins_with_the_header_of_the_format() {
        let bytes = written(LinkType::RawIp, &[]);
        let expected = [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn ethernet_frames_lose_tags_and_padding() {
        let mut tagged = ethernet_header(&ipv4()).to_vec();
        tagged.splice(12..12, [0x88, 0xa8, 0, 7, 0x81, 0, 0, 9]);
        tagged.extend_from_slice(&ipv4());
        tagged.resize(64, 0);
        assert_eq!(ip_packet(&tagged, LinkType::Ethernet), Ok(ipv4().as_slice()));
    }

    #[test]
    fn frames_that_hold_no_packet_are_counted() {
        let mut arp = vec![0; 42];
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        assert_eq!(ip_packet(&arp, LinkType::Ethernet), Err(NoPacket::NotIp));
        assert_eq!(ip_packet(&arp[..13], LinkType::Ethernet), Err(NoPacket::CutShort));
        assert_eq!(ip_packet(&[], LinkType::RawIp), Err(NoPacket::CutShort));

        let mut bytes = written(LinkType::RawIp, &[ipv4(), vec![0x10; 20], ipv6()]);
        // The original length of the first packet, in its record header, becomes 1500.
        bytes[24 + 12..24 + 14].copy_from_slice(&1500_u16.to_le_bytes());
        let (found, skipped) = read_all(&bytes).unwrap();
        assert_eq!(found, [ipv6()]);
        assert_eq!(skipped, Skipped { not_ip: 1, cut_short: 1 });
    }

    #[test]
    fn files_that_cannot_be_read_say_why() {
        let error = |bytes: &[u8]| read_all(bytes).unwrap_err().to_string();
        let good = written(LinkType::RawIp, &[ipv4(), ipv4()]);
        assert!(error(b"").starts_with("test is not a pcap file"));
        assert!(error(&[0x0a, 0x0d, 0x0d, 0x0a, 0, 0]).contains("editcap -F pcap test NEW"));
        assert_eq!(error(&good[..good.len() - 1]), "test is damaged after packet 1");
        let mut other = good;
        other[20] = 105;
        assert_eq!(error(&other), "test has link type 105; only raw IP (101) and Ethernet (1) can be read");
    }
}

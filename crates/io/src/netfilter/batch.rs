//! Messages of nfnetlink: attributes, requests, and batches that take effect as a whole or not at
//! all.

use std::io;

use libc::{NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END, NFNL_SUBSYS_NFTABLES, NFPROTO_INET, NFPROTO_UNSPEC};
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr};

pub(super) const NETLINK_NETFILTER: isize = 12;
/// `struct nlmsghdr` and `struct nfgenmsg`.
pub(super) const HEADER: usize = 16;
pub(super) const GENERAL: usize = 4;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// What is listed has changed meanwhile.
const NLM_F_DUMP_INTR: u16 = 0x10;
/// The attribute has attributes within (NLA_F_NESTED).
const NESTED: u16 = 0x8000;

/// Objects: the family and the attributes of each.
pub(super) type Listed = Vec<(u8, Vec<u8>)>;

/// A socket to nf_tables. Belongs to the network namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct NfSocket {
    socket: Socket,
    sequence: u32,
}

impl NfSocket {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    pub(super) fn begin(&mut self) -> Batch {
        let mut batch = Batch { bytes: Vec::new(), sequence: self.sequence, last: 0 };
        batch.push(NFNL_MSG_BATCH_BEGIN, 0, [0, NFNL_SUBSYS_NFTABLES], |_| ());
        batch
    }

    /// Has the batch take effect.
    pub(super) fn commit(&mut self, mut batch: Batch) -> io::Result<()> {
        // The last message is acknowledged; of those before it the kernel tells what failed.
        let flags = batch.last + 6;
        if let Some(flags) = batch.bytes.get_mut(flags..flags + 2) {
            let asked = u16::from_ne_bytes([flags[0], flags[1]]) | NLM_F_ACK;
            flags.copy_from_slice(&asked.to_ne_bytes());
        }
        let (first, last) = (self.sequence, batch.sequence);
        batch.push(NFNL_MSG_BATCH_END, 0, [0, NFNL_SUBSYS_NFTABLES], |_| ());
        self.sequence = batch.sequence;
        self.socket.send(&batch.bytes, 0)?;
        self.await_answer(first + 1..=last, |_| None::<()>).map(drop)
    }

    /// Asks for one object. Gives its attributes.
    pub(super) fn ask(&mut self, kind: i32, write: impl FnOnce(&mut Writer)) -> io::Result<Vec<u8>> {
        let mut batch = Batch { bytes: Vec::new(), sequence: self.sequence, last: 0 };
        batch.message(kind, 0, write);
        self.sequence = batch.sequence;
        self.socket.send(&batch.bytes, 0)?;
        let answer = self.await_answer(self.sequence..=self.sequence, |body| Some(body.to_vec()))?;
        answer.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an acknowledgement instead of an answer"))
    }

    /// Asks for all objects of a kind, of all families. Gives the family and the attributes of each.
    pub(super) fn list(&mut self, kind: i32) -> io::Result<Listed> {
        loop {
            let mut request = Batch { bytes: Vec::new(), sequence: self.sequence, last: 0 };
            let kind = NFNL_SUBSYS_NFTABLES << 8 | kind;
            request.push(kind, NLM_F_DUMP, [NFPROTO_UNSPEC, 0], |_| ());
            self.sequence = request.sequence;
            self.socket.send(&request.bytes, 0)?;
            if let Some(found) = self.listed()? {
                return Ok(found);
            }
        }
    }

    /// What comes until the list ends; `None` if it changed meanwhile.
    fn listed(&self) -> io::Result<Option<Listed>> {
        let (mut found, mut has_changed) = (Vec::new(), false);
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = datagram.as_slice();
            while let Some((length, kind, sequence)) = header(rest) {
                let body = rest.get(HEADER..length).unwrap_or_default();
                let flags = rest.get(6..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default();
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                if sequence != self.sequence {
                    continue;
                }
                has_changed |= u16::from_ne_bytes(flags) & NLM_F_DUMP_INTR != 0;
                if kind == NLMSG_ERROR || kind == NLMSG_DONE {
                    return match body.first_chunk().map_or(-libc::EPROTO, |code| i32::from_ne_bytes(*code)) {
                        0 if has_changed => Ok(None),
                        0 => Ok(Some(found)),
                        code => Err(io::Error::from_raw_os_error(-code)),
                    };
                }
                let family = body.first().copied().unwrap_or_default();
                found.push((family, body.get(GENERAL..).unwrap_or_default().to_vec()));
            }
        }
    }

    /// Reads until the acknowledgement of the last of some messages, an error of one of them, or what
    /// `take` takes.
    fn await_answer<T>(
        &self,
        sequences: std::ops::RangeInclusive<u32>,
        take: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = datagram.as_slice();
            while let Some((length, kind, sequence)) = header(rest) {
                let body = rest.get(HEADER..length).unwrap_or_default();
                if sequences.contains(&sequence) {
                    if kind == NLMSG_ERROR {
                        let code = body.first_chunk().map_or(-libc::EPROTO, |code| i32::from_ne_bytes(*code));
                        if code != 0 {
                            return Err(io::Error::from_raw_os_error(-code));
                        }
                        if sequence == *sequences.end() {
                            return Ok(None);
                        }
                    } else if let Some(taken) = take(body.get(GENERAL..).unwrap_or_default()) {
                        return Ok(Some(taken));
                    }
                }
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }
}

/// Length, kind and sequence number of the first message.
pub(super) fn header(bytes: &[u8]) -> Option<(usize, u16, u32)> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let sequence = u32::from_ne_bytes(*bytes.get(8..)?.first_chunk()?);
    (length >= HEADER).then_some((length, kind, sequence))
}

/// Messages that take effect together.
#[derive(Debug)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// Of the last message.
    sequence: u32,
    /// Where it begins.
    last: usize,
}

impl Batch {
    /// Appends a message of nf_tables for the family `inet`.
    pub(super) fn message(&mut self, kind: i32, flags: u16, write: impl FnOnce(&mut Writer)) {
        let kind = NFNL_SUBSYS_NFTABLES << 8 | kind;
        self.push(kind, flags, [NFPROTO_INET, 0], write);
    }

    /// `family_and_resource` are the family and the resource number of `struct nfgenmsg`.
    fn push(&mut self, kind: i32, flags: u16, [family, resource]: [i32; 2], write: impl FnOnce(&mut Writer)) {
        let mut body = Writer::default();
        write(&mut body);
        self.sequence += 1;
        self.last = self.bytes.len();
        let length = u32::try_from(HEADER + GENERAL + body.0.len()).unwrap_or(u32::MAX);
        let [kind_low, kind_high, ..] = kind.to_le_bytes();
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(u16::from_le_bytes([kind_low, kind_high]).to_ne_bytes());
        self.bytes.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        self.bytes.extend(self.sequence.to_ne_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend([family.to_le_bytes()[0], 0, 0, resource.to_le_bytes()[0]]);
        self.bytes.extend(body.0);
    }
}

/// Attributes under construction; each is padded to four bytes.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn bytes(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Ends with a zero.
    pub(super) fn text(&mut self, kind: u16, value: &str) {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat());
    }

    /// In network byte order, as all numbers of nf_tables.
    pub(super) fn number(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub(super) fn nested(&mut self, kind: u16, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(kind | NESTED, &inner.0);
    }

    pub(super) fn append(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }
}

/// Attributes as they were received.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes<'b>(&'b [u8]);

impl<'b> Attributes<'b> {
    pub(super) fn of(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// The number in the first attribute of a kind.
    pub(super) fn number(self, kind: u16) -> Option<u32> {
        self.find(kind)?.try_into().ok().map(u32::from_be_bytes)
    }

    /// The text in the first attribute of a kind, without the zero that it ends with.
    pub(super) fn text(self, kind: u16) -> Option<String> {
        let bytes = self.find(kind)?;
        Some(String::from_utf8_lossy(bytes.strip_suffix(&[0]).unwrap_or(bytes)).into_owned())
    }

    /// The value of the first attribute of a kind.
    pub(super) fn find(self, kind: u16) -> Option<&'b [u8]> {
        let mut rest = self.0;
        loop {
            let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
            let found = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?) & !NESTED;
            let value = rest.get(4..length)?;
            if found == kind {
                return Some(value);
            }
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
    }
}

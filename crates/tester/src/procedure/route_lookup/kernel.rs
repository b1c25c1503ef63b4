//! The running kernel's routing tables, measured inside the kernel.
//!
//! The routes go into the main table of a network namespace of a lab, through netlink, a thousand
//! to one system call. A BPF program run by `BPF_PROG_TEST_RUN` in that namespace then calls
//! `bpf_fib_lookup` a million times to one system call, without policy rules and without
//! neighbours: the fastest lookup that the kernel offers to a program. Its own dry run is
//! subtracted.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use aya::maps::{Array, MapError};
use aya::programs::{ProgramError, TestRun, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfError};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use tombolo_lab::{Lab, LabError, Namespace, Topology};
use tombolo_tables::lpm::Route;

use super::contenders::Contender;
use super::keys::{COVERED, Drawn, Keys};

/// The BPF object, from `bpf/route_lookup.bpf.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/route_lookup.bpf.o"));

/// Why the kernel's lookup could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// No namespace.
    #[error("the kernel's route lookup needs a network namespace of its own")]
    Lab(#[from] LabError),
    /// The program did not load.
    #[error("the kernel did not take the program that measures its route lookup (Linux 6.3 or later, BPF, root)")]
    Load(#[from] EbpfError),
    /// The program is not what it should be, or did not load.
    #[error("the program that measures the kernel's route lookup did not run")]
    Program(#[from] ProgramError),
    /// The keys could not be handed over.
    #[error("the keys could not be handed to the kernel")]
    Keys(#[from] MapError),
    /// Netlink failed.
    #[error("the routes could not be handed to the kernel")]
    Netlink(#[from] io::Error),
    /// The object lacks a part.
    #[error("the program lacks its part {0:?}")]
    Missing(&'static str),
}

/// A namespace with routes in it, and the program that looks them up.
pub struct KernelTable {
    program: Arc<Ebpf>,
    namespace: Namespace,
    interface: u32,
    /// Routes that the kernel refused.
    pub refused: usize,
    /// Seconds that installing the routes took.
    pub install_seconds: f64,
    _lab: Lab,
}

/// Node and interface of the lab that the routes belong to.
const NODE: &str = "gateway";
const INTERFACE: &str = "outside0";

impl KernelTable {
    /// Makes a namespace and installs the routes.
    ///
    /// # Errors
    /// [`KernelError`].
    pub fn new<K: Drawn>(routes: &[Route<K>], covered: &[K]) -> Result<Self, KernelError> {
        let lab = Lab::create(&Topology::client_gateway_server())?;
        let namespace = lab.node(NODE)?.clone();
        let interface = namespace.index_of(INTERFACE)?;
        let begin = Instant::now();
        let refused = namespace.run(|| install(routes, interface))??;
        let install_seconds = begin.elapsed().as_secs_f64();
        let program = Arc::new(load(covered)?);
        Ok(Self { program, namespace, interface, refused, install_seconds, _lab: lab })
    }

    /// The kernel's lookup, and the same loop without it.
    #[must_use]
    pub fn contenders<'a, K: Drawn>(&self) -> [Contender<'a, K>; 2] {
        [self.contender("kernel", false), self.contender("kernel dry", true)]
    }

    fn contender<'a, K: Drawn>(&self, name: &'static str, dry: bool) -> Contender<'a, K> {
        let (program, interface) = (Arc::clone(&self.program), self.interface);
        let mut contender = Contender::new(name, move || {
            let program = Arc::clone(&program);
            Box::new(move |keys: Keys<'_, K>, count| lookups(&program, interface, dry, keys, count))
        });
        contender.namespace = Some(self.namespace.clone());
        contender.build_seconds = self.install_seconds;
        contender
    }

    /// Of `count` random keys, those that the kernel found a route for.
    ///
    /// # Errors
    /// [`LabError`] when the namespace cannot be entered.
    pub fn found<K: Drawn>(&self, seed: u64, count: usize) -> Result<u64, LabError> {
        self.namespace.run(|| lookups::<K>(&self.program, self.interface, false, Keys::Random(seed), count))
    }
}

fn load<K: Drawn>(covered: &[K]) -> Result<Ebpf, KernelError> {
    let mut program = Ebpf::load(OBJECT)?;
    let map = program.map_mut("keys").ok_or(KernelError::Missing("keys"))?;
    let mut keys: Array<_, [u64; 2]> = Array::try_from(map)?;
    for (index, key) in (0u32..).zip(covered.iter().take(COVERED)) {
        // Two 64-bit numbers, the first with the key's first bits.
        let bits = key.left_aligned();
        let half = |bits: u128| u64::try_from(bits).unwrap_or(u64::MAX);
        keys.set(index, [half(bits >> 64), half(bits & u128::from(u64::MAX))], 0)?;
    }
    let xdp = program.program_mut("lookups").ok_or(KernelError::Missing("lookups"))?;
    <&mut Xdp>::try_from(xdp)?.load()?;
    Ok(program)
}

const ETHERNET: usize = 14;
/// Byte of the answer in the packet: after the request's seed, count, interface and flags.
const FOUND: usize = ETHERNET + 24;

/// Runs `count` lookups in the kernel; how many found a route.
fn lookups<K: Drawn>(program: &Ebpf, interface: u32, dry: bool, keys: Keys<'_, K>, count: usize) -> u64 {
    let (seed, covered) = match keys {
        Keys::Random(seed) => (seed, false),
        Keys::Covered(_) => (0, true),
    };
    let mut packet = [0u8; 128];
    packet[ETHERNET..][..8].copy_from_slice(&seed.to_ne_bytes());
    packet[ETHERNET + 8..][..4].copy_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_ne_bytes());
    packet[ETHERNET + 12..][..4].copy_from_slice(&interface.to_ne_bytes());
    packet[ETHERNET + 16..][..3].copy_from_slice(&[K::FAMILY, u8::from(covered), u8::from(dry)]);
    let mut answer = packet;
    let options = TestRunOptions { data_in: Some(&packet), data_out: Some(&mut answer), ..TestRunOptions::new() };
    let Some(Ok(xdp)) = program.program("lookups").map(<&Xdp>::try_from) else { return 0 };
    // It ran in `KernelTable::new`'s checks; a run that fails finds nothing, which the caller
    // compares.
    let Ok(_) = xdp.test_run(options) else { return 0 };
    answer[FOUND..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// Messages to one system call.
const MESSAGES: usize = 1000;

/// Installs routes to the interface in the calling thread's namespace; how many the kernel refused.
fn install<K: Drawn>(routes: &[Route<K>], interface: u32) -> io::Result<usize> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.set_non_blocking(true)?;
    let mut refused = 0;
    for routes in routes.chunks(MESSAGES) {
        let mut messages = Vec::with_capacity(routes.len() * 64);
        for route in routes {
            push_route(&mut messages, route, interface);
        }
        socket.send(&messages, 0)?;
        refused += refusals(&socket)?;
    }
    Ok(refused)
}

/// Appends an RTM_NEWROUTE (`linux/rtnetlink.h`): nlmsghdr 16 bytes, rtmsg 12, RTA_DST, RTA_OIF.
fn push_route<K: Drawn>(messages: &mut Vec<u8>, route: &Route<K>, interface: u32) {
    const RTM_NEWROUTE: u16 = 24;
    const REQUEST_CREATE: u16 = 0x401;
    const RTA_DST: u16 = 1;
    const RTA_OIF: u16 = 4;
    const MAIN: u8 = 254;
    const STATIC: u8 = 4;
    const UNICAST: u8 = 1;
    let four = K::FAMILY == 4;
    let (family, scope, octets) = if four { (2u8, 253u8, 4usize) } else { (10, 0, 16) };
    let length = 16 + 12 + 4 + octets + 8;
    messages.extend(u32::try_from(length).unwrap_or(0).to_ne_bytes());
    messages.extend(RTM_NEWROUTE.to_ne_bytes());
    messages.extend(REQUEST_CREATE.to_ne_bytes());
    messages.extend([0; 8]); // sequence, port
    messages.extend([family, route.prefix.prefix_len(), 0, 0, MAIN, STATIC, scope, UNICAST]);
    messages.extend([0; 4]); // flags
    messages.extend(u16::try_from(4 + octets).unwrap_or(0).to_ne_bytes());
    messages.extend(RTA_DST.to_ne_bytes());
    messages.extend(&route.prefix.key().left_aligned().to_be_bytes()[..octets]);
    messages.extend(8u16.to_ne_bytes());
    messages.extend(RTA_OIF.to_ne_bytes());
    messages.extend(interface.to_ne_bytes());
}

/// Reads what the kernel answered: errors only, as no acknowledgement was asked for.
fn refusals(socket: &Socket) -> io::Result<usize> {
    const NLMSG_ERROR: u16 = 2;
    let mut refused = 0;
    loop {
        let datagram = match socket.recv_from_full() {
            Ok((datagram, _)) => datagram,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(refused),
            Err(error) => return Err(error),
        };
        let mut rest = datagram.as_slice();
        while let [a, b, c, d, kind_low, kind_high, ..] = *rest {
            let length = (u32::from_ne_bytes([a, b, c, d]) as usize).next_multiple_of(4).max(16);
            refused += usize::from(u16::from_ne_bytes([kind_low, kind_high]) == NLMSG_ERROR);
            rest = rest.get(length..).unwrap_or_default();
        }
    }
}

//! Which way frames leave: by the kernel as live frames, or from this process through a socket on
//! each port. What is asked for, what the ports take and how long the frames are decide.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::af_xdp::AfXdp;
use crate::error::RigError;
use crate::exchange::Direction;
use crate::frame::Template;
use crate::interface::Interface;
use crate::layout::{Made, TEMPLATE_BYTES};
use crate::mapped::Mapped;
use crate::means::{LONGEST_FRAME, LONGEST_LIVE_FRAME, Means, Sending};
use crate::packet_socket::PacketSocket;
use crate::port::Port;
use crate::sender::{Door, Exit, UserExit};

const FCS: u16 = 4;
/// Ethernet header and FCS.
const ETHERNET_BYTES: u16 = 18;
const USUAL_MTU: u32 = 1500;
/// How long the kernel may take to give a queue back that another socket had.
const QUEUE_PATIENCE: Duration = Duration::from_secs(2);

/// How a port of the rig runs XDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortXdp {
    /// What the interface is.
    pub interface: Interface,
    /// The driver itself runs the receiver (native XDP). Else the kernel does, on a buffer of its own
    /// for each frame (generic XDP).
    pub is_native: bool,
}

/// The two ports as frames leave through them.
pub(crate) struct Exits {
    /// How frames shall leave; what suits their length and the ports where absent.
    pub(crate) asked: Option<Means>,
    pub(crate) kernel_has_live_frames: bool,
    /// How those of the last run did, or those of the next one will.
    pub(crate) sending: Sending,
    pub(crate) port_xdp: [PortXdp; 2],
    ports: [Port; 2],
    /// AF_XDP sockets by sending core and port. They stay open: some drivers reset the queue for one.
    sockets: BTreeMap<(usize, usize), Arc<Mutex<Door>>>,
    made: Arc<Mapped<Made>>,
}

impl Exits {
    /// Those of these ports, once both have their programs: one end of a veth takes live frames by
    /// the other's.
    ///
    /// # Errors
    /// If a port does not say what it is.
    pub(crate) fn new(ports: [Port; 2], native: [bool; 2], made: Mapped<Made>) -> Result<Exits, RigError> {
        let described = |port: &Port, is_native| match Interface::of(port) {
            Ok(interface) => Ok(PortXdp { interface, is_native }),
            Err(source) => Err(RigError::Interface { name: port.name.clone(), source }),
        };
        Ok(Exits {
            asked: None,
            kernel_has_live_frames: false,
            sending: Sending { means: Means::LiveFrames, is_zero_copy: false },
            port_xdp: [described(&ports[0], native[0])?, described(&ports[1], native[1])?],
            ports,
            sockets: BTreeMap::new(),
            made: Arc::new(made),
        })
    }

    /// Frames of the last run that a driver did not take from AF_XDP.
    pub(crate) fn refused(&self) -> u64 {
        let sockets = self.sockets.values().map(|door| match &*door.lock().unwrap_or_else(PoisonError::into_inner) {
            Door::AfXdp(socket) => socket.refused(),
            Door::Packet { .. } => 0,
        });
        sockets.sum()
    }

    /// Gets ready for frames of up to so many bytes, with FCS, and says how they will leave.
    ///
    /// # Errors
    /// If they are too long for the ports, or for the means that were chosen.
    pub(crate) fn prepare(&mut self, frame_bytes: u16) -> Result<Sending, RigError> {
        self.check_length(frame_bytes)?;
        let means = match self.asked {
            Some(means) => vec![means],
            None if self.takes_live_frames() && Means::LiveFrames.takes(frame_bytes) => vec![Means::LiveFrames],
            None => vec![Means::AfXdp, Means::PacketSockets],
        };
        let mut tried = Ok(());
        for means in means {
            tried = match means {
                Means::AfXdp => (0..2).try_for_each(|port| self.socket(0, port, frame_bytes - FCS).map(drop)),
                _ => Ok(()),
            };
            if tried.is_ok() {
                if means != Means::AfXdp {
                    self.sockets.clear();
                }
                self.sending = Sending { means, is_zero_copy: self.has_zero_copy() };
                break;
            }
        }
        tried.map(|()| self.sending)
    }

    /// Whether the kernel has live frames and both ports take them. Where the kernel does not say who
    /// does, drivers that run XDP themselves are believed to.
    fn takes_live_frames(&self) -> bool {
        let take_them = |port: &PortXdp| port.interface.xdp.map_or(port.is_native, |xdp| xdp.transmits);
        self.kernel_has_live_frames && self.port_xdp.iter().all(take_them)
    }

    fn check_length(&self, frame_bytes: u16) -> Result<(), RigError> {
        if self.asked.is_some_and(|means| !means.takes(frame_bytes)) {
            return Err(RigError::Unfit(format!(
                "frames of {frame_bytes} bytes cannot be live frames, which have at most {LONGEST_LIVE_FRAME}; AF_XDP and packet \
                 sockets send them"
            )));
        }
        if frame_bytes > LONGEST_FRAME {
            return Err(RigError::Unfit(format!("frames of {frame_bytes} bytes; {LONGEST_FRAME} is the most")));
        }
        let needed = u32::from(frame_bytes.saturating_sub(ETHERNET_BYTES));
        for (port, xdp) in self.ports.iter().zip(&self.port_xdp).filter(|_| needed > USUAL_MTU) {
            // It may have been changed since the rig was opened.
            let mtu = Interface::of(port).map_or(xdp.interface.mtu, |interface| interface.mtu);
            if mtu < needed {
                return Err(RigError::Unfit(format!(
                    "frames of {frame_bytes} bytes need an MTU of {needed} on {}, which has {mtu} (ip link set {} mtu {needed})",
                    port.name, port.name
                )));
            }
        }
        Ok(())
    }

    fn has_zero_copy(&self) -> bool {
        let is_zero_copy = |door: &Arc<Mutex<Door>>| {
            let door = door.lock().unwrap_or_else(PoisonError::into_inner);
            matches!(&*door, Door::AfXdp(socket) if socket.is_zero_copy())
        };
        !self.sockets.is_empty() && self.sockets.values().all(is_zero_copy)
    }

    /// The AF_XDP socket of a sending core on a port, for frames of up to `length` bytes without FCS.
    fn socket(&mut self, lane: usize, port: usize, length: u16) -> Result<Arc<Mutex<Door>>, RigError> {
        let queue = u32::try_from(lane).unwrap_or(u32::MAX);
        if let Some(door) = self.sockets.get(&(lane, port)) {
            let open = door.lock().unwrap_or_else(PoisonError::into_inner);
            if matches!(&*open, Door::AfXdp(socket) if socket.takes(length)) {
                return Ok(Arc::clone(door));
            }
        }
        // A queue has one socket.
        self.sockets.remove(&(lane, port));
        let since = Instant::now();
        let opened = loop {
            match AfXdp::open(&self.ports[port], queue, length) {
                Err(why) if why.raw_os_error() == Some(libc::EBUSY) && since.elapsed() < QUEUE_PATIENCE => {
                    thread::sleep(Duration::from_millis(5));
                }
                other => break other,
            }
        };
        let name = self.ports[port].name.clone();
        let socket = opened.map_err(|source| RigError::AfXdp { name, queue, source })?;
        let door = Arc::new(Mutex::new(Door::AfXdp(Box::new(socket))));
        self.sockets.insert((lane, port), Arc::clone(&door));
        Ok(door)
    }

    /// How the frames that one core sends reach their ports.
    ///
    /// # Errors
    /// If a socket cannot be opened.
    pub(crate) fn open(&mut self, lane: usize, directions: &[Option<&Direction>; 2]) -> Result<Exit, RigError> {
        if self.sending.means == Means::LiveFrames {
            return Ok(Exit::Kernel);
        }
        let mut doors = [None, None];
        for (port, direction) in directions.iter().enumerate() {
            let Some(direction) = direction else { continue };
            let length = direction.longest_bytes() - FCS;
            doors[port] = Some(match self.sending.means {
                Means::AfXdp => {
                    let door = self.socket(lane, port, length)?;
                    if let Door::AfXdp(socket) = &mut *door.lock().unwrap_or_else(PoisonError::into_inner) {
                        socket.begin(length).map_err(|source| RigError::Send { source })?;
                    }
                    door
                }
                _ => {
                    let socket = PacketSocket::open(&self.ports[port]).map_err(|source| RigError::Send { source })?;
                    let headers = u16::try_from(TEMPLATE_BYTES).unwrap_or(u16::MAX);
                    let frame = Template::page(length.max(headers));
                    Arc::new(Mutex::new(Door::Packet { socket, frame }))
                }
            });
        }
        self.sending.is_zero_copy = self.has_zero_copy();
        Ok(Exit::UserSpace(UserExit { lane, made: Arc::clone(&self.made), doors }))
    }
}

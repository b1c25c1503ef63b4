//! The tester's packet generator and receiver, in the kernel.
//!
//! Frames are made by an XDP program that the kernel runs once a frame (`BPF_PROG_TEST_RUN` with
//! live frames) and sent through the device that it redirects them to; XDP programs on the tester's
//! two ports check and count what comes back. So one core makes and checks millions of frames a
//! second on any Linux interface with XDP, veth included, and both ends read the same clock. Where
//! the device takes no redirected frames, or a frame is longer than a page, the same program makes
//! bursts that leave through AF_XDP or packet sockets ([`Means`]).
//!
//! ```text
//!   generate (one a core) --> left port --> gateway --> right port --> receive_right     direction 0, forward
//!                receive_left <-- left port <-- gateway <-- right port <-- generate      direction 1, reverse
//! ```
//!
//! [`Rig`] owns the programs and the memory that they share with this process; [`Rig::run`] plays
//! one [`Exchange`] and returns what was sent and what arrived. What a run *means* (throughput, a
//! search, a verdict) is the business of `tombolo-tester`. All unsafe code of the tester lives
//! here: mapping BPF arrays, the `bpf(2)` call that aya has not, AF_XDP, counters of cores.

mod af_xdp;
mod bitmap;
mod capacity;
mod core_counters;
mod core_watch;
mod error;
mod exchange;
mod exits;
mod frame;
mod interface;
mod layout;
mod lead;
mod link;
mod mapped;
mod means;
mod namespace;
mod outcome;
mod packet_socket;
mod patience;
mod permutation;
mod port;
mod programs;
mod realtime;
mod rig;
mod sender;
mod streams;
mod test_run;
mod transport;
mod undo;
mod xdp_features;

pub use bitmap::{Bitmap, Run};
pub use capacity::Capacity;
pub use core_counters::{CoreCounters, CoreWork};
pub use core_watch::{Absence, CoreWatch};
pub use error::RigError;
pub use exchange::{
    Answer, Background, Direction, Exchange, HeaderRule, LinkRule, Order, Pace, PortRule, SourceRule, TIMED_FRAMES_MAX,
    Timed, Timing,
};
pub use exits::PortXdp;
pub use frame::{Ends, Template, checksum};
pub use interface::Interface;
pub use layout::{Endpoint, FrameError, FrameKind, Pause, Record, TupleShape};
pub use link::{Counted, link_address, port_counters};
pub use means::{LONGEST_FRAME, LONGEST_LIVE_FRAME, Means, Sending};
pub use namespace::{Namespace, in_namespace};
pub use outcome::{Arrivals, Delays, Departures, DirectionOutcome, Outcome};
pub use packet_socket::PacketSocket;
pub use permutation::Permutation;
pub use port::Port;
pub use realtime::{Unlimited, become_realtime, become_round_robin};
pub use rig::Rig;
pub use sender::{monotonic_ns, pin_to};
pub use transport::{TcpHeader, Transport};
pub use undo::Undo;
pub use xdp_features::XdpFeatures;

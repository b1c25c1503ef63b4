//! Every system call of the gateway: TUN queues, the threads that serve them, memory for the
//! tables, the host's links, addresses and routes, and capture files.
//!
//! A packet meets the modules in this order: [`worker`] wakes up and asks a [`queue`] for it;
//! [`vnet`] says what the kernel left to be done on it; the handler decides; [`merge`] puts segments of TCP
//! together, and [`queue`] sends it back. [`tun`] makes the device, [`host`] routes packets to it.
//! [`privileges`] gives up what is not needed once all of that is done; [`supervisor`] tells whoever started
//! the process.
//!
//! The crate decides nothing about packets, and is the only one besides the tables and the
//! accelerator that holds `unsafe`: in small blocks, each with its reason.

pub mod background;
pub mod clock;
pub mod fault;
pub mod former;
pub mod host;
pub mod links;
pub mod local_ports;
pub mod mapping;
pub mod memory;
pub mod merge;
pub mod netfilter;
pub mod netlink;
pub mod observer;
pub mod path_probe;
pub mod pcap;
pub mod port_socket;
pub mod privileges;
pub mod queue;
mod readable;
pub mod resolver;
pub mod router;
pub mod rtnl;
pub mod supervisor;
pub mod tun;
pub mod vnet;
pub mod worker;

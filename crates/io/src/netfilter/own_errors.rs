//! ICMP errors of the host's own kernel about packets for hosts inside go through the device.
//!
//! What a NAT44 has given an inside address the kernel forwards, and it may refuse it: hop limit used up, larger than the
//! link. Its error would go to the remote as it is, and quote a packet of which the remote knows nothing. With the
//! host inside as its source it is diverted to the device as all that hosts inside send, and leaves with the outside address
//! as an error of a router inside does (RFC 5508 REQ-5).
//!
//! ```text
//! table inet tombolo-DEVICE-errors      # owned by the process: the kernel removes it when that ends
//!   chain output                        # type route, hook output
//!     ip daddr A-B accept               # hosts inside, and destinations that they reach with their own addresses
//!     icmp type 3 @th,192,32 A-B ip saddr set @th,192,32     # about a packet to a host inside; the same for 11 and 12
//! ```

use std::io;
use std::net::Ipv4Addr;

use libc::{NF_ACCEPT, NF_INET_LOCAL_OUT, NFPROTO_IPV4};

use super::batch::NfSocket;
use super::expression::Rule;
use super::{OWN, add_chain_of, add_rule, add_table};

const OUTPUT: &str = "output";
/// Where others have rules that change packets.
const PRIORITY: i32 = -150;
/// Destination unreachable, time exceeded, parameter problem (RFC 792).
const ERRORS: [u8; 3] = [3, 11, 12];

/// A range of addresses, first and last.
type Range = (Ipv4Addr, Ipv4Addr);

/// As long as it is there, these errors go the way of what hosts inside send.
#[derive(Debug)]
pub struct OwnErrors {
    /// The table goes with it.
    _socket: NfSocket,
    /// Hosts inside, and what they reach as they are.
    ranges: (Vec<Range>, Vec<Range>),
}

impl OwnErrors {
    /// Asks for it in the network namespace of the calling thread, for the gateway of `device`, whose hosts are `inside` and
    /// reach each other and `exempt` with their own addresses.
    ///
    /// # Errors
    /// What the kernel says: it may lack nf_tables (CONFIG_NF_TABLES_INET).
    pub fn divert(device: &str, inside: Vec<Range>, exempt: Vec<Range>) -> io::Result<Self> {
        let (mut socket, table) = (NfSocket::open()?, format!("{OWN}{device}-errors"));
        let mut batch = socket.begin();
        add_table(&mut batch, &table);
        add_chain_of("route", &mut batch, &table, OUTPUT, NF_INET_LOCAL_OUT, PRIORITY);
        let of_ipv4 = || Rule::new().of_family(NFPROTO_IPV4);
        for &(first, last) in inside.iter().chain(&exempt) {
            add_rule(&mut batch, &table, OUTPUT, &of_ipv4().goes_to_hosts(first, last).verdict(NF_ACCEPT, None));
        }
        for &(first, last) in &inside {
            for kind in ERRORS {
                let about = of_ipv4().of_icmp(kind).quotes_packet_to(first, last);
                add_rule(&mut batch, &table, OUTPUT, &about.comes_from_quoted_destination());
            }
        }
        socket.commit(batch)?;
        Ok(Self { _socket: socket, ranges: (inside, exempt) })
    }

    /// True if it is for these.
    pub(crate) fn is_for(&self, inside: &[Range], exempt: &[Range]) -> bool {
        self.ranges.0 == inside && self.ranges.1 == exempt
    }
}

//! Fragments become whole before they are routed: of a fragment the kernel's rules do not see the ports.
//!
//! The kernel does that as long as something needs it: connection tracking, or a rule that looks for a socket.
//! Such a rule, which no packet ever matches, costs less than tracking. On the way out the kernel makes
//! fragments again, as large as they were.
//!
//! ```text
//! table inet tombolo-DEVICE-whole       # owned by the process: the kernel removes it when that ends
//!   chain prerouting                    # hook prerouting
//!     nfproto ipv4 iifname / tproxy to :1
//! ```

use std::io;

use libc::{NF_INET_PRE_ROUTING, NFPROTO_IPV4};

use super::batch::NfSocket;
use super::expression::{Compare, Rule};
use super::{OWN, add_base_chain, add_rule, add_table};

const PREROUTING: &str = "prerouting";
/// Where others have rules that change packets.
const PRIORITY: i32 = -150;
/// No interface can have this name.
const NONE: &str = "/";

/// As long as it is there, fragments of IPv4 become whole before they are routed.
#[derive(Debug)]
pub struct WholePackets {
    /// The table goes with it.
    _socket: NfSocket,
}

impl WholePackets {
    /// Asks for it in the network namespace of the calling thread, for the gateway of `device`.
    ///
    /// # Errors
    /// What the kernel says: it may lack nf_tables (CONFIG_NF_TABLES_INET, CONFIG_NFT_TPROXY).
    pub fn ask(device: &str) -> io::Result<Self> {
        let (mut socket, table) = (NfSocket::open()?, format!("{OWN}{device}-whole"));
        let mut batch = socket.begin();
        add_table(&mut batch, &table);
        add_base_chain(&mut batch, &table, PREROUTING, NF_INET_PRE_ROUTING, PRIORITY);
        let never = Rule::new().of_family(NFPROTO_IPV4).comes_in_by(Compare::Same, NONE).goes_to_socket_at(1);
        add_rule(&mut batch, &table, PREROUTING, &never);
        socket.commit(batch)?;
        Ok(Self { _socket: socket })
    }
}

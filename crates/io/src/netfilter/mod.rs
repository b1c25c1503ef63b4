//! What comes from inside must come in where its sender is (RFC 3704, BCP 84): a rule of nftables
//! drops what is routed to the device from elsewhere.
//!
//! The engine cannot know: a TUN device does not tell where a packet came in. The kernel does that
//! for IPv4 if `rp_filter` is set, and for IPv6 not at all. So the gateway has a table of its own:
//!
//! ```text
//! table inet tombolo-DEVICE            # owned by the process: the kernel removes it when that ends
//!   counter spoofed
//!   chain forward                      # hook forward
//!     oifname != DEVICE accept         # not for the gateway
//!     ip6 daddr P accept               # to a customer's edge: IPv6 is its outside
//!     nfproto ipv6 jump entrance       # to a provider's service: IPv6 is its inside
//!     ip saddr A-B jump entrance       # hosts inside
//!   chain entrance
//!     fib saddr . iif oif != 0 return  # or, if interfaces are listed: iifname X return
//!     counter spoofed drop
//! ```
//!
//! * `foreign`: rules of others, which do not see what the fast path takes. `tracer`: which of them drops a
//!   packet. `chain`: their names, and how packets are let in. `whole`: fragments become whole before they are routed.
//! * `batch`: messages of nfnetlink, several in one transaction. `expression`: what rules are made
//!   of.

mod batch;
mod chain;
mod expression;
mod foreign;
mod tracer;
mod whole;

use std::io;
use std::net::Ipv4Addr;

use ipnet::Ipv6Net;
use libc::{
    NF_ACCEPT, NF_DROP, NF_INET_FORWARD, NFPROTO_IPV4, NFPROTO_IPV6, NFT_JUMP, NFT_MSG_DELRULE, NFT_MSG_GETOBJ,
    NFT_MSG_NEWCHAIN, NFT_MSG_NEWOBJ, NFT_MSG_NEWRULE, NFT_MSG_NEWTABLE, NFT_RETURN,
};
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE};

pub use chain::{Chain, Selector, admission_by};
pub use foreign::ForeignRules;
pub use tracer::{Dropped, Tracer};
pub use whole::WholePackets;

use batch::{Attributes, Batch, NfSocket};
use expression::{Compare, Rule};

/// Attributes of tables, chains, rules and objects (`linux/netfilter/nf_tables.h`).
const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_USE: u16 = 6;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const OBJECT_TABLE: u16 = 1;
const OBJECT_NAME: u16 = 2;
const OBJECT_TYPE: u16 = 3;
const OBJECT_DATA: u16 = 4;
const COUNTER_PACKETS: u16 = 2;
/// The table is its socket's, and goes with it. Linux 5.12.
const TABLE_OWNED: u32 = 2;

/// What the names of gateways' tables begin with.
const OWN: &str = "tombolo-";
const FORWARD: &str = "forward";
const ENTRANCE: &str = "entrance";
const COUNTER: &str = "spoofed";
/// Before the chains of firewalls, which are at 0.
const PRIORITY: i32 = -10;

/// Where packets from inside come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entrance {
    /// Through the interface that their source is routed to.
    ByRoute,
    /// Through these.
    Listed(Vec<String>),
}

/// Which packets come from inside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InsidePackets {
    /// Those of IPv6, but for `outside_ipv6`.
    pub ipv6: bool,
    /// Destinations of IPv6 packets that come from outside: customers' edges.
    pub outside_ipv6: Vec<Ipv6Net>,
    /// Sources of those of IPv4, first and last.
    pub ipv4: Vec<(Ipv4Addr, Ipv4Addr)>,
}

/// The table in the kernel, until it is dropped or the process ends.
#[derive(Debug)]
pub struct SourceGuard {
    socket: NfSocket,
    table: String,
    device: String,
    entrance: Entrance,
    packets: InsidePackets,
}

impl SourceGuard {
    /// Makes the table, in the network namespace of the calling thread: what is routed to `device` is
    /// looked at.
    ///
    /// # Errors
    /// What the kernel says: it may lack nf_tables (CONFIG_NF_TABLES_INET, CONFIG_NFT_FIB_INET).
    pub fn raise(device: &str, packets: InsidePackets, entrance: Entrance) -> io::Result<Self> {
        let (socket, table) = (NfSocket::open()?, format!("{OWN}{device}"));
        let mut guard = Self { socket, table, device: device.to_owned(), entrance, packets };
        let mut batch = guard.socket.begin();
        let table = guard.table.as_str();
        add_table(&mut batch, table);
        batch.message(NFT_MSG_NEWOBJ, NLM_F_CREATE, |message| {
            message.text(OBJECT_TABLE, table);
            message.text(OBJECT_NAME, COUNTER);
            message.number(OBJECT_TYPE, expression::COUNTER);
            message.nested(OBJECT_DATA, |_| ());
        });
        batch.message(NFT_MSG_NEWCHAIN, NLM_F_CREATE, |message| {
            message.text(CHAIN_TABLE, table);
            message.text(CHAIN_NAME, ENTRANCE);
        });
        add_base_chain(&mut batch, table, FORWARD, NF_INET_FORWARD, PRIORITY);
        rules(&mut batch, table, device, &guard.packets, &guard.entrance);
        guard.socket.commit(batch)?;
        Ok(guard)
    }

    /// Looks at other packets, or has them come in elsewhere, from now on; none passes meanwhile that would pass neither before nor
    /// after.
    ///
    /// # Errors
    /// What the kernel says: the rules are as before.
    pub fn follow(&mut self, packets: InsidePackets, entrance: Entrance) -> io::Result<()> {
        if (&packets, &entrance) == (&self.packets, &self.entrance) {
            return Ok(());
        }
        let mut batch = self.socket.begin();
        batch.message(NFT_MSG_DELRULE, 0, |message| message.text(RULE_TABLE, &self.table));
        rules(&mut batch, &self.table, &self.device, &packets, &entrance);
        self.socket.commit(batch)?;
        (self.packets, self.entrance) = (packets, entrance);
        Ok(())
    }

    /// Packets that were dropped.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn dropped(&mut self) -> io::Result<u64> {
        let table = &self.table;
        let answer = self.socket.ask(NFT_MSG_GETOBJ, |message| {
            message.text(OBJECT_TABLE, table);
            message.text(OBJECT_NAME, COUNTER);
            message.number(OBJECT_TYPE, expression::COUNTER);
        })?;
        let data = Attributes::of(&answer).find(OBJECT_DATA);
        let packets = data.and_then(|data| Attributes::of(data).find(COUNTER_PACKETS));
        let packets = packets.and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
        packets.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the kernel's counter has no packets"))
    }
}

/// A table that is its socket's.
fn add_table(batch: &mut Batch, table: &str) {
    batch.message(NFT_MSG_NEWTABLE, NLM_F_CREATE, |message| {
        message.text(TABLE_NAME, table);
        message.number(TABLE_FLAGS, TABLE_OWNED);
    });
}

/// A chain at a hook, which accepts what none of its rules drops.
fn add_base_chain(batch: &mut Batch, table: &str, chain: &str, hook: i32, priority: i32) {
    batch.message(NFT_MSG_NEWCHAIN, NLM_F_CREATE, |message| {
        message.text(CHAIN_TABLE, table);
        message.text(CHAIN_NAME, chain);
        message.text(CHAIN_TYPE, "filter");
        message.nested(CHAIN_HOOK, |place| {
            place.number(HOOK_NUMBER, hook.cast_unsigned());
            place.number(HOOK_PRIORITY, priority.cast_unsigned());
        });
        message.number(CHAIN_POLICY, NF_ACCEPT.cast_unsigned());
    });
}

fn add_rule(batch: &mut Batch, table: &str, chain: &str, rule: &Rule) {
    batch.message(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, |message| {
        message.text(RULE_TABLE, table);
        message.text(RULE_CHAIN, chain);
        message.nested(RULE_EXPRESSIONS, |list| rule.write(list));
    });
}

fn rules(batch: &mut Batch, table: &str, device: &str, packets: &InsidePackets, entrance: &Entrance) {
    let mut add = |chain: &str, rule: Rule| add_rule(batch, table, chain, &rule);
    add(FORWARD, Rule::new().leaves_by(Compare::Other, device).verdict(NF_ACCEPT, None));
    for prefix in &packets.outside_ipv6 {
        add(FORWARD, Rule::new().of_family(NFPROTO_IPV6).goes_to(*prefix).verdict(NF_ACCEPT, None));
    }
    if packets.ipv6 {
        add(FORWARD, Rule::new().of_family(NFPROTO_IPV6).verdict(NFT_JUMP, Some(ENTRANCE)));
    }
    for (first, last) in &packets.ipv4 {
        add(FORWARD, Rule::new().of_family(NFPROTO_IPV4).comes_from(*first, *last).verdict(NFT_JUMP, Some(ENTRANCE)));
    }
    match entrance {
        Entrance::ByRoute => add(ENTRANCE, Rule::new().comes_by_its_route().verdict(NFT_RETURN, None)),
        Entrance::Listed(names) => {
            // What services of the gateway hand to each other.
            for name in names.iter().map(String::as_str).chain([device]) {
                add(ENTRANCE, Rule::new().comes_in_by(Compare::Same, name).verdict(NFT_RETURN, None));
            }
        }
    }
    add(ENTRANCE, Rule::new().count(COUNTER).verdict(NF_DROP, None));
}

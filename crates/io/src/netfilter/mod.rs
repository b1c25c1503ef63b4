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
//!     ip6 daddr Q goto entrance-NAME   # to a service with an entrance of its own
//!     nfproto ipv6 goto entrance       # to a provider's service: IPv6 is its inside
//!     ip saddr A-B goto entrance       # hosts inside
//!   chain entrance
//!     fib saddr . iif oif != 0 return  # or, if interfaces are listed: iifname X return
//!     counter spoofed drop
//! ```
//!
//! * `foreign`: rules of others, which do not see what the fast path takes. `tracer`: which of them drops a
//!   packet. `chain`: their names, and how packets are let in. `whole`: fragments become whole before they are routed.
//! * `own_errors`: ICMP errors of the kernel about packets for hosts inside.
//! * `batch`: messages of nfnetlink, several in one transaction. `expression`: what rules are made
//!   of.

mod batch;
mod chain;
mod expression;
mod foreign;
mod own_errors;
mod tracer;
mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;

use ipnet::Ipv6Net;
use libc::{
    NF_ACCEPT, NF_DROP, NF_INET_FORWARD, NFPROTO_IPV4, NFPROTO_IPV6, NFT_GOTO, NFT_MSG_DELCHAIN, NFT_MSG_DELRULE,
    NFT_MSG_GETOBJ, NFT_MSG_NEWCHAIN, NFT_MSG_NEWOBJ, NFT_MSG_NEWRULE, NFT_MSG_NEWTABLE, NFT_RETURN,
};
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE};

pub use chain::{Chain, Selector, admission_by};
pub use foreign::ForeignRules;
pub use own_errors::OwnErrors;
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

/// Where the packets of each service come in; `None` where it does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entrances {
    /// Of services without one of their own.
    pub others: Option<Entrance>,
    /// Of the rest, by name.
    pub own: BTreeMap<String, Option<Entrance>>,
}

impl Entrances {
    /// That of a service.
    #[must_use]
    pub fn of(&self, service: &str) -> Option<&Entrance> {
        self.own.get(service).unwrap_or(&self.others).as_ref()
    }

    /// It does not matter where packets come in.
    #[must_use]
    pub fn are_open(&self) -> bool {
        self.others.is_none() && self.own.values().all(Option::is_none)
    }
}

/// Which packets come from inside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InsidePackets {
    /// Destinations of IPv6 packets that come from outside: customers' edges.
    pub outside_ipv6: Vec<Ipv6Net>,
    /// Those of some services; the first one that has a packet counts.
    pub apart: Vec<ServicePackets>,
    /// All others of IPv6.
    pub ipv6: bool,
    /// Sources of the others of IPv4, first and last.
    pub ipv4: Vec<(Ipv4Addr, Ipv4Addr)>,
}

/// Which packets come from the inside of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePackets {
    /// Its name.
    pub service: String,
    /// Destinations of those of IPv6.
    pub ipv6: Vec<Ipv6Net>,
    /// Sources of those of IPv4, first and last.
    pub ipv4: Vec<(Ipv4Addr, Ipv4Addr)>,
}

impl InsidePackets {
    /// The chains that they go to, besides the one of all.
    fn chains(&self) -> BTreeSet<String> {
        self.apart.iter().map(ServicePackets::chain).collect()
    }
}

impl ServicePackets {
    fn chain(&self) -> String {
        format!("{ENTRANCE}-{}", self.service)
    }
}

/// The table in the kernel, until it is dropped or the process ends.
#[derive(Debug)]
pub struct SourceGuard {
    socket: NfSocket,
    table: String,
    device: String,
    entrances: Entrances,
    packets: InsidePackets,
}

impl SourceGuard {
    /// Makes the table, in the network namespace of the calling thread: what is routed to `device` is
    /// looked at.
    ///
    /// # Errors
    /// What the kernel says: it may lack nf_tables (CONFIG_NF_TABLES_INET, CONFIG_NFT_FIB_INET).
    pub fn raise(device: &str, packets: InsidePackets, entrances: Entrances) -> io::Result<Self> {
        let (socket, table) = (NfSocket::open()?, format!("{OWN}{device}"));
        let mut guard = Self { socket, table, device: device.to_owned(), entrances, packets };
        let mut batch = guard.socket.begin();
        let table = guard.table.as_str();
        add_table(&mut batch, table);
        batch.message(NFT_MSG_NEWOBJ, NLM_F_CREATE, |message| {
            message.text(OBJECT_TABLE, table);
            message.text(OBJECT_NAME, COUNTER);
            message.number(OBJECT_TYPE, expression::COUNTER);
            message.nested(OBJECT_DATA, |_| ());
        });
        change_chain(&mut batch, NFT_MSG_NEWCHAIN, table, ENTRANCE);
        add_base_chain(&mut batch, table, FORWARD, NF_INET_FORWARD, PRIORITY);
        rules(&mut batch, table, device, &guard.packets, &guard.entrances);
        guard.socket.commit(batch)?;
        Ok(guard)
    }

    /// Looks at other packets, or has them come in elsewhere, from now on; none passes meanwhile that would pass neither before nor
    /// after.
    ///
    /// # Errors
    /// What the kernel says: the rules are as before.
    pub fn follow(&mut self, packets: InsidePackets, entrances: Entrances) -> io::Result<()> {
        if (&packets, &entrances) == (&self.packets, &self.entrances) {
            return Ok(());
        }
        let mut batch = self.socket.begin();
        batch.message(NFT_MSG_DELRULE, 0, |message| message.text(RULE_TABLE, &self.table));
        for chain in self.packets.chains() {
            change_chain(&mut batch, NFT_MSG_DELCHAIN, &self.table, &chain);
        }
        rules(&mut batch, &self.table, &self.device, &packets, &entrances);
        self.socket.commit(batch)?;
        (self.packets, self.entrances) = (packets, entrances);
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
    add_chain_of("filter", batch, table, chain, hook, priority);
}

/// The same of another type than `filter`: `route` has packets routed anew that its rules change.
fn add_chain_of(kind: &str, batch: &mut Batch, table: &str, chain: &str, hook: i32, priority: i32) {
    batch.message(NFT_MSG_NEWCHAIN, NLM_F_CREATE, |message| {
        message.text(CHAIN_TABLE, table);
        message.text(CHAIN_NAME, chain);
        message.text(CHAIN_TYPE, kind);
        message.nested(CHAIN_HOOK, |place| {
            place.number(HOOK_NUMBER, hook.cast_unsigned());
            place.number(HOOK_PRIORITY, priority.cast_unsigned());
        });
        message.number(CHAIN_POLICY, NF_ACCEPT.cast_unsigned());
    });
}

/// Makes a chain that others go to, or removes it.
fn change_chain(batch: &mut Batch, message: i32, table: &str, chain: &str) {
    batch.message(message, if message == NFT_MSG_NEWCHAIN { NLM_F_CREATE } else { 0 }, |message| {
        message.text(CHAIN_TABLE, table);
        message.text(CHAIN_NAME, chain);
    });
}

fn add_rule(batch: &mut Batch, table: &str, chain: &str, rule: &Rule) {
    batch.message(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, |message| {
        message.text(RULE_TABLE, table);
        message.text(RULE_CHAIN, chain);
        message.nested(RULE_EXPRESSIONS, |list| rule.write(list));
    });
}

fn rules(batch: &mut Batch, table: &str, device: &str, packets: &InsidePackets, entrances: &Entrances) {
    add_rule(batch, table, FORWARD, &Rule::new().leaves_by(Compare::Other, device).verdict(NF_ACCEPT, None));
    for prefix in &packets.outside_ipv6 {
        add_rule(batch, table, FORWARD, &to_prefix(*prefix).verdict(NF_ACCEPT, None));
    }
    for service in &packets.apart {
        let chain = service.chain();
        change_chain(batch, NFT_MSG_NEWCHAIN, table, &chain);
        for prefix in &service.ipv6 {
            add_rule(batch, table, FORWARD, &to_prefix(*prefix).verdict(NFT_GOTO, Some(&chain)));
        }
        for sources in &service.ipv4 {
            add_rule(batch, table, FORWARD, &from_hosts(*sources).verdict(NFT_GOTO, Some(&chain)));
        }
        if let Some(entrance) = entrances.of(&service.service) {
            guard(batch, table, &chain, device, entrance);
        }
    }
    if let Some(entrance) = &entrances.others {
        if packets.ipv6 {
            add_rule(batch, table, FORWARD, &Rule::new().of_family(NFPROTO_IPV6).verdict(NFT_GOTO, Some(ENTRANCE)));
        }
        for sources in &packets.ipv4 {
            add_rule(batch, table, FORWARD, &from_hosts(*sources).verdict(NFT_GOTO, Some(ENTRANCE)));
        }
        guard(batch, table, ENTRANCE, device, entrance);
    }
}

fn to_prefix(prefix: Ipv6Net) -> Rule {
    Rule::new().of_family(NFPROTO_IPV6).goes_to(prefix)
}

fn from_hosts((first, last): (Ipv4Addr, Ipv4Addr)) -> Rule {
    Rule::new().of_family(NFPROTO_IPV4).comes_from(first, last)
}

/// Has a chain drop what does not come in by the entrance.
fn guard(batch: &mut Batch, table: &str, chain: &str, device: &str, entrance: &Entrance) {
    match entrance {
        Entrance::ByRoute => add_rule(batch, table, chain, &Rule::new().comes_by_its_route().verdict(NFT_RETURN, None)),
        Entrance::Listed(names) => {
            // What services of the gateway hand to each other.
            for name in names.iter().map(String::as_str).chain([device]) {
                add_rule(batch, table, chain, &Rule::new().comes_in_by(Compare::Same, name).verdict(NFT_RETURN, None));
            }
        }
    }
    add_rule(batch, table, chain, &Rule::new().count(COUNTER).verdict(NF_DROP, None));
}

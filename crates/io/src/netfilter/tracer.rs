//! Which chain drops a packet, and by which rule: the kernel tells of packets that are marked for it
//! (`meta nftrace`, as `nft monitor trace` shows it).
//!
//! ```text
//! table inet tombolo-doctor-PID        # owned by the process: the kernel removes it when that ends
//!   chain marks                        # hook prerouting, before all others
//!     meta l4proto udp, ports A B: nftrace set 1
//!     meta l4proto udp, ports B A: nftrace set 1
//! ```

use std::io;

use libc::{
    NF_DROP, NF_INET_FORWARD, NF_INET_PRE_ROUTING, NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTRACE, NFT_MSG_GETCHAIN,
    NFT_MSG_TRACE,
};
use netlink_sys::Socket;

use super::batch::{Attributes, GENERAL, HEADER, NETLINK_NETFILTER, NfSocket, header};
use super::chain::Chain;
use super::expression::Rule;
use super::{CHAIN_HOOK, CHAIN_NAME, CHAIN_TABLE, HOOK_NUMBER, OWN, add_base_chain, add_rule, add_table};

const MARKS: &str = "marks";
/// Before defragmentation (-400) and all that others have.
const PRIORITY: i32 = -450;

/// `enum nft_trace_attributes`.
const TRACE_TABLE: u16 = 1;
const TRACE_CHAIN: u16 = 2;
const TRACE_RULE: u16 = 3;
const TRACE_TYPE: u16 = 4;
const TRACE_VERDICT: u16 = 5;
const TRACE_POLICY: u16 = 16;
const VERDICT_CODE: u16 = 1;
/// `enum nft_trace_types`.
const BY_POLICY: u32 = 1;
const BY_RULE: u32 = 3;

/// Has packets traced for as long as it is not dropped.
#[derive(Debug)]
pub struct Tracer {
    /// The table is the socket's.
    socket: NfSocket,
    events: Socket,
}

/// A packet that was traced ended here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// In this chain.
    pub chain: Chain,
    /// By the rule with this number (`nft -a list ruleset`); else since none accepts it.
    pub rule: Option<u64>,
    /// The chain is where packets are forwarded: by then it is known where they leave.
    pub is_routed: bool,
}

impl Tracer {
    /// Traces UDP between two ports, in both directions, in the network namespace of the calling
    /// thread.
    ///
    /// # Errors
    /// What the kernel says: it may lack nf_tables.
    pub fn raise(ports: [u16; 2]) -> io::Result<Self> {
        let mut events = Socket::new(NETLINK_NETFILTER)?;
        events.bind_auto()?;
        events.set_non_blocking(true)?;
        events.add_membership(NFNLGRP_NFTRACE.cast_unsigned())?;
        let mut socket = NfSocket::open()?;
        let table = format!("{OWN}doctor-{}", std::process::id());
        let mut batch = socket.begin();
        add_table(&mut batch, &table);
        add_base_chain(&mut batch, &table, MARKS, NF_INET_PRE_ROUTING, PRIORITY);
        let [one, other] = ports;
        add_rule(&mut batch, &table, MARKS, &Rule::new().between_udp_ports(one, other).traced());
        add_rule(&mut batch, &table, MARKS, &Rule::new().between_udp_ports(other, one).traced());
        socket.commit(batch)?;
        Ok(Self { socket, events })
    }

    /// Where packets were dropped since the last call. Does not wait.
    pub fn dropped(&mut self) -> Vec<Dropped> {
        let mut found = Vec::new();
        // Events that were lost are not missed: there are few.
        while let Ok((datagram, _)) = self.events.recv_from_full() {
            let mut rest = datagram.as_slice();
            while let Some((length, kind, _)) = header(rest) {
                let body = rest.get(HEADER..length).unwrap_or_default();
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                if i32::from(kind) == NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_TRACE {
                    let family = body.first().copied().unwrap_or_default();
                    found.extend(Dropped::read(family, Attributes::of(body.get(GENERAL..).unwrap_or_default())));
                }
            }
        }
        for dropped in &mut found {
            dropped.is_routed = self.is_behind_routing(&dropped.chain).unwrap_or(false);
        }
        found
    }

    /// The event itself has not always told where the packet leaves.
    fn is_behind_routing(&mut self, chain: &Chain) -> io::Result<bool> {
        let chains = self.socket.list(NFT_MSG_GETCHAIN)?;
        let hooks = chains.iter().filter_map(|(family, attributes)| {
            let attributes = Attributes::of(attributes);
            let found = Chain::of(*family, attributes.text(CHAIN_TABLE)?, attributes.text(CHAIN_NAME)?)?;
            let hook = Attributes::of(attributes.find(CHAIN_HOOK)?).number(HOOK_NUMBER)?.cast_signed();
            ((&found.family, &found.table) == (&chain.family, &chain.table)).then_some((found, hook))
        });
        let hooks: Vec<(Chain, i32)> = hooks.collect();
        let of_its_own = hooks.iter().find(|(found, _)| found == chain).map(|(_, hook)| *hook);
        Ok(match of_its_own {
            Some(hook) => hook == NF_INET_FORWARD,
            None => hooks.iter().all(|(_, hook)| *hook == NF_INET_FORWARD),
        })
    }
}

impl Dropped {
    fn read(family: u8, event: Attributes<'_>) -> Option<Self> {
        let chain = Chain::of(family, event.text(TRACE_TABLE)?, event.text(TRACE_CHAIN)?)?;
        let (kind, dropped) = (event.number(TRACE_TYPE)?, Some(NF_DROP.cast_unsigned()));
        let verdict = event.find(TRACE_VERDICT).and_then(|verdict| Attributes::of(verdict).number(VERDICT_CODE));
        let rule = match kind {
            BY_POLICY if event.number(TRACE_POLICY) == dropped => None,
            BY_RULE if verdict == dropped => Some(u64::from_be_bytes(event.find(TRACE_RULE)?.try_into().ok()?)),
            _ => return None,
        };
        Some(Self { chain, rule, is_routed: false })
    }
}

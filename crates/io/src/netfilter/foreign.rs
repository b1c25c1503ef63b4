//! Rules of others that packets pass on their way through the kernel's stack: firewalls, and address
//! translation. What the fast path takes is never there.

use std::fs::File;
use std::io::{self, Read, Seek};

use libc::{
    NF_DROP, NF_INET_FORWARD, NF_INET_POST_ROUTING, NF_INET_PRE_ROUTING, NF_NETDEV_INGRESS, NFNLGRP_NFTABLES,
    NFPROTO_INET, NFPROTO_NETDEV, NFT_MSG_GETCHAIN,
};
use netlink_sys::Socket;

use super::batch::{Attributes, NETLINK_NETFILTER, NfSocket};
use super::chain::Chain;
use super::{CHAIN_HOOK, CHAIN_NAME, CHAIN_POLICY, CHAIN_TABLE, CHAIN_USE, HOOK_NUMBER, OWN};

/// The hook of `inet` chains that are at a device.
const INET_INGRESS: i32 = 5;
/// Tables that x_tables, the old machinery behind `iptables-legacy`, has in this namespace.
const LEGACY: [(&str, &str); 2] = [
    ("iptables-legacy", "/proc/thread-self/net/ip_tables_names"),
    ("ip6tables-legacy", "/proc/thread-self/net/ip6_tables_names"),
];

/// Looks for such rules in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct ForeignRules {
    socket: NfSocket,
    changes: Socket,
    legacy: [Option<File>; 2],
}

impl ForeignRules {
    /// # Errors
    /// What the kernel says: it may lack nf_tables.
    pub fn watch() -> io::Result<Self> {
        let mut changes = Socket::new(NETLINK_NETFILTER)?;
        changes.bind_auto()?;
        changes.set_non_blocking(true)?;
        changes.add_membership(NFNLGRP_NFTABLES.cast_unsigned())?;
        let legacy = LEGACY.map(|(_, path)| File::open(path).ok());
        Ok(Self { socket: NfSocket::open()?, changes, legacy })
    }

    /// Whether anything of nf_tables was changed since the last call. Does not wait. The old machinery
    /// does not tell.
    pub fn has_changed(&mut self) -> bool {
        let mut changed = false;
        loop {
            match self.changes.recv_from_full() {
                Ok(_) => changed = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return changed,
                // Too many to be announced.
                Err(_) => return true,
            }
        }
    }

    /// Where such rules are, in words: the first place that is found.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn find(&mut self) -> io::Result<Option<String>> {
        let chains = self.socket.list(NFT_MSG_GETCHAIN)?;
        let mut found = chains.iter().filter_map(|(family, chain)| Foreign::read(*family, Attributes::of(chain)));
        if let Some(foreign) = found.find(|foreign| foreign.rules > 0 || foreign.drops) {
            return Ok(Some(foreign.chain.to_string()));
        }
        Ok(self.legacy()?.first().map(|(program, table)| format!("table {table} of {program}")))
    }

    /// Chains that drop what is forwarded, unless one of their rules accepts it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn dropping(&mut self) -> io::Result<Vec<Chain>> {
        self.forwarding(|foreign| foreign.drops)
    }

    /// Chains that have rules for what is forwarded.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn filtering(&mut self) -> io::Result<Vec<Chain>> {
        self.forwarding(|foreign| foreign.rules > 0)
    }

    fn forwarding(&mut self, is_wanted: impl Fn(&Foreign) -> bool) -> io::Result<Vec<Chain>> {
        let chains = self.socket.list(NFT_MSG_GETCHAIN)?;
        let found = chains.iter().filter_map(|(family, chain)| Foreign::read(*family, Attributes::of(chain)));
        let found = found.filter(|foreign| foreign.hook == NF_INET_FORWARD && is_wanted(foreign));
        Ok(found.map(|foreign| foreign.chain).collect())
    }

    /// Tables of the old machinery, each with the program that shows it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn legacy(&mut self) -> io::Result<Vec<(&'static str, String)>> {
        let mut found = Vec::new();
        for ((program, path), file) in LEGACY.iter().zip(&mut self.legacy) {
            // It is there once there was a table.
            if file.is_none() {
                *file = File::open(path).ok();
            }
            let Some(file) = file else { continue };
            let mut tables = String::new();
            file.rewind()?;
            file.read_to_string(&mut tables)?;
            found.extend(tables.lines().map(|table| (*program, table.to_owned())));
        }
        Ok(found)
    }
}

/// A chain of somebody else that could drop or change what is forwarded: at a hook on the way.
struct Foreign {
    chain: Chain,
    hook: i32,
    rules: u32,
    /// What none of its rules accepts.
    drops: bool,
}

impl Foreign {
    fn read(family: u8, attributes: Attributes<'_>) -> Option<Self> {
        let chain = Chain::of(family, attributes.text(CHAIN_TABLE)?, attributes.text(CHAIN_NAME).unwrap_or_default())?;
        let hook = Attributes::of(attributes.find(CHAIN_HOOK)?).number(HOOK_NUMBER)?.cast_signed();
        let is_on_the_way = match i32::from(family) {
            NFPROTO_NETDEV => hook == NF_NETDEV_INGRESS,
            family => {
                [NF_INET_PRE_ROUTING, NF_INET_FORWARD, NF_INET_POST_ROUTING].contains(&hook)
                    || family == NFPROTO_INET && hook == INET_INGRESS
            }
        };
        let rules = attributes.number(CHAIN_USE).unwrap_or(0);
        let drops = attributes.number(CHAIN_POLICY) == Some(NF_DROP.cast_unsigned());
        (is_on_the_way && !chain.table.starts_with(OWN)).then_some(Self { chain, hook, rules, drops })
    }
}

//! Rules of others that packets pass on their way through the kernel's stack: firewalls, and address
//! translation. What the fast path takes is never there.

use std::fs::File;
use std::io::{self, Read, Seek};

use libc::{
    NF_DROP, NF_INET_FORWARD, NF_INET_POST_ROUTING, NF_INET_PRE_ROUTING, NF_NETDEV_INGRESS, NFNLGRP_NFTABLES,
    NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_NETDEV, NFT_MSG_GETCHAIN,
};
use netlink_sys::Socket;

use super::batch::{Attributes, NETLINK_NETFILTER, NfSocket};
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
        if let Some(chain) = chains.iter().find_map(|(family, chain)| filtering(*family, Attributes::of(chain))) {
            return Ok(Some(chain));
        }
        for ((program, path), file) in LEGACY.iter().zip(&mut self.legacy) {
            // It is there once there was a table.
            if file.is_none() {
                *file = File::open(path).ok();
            }
            let Some(file) = file else { continue };
            let mut tables = String::new();
            file.rewind()?;
            file.read_to_string(&mut tables)?;
            if let Some(table) = tables.lines().next() {
                return Ok(Some(format!("table {table} of {program}")));
            }
        }
        Ok(None)
    }
}

/// The name of a chain that could drop or change what is forwarded: at a hook on the way, with rules or
/// another policy than to accept, and of somebody else.
fn filtering(family: u8, chain: Attributes<'_>) -> Option<String> {
    let family_name = match i32::from(family) {
        NFPROTO_IPV4 => "ip",
        NFPROTO_IPV6 => "ip6",
        NFPROTO_INET => "inet",
        NFPROTO_NETDEV => "netdev",
        _ => return None,
    };
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_be_bytes).map(u32::cast_signed);
    let hook = Attributes::of(chain.find(CHAIN_HOOK)?).find(HOOK_NUMBER).and_then(number)?;
    let is_on_the_way = match i32::from(family) {
        NFPROTO_NETDEV => hook == NF_NETDEV_INGRESS,
        family => {
            [NF_INET_PRE_ROUTING, NF_INET_FORWARD, NF_INET_POST_ROUTING].contains(&hook)
                || family == NFPROTO_INET && hook == INET_INGRESS
        }
    };
    let rules = chain.find(CHAIN_USE).and_then(number).unwrap_or(0);
    let drops = chain.find(CHAIN_POLICY).and_then(number) == Some(NF_DROP);
    let table = text(chain.find(CHAIN_TABLE)?);
    (is_on_the_way && (rules > 0 || drops) && !table.starts_with(OWN))
        .then(|| format!("chain {} of table {family_name} {table}", text(chain.find(CHAIN_NAME).unwrap_or_default())))
}

/// Without the zero that it ends with.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.strip_suffix(&[0]).unwrap_or(bytes)).into_owned()
}

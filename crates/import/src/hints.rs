//! What is known of a gateway besides its file.

use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};

use crate::words;

/// What the file does not say.
#[derive(Debug, Clone, Default)]
pub struct Hints {
    /// The address of the outside interface: what masquerading stands for.
    pub outside: Option<Ipv4Addr>,
    /// Where those inside are.
    pub inside: Vec<IpNet>,
}

impl Hints {
    /// Where IPv4 hosts inside are; the private addresses (RFC 1918, RFC 6598) where that is not said.
    pub(crate) fn inside_ipv4(&self) -> Vec<Ipv4Net> {
        let said: Vec<Ipv4Net> =
            self.inside.iter().filter_map(|net| if let IpNet::V4(net) = net { Some(*net) } else { None }).collect();
        let private = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"];
        if said.is_empty() { private.iter().filter_map(|net| words::net(net)).collect() } else { said }
    }

    /// Where IPv6 hosts inside are; nowhere if that is not said.
    pub(crate) fn inside_ipv6(&self) -> Vec<&IpNet> {
        self.inside.iter().filter(|net| matches!(net, IpNet::V6(_))).collect()
    }

    pub(crate) fn says_inside(&self) -> bool {
        self.inside.iter().any(|net| matches!(net, IpNet::V4(_)))
    }
}

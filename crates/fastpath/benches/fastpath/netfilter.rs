//! The kernel's own NAT44, by rules of iptables or of nftables.

use std::path::Path;

use tombolo_lab::{Lab, Namespace};

use crate::contender::Kind;
use crate::population::Population;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Translates what leaves the gateway, with room for so many connections.
pub(crate) fn start(lab: &Lab, kind: Kind, connections: u64, population: Population) -> Result<()> {
    let wanted = (connections * 3 / 2).max(262_144).next_power_of_two().to_string();
    for path in ["/proc/sys/net/netfilter/nf_conntrack_max", "/sys/module/nf_conntrack/parameters/hashsize"] {
        lab.change_setting(Path::new(path), &wanted)?;
    }
    let node = lab.node("gateway")?;
    if kind == Kind::Nftables {
        nftables(node, population)?
    } else {
        iptables(node, population)?
    }
    for key in ["nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"] {
        node.set_sysctl(&format!("net.netfilter.{key}"), "10000")?;
    }
    Ok(())
}

fn iptables(node: &Namespace, population: Population) -> Result<()> {
    let (first, last) = population.pool();
    let pool = format!("{first}-{last}");
    let target = if first == last { vec!["MASQUERADE"] } else { vec!["SNAT", "--to-source", &pool] };
    let words = ["-t", "nat", "-A", "POSTROUTING", "-o", "outside0", "-j"];
    node.command("iptables").args(words).args(target).run()?.success()?;
    Ok(())
}

fn nftables(node: &Namespace, population: Population) -> Result<()> {
    let (first, last) = population.pool();
    let target = if first == last { "masquerade".to_owned() } else { format!("snat to {first}-{last}") };
    let chain = "type nat hook postrouting priority srcnat;";
    let rule = format!("oifname \"outside0\" {target}");
    let table = format!("table ip bench {{\nchain out {{\n{chain}\n{rule}\n}}\n}}\n");
    node.command("nft").arg(&table).run()?.success()?;
    Ok(())
}

//! Fragments of a datagram that routers bring to different nodes.

use tombolo_lab::skip_without;

use crate::boxes::Cluster;
use crate::running::{TOMBOLO, rows};

/// A router that spreads first fragments by their ports and the others without: to different nodes.
const APART: &str = "
    nft add table ip apart
    nft 'add chain ip apart fragments { type filter hook prerouting priority -350; }'
    nft 'add rule ip apart fragments iifname server0 ip frag-off & 0x1fff != 0 meta mark set 7'
    ip rule add pref 100 fwmark 7 lookup 107
    ip route add default via 198.18.0.2 table 107
    ip rule add pref 101 iif server0 lookup 108
    ip route add default via 198.18.0.1 table 108
";
const APART_INSIDE: &str = "
    nft add table ip6 apart
    nft 'add chain ip6 apart fragments { type filter hook prerouting priority -350; }'
    nft 'add rule ip6 apart fragments iifname home* frag frag-off != 0 meta mark set 7'
    ip -6 rule add pref 100 fwmark 7 lookup 107
    ip -6 route add default via 2001:db8:a::3 table 107
    ip -6 rule add pref 101 iif home1 lookup 108
    ip -6 rule add pref 101 iif home2 lookup 108
    ip -6 route add default via 2001:db8:a::1 table 108
";

#[test]
fn fragments_that_arrive_apart_meet() {
    if skip_without("fragments_that_arrive_apart_meet", &["bird", "ip", "nft", "ping"]) {
        return;
    }
    let cluster = Cluster::up();
    cluster.command("r2", &format!("set -e{APART}"));
    cluster.command("r1", &format!("set -e{APART_INSIDE}"));
    for sender in ["client", "neighbour"] {
        let said = cluster.command(sender, "ping -c 20 -i 0.05 -W 2 -s 3000 198.51.100.2");
        assert!(said.contains("20 received"), "{sender}: {said}");
    }
    for node in ["n1", "n2", "n3"] {
        let shown = rows(&cluster.command(node, &format!("{TOMBOLO} show peers --json")));
        let moved: u64 = shown
            .iter()
            .map(|row| row["redirected_to"].as_u64().unwrap() + row["redirected_by"].as_u64().unwrap())
            .sum();
        assert!(moved > 20, "{node}: {shown:?}");
    }
}

//! The kernel's NAPT44 by nftables: behind the gateway's own address, or within the ports of one
//! customer (RFC 7597 section 5.1), which are a block or several.

use tombolo_lab::{LabError, Namespace};

use crate::gateway::addresses::Addresses;

/// Behind the address of the interface that they leave through.
pub(super) fn masquerade(gateway: &Namespace, interface: &str) -> Result<(), LabError> {
    table(gateway, &format!("add rule ip nat postrouting oifname {interface} masquerade;"))
}

/// Behind the customer's address and ports: blocks in turn, for a rule of nftables has one.
pub(super) fn to_ports_of_customer(
    gateway: &Namespace,
    interface: &str,
    addresses: &Addresses,
) -> Result<(), LabError> {
    let (ipv4, _) = addresses.rule.share(addresses.edge);
    let blocks = blocks(addresses);
    let (mut chains, mut jumps) = (String::new(), Vec::new());
    for (number, (first, last)) in blocks.iter().enumerate() {
        chains += &format!(
            "add chain ip nat block{number}; add rule ip nat block{number} meta l4proto udp snat to {ipv4}:{first}-{last};"
        );
        jumps.push(format!("{number} : jump block{number}"));
    }
    let turns = format!("numgen inc mod {} vmap {{ {} }}", blocks.len(), jumps.join(", "));
    table(gateway, &format!("{chains} add rule ip nat postrouting oifname {interface} {turns};"))
}

fn table(gateway: &Namespace, rules: &str) -> Result<(), LabError> {
    let begin = "add table ip nat; add chain ip nat postrouting { type nat hook postrouting priority srcnat; };";
    gateway.command("nft").arg(format!("{begin} {rules}")).run()?.success().map(drop)
}

/// First and last ports of the customer's blocks.
fn blocks(addresses: &Addresses) -> Vec<(u32, u32)> {
    let rule = &addresses.rule;
    let (_, psid) = rule.share(addresses.edge);
    let offset = u32::from(rule.psid_offset);
    let first = u32::from(psid) << rule.contiguous_bits();
    let length = 1_u32 << rule.contiguous_bits();
    // With an offset the first block has the system ports, and is nobody's.
    let numbers = if offset == 0 { 0..1 } else { 1..1 << offset };
    numbers.map(|number| (number << (16 - offset)) + first).map(|first| (first, first + length - 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::addresses::MapRule;

    #[test]
    fn blocks_are_the_customers_ports_and_all_of_them() {
        let addresses = Addresses { edge: 3, ..Addresses::default() };
        let rule = addresses.rule;
        let all = blocks(&addresses);
        let ports: u32 = all.iter().map(|(first, last)| last - first + 1).sum();
        assert_eq!((all.len(), ports), (63, rule.ports_per_subscriber()));
        // RFC 7597 appendix B: the PSID stands behind the six bits of the offset.
        let (_, psid) = rule.share(3);
        let set = u32::from(psid) << rule.contiguous_bits();
        assert!(all.iter().all(|(first, _)| *first >= 1024 && first & 0x3ff == set));

        let contiguous = MapRule { psid_offset: 0, ..rule };
        let all = blocks(&Addresses { rule: contiguous, ..addresses });
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].1 - all[0].0 + 1, contiguous.ports_per_subscriber());
    }
}

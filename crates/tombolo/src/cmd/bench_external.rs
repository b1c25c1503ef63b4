//! `--dut external`: somebody else's box, and how it is driven and addressed.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::bail;
use clap::Args;
use tombolo_tester::gateway::{Addresses, MapRule, between_ports::Hooks};

/// An external gateway.
#[derive(Debug, Args)]
#[command(next_help_heading = "For --dut external")]
pub(super) struct External {
    /// Interface that leads to the gateway's inside
    #[arg(long, value_name = "INTERFACE")]
    left: Option<String>,
    /// Interface that leads to its outside
    #[arg(long, value_name = "INTERFACE")]
    right: Option<String>,
    /// Link-layer address of its inside port
    #[arg(long, value_name = "MAC", value_parser = link_address)]
    left_gateway: Option<[u8; 6]>,
    /// Link-layer address of its outside port
    #[arg(long, value_name = "MAC", value_parser = link_address)]
    right_gateway: Option<[u8; 6]>,
    /// First subscriber's IPv4 address
    #[arg(long, value_name = "ADDRESS")]
    inside_ipv4: Option<Ipv4Addr>,
    /// First subscriber's IPv6 address, or its softwire's
    #[arg(long, value_name = "ADDRESS")]
    inside_ipv6: Option<Ipv6Addr>,
    /// First server's IPv4 address
    #[arg(long, value_name = "ADDRESS")]
    outside_ipv4: Option<Ipv4Addr>,
    /// First server's IPv6 address
    #[arg(long, value_name = "ADDRESS")]
    outside_ipv6: Option<Ipv6Addr>,
    /// IPv4 address that SIIT maps the first subscriber to
    #[arg(long, value_name = "ADDRESS")]
    mapped_ipv4: Option<Ipv4Addr>,
    /// Softwire address of the AFTR, lwAFTR or BR
    #[arg(long, value_name = "ADDRESS")]
    concentrator: Option<Ipv6Addr>,
    /// Prefix under which IPv6 hosts see IPv4 ones, of a translator, or the Default Mapping Rule of
    /// MAP-T: 32, 40, 48, 56, 64 or 96 bits
    #[arg(long, value_name = "PREFIX", value_parser = translation_prefix)]
    translation_prefix: Option<(Ipv6Addr, u8)>,
    /// The mapping rule of lw4o6, MAP-E and MAP-T: IPv6 prefix, IPv4 prefix, EA bits, PSID offset
    #[arg(long, value_name = "IPV6/N,IPV4/N,EA,OFFSET", value_parser = map_rule)]
    map_rule: Option<MapRule>,
    /// Which subscriber of the rule a customer's edge is, counted from 0 over addresses and PSIDs
    #[arg(long, value_name = "N")]
    map_subscriber: Option<u32>,
    /// First and last address of the gateway's pool
    #[arg(long, value_name = "FIRST-LAST", value_parser = pool)]
    pool: Option<(Ipv4Addr, Ipv4Addr)>,
    /// Seconds that the gateway keeps UDP connections
    #[arg(long, value_name = "S")]
    udp_timeout: Option<u64>,
    /// Command that empties its tables
    #[arg(long, value_name = "COMMAND")]
    hook_flush: Option<String>,
    /// Command that restarts it
    #[arg(long, value_name = "COMMAND")]
    hook_reset: Option<String>,
    /// Command that prints its number of connections
    #[arg(long, value_name = "COMMAND")]
    hook_sessions: Option<String>,
    /// Command that sets its number of cores to $TOMBOLO_CORES
    #[arg(long, value_name = "COMMAND")]
    hook_cores: Option<String>,
}

impl External {
    pub(super) fn addresses(&self) -> Addresses {
        let usual = Addresses::default();
        Addresses {
            inside_ipv4: self.inside_ipv4.unwrap_or(usual.inside_ipv4),
            inside_ipv6: self.inside_ipv6.unwrap_or(usual.inside_ipv6),
            outside_ipv4: self.outside_ipv4.unwrap_or(usual.outside_ipv4),
            outside_ipv6: self.outside_ipv6.unwrap_or(usual.outside_ipv6),
            mapped_ipv4: self.mapped_ipv4.unwrap_or(usual.mapped_ipv4),
            softwire_concentrator: self.concentrator.unwrap_or(usual.softwire_concentrator),
            pool: self.pool,
            translation_prefix: self.translation_prefix.unwrap_or(usual.translation_prefix),
            rule: self.map_rule.unwrap_or(usual.rule),
            edge: self.map_subscriber.unwrap_or(usual.edge),
        }
    }

    pub(super) fn hooks(&self) -> Result<Hooks, anyhow::Error> {
        let (Some(left), Some(right)) = (self.left.clone(), self.right.clone()) else {
            bail!("an external gateway needs --left INTERFACE and --right INTERFACE");
        };
        let (Some(left_gateway), Some(right_gateway)) = (self.left_gateway, self.right_gateway) else {
            bail!("an external gateway needs --left-gateway MAC and --right-gateway MAC (ip neigh shows them)");
        };
        Ok(Hooks {
            name: None,
            left,
            right,
            left_gateway,
            right_gateway,
            flush: self.hook_flush.clone(),
            reset: self.hook_reset.clone(),
            sessions: self.hook_sessions.clone(),
            cores: self.hook_cores.clone(),
            udp_timeout_seconds: self.udp_timeout,
        })
    }
}

fn link_address(text: &str) -> Result<[u8; 6], String> {
    let bytes: Vec<u8> = text.split(':').map_while(|part| u8::from_str_radix(part, 16).ok()).collect();
    let well_formed = text.split(':').count() == 6;
    bytes.try_into().ok().filter(|_| well_formed).ok_or_else(|| format!("`{text}` is not like 02:00:00:00:00:01"))
}

/// An address, and a number of bits behind a slash.
fn prefix<T: std::str::FromStr>(text: &str) -> Option<(T, u8)> {
    let (address, length) = text.split_once('/')?;
    Some((address.parse().ok()?, length.parse().ok()?))
}

fn translation_prefix(text: &str) -> Result<(Ipv6Addr, u8), String> {
    let known = |(_, length): &(Ipv6Addr, u8)| [32, 40, 48, 56, 64, 96].contains(length);
    prefix(text).filter(known).ok_or_else(|| format!("`{text}` is not like 64:ff9b::/96 (RFC 6052 section 2.2)"))
}

fn map_rule(text: &str) -> Result<MapRule, String> {
    let parts: Vec<&str> = text.split(',').collect();
    let rule = match parts[..] {
        [ipv6, ipv4, ea_bits, psid_offset] => prefix(ipv6).zip(prefix(ipv4)).and_then(|(ipv6, ipv4)| {
            Some(MapRule { ipv6, ipv4, ea_bits: ea_bits.parse().ok()?, psid_offset: psid_offset.parse().ok()? })
        }),
        _ => None,
    };
    let rule = rule.ok_or_else(|| format!("`{text}` is not like 2001:db8::/40,192.0.2.0/24,16,6"))?;
    rule.check().map(|()| rule)
}

fn pool(text: &str) -> Result<(Ipv4Addr, Ipv4Addr), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
        _ => Err(format!("`{text}` is not like 192.0.2.1-192.0.2.14")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_addresses_and_pools_are_read_or_refused() {
        assert_eq!(link_address("02:00:00:00:00:ff"), Ok([2, 0, 0, 0, 0, 255]));
        assert!(link_address("02:00:00:00:00").is_err() && link_address("02:00:00:00:00:gg").is_err());
        assert_eq!(pool("192.0.2.1"), Ok((Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 1))));
        assert!(pool("192.0.2.9-192.0.2.1").is_err());
    }

    #[test]
    fn prefixes_and_mapping_rules_are_read_or_refused() {
        assert_eq!(translation_prefix("64:ff9b::/96"), Ok(("64:ff9b::".parse().unwrap(), 96)));
        assert!(["64:ff9b::", "64:ff9b::/95", "192.0.2.0/24"].iter().all(|text| translation_prefix(text).is_err()));
        let rule = map_rule("2001:db8::/40,192.0.2.0/24,16,6").unwrap();
        assert_eq!((rule.ipv6.1, rule.ipv4.1, rule.ea_bits, rule.psid_offset), (40, 24, 16, 6));
        for refused in
            ["2001:db8::/40,192.0.2.0/24,16", "2001:db8::/56,192.0.2.0/24,16,6", "2001:db8::/40,192.0.2.0/24,4,6"]
        {
            assert!(map_rule(refused).is_err(), "{refused}");
        }
    }
}

//! What systemd-networkd knows of a link, as `networkctl status LINK --json=short` has it: the prefixes that DHCPv6 has
//! delegated to it. Of options 64 and 94 to 96 networkd knows nothing.

use std::net::Ipv6Addr;

use anyhow::Context as _;
use ipnet::Ipv6Net;
use serde_json::Value;

use super::lease::{Delegated, Lease};

/// What `text` says.
pub(super) fn lease(text: &str) -> anyhow::Result<Lease> {
    let status: Value = serde_json::from_str(text)
        .context("this is not what networkctl status LINK --json=short says (systemd 252 or newer)")?;
    let prefixes = status["DHCPv6Client"]["Prefixes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let prefixes = prefixes.iter().map(|entry| delegated(entry).with_context(|| format!("a prefix: {entry}")));
    Ok(Lease { prefixes: prefixes.collect::<anyhow::Result<_>>()?, offers: Vec::new() })
}

/// Lifetimes are moments of the clock that counts from the boot, and missing where they have no end.
fn delegated(entry: &Value) -> anyhow::Result<Delegated> {
    let moment = |key: &str| entry[key].as_u64().unwrap_or(u64::MAX);
    let bytes = entry["Prefix"].as_array().context("Prefix is missing")?;
    let bytes: Vec<u8> = bytes.iter().filter_map(Value::as_u64).filter_map(|byte| u8::try_from(byte).ok()).collect();
    let bytes: [u8; 16] = bytes.try_into().ok().context("Prefix has not 16 bytes")?;
    let length = entry["PrefixLength"].as_u64().and_then(|length| u8::try_from(length).ok());
    let prefix = Ipv6Net::new(Ipv6Addr::from(bytes), length.context("PrefixLength is missing")?)?.trunc();
    Ok(Delegated { prefix, preferred: moment("PreferredLifetimeUSec"), valid: moment("ValidLifetimeUSec") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delegated_prefixes_are_found() {
        let text = r#"{"Name":"wan0","DHCPv6Client":{"Lease":{},"Prefixes":[{"Prefix":[32,1,13,184,0,18,52,0,0,0,0,0,0,0,0,0],
            "PrefixString":"2001:db8:12:3400::","PrefixLength":56,"PreferredLifetimeUSec":7000000,"ValidLifetimeUSec":9000000}]}}"#;
        let lease = lease(text).unwrap();
        let expected =
            Delegated { prefix: "2001:db8:12:3400::/56".parse().unwrap(), preferred: 7_000_000, valid: 9_000_000 };
        assert_eq!(lease.prefixes, [expected]);
    }

    #[test]
    fn a_link_without_a_lease_has_none_and_other_text_is_refused() {
        assert_eq!(lease(r#"{"Name":"wan0"}"#).unwrap(), Lease::default());
        assert!(lease("wan0 routable").unwrap_err().to_string().contains("--json=short"));
        assert!(lease(r#"{"DHCPv6Client":{"Prefixes":[{"PrefixLength":56}]}}"#).is_err());
    }
}

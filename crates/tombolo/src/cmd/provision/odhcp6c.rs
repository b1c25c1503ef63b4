//! What odhcp6c tells its script in variables: `PREFIXES`, `MAPE`, `MAPT`, `LW4O6` and `AFTR`, as its `src/script.c` writes
//! them.
//!
//! ```text
//! PREFIXES=2001:db8:12:3400::/56,preferred,valid,t1,t2[,class=ID][,excluded=PREFIX] ...
//! MAPE=[fmr,]type=map-e,ealen=16,prefix4len=24,prefix6len=40,ipv4prefix=192.0.2.0,ipv6prefix=2001:db8::,
//!      [offset=6,psidlen=8,psid=13312,]br=2001:db8:ffff::1, ...      a rule each, with every relay
//! MAPT=...,dmr=2001:db8:ffff::/64, ...
//! LW4O6=type=lw4o6,prefix4len=32,prefix6len=56,ipv4prefix=192.0.2.18,ipv6prefix=2001:db8:12:3400::,...,br=..., ...
//! AFTR=aftr.example.net
//! ```
//!
//! A PSID stands as in the option, on the left of 16 bits.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use anyhow::{Context as _, anyhow};
use ipnet::{Ipv4Net, Ipv6Net};
use tombolo_wire::dhcpv6_softwire::{PortParameters, S46Bind, S46Option, S46Rule};

use super::lease::{Delegated, Lease, prefix};

/// What the variables say, each given by `variable`. What is offered comes in the order of OpenWrt's own script.
pub(super) fn lease(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Lease> {
    let mut lease = Lease::default();
    let said = |name: &'static str| variable(name).filter(|text| !text.trim().is_empty());
    for entry in said("PREFIXES").iter().flat_map(|text| text.split_ascii_whitespace()) {
        lease.prefixes.push(delegated(entry).with_context(|| format!("PREFIXES: {entry}"))?);
    }
    for (name, read) in [("MAPE", map_e as fn(&[Words<'_>]) -> _), ("MAPT", map_t), ("LW4O6", lw4o6)] {
        if let Some(text) = said(name) {
            let rules: Vec<Words<'_>> = text.split_ascii_whitespace().map(Words::of).collect();
            lease.offers.push(read(&rules).with_context(|| format!("{name}: {text}"))?);
        }
    }
    // A list, of which the first is used.
    let aftr = said("AFTR").and_then(|text| text.split_ascii_whitespace().next().map(str::to_owned));
    lease.offers.extend(aftr.map(|name| S46Option::AftrName(format!("{}.", name.trim_end_matches('.')))));
    Ok(lease)
}

fn delegated(entry: &str) -> anyhow::Result<Delegated> {
    let mut parts = entry.split(',');
    let prefix = prefix(parts.next().unwrap_or_default())?;
    let mut seconds = |what| {
        let text = parts.next().with_context(|| format!("{what} lifetime is missing"))?;
        text.parse::<u64>().with_context(|| format!("{what} lifetime: \"{text}\" is no number"))
    };
    Ok(Delegated { prefix, preferred: seconds("preferred")?, valid: seconds("valid")? })
}

/// A rule, or a binding: `key=value,...`; a key may stand there several times, and one without value is a flag.
struct Words<'t>(Vec<(&'t str, &'t str)>);

impl<'t> Words<'t> {
    fn of(text: &'t str) -> Self {
        let words = text.split(',').filter(|word| !word.is_empty());
        Self(words.map(|word| word.split_once('=').unwrap_or((word, ""))).collect())
    }

    fn all<'w, T: FromStr>(&'w self, key: &'w str) -> impl Iterator<Item = anyhow::Result<T>> + 'w {
        let values = self.0.iter().filter(move |(name, _)| *name == key).map(|(_, value)| value);
        values.map(move |value| value.parse().map_err(|_| anyhow!("{key}={value} cannot be read")))
    }

    fn maybe<T: FromStr>(&self, key: &str) -> anyhow::Result<Option<T>> {
        self.all(key).next().transpose()
    }

    fn one<T: FromStr>(&self, key: &str) -> anyhow::Result<T> {
        self.maybe(key)?.with_context(|| format!("{key} is missing"))
    }

    fn ipv6(&self) -> anyhow::Result<Ipv6Net> {
        Ok(Ipv6Net::new(self.one("ipv6prefix")?, self.one("prefix6len")?)?.trunc())
    }

    fn ports(&self) -> anyhow::Result<Option<PortParameters>> {
        let Some(offset) = self.maybe("offset")? else { return Ok(None) };
        let (psid_length, left): (u8, u16) = (self.one("psidlen")?, self.one("psid")?);
        let psid = (1..=16).contains(&psid_length).then(|| left >> (16 - psid_length));
        Ok(Some(PortParameters { offset, psid_length, psid }))
    }

    fn rule(&self) -> anyhow::Result<S46Rule> {
        Ok(S46Rule {
            forwarding: self.0.iter().any(|(name, _)| *name == "fmr"),
            ea_bits: self.one("ealen")?,
            ipv4: Ipv4Net::new(self.one("ipv4prefix")?, self.one("prefix4len")?)?.trunc(),
            ipv6: self.ipv6()?,
            ports: self.ports()?,
        })
    }

    fn relays(&self) -> anyhow::Result<Vec<Ipv6Addr>> {
        let relays: Vec<Ipv6Addr> = self.all("br").collect::<anyhow::Result<_>>()?;
        if relays.is_empty() { Err(anyhow!("br is missing")) } else { Ok(relays) }
    }
}

fn first<'w, 't>(rules: &'w [Words<'t>]) -> anyhow::Result<&'w Words<'t>> {
    rules.first().context("it is empty")
}

fn map_e(rules: &[Words<'_>]) -> anyhow::Result<S46Option> {
    let relays = first(rules)?.relays()?;
    Ok(S46Option::MapE { rules: rules.iter().map(Words::rule).collect::<anyhow::Result<_>>()?, relays })
}

fn map_t(rules: &[Words<'_>]) -> anyhow::Result<S46Option> {
    let dmr = prefix(&first(rules)?.one::<String>("dmr")?)?;
    Ok(S46Option::MapT { rules: rules.iter().map(Words::rule).collect::<anyhow::Result<_>>()?, dmr })
}

fn lw4o6(bindings: &[Words<'_>]) -> anyhow::Result<S46Option> {
    let binding = first(bindings)?;
    let ipv4: Ipv4Addr = binding.one("ipv4prefix")?;
    let bind = S46Bind { ipv4, bind_prefix: binding.ipv6()?, ports: binding.ports()? };
    Ok(S46Option::Lw4o6 { bind: Some(bind), relays: binding.relays()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::BTreeMap;

    const RULE: &str = "type=map-e,ealen=16,prefix4len=24,prefix6len=40,ipv4prefix=192.0.2.0,ipv6prefix=2001:db8::,";

    fn read(variables: &[(&str, &str)]) -> anyhow::Result<Lease> {
        let variables: BTreeMap<_, _> = variables.iter().copied().collect();
        lease(|name| variables.get(name).map(|text| (*text).to_owned()))
    }

    #[test]
    fn rules_and_relays_of_map_are_read() {
        let text = format!("fmr,{RULE}offset=6,psidlen=8,psid=13312,br=2001:db8:ffff::1,br=2001:db8:ffff::2, ");
        let offers = read(&[("MAPE", &text)]).unwrap().offers;
        let [S46Option::MapE { rules, relays }] = &offers[..] else { panic!("{offers:?}") };
        let [rule] = rules[..] else { panic!("{rules:?}") };
        assert!(rule.forwarding && rule.ea_bits == 16 && relays.len() == 2);
        assert_eq!(rule.ports, Some(PortParameters { offset: 6, psid_length: 8, psid: Some(0x34) }));
        assert_eq!((rule.ipv4.to_string(), rule.ipv6.to_string()), ("192.0.2.0/24".into(), "2001:db8::/40".into()));
        let text = format!("{RULE}dmr=2001:db8:ffff::/64, ").replace("map-e", "map-t");
        let offers = read(&[("MAPT", &text)]).unwrap().offers;
        assert!(matches!(&offers[..], [S46Option::MapT { dmr, .. }] if dmr.prefix_len() == 64), "{offers:?}");
    }

    #[test]
    fn a_binding_and_the_name_of_an_aftr_are_read_in_their_order() {
        let bind = "type=lw4o6,prefix4len=32,prefix6len=56,ipv4prefix=192.0.2.18,ipv6prefix=2001:db8:12:3400::,\
                    offset=0,psidlen=6,psid=4096,br=2001:db8:ffff::1, ";
        let offers = read(&[("AFTR", "aftr.example.net "), ("LW4O6", bind)]).unwrap().offers;
        let [S46Option::Lw4o6 { bind: Some(bind), .. }, S46Option::AftrName(name)] = &offers[..] else {
            panic!("{offers:?}")
        };
        assert_eq!(bind.ports, Some(PortParameters { offset: 0, psid_length: 6, psid: Some(4) }));
        assert_eq!(name, "aftr.example.net.");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (name, text, why) in [
            ("PREFIXES", "2001:db8::/56", "preferred lifetime is missing"),
            ("PREFIXES", "2001:db8::/56,a,1", "\"a\" is no number"),
            ("MAPE", "type=map-e,br=2001:db8::1,", "ealen is missing"),
            ("MAPE", &RULE.replace("16", "many"), "br is missing"),
            ("LW4O6", "br=::1,ipv4prefix=x,", "ipv4prefix=x cannot be read"),
        ] {
            let error = format!("{:#}", read(&[(name, text)]).unwrap_err());
            assert!(error.contains(why) && error.contains(name), "{error}");
        }
        assert_eq!(read(&[("MAPE", " "), ("PREFIXES", "")]).unwrap(), Lease::default());
    }
}

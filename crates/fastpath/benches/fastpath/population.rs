//! Who is served: one subscriber, or very many, so that what is looked up lies far apart in memory.
//!
//! Of a million softwires some ten thousands have traffic. More of them would measure the
//! generator: it looks each frame's subscriber up too, twice, on the same core.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::error_sources::ErrorSources;
use tombolo_engine::mapping::map_domain::MapDomain;
use tombolo_engine::mapping::map_rule::MapRule;
use tombolo_engine::mapping::port_set::PortDivision;
use tombolo_engine::mapping::softwire_table::{SoftwireRow, SoftwireTable};
use tombolo_engine::mechanism::{SoftwireSettings, TranslateSettings};
use tombolo_engine::plan::ServiceKind;
use tombolo_engine::service::lwaftr::Lwaftr;
use tombolo_engine::service::map_e_br::MapEBr;
use tombolo_engine::service::map_t_br::MapTBr;
use tombolo_generator::Endpoint;
use tombolo_lab::Lab;
use tombolo_tables::lpm::Prefix;
use tombolo_tables::subscriber::{Subscriber, SubscriberKey};
use tombolo_tester::gateway::{Addresses, Flows, MapRule as TesterRule, Technology, TestFrames};
use tombolo_wire::Prefix64;

use crate::contender::Kind;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const SOFTWIRES: u32 = 1_000_000;
/// One softwire of so many has traffic.
const QUIET: usize = 16;
/// 64 subscribers share an address.
const PSID_BITS: u8 = 6;
const OFFSET_BITS: u8 = 6;
const HOMES: u32 = 20_000;
const RULES: u32 = 10_000;
const SUBSCRIBERS_OF_A_RULE: u32 = 6;
const RULES_IPV6: Ipv6Addr = Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0);
const RULES_IPV4: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 0);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Population {
    /// One subscriber.
    One,
    /// 20,000 subscribers on 32 outside addresses, with as many bindings each as there are ports: the
    /// hosts of homes, most of whose bindings have one remote.
    Homes,
    /// A million softwires.
    Softwires,
    /// 10,000 rules of MAP, with some subscribers each.
    Rules,
}

impl Population {
    pub(crate) const fn hosts(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Homes => HOMES,
            Self::Softwires => SOFTWIRES,
            Self::Rules => RULES * SUBSCRIBERS_OF_A_RULE,
        }
    }

    /// The outside addresses of services with bindings.
    pub(crate) const fn pool(self) -> (Ipv4Addr, Ipv4Addr) {
        let last = if matches!(self, Self::Homes) { 32 } else { 1 };
        (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, last))
    }

    /// The subscribers of services with bindings, as a NAT64, an AFTR or a NAT44 knows them.
    pub(crate) fn subscribers(self, kind: Kind) -> Vec<Subscriber> {
        let flows = Flows { inside_hosts: if self == Self::Homes { HOMES } else { 1 }, ..Flows::sessions(1, 1) };
        let known_by_ipv6 = matches!(kind.technology(), Technology::Nat64 | Technology::Aftr);
        let technology = if known_by_ipv6 { kind.technology() } else { Technology::Nat44 };
        let hosts = self.setup(technology, &flows).map_or_else(|_| Vec::new(), |setup| setup.a);
        let (first, last) = self.pool();
        let addresses = last.to_bits() - first.to_bits() + 1;
        let subscriber = |(number, host): (u32, &Endpoint)| {
            let [a, b, c, d, ..] = host.left;
            let (ipv6, ipv4) = if known_by_ipv6 { (host.left, [0; 4]) } else { ([0; 16], [a, b, c, d]) };
            let outside = Ipv4Addr::from_bits(first.to_bits() + number % addresses);
            Subscriber { key: SubscriberKey { ipv6, ipv4, service: 0 }, outside_ipv4: outside.octets() }
        };
        (0..).zip(&hosts).map(subscriber).collect()
    }

    /// Takes those away that have no traffic.
    pub(crate) fn quieten(self, setup: &mut TestFrames) {
        if self == Self::Softwires {
            setup.a = setup.a.iter().copied().step_by(QUIET).collect();
            setup.shape.a_hosts = u32::try_from(setup.a.len()).unwrap_or(u32::MAX);
        }
    }

    /// The way back to everybody leads by the client.
    pub(crate) fn route(self, lab: &Lab) -> Result<()> {
        if self == Self::One {
            return Ok(());
        }
        for (family, destination, via) in [
            ("-6", "2001:db8:100::/40", "2001:db8:1::2"),
            ("-6", "3fff::/20", "2001:db8:1::2"),
            ("-4", "10.64.0.0/10", "10.0.0.2"),
        ] {
            let words = [family, "route", "add", destination, "via", via];
            lab.node("gateway")?.command("ip").args(words).run()?.success()?;
        }
        Ok(())
    }

    pub(crate) fn setup(self, technology: Technology, flows: &Flows) -> Result<TestFrames> {
        if self == Self::One {
            return Ok(TestFrames::new(technology, &Addresses::default(), flows)?);
        }
        let many = Flows { inside_hosts: self.hosts(), ..*flows };
        match (self, technology) {
            (Self::Homes, _) => Ok(TestFrames::new(technology, &addresses(softwire_rule()), &many)?),
            (Self::Rules, Technology::MapEBr | Technology::MapTBr) => domain(technology, flows),
            _ => Ok(TestFrames::new(technology, &addresses(softwire_rule()), &many)?),
        }
    }
}

fn addresses(rule: TesterRule) -> Addresses {
    Addresses {
        inside_ipv4: Ipv4Addr::new(10, 64, 0, 2),
        inside_ipv6: Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, 2),
        rule,
        ..Addresses::default()
    }
}

/// How subscribers of the lwAFTR share addresses.
fn softwire_rule() -> TesterRule {
    TesterRule {
        ipv6: (RULES_IPV6, 40),
        ipv4: (Ipv4Addr::new(100, 64, 0, 0), 18),
        ea_bits: 14 + PSID_BITS,
        psid_offset: OFFSET_BITS,
    }
}

/// Rule `number`: 256 addresses, each shared by 256.
fn rule(number: u32) -> TesterRule {
    let ipv6 = Ipv6Addr::from_bits(RULES_IPV6.to_bits() | u128::from(number) << 88);
    let ipv4 = Ipv4Addr::from_bits(RULES_IPV4.to_bits() | number << 8);
    TesterRule { ipv6: (ipv6, 40), ipv4: (ipv4, 24), ea_bits: 16, psid_offset: OFFSET_BITS }
}

/// The subscribers of all rules.
fn domain(technology: Technology, flows: &Flows) -> Result<TestFrames> {
    let flows = Flows { inside_hosts: SUBSCRIBERS_OF_A_RULE, ..*flows };
    let mut all = TestFrames::new(technology, &addresses(rule(0)), &flows)?;
    for number in 1..RULES {
        all.a.extend(TestFrames::new(technology, &addresses(rule(number)), &flows)?.a);
    }
    all.shape.a_hosts = RULES * SUBSCRIBERS_OF_A_RULE;
    Ok(all)
}

/// The service for all of them.
pub(crate) fn service(kind: Kind, setup: &TestFrames) -> ServiceKind {
    let (concentrator, softwire) = (Addresses::default().softwire_concentrator, SoftwireSettings::default());
    match kind {
        Kind::Lwaftr => ServiceKind::Lwaftr(lwaftr(setup, concentrator)),
        Kind::MapE => ServiceKind::MapEBr(MapEBr { domain: rules(), address: concentrator, softwire }),
        _ => ServiceKind::MapTBr(MapTBr {
            domain: rules(),
            dmr: Prefix64::WELL_KNOWN,
            well_known_prefix_strict: false,
            error_sources: ErrorSources::default(),
            translate: TranslateSettings::default(),
        }),
    }
}

fn lwaftr(setup: &TestFrames, local: Ipv6Addr) -> Lwaftr {
    let division = PortDivision::new(OFFSET_BITS, PSID_BITS).unwrap();
    let rows: Vec<SoftwireRow> = setup
        .a
        .iter()
        .map(|host| SoftwireRow {
            ipv4: Ipv4Addr::new(host.right[0], host.right[1], host.right[2], host.right[3]),
            division,
            psid: host.port_part >> (16 - OFFSET_BITS - PSID_BITS),
            b4: host.left.into(),
            local,
        })
        .collect();
    let last = Ipv4Addr::from_bits(RULES_IPV4.to_bits() | 0x3fff);
    Lwaftr {
        addresses: vec![local],
        ipv4: AddressRanges::new([RULES_IPV4..=last]),
        table: SoftwireTable::new(&rows).unwrap(),
        softwire: SoftwireSettings::default(),
        hairpinning: true,
        tell_unknown: false,
        tell_unreachable: false,
        inbound_icmp: true,
    }
}

fn rules() -> MapDomain {
    let engine = |rule: TesterRule| {
        let ipv6 = Prefix::covering(rule.ipv6.0.to_bits(), rule.ipv6.1);
        let ipv4 = Prefix::covering(rule.ipv4.0.to_bits(), rule.ipv4.1);
        MapRule::new(ipv6, ipv4, rule.ea_bits, rule.psid_offset, None).unwrap()
    };
    MapDomain::new((0..RULES).map(|number| engine(rule(number))).collect()).unwrap()
}

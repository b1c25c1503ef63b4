//! What the records of several services have in common.

use std::net::Ipv6Addr;

use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::exemptions::{Exemption, Exemptions};
use tombolo_engine::mapping::networks::Networks;
use tombolo_engine::mapping::pool::{Parity, PoolRange, PortSpace};
use tombolo_engine::mechanism::napt::{Filtering, InboundTcp, Nat, Policy, Sessions, SubscriberIs, UnsolicitedSyn};
use tombolo_engine::mechanism::{SoftwireSettings, TrafficClass, TranslateSettings, UdpZeroChecksum};
use tombolo_engine::plan::StaticBinding;
use tombolo_tables::binding::MOST_UNANSWERED;
use tombolo_wire::Prefix64;
use tombolo_wire::ipv6::MINIMUM_MTU;

use crate::record::{
    ExemptRecord, Network, Ports, PrefixRecord, RANGES, Range, SERVICE_ADDRESS_DEPENDENT, SERVICE_CLAMPS,
    SERVICE_ENDS_SOFTWIRES, SERVICE_ENGINE_BINDS, SERVICE_ENGINE_OPENS, SERVICE_ENGINE_OPENS_TCP,
    SERVICE_KEEPS_SESSIONS, SERVICE_NO_INBOUND_TCP, SERVICE_PARITY, SERVICE_STRICT, ServiceRecord, TunnelRecord,
    halves,
};

impl ServiceRecord {
    pub(super) fn set_translation(&mut self, settings: &TranslateSettings) {
        let TranslateSettings {
            traffic_class_4to6,
            traffic_class_6to4,
            // Datagrams without checksum are the engine's, whatever becomes of them.
            udp_zero_4to6: UdpZeroChecksum::Drop | UdpZeroChecksum::Compute | UdpZeroChecksum::Forward,
            udp_zero_6to4: UdpZeroChecksum::Drop | UdpZeroChecksum::Compute | UdpZeroChecksum::Forward,
            lowest_ipv6_mtu,
            ipv6_mtu,
            ipv4_mtu,
            largest_segment,
            // Errors are the engine's.
            plateaus: _,
        } = *settings;
        self.flags |= if largest_segment.is_some() { SERVICE_CLAMPS } else { 0 };
        self.traffic_class_4to6 = class(traffic_class_4to6);
        self.traffic_class_6to4 = class(traffic_class_6to4);
        self.lowest_ipv6_mtu = lowest_ipv6_mtu.max(MINIMUM_MTU.into());
        self.inside_mtu = ipv6_mtu;
        self.outside_mtu = ipv4_mtu;
    }

    pub(super) fn set_softwire(&mut self, local: Ipv6Addr, remote: Option<Ipv6Addr>, settings: &SoftwireSettings) {
        // What does not fit is the engine's, whatever becomes of it.
        let SoftwireSettings { ipv6_mtu: _, hop_limit, traffic_class, dont_fragment: _, fragments: _, largest_segment } =
            *settings;
        self.flags |= SERVICE_ENDS_SOFTWIRES | if largest_segment.is_some() { SERVICE_CLAMPS } else { 0 };
        self.tunnel = TunnelRecord {
            local: halves(local.to_bits()),
            remote: remote.map_or([0; 2], |remote| halves(remote.to_bits())),
            mtu: settings.mtu(),
            traffic_class: class(traffic_class),
            hop_limit,
            unused: 0,
        };
    }

    /// Static bindings are in the tables, like all others.
    pub(super) fn set_nat(&mut self, nat: &Nat) -> Result<(), &'static str> {
        let Nat { pool, policy, static_bindings: _ } = nat;
        self.set_policy(*policy);
        self.set_pool(pool)
    }

    fn set_policy(&mut self, policy: Policy) {
        let Policy {
            // What is none of TCP, UDP and ICMP, no program looks into.
            protocols: _,
            filtering,
            inbound_tcp,
            bindings_per_subscriber,
            sessions_per_subscriber,
            sessions,
            binding_rate,
            // Admitting is the engine's.
            subscriber_rate: _,
            subscriber,
            parity,
            unsolicited_syn,
            unanswered,
            // What hosts ask for comes to the engine; bindings that are there are bindings.
            pcp: _,
            helpers,
        } = policy;
        let mut set = |flag, is_set| self.flags |= if is_set { flag } else { 0 };
        for space in PortSpace::WITH_SLOTS {
            set(SERVICE_ADDRESS_DEPENDENT << space as u16, filtering.of(space) == Filtering::AddressDependent);
        }
        set(SERVICE_NO_INBOUND_TCP, inbound_tcp == InboundTcp::Denied);
        set(SERVICE_PARITY, parity == Parity::Preserve);
        set(SERVICE_ENGINE_BINDS, binding_rate.is_some());
        set(SERVICE_ENGINE_OPENS, sessions_per_subscriber.is_some());
        set(SERVICE_KEEPS_SESSIONS, sessions == Sessions::Kept || sessions_per_subscriber.is_some());
        set(SERVICE_ENGINE_OPENS_TCP, unsolicited_syn == UnsolicitedSyn::Hold);
        self.by_softwire = matches!(subscriber, SubscriberIs::Softwire { .. }).into();
        self.subscriber_mask = halves(mask(subscriber.prefix_length()));
        self.control_port = helpers.control_port().unwrap_or(0).to_be();
        self.bindings_per_subscriber = bindings_per_subscriber.unwrap_or(u32::MAX);
        self.unanswered_per_binding = unanswered.of_binding.min(MOST_UNANSWERED);
        self.unanswered_per_subscriber = unanswered.of_subscriber;
    }
}

/// Why a softwire is left to the engine.
pub(super) const AWAITS_FAR_END: &str = "the name of its far end has no address yet";

/// Writes ranges into their entries; how many there are.
pub(super) fn fill(entries: &mut [Range; RANGES], ranges: &AddressRanges) -> Result<u8, &'static str> {
    let ranges = ranges.ranges();
    if ranges.len() > RANGES {
        return Err("it has more ranges of inside or untranslated addresses than the fast path has room for");
    }
    for (entry, range) in entries.iter_mut().zip(ranges) {
        *entry = Range { first: range.start().to_bits(), last: range.end().to_bits() };
    }
    Ok(u8::try_from(ranges.len()).unwrap_or(u8::MAX))
}

/// Writes exempt ports into their entries; how many there are.
pub(super) fn fill_exemptions(
    entries: &mut [ExemptRecord; RANGES],
    exemptions: &Exemptions,
) -> Result<u8, &'static str> {
    let mut records = Vec::new();
    for Exemption { addresses, tcp, udp } in &exemptions.0 {
        let addresses = Range { first: addresses.start().to_bits(), last: addresses.end().to_bits() };
        for (space, ports) in [(PortSpace::Tcp, tcp), (PortSpace::Udp, udp)] {
            records.extend(ports.ranges().iter().map(|range| ExemptRecord {
                addresses,
                ports: Ports { first: *range.start(), last: *range.end() },
                spaces: 1 << space as u32,
            }));
        }
    }
    if records.len() > RANGES {
        return Err("it has more ports of untranslated destinations than the fast path has room for");
    }
    let count = u8::try_from(records.len()).unwrap_or(u8::MAX);
    for (entry, record) in entries.iter_mut().zip(records) {
        *entry = record;
    }
    Ok(count)
}

/// Writes networks into their entries; how many there are, if there is room for all.
pub(super) fn fill_networks(entries: &mut [Network; RANGES], networks: &Networks) -> Option<u8> {
    let prefixes = networks.prefixes();
    for (entry, prefix) in entries.iter_mut().zip(prefixes) {
        *entry = Network { bits: halves(prefix.key()), mask: halves(mask(prefix.prefix_len())) };
    }
    u8::try_from(prefixes.len()).ok().filter(|_| prefixes.len() <= RANGES)
}

/// The first `length` bits of an IPv6 address.
pub(super) fn mask(length: u8) -> u128 {
    !u128::MAX.checked_shr(length.into()).unwrap_or(0)
}

/// An edge translates to ports of its own set only. The configuration sees to it that static
/// bindings are there too; what comes for others is refused by the engine.
pub(super) fn are_in_the_set(nat: &Nat) -> Result<(), &'static str> {
    let is_own = |binding: &StaticBinding| {
        let has = |range: &PoolRange| range.ports[PortSpace::Icmp as usize].contains(binding.outside.port.0);
        nat.pool.ranges().iter().any(has)
    };
    if nat.static_bindings.iter().all(is_own) { Ok(()) } else { Err("a static binding is outside its port set") }
}

fn class(class: TrafficClass) -> i16 {
    match class {
        TrafficClass::Copy => -1,
        TrafficClass::Force(octet) => octet.into(),
    }
}

/// What RFC 6052 section 3.1 makes of a prefix, as a bit of `flags`.
pub(super) fn strictness(prefix: Prefix64, strict: bool) -> u16 {
    if strict && prefix.is_well_known() { SERVICE_STRICT } else { 0 }
}

pub(crate) fn prefix_record(prefix: Prefix64) -> PrefixRecord {
    let length = prefix.length();
    // The prefix and the u octet (RFC 6052 section 2.2).
    let mask = u128::MAX << (128 - u32::from(length)) | 0xff << 56;
    PrefixRecord {
        bits: halves(prefix.address().to_bits()),
        mask: halves(mask),
        shift: 96 - length,
        gap: if length == 96 { 0 } else { 8 },
        present: 1,
        unused: [0; 5],
    }
}

//! What a gateway has to leave in the headers of the tester's frames: it is expected, not learned.
//!
//! A router takes one off the hop limit (RFC 1812 section 5.3.1, RFC 8200 section 3), and so do a
//! translator (RFC 7915 sections 4.1, 5.1) and a tunnel's end with the packet inside (RFC 2473
//! section 3.1). Traffic class and flow label are sent as 0 and copied or set to 0. An IPv4 header
//! that stays keeps DF and identification; one that is made of an IPv6 header has DF where the
//! packet is longer than 1260 bytes, and an identification of the gateway's own (RFC 7915 section
//! 5.1). The hop limit of an outer header is the gateway's setting, so that one is learned.
//!
//! A gateway that does otherwise with every frame can be measured all the same: the probe relaxes
//! the check, and the deviation is stated with the results. A frame that differs from the others is
//! a fault.

use tombolo_generator::{Arrivals, FrameError, FrameKind, HeaderRule, LinkRule};

/// RFC 7915 section 5.1.
const LONGEST_WITHOUT_DF: u16 = 1260;
/// IPv4 and UDP headers.
const IPV4_UDP: u16 = 28;

/// What is between the tester's ports: who takes one off the hop limit, and makes headers anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hops {
    /// As it was sent.
    pub(crate) sent: u8,
    /// Routers on the way: two gateways in series are two.
    pub(crate) routers: u8,
    /// An IPv4 header is made of an IPv6 one on the way, though an IPv4 one was sent.
    pub(crate) remade: bool,
}

/// The fields that do not depend on the tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headers {
    /// Of the outermost header; 0 while it is not known.
    pub(crate) hop_limit: u8,
    /// Of the header inside a tunnel's; 0: not checked.
    pub(crate) inner_hop_limit: u8,
    pub(crate) fields: HeaderRule,
    pub(crate) link: LinkRule,
    hops: Hops,
}

impl Headers {
    /// Of frames that were sent as one kind and arrive as another, with so many bytes of UDP payload.
    pub(crate) fn of(sent: FrameKind, arrives: FrameKind, hops: Hops, payload: u16, link: LinkRule) -> Headers {
        use FrameKind::{Ipv4, Ipv4InIpv6, Ipv6};
        let left = hops.sent.saturating_sub(hops.routers);
        let is_made = arrives == Ipv4 && (sent == Ipv6 || hops.remade);
        let fields = HeaderRule {
            traffic_class: Some(0),
            dont_fragment: match arrives {
                Ipv6 => None,
                _ if is_made => Some(payload + IPV4_UDP > LONGEST_WITHOUT_DF),
                _ => Some(true),
            },
            identification: (arrives != Ipv6 && !is_made).then_some(0),
            flow_label: (arrives == Ipv6).then_some(0),
        };
        Headers {
            hop_limit: if arrives == Ipv4InIpv6 { 0 } else { left },
            inner_hop_limit: if arrives == Ipv4InIpv6 { left } else { 0 },
            fields,
            link,
            hops,
        }
    }

    /// Takes what the gateway does with every frame, if it is that which makes all of them wrong;
    /// tells in words what it does. Nothing where something else is wrong, or not with all frames.
    pub(crate) fn relax(&mut self, arrivals: &Arrivals) -> Vec<String> {
        let wrong = || FrameError::ALL.into_iter().filter(|error| arrivals.count(*error) > 0);
        if arrivals.received > 0 || wrong().any(|error| arrivals.count(error) != arrivals.errored) {
            return Vec::new();
        }
        let before = *self;
        let said: Vec<Option<String>> = wrong().map(|error| self.relax_one(error, arrivals.hop_limit_seen)).collect();
        if said.contains(&None) {
            *self = before;
            return Vec::new();
        }
        said.into_iter().flatten().collect()
    }

    fn relax_one(&mut self, error: FrameError, hop_limit_seen: u8) -> Option<String> {
        let name = error.name().replace('_', " ");
        match error {
            FrameError::HopLimit if self.inner_hop_limit != 0 => {
                self.inner_hop_limit = 0;
                Some("it does not take one off the hop limit inside the tunnel (RFC 2473 section 3.1)".to_owned())
            }
            FrameError::HopLimit => {
                let taken = i32::from(self.hops.sent) - i32::from(hop_limit_seen);
                self.hop_limit = hop_limit_seen;
                let due = if self.hops.routers == 1 { "a router takes 1" } else { "two routers take 2" };
                Some(format!("it takes {taken} off the hop limit of every frame, {due}"))
            }
            FrameError::TrafficClass => {
                self.fields.traffic_class = None;
                Some(format!("it changes the {name} of every frame"))
            }
            FrameError::DontFragment => {
                let df = self.fields.dont_fragment.take().map(u8::from);
                Some(format!("DF is not {} in any frame (RFC 7915 section 5.1)", df.unwrap_or(0)))
            }
            FrameError::Identification => {
                self.fields.identification = None;
                Some(format!("it changes the {name} of every frame"))
            }
            FrameError::FlowLabel => {
                self.fields.flow_label = None;
                Some(format!("it sets a {name} in every frame"))
            }
            FrameError::LinkAddress if self.link.source.is_some() => {
                self.link.source = None;
                Some("frames come from another link-layer address than that of its port".to_owned())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tombolo_generator::Bitmap;

    use super::*;

    const ROUTER: Hops = Hops { sent: 10, routers: 1, remade: false };

    fn arrivals(errors: &[(FrameError, u64)]) -> Arrivals {
        let mut arrivals = Arrivals { errored: 50, hop_limit_seen: 7, ..Arrivals::empty(Bitmap::without(50, &[])) };
        errors.iter().for_each(|(error, count)| arrivals.errors[*error as usize] = *count);
        arrivals
    }

    #[test]
    fn a_translator_sets_df_for_what_is_longer_than_1260_bytes() {
        let df = |payload| {
            Headers::of(FrameKind::Ipv6, FrameKind::Ipv4, ROUTER, payload, LinkRule::default()).fields.dont_fragment
        };
        assert_eq!((df(18), df(1232), df(1233)), (Some(false), Some(false), Some(true)));
    }

    #[test]
    fn what_every_frame_has_is_stated_and_what_some_have_is_a_fault() {
        let expected = Headers::of(FrameKind::Ipv4, FrameKind::Ipv4, ROUTER, 18, LinkRule::default());
        assert_eq!(expected.hop_limit, 9);
        let pair =
            Headers::of(FrameKind::Ipv4, FrameKind::Ipv4, Hops { routers: 2, ..ROUTER }, 18, LinkRule::default());
        assert_eq!(pair.hop_limit, 8);
        let twice = Hops { routers: 2, remade: true, ..ROUTER };
        let translated = Headers::of(FrameKind::Ipv4, FrameKind::Ipv4, twice, 18, LinkRule::default());
        assert_eq!((translated.fields.dont_fragment, translated.fields.identification), (Some(false), None));
        let mut headers = expected;
        let said = headers.relax(&arrivals(&[(FrameError::HopLimit, 50), (FrameError::TrafficClass, 50)]));
        assert_eq!((headers.hop_limit, headers.fields.traffic_class, said.len()), (7, None, 2));
        assert!(said[0].contains("takes 3 off"), "{said:?}");
        let mut headers = expected;
        assert!(headers.relax(&arrivals(&[(FrameError::HopLimit, 49)])).is_empty());
        assert!(headers.relax(&arrivals(&[(FrameError::HopLimit, 50), (FrameError::Source, 50)])).is_empty());
        assert_eq!(headers, expected);
    }
}

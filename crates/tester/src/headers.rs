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

/// The fields that do not depend on the tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headers {
    /// Of the outermost header; 0 while it is not known.
    pub(crate) hop_limit: u8,
    /// Of the header inside a tunnel's; 0: not checked.
    pub(crate) inner_hop_limit: u8,
    pub(crate) fields: HeaderRule,
    pub(crate) link: LinkRule,
}

impl Headers {
    /// Of frames that were sent as one kind with this hop limit and arrive as another, with so many
    /// bytes of UDP payload.
    pub(crate) fn of(sent: FrameKind, arrives: FrameKind, hop_limit: u8, payload: u16, link: LinkRule) -> Headers {
        use FrameKind::{Ipv4, Ipv4InIpv6, Ipv6};
        let one_less = hop_limit.saturating_sub(1);
        let is_made = sent == Ipv6 && arrives == Ipv4;
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
            hop_limit: if arrives == Ipv4InIpv6 { 0 } else { one_less },
            inner_hop_limit: if arrives == Ipv4InIpv6 { one_less } else { 0 },
            fields,
            link,
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
                let taken = i32::from(self.hop_limit) + 1 - i32::from(hop_limit_seen);
                self.hop_limit = hop_limit_seen;
                Some(format!("it takes {taken} off the hop limit of every frame, a router takes 1"))
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

    fn arrivals(errors: &[(FrameError, u64)]) -> Arrivals {
        let mut arrivals = Arrivals { errored: 50, hop_limit_seen: 7, ..Arrivals::empty(Bitmap::without(50, &[])) };
        errors.iter().for_each(|(error, count)| arrivals.errors[*error as usize] = *count);
        arrivals
    }

    #[test]
    fn a_translator_sets_df_for_what_is_longer_than_1260_bytes() {
        let df = |payload| {
            Headers::of(FrameKind::Ipv6, FrameKind::Ipv4, 10, payload, LinkRule::default()).fields.dont_fragment
        };
        assert_eq!((df(18), df(1232), df(1233)), (Some(false), Some(false), Some(true)));
    }

    #[test]
    fn what_every_frame_has_is_stated_and_what_some_have_is_a_fault() {
        let expected = Headers::of(FrameKind::Ipv4, FrameKind::Ipv4, 10, 18, LinkRule::default());
        assert_eq!(expected.hop_limit, 9);
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

//! What may be asked on the control socket.

use std::net::{Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::filter::Filter;

/// Longest request in bytes.
pub const LONGEST: usize = 16_384;

/// The version of the protocol. It is another one when something that was there is gone or means something
/// else; what is new leaves it as it is.
pub const PROTOCOL: u32 = 1;

/// A request: one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The versions of the protocol and of the gateway. One row.
    Hello {},
    /// What the gateway is, and how it does. One row.
    Status {},
    /// Its services and how much state they have.
    Services {},
    /// Bindings.
    Bindings {
        /// Which.
        #[serde(default)]
        filter: Filter,
    },
    /// Sessions.
    Sessions {
        /// Which.
        #[serde(default)]
        filter: Filter,
    },
    /// Subscribers.
    Subscribers {
        /// Which.
        #[serde(default)]
        filter: Filter,
    },
    /// Subscribers with all that they have and may have: blocks of ports, limits.
    Subscriber {
        /// Which.
        #[serde(default)]
        filter: Filter,
    },
    /// The subscribers with most bindings.
    Top {
        /// So many; ten if no number is given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
    },
    /// Outside addresses and ports: how many are in use.
    Pools {
        /// Which.
        #[serde(default)]
        filter: Filter,
        /// One row for each address, not for each range.
        #[serde(default)]
        each_address: bool,
    },
    /// What was counted.
    Counters {
        /// Also what never happened.
        #[serde(default)]
        all: bool,
    },
    /// What the kernel's fast path takes, and what not.
    Fastpath {},
    /// The nodes of its cluster.
    Peers {},
    /// The slices of its cluster, and who has them.
    Slices {},
    /// What would become of a packet. Nothing changes.
    Explain {
        /// Which.
        #[serde(flatten)]
        asked: Asked,
    },
    /// Packets, with what becomes of them, as they pass.
    Trace(Watched),
    /// What has happened, in the words of the log.
    Events(Happened),
    /// Packets that were dropped since the start, by service and reason.
    Drops {
        /// Also reasons that never occurred.
        #[serde(default)]
        all: bool,
    },
    /// Reads the configuration file again.
    Reload {
        /// Say what would change, and change nothing.
        #[serde(default)]
        dry_run: bool,
        /// Go back after so many seconds, unless it is confirmed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confirm_within: Option<u32>,
    },
    /// The configuration that was reloaded last stays.
    Confirm {},
    /// Removes sessions and dynamic bindings.
    Flush {
        /// Of this service only.
        #[serde(default)]
        service: Option<String>,
    },
    /// Lets nothing new begin, or allows it again.
    Drain {
        /// Whether nothing new may begin.
        on: bool,
    },
    /// Adds a static binding.
    BindingAdd(NewBinding),
    /// Removes a binding that was added.
    BindingRemove {
        /// `tcp`, `udp` or `icmp`.
        protocol: String,
        /// Endpoint outside.
        outside: SocketAddr,
    },
    /// Who has, or had, an outside endpoint.
    Who {
        /// Endpoint outside.
        outside: SocketAddr,
        /// `tcp`, `udp` or `icmp`; all if none is named.
        #[serde(default)]
        protocol: Option<String>,
        /// When: RFC 3339 in UTC, or seconds since 1970; now if there is none.
        #[serde(default)]
        time: Option<String>,
    },
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| format!("not a request: {error}; see docs/control.md"))
    }
}

/// Which packets are shown as they pass: those for which all that is named holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Watched {
    /// Name of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// `tcp`, `udp` or `icmp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Address or prefix of any address of the packet, as it comes or as it leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Address or prefix of the host inside, or of its softwire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<String>,
    /// Address or prefix of the outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<String>,
    /// Address or prefix of the remote party.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// A port of the packet, as it comes or as it leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Only those that are dropped, or refused with an ICMP error.
    pub drops: bool,
    /// With the packet itself, in hexadecimal digits.
    pub packets: bool,
    /// At most so many packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// For so many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// At most so many a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
}

/// Which events are shown.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Happened {
    /// Those that come, too.
    pub follow: bool,
    /// Of those that come, also bindings and blocks of ports, as they are made and end.
    pub bindings: bool,
    /// The last so many of those that were; all that are kept, or ten if others follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// For so many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// At most so many of bindings and blocks a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
}

/// A packet that is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asked {
    /// In hexadecimal digits, from the IP header on.
    Packet(String),
    /// By its ends.
    Flow(Flow),
}

/// The ends of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// `tcp`, `udp` or `icmp`.
    pub protocol: String,
    /// Who sends. Of ICMP, the port is the identifier.
    pub source: SocketAddr,
    /// To whom.
    pub destination: SocketAddr,
    /// The softwire that the sender is behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softwire: Option<Ipv6Addr>,
    /// Of TCP a segment with ACK, instead of the SYN.
    #[serde(default)]
    pub later: bool,
}

/// A static binding to be added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewBinding {
    /// `tcp`, `udp` or `icmp`.
    pub protocol: String,
    /// The softwire that the host is behind, by its far end; of an AFTR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softwire: Option<Ipv6Addr>,
    /// Endpoint inside.
    pub inside: SocketAddr,
    /// Endpoint outside.
    pub outside: SocketAddr,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_back_as_they_were_written() {
        let outside = "192.0.2.1:80".parse().unwrap();
        for request in [
            Request::Status {},
            Request::Sessions { filter: Filter { port: Some(80), ..Filter::default() } },
            Request::Drain { on: true },
            Request::Trace(Watched { inside: Some("2001:db8::2".into()), drops: true, ..Watched::default() }),
            Request::BindingAdd(NewBinding {
                protocol: "tcp".into(),
                softwire: Some("2001:db8::b4".parse().unwrap()),
                inside: "10.0.0.2:80".parse().unwrap(),
                outside,
            }),
            Request::Who { outside, protocol: None, time: Some("0".into()) },
            Request::Explain { asked: Asked::Packet("4500".into()) },
            Request::Explain {
                asked: Asked::Flow(Flow {
                    protocol: "udp".into(),
                    source: "[2001:db8::2]:80".parse().unwrap(),
                    destination: outside,
                    softwire: None,
                    later: false,
                }),
            },
        ] {
            assert_eq!(Request::parse(serde_json::to_string(&request).unwrap().as_bytes()), Ok(request));
        }
        assert_eq!(Request::parse(b"{\"command\":\"bindings\"}"), Ok(Request::Bindings { filter: Filter::default() }));
    }

    #[test]
    fn what_is_no_request_is_refused_with_the_reason() {
        for (line, reason) in [
            ("", "EOF"),
            ("hello", "expected value"),
            ("{}", "command"),
            ("{\"command\":\"sesions\"}", "sesions"),
            ("{\"command\":\"drain\"}", "on"),
            ("{\"command\":\"sessions\",\"filter\":{\"prot\":1}}", "prot"),
            ("{\"command\":\"sessions\",\"filter\":{\"port\":70000}}", "70000"),
            ("{\"command\":\"who\",\"outside\":\"192.0.2.1\"}", "socket address"),
            ("\u{ff}", "expected value"),
        ] {
            let error = Request::parse(line.as_bytes()).unwrap_err();
            assert!(error.starts_with("not a request: ") && error.contains(reason), "{line}: {error}");
        }
    }
}

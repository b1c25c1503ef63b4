//! What is asked, and what an answer means.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::survey::{Interface, Survey};

/// The well-known prefix (RFC 6052 section 2.1).
pub(crate) const WELL_KNOWN: &str = "64:ff9b::/96";
/// What stands for a LAN behind a CLAT with one address, in the network of its uplink.
const BEHIND_A_CLAT: u128 = 0x464;

/// What a gateway is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Hosts that have IPv6 alone reach IPv4.
    Nat64,
    /// Hosts with private IPv4 addresses share public ones.
    Nat44,
    /// Hosts with IPv4 work behind an uplink that has IPv6 alone.
    Clat,
}

/// Where the gateway meets the outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outside {
    /// It shares the IPv4 address of this interface with the host.
    Interface(String),
    /// It has these addresses, which are routed to the host.
    Pool(Ipv4Net),
    /// A CLAT: this address stands for all hosts.
    Address(Ipv6Addr),
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// What is the gateway for?
    Purpose,
    /// Where is the outside?
    Outside(Purpose),
    /// Where are the hosts inside?
    Inside(Purpose),
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answers {
    /// What the gateway is for.
    pub purpose: Purpose,
    /// Where the outside is.
    pub outside: Outside,
    /// Interfaces that hosts inside are behind.
    pub inside: Vec<Interface>,
    /// Networks inside, of the family that the hosts speak.
    pub networks: Vec<IpNet>,
    /// The NAT64 prefix; none is the default.
    pub prefix: Option<Ipv6Net>,
}

/// What is wrong with an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// No purpose has that name.
    #[error("\"{0}\": nat64, nat44 or clat")]
    Purpose(String),
    /// It is no interface, and no address.
    #[error("\"{text}\" is neither an interface that is up ({known}) nor {expected}")]
    Unknown {
        /// What was answered.
        text: String,
        /// The interfaces there are.
        known: String,
        /// What it could have been.
        expected: &'static str,
    },
    /// The address is the host's.
    #[error("{address} is this host's own address on {interface}; to share it with the host answer \"{interface}\"")]
    Own {
        /// The address.
        address: IpAddr,
        /// Who has it.
        interface: String,
    },
    /// The interface lacks what the purpose needs.
    #[error("{interface} has no global {family} address, and {needed}")]
    Lacks {
        /// The interface.
        interface: String,
        /// IPv4 or IPv6.
        family: &'static str,
        /// What for.
        needed: &'static str,
    },
    /// The network is of the other family.
    #[error("{network} is not {family}, which the hosts inside of a {purpose} speak")]
    Family {
        /// The network.
        network: IpNet,
        /// IPv4 or IPv6.
        family: &'static str,
        /// What for.
        purpose: Purpose,
    },
    /// One interface is to be both.
    #[error("{0} cannot be inside and outside")]
    Both(String),
    /// Nothing was answered, and nothing is found on the host.
    #[error("nothing on this host answers \"{0}\"")]
    Nothing(&'static str),
}

impl FromStr for Purpose {
    type Err = AnswerError;

    fn from_str(text: &str) -> Result<Self, AnswerError> {
        match text {
            "nat64" => Ok(Self::Nat64),
            "nat44" => Ok(Self::Nat44),
            "clat" => Ok(Self::Clat),
            _ => Err(AnswerError::Purpose(text.to_owned())),
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nat64 => "nat64",
            Self::Nat44 => "nat44",
            Self::Clat => "clat",
        })
    }
}

impl Purpose {
    /// The hosts inside speak IPv6.
    #[must_use]
    pub const fn is_for_ipv6(self) -> bool {
        matches!(self, Self::Nat64)
    }

    /// The family that they speak.
    const fn family(self) -> &'static str {
        if self.is_for_ipv6() { "IPv6" } else { "IPv4" }
    }
}

impl Question {
    /// It in words, with what the host has.
    #[must_use]
    pub fn words(self, survey: &Survey) -> String {
        let mut text = self.title().to_owned();
        match self {
            Self::Purpose => {
                text += "\n  nat64  hosts that have IPv6 alone reach IPv4 (with DNS64)\
                         \n  nat44  hosts with private IPv4 addresses share public ones (CGN)\
                         \n  clat   hosts with IPv4 work behind an uplink that has IPv6 alone (464XLAT)";
            }
            Self::Outside(Purpose::Clat) => {
                text += "\n  the uplink, or an IPv6 address that is routed to it and that no interface has:\
                         \n  all hosts inside appear with it";
            }
            Self::Outside(_) => {
                text += "\n  an interface, whose IPv4 address the gateway shares with this host;\
                         \n  or IPv4 addresses that are routed to this host and that no interface has, as 192.0.2.0/28";
            }
            Self::Inside(_) => text += "\n  interfaces, or networks, separated by commas",
        }
        if self != Self::Purpose {
            for Interface { name, addresses } in &survey.interfaces {
                let _ = write!(text, "\n  {name}");
                for own in addresses {
                    let _ = write!(text, " {own}");
                }
                let uplink = [(&survey.uplink_ipv4, "IPv4"), (&survey.uplink_ipv6, "IPv6")];
                for (_, family) in uplink.iter().filter(|(uplink, _)| uplink.as_ref() == Some(name)) {
                    let _ = write!(text, " (default route of {family})");
                }
            }
        }
        text
    }

    /// It alone.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Purpose => "What is the gateway for?",
            Self::Outside(_) => "Where is the outside?",
            Self::Inside(_) => "Where are the hosts inside?",
        }
    }

    /// The answer that the host suggests.
    #[must_use]
    pub fn default(self, survey: &Survey) -> Option<String> {
        match self {
            Self::Purpose => {
                let is_ipv6_alone = survey.uplink_ipv4.is_none() && survey.uplink_ipv6.is_some();
                Some(if is_ipv6_alone { Purpose::Clat } else { Purpose::Nat64 }.to_string())
            }
            Self::Outside(Purpose::Clat) => survey.uplink_ipv6.clone(),
            Self::Outside(_) => survey.uplink_ipv4.clone(),
            Self::Inside(purpose) => {
                let uplinks = [&survey.uplink_ipv4, &survey.uplink_ipv6];
                let mut others = survey.interfaces.iter().filter(|interface| {
                    !uplinks.contains(&&Some(interface.name.clone()))
                        && interface.networks(purpose.is_for_ipv6()).next().is_some()
                });
                others.next().map(|interface| interface.name.clone())
            }
        }
    }
}

impl Answers {
    /// All answers; `inside` is what was said to [`Question::Inside`].
    ///
    /// # Errors
    /// [`AnswerError`].
    pub fn read(
        survey: &Survey,
        purpose: Purpose,
        outside: Outside,
        inside: &str,
        prefix: Option<Ipv6Net>,
    ) -> Result<Self, AnswerError> {
        let mut answers = Self { purpose, outside, inside: Vec::new(), networks: Vec::new(), prefix };
        for text in inside.split(',').map(str::trim).filter(|text| !text.is_empty()) {
            answers.add_inside(survey, text)?;
        }
        if answers.networks.is_empty() {
            return Err(AnswerError::Nothing(Question::Inside(purpose).title()));
        }
        Ok(answers)
    }

    fn add_inside(&mut self, survey: &Survey, text: &str) -> Result<(), AnswerError> {
        let (purpose, family) = (self.purpose, self.purpose.family());
        if let Some(interface) = survey.interface(text) {
            if self.outside == Outside::Interface(text.to_owned()) {
                return Err(AnswerError::Both(text.to_owned()));
            }
            let before = self.networks.len();
            self.networks.extend(interface.networks(purpose.is_for_ipv6()));
            if self.networks.len() == before {
                let needed = "hosts inside are those of its networks; name them otherwise";
                return Err(AnswerError::Lacks { interface: text.to_owned(), family, needed });
            }
            self.inside.push(interface.clone());
            return Ok(());
        }
        let network: IpNet =
            text.parse().map_err(|_| AnswerError::unknown(survey, text, "a network, as 10.0.0.0/24"))?;
        if network.addr().is_ipv6() != purpose.is_for_ipv6() {
            return Err(AnswerError::Family { network, family, purpose });
        }
        self.networks.push(network.trunc());
        Ok(())
    }
}

impl Outside {
    /// What an answer to [`Question::Outside`] means on this host.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub fn read(survey: &Survey, purpose: Purpose, text: &str) -> Result<Self, AnswerError> {
        let is_clat = purpose == Purpose::Clat;
        if let Some(interface) = survey.interface(text) {
            let lacks = |family, needed| AnswerError::Lacks { interface: text.to_owned(), family, needed };
            if is_clat {
                let network = interface.networks(true).next();
                let Some(IpNet::V6(network)) = network else {
                    return Err(lacks("IPv6", "a CLAT's address lies in its network; name one"));
                };
                let address = network.network().to_bits() | BEHIND_A_CLAT;
                return Ok(Self::Address(address.into()));
            }
            if interface.address(false).is_none() {
                return Err(lacks("IPv4", "that is what the gateway would share; name a pool"));
            }
            return Ok(Self::Interface(text.to_owned()));
        }
        let answer = if is_clat {
            let address = text.parse().map_err(|_| AnswerError::unknown(survey, text, "an IPv6 address"))?;
            Self::Address(address)
        } else {
            let pool = text.parse::<Ipv4Net>().or_else(|_| text.parse::<Ipv4Addr>().map(Ipv4Net::from));
            let pool = pool.map_err(|_| AnswerError::unknown(survey, text, "IPv4 addresses, as 192.0.2.0/28"))?;
            Self::Pool(pool.trunc())
        };
        answer.is_free(survey).map(|()| answer)
    }

    /// No interface may have what the gateway is to have alone.
    fn is_free(&self, survey: &Survey) -> Result<(), AnswerError> {
        let has = |address: IpAddr| match (self, address) {
            (Self::Pool(pool), IpAddr::V4(address)) => pool.contains(&address),
            (Self::Address(own), IpAddr::V6(address)) => *own == address,
            _ => false,
        };
        let all = survey
            .interfaces
            .iter()
            .flat_map(|interface| interface.addresses.iter().map(|own| (own.addr(), &interface.name)));
        match all.into_iter().find(|(address, _)| has(*address)) {
            Some((address, interface)) => Err(AnswerError::Own { address, interface: interface.clone() }),
            None => Ok(()),
        }
    }
}

impl AnswerError {
    fn unknown(survey: &Survey, text: &str, expected: &'static str) -> Self {
        let known: Vec<&str> = survey.interfaces.iter().map(|interface| interface.name.as_str()).collect();
        Self::Unknown { text: text.to_owned(), known: known.join(", "), expected }
    }
}

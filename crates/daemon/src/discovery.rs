//! Finds out what a configuration leaves to the network: the prefix of the PLAT (`prefix =
//! "auto"`). Routers are asked first, then DNS.
//!
//! Read first: RFC 8781 section 5 (advertisements, and that they go before DNS), RFC 7050 sections
//! 3 and 5.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use tombolo_engine::Plan;
use tombolo_engine::plan::ServiceKind;
use tombolo_engine::service::siit::Role;
use tombolo_io::router::{Advertisement, Routers};
use tombolo_wire::Prefix64;
use tombolo_wire::prefix_discovery::{NAME, prefixes_in};

use crate::question::Question;

/// How long a router may take to answer: it waits half a second (RFC 4861 section 6.2.6), and three
/// seconds from its last advertisement to all, which most do not keep.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long the resolver may take. A prefix that is gone is used as long as it is waited for, and who has none
/// asks again; the resolver itself would take ten seconds and more to give up.
const RESOLVED: Duration = Duration::from_secs(2);

/// Why there is no prefix.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The resolver has no answer.
    #[error(
        "service {service}: prefix = \"auto\": no router advertises a prefix, and the resolver knows nothing about {NAME}: \
         either it cannot be reached, or the network has no DNS64; see /etc/resolv.conf, or name the prefix"
    )]
    Resolver {
        /// Name of the service.
        service: String,
        /// What the resolver says.
        #[source]
        source: std::io::Error,
    },
    /// The resolver has an answer, but no DNS64 has made it.
    #[error(
        "service {service}: prefix = \"auto\": no router advertises a prefix, and the resolver gives {NAME} no IPv6 address \
         with a prefix in it ({found}): it is no DNS64 (RFC 7050); use the network's own resolver, or name the prefix"
    )]
    NoPrefix {
        /// Name of the service.
        service: String,
        /// What the answer was.
        found: String,
    },
}

/// The number of the first service of `plan`, which is not complete yet, that leaves its prefix to
/// the network.
pub(crate) fn awaiting(plan: &Plan) -> Option<u8> {
    let awaits = |kind: &ServiceKind| matches!(kind, ServiceKind::Siit(siit) if siit.awaits_prefix());
    plan.numbered().find(|(_, service)| awaits(&service.kind)).map(|(number, _)| number)
}

/// The prefix that a CLAT of `plan` uses, if one is called `service`.
pub(crate) fn in_use(plan: &Plan, service: &str) -> Option<Prefix64> {
    let found = plan.services.iter().find(|other| other.name == service)?;
    match &found.kind {
        ServiceKind::Siit(siit) if siit.role == Role::Clat => siit.mapping.prefix,
        _ => None,
    }
}

/// Completes the services of `plan` that leave their prefix to the network. `advertised` gives the
/// prefix that a router advertises, `resolve` the IPv6 addresses of a name; they are called only if
/// a service wants it. Where neither has one, the services go on with `former`, or wait without one, and
/// why is said.
pub fn complete(
    plan: &mut Plan,
    former: Option<Prefix64>,
    advertised: impl Fn() -> Option<Prefix64>,
    resolve: impl Fn(&str) -> std::io::Result<Vec<Ipv6Addr>>,
) -> Option<DiscoveryError> {
    let first = plan.service(awaiting(plan)?)?.name.clone();
    let (found, lack) = match advertised() {
        Some(prefix) => (Some((prefix, "router advertisement")), None),
        None => match discover(&first, resolve) {
            Ok(prefix) => (Some((prefix, "DNS")), None),
            Err(error) => (former.map(|prefix| (prefix, "what it was before")), Some(error)),
        },
    };
    for service in &mut plan.services {
        if let ServiceKind::Siit(siit) = &mut service.kind
            && siit.awaits_prefix()
            && let Some((prefix, by)) = found
        {
            siit.mapping.prefix = Some(prefix);
            tracing::info!(service = service.name, %prefix, by, "prefix of the PLAT found");
        }
    }
    lack
}

/// Asks the routers for a prefix. None, and a word about why, if they cannot be asked.
#[must_use]
pub fn advertised() -> Option<Prefix64> {
    let ask = || -> std::io::Result<Option<Prefix64>> {
        let routers = Routers::open()?;
        routers.solicit()?;
        let deadline = Instant::now() + PATIENCE;
        while let Some(heard) = routers.receive(deadline.saturating_duration_since(Instant::now()))? {
            if let Some(prefix) = first_valid(&heard) {
                return Ok(Some(prefix));
            }
        }
        Ok(None)
    };
    ask().unwrap_or_else(|error| {
        tracing::warn!("routers cannot be asked for the prefix of the PLAT: {error}");
        None
    })
}

/// The IPv6 addresses of a name, if the resolver is quick about it.
///
/// # Errors
/// What the resolver says; `TimedOut` if it says nothing.
pub fn resolved(name: &str) -> std::io::Result<Vec<Ipv6Addr>> {
    let (mut question, wanted) = (Question::default(), name.to_owned());
    question.ask("resolver", (Duration::ZERO, Instant::now()), move || tombolo_io::resolver::ipv6_addresses(&wanted));
    question.answer_within(RESOLVED).unwrap_or_else(|| Err(std::io::ErrorKind::TimedOut.into()))
}

/// The first prefix that may be used. A lifetime of 0 ends its use (RFC 8781 section 4).
pub(crate) fn first_valid(heard: &Advertisement) -> Option<Prefix64> {
    heard.prefixes.iter().find(|option| option.lifetime > 0).map(|option| option.prefix)
}

/// Whether the resolver knows a prefix.
pub(crate) fn is_known(resolve: impl Fn(&str) -> std::io::Result<Vec<Ipv6Addr>>) -> bool {
    resolve(NAME).is_ok_and(|answer| !prefixes_in(answer).is_empty())
}

fn discover(
    service: &str,
    resolve: impl Fn(&str) -> std::io::Result<Vec<Ipv6Addr>>,
) -> Result<Prefix64, DiscoveryError> {
    let service = service.to_owned();
    let answer = match resolve(NAME) {
        Ok(answer) => answer,
        Err(source) => return Err(DiscoveryError::Resolver { service, source }),
    };
    let prefixes = prefixes_in(answer.iter().copied());
    if prefixes.len() > 1 {
        let others: Vec<_> = prefixes.iter().skip(1).map(ToString::to_string).collect();
        tracing::warn!(service, others = others.join(", "), "the network has several prefixes; the first is used");
    }
    prefixes.first().copied().ok_or_else(|| {
        let found: Vec<_> = answer.iter().map(ToString::to_string).collect();
        let found = if found.is_empty() { "none at all".to_owned() } else { found.join(", ") };
        DiscoveryError::NoPrefix { service, found }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTOMATIC: &str =
        "[[service]]\nkind = \"clat\"\nprefix = \"auto\"\neam = [{ ipv4 = \"192.0.0.1\", ipv6 = \"2001:db8::464\" }]\n";

    fn plan(text: &str) -> Plan {
        tombolo_config::parse("gateway.toml", text).unwrap().plan
    }

    fn prefix(plan: &Plan) -> Option<String> {
        let ServiceKind::Siit(siit) = &plan.services[0].kind else { panic!("no CLAT") };
        siit.mapping.prefix.map(|prefix| prefix.to_string())
    }

    #[test]
    fn the_answer_of_a_dns64_completes_the_service() {
        let mut plan = plan(AUTOMATIC);
        assert_eq!(prefix(&plan), None);
        let lack = complete(
            &mut plan,
            Some("2001:db8:99::/96".parse().unwrap()),
            || None,
            |name| {
                assert_eq!(name, "ipv4only.arpa");
                Ok(["2001:db8:64::c000:aa", "2001:db8:64::c000:ab", "64:ff9b::c000:aa"]
                    .map(|a| a.parse().unwrap())
                    .into())
            },
        );
        assert!(lack.is_none());
        assert_eq!(prefix(&plan).as_deref(), Some("2001:db8:64::/96"));
    }

    #[test]
    fn without_an_answer_the_service_waits_or_goes_on_with_what_it_had() {
        for former in [None, Some("2001:db8:99::/96")] {
            let mut plan = plan(AUTOMATIC);
            let known = former.map(|prefix| prefix.parse().unwrap());
            assert!(complete(&mut plan, known, || None, |_| Ok(Vec::new())).is_some());
            assert_eq!((prefix(&plan).as_deref(), in_use(&plan, "clat")), (former, known));
            assert_eq!(awaiting(&plan).is_some(), former.is_none());
        }
    }

    #[test]
    fn nobody_is_asked_where_the_prefix_is_named() {
        let mut plan = plan(&AUTOMATIC.replace("auto", "64:ff9b::/96"));
        assert!(complete(&mut plan, None, || panic!("asked"), |_| panic!("asked")).is_none());
        assert_eq!(prefix(&plan).as_deref(), Some("64:ff9b::/96"));
    }

    #[test]
    fn what_went_wrong_is_told_with_its_remedy() {
        let failure = |answer: fn() -> std::io::Result<Vec<Ipv6Addr>>| {
            complete(&mut plan(AUTOMATIC), None, || None, |_| answer()).unwrap().to_string()
        };
        let silent = failure(|| Err(std::io::ErrorKind::NotFound.into()));
        assert!(silent.contains("service clat") && silent.contains("/etc/resolv.conf"), "{silent}");
        let plain = failure(|| Ok(Vec::new()));
        assert!(plain.contains("none at all") && plain.contains("no DNS64"), "{plain}");
        let foreign = failure(|| Ok(vec!["2001:db8::1".parse().unwrap()]));
        assert!(foreign.contains("2001:db8::1"), "{foreign}");
    }

    #[test]
    fn what_routers_advertise_goes_before_dns() {
        let mut plan = plan(AUTOMATIC);
        assert_eq!(awaiting(&plan), Some(0));
        let advertised = || Some("2001:db8:64::/96".parse().unwrap());
        assert!(complete(&mut plan, None, advertised, |_| panic!("asked")).is_none());
        assert_eq!(prefix(&plan).as_deref(), Some("2001:db8:64::/96"));
        assert_eq!(awaiting(&plan), None);
    }
}

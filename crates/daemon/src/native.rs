//! Native IPv4, which services stand by for (`native_ipv4 = "preferred"`).
//!
//! It is believed at once that it has gone, and a second later that it has come: one that comes and goes is none. What
//! else stands by does likewise: Android's CLAT and clatd run where no interface has an IPv4 default route.

use std::time::{Duration, Instant};

use tombolo_engine::Plan;
use tombolo_engine::plan::{Service, Standby};

/// So long it has to be there without a break.
const STEADY: Duration = Duration::from_secs(1);

/// What is known of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Native {
    /// Nobody has looked.
    #[default]
    Unknown,
    /// There is none.
    Absent,
    /// It has come.
    Coming {
        /// The interface.
        by: String,
        /// When.
        since: Instant,
    },
    /// It works.
    There {
        /// The interface.
        by: String,
    },
}

impl Native {
    /// What is known after a look has found that it leaves by this interface.
    pub(crate) fn seen(&self, by: Option<String>, now: Instant) -> Self {
        match (by, self) {
            (None, _) => Self::Absent,
            (Some(by), Self::Unknown | Self::There { .. }) => Self::There { by },
            (Some(by), Self::Absent) => Self::Coming { by, since: now },
            (Some(by), Self::Coming { since, .. }) if now >= *since + STEADY => Self::There { by },
            (Some(by), Self::Coming { since, .. }) => Self::Coming { by, since: *since },
        }
    }

    /// True if it is to be looked at again soon.
    pub(crate) fn is_coming(&self) -> bool {
        matches!(self, Self::Coming { .. })
    }

    /// True if services are to stand by.
    pub(crate) fn is_there(&self) -> bool {
        matches!(self, Self::There { .. })
    }

    /// Completes a plan.
    pub(crate) fn complete(&self, plan: &mut Plan) {
        let standby = if self.is_there() { Standby::StandingBy } else { Standby::Active };
        for service in plan.services.iter_mut().filter(|service| may_stand_by(service)) {
            service.standby = standby;
        }
    }

    /// Says what services do from now on.
    pub(crate) fn say(&self, plan: &Plan) {
        let services: Vec<&str> =
            plan.services.iter().filter(|service| may_stand_by(service)).map(|service| service.name.as_str()).collect();
        let services = services.join(", ");
        match self {
            Self::There { by } => tracing::info!(services, "standing by: {by} has native IPv4"),
            _ => tracing::info!(services, "taking over: there is no native IPv4"),
        }
    }
}

/// True if a service of a plan asks for it.
pub(crate) fn is_wanted(plan: &Plan) -> bool {
    plan.services.iter().any(may_stand_by)
}

fn may_stand_by(service: &Service) -> bool {
    service.standby != Standby::Never
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_at_once_and_comes_when_it_has_lasted() {
        let (wan, start) = (|| Some("wan0".to_owned()), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        let mut native = Native::default().seen(wan(), start);
        assert!(native.is_there(), "as it is at the start");
        native = native.seen(None, at(1));
        assert_eq!(native, Native::Absent);
        // It comes and goes five times a second.
        for step in 1..20 {
            native = native.seen(wan(), at(200 * step));
            assert!(native.is_coming());
            native = native.seen(None, at(200 * step + 100));
        }
        native = native.seen(wan(), at(5000)).seen(wan(), at(5900));
        assert!(native.is_coming());
        assert!(native.seen(wan(), at(6000)).is_there());
    }
}

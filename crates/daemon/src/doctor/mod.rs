//! Why packets do not pass the host: each prefix and each pool is walked through the kernel as its
//! packets are, and each fault comes with the line that mends it.
//!
//! ```text
//!               entrance --> rules, routes --> chains --> exit --> neighbour
//! from inside   the host's interface           ...        the device
//! to inside     the device                     ...        the host's interface
//! ```
//!
//! * `finding`: what was found, and what mends it. `legs`: the ways that packets take: to the device and from it, on both sides of each service.
//! * `ground`: what the kernel has: interfaces, settings, rules, routes, neighbours.
//! * `walk`: what stands in the way of a leg, by what the kernel has. Nothing is sent.
//! * `probes`: a packet for each leg, which comes in as if it had been received; what becomes of it is
//!   seen, and which chain drops it.
//!
//! A gateway looks at the same when it starts, but sends nothing: `at_start`.

mod finding;
mod ground;
mod legs;
mod probes;
mod walk;

use std::io;
use std::time::Instant;

use tombolo_config::{Host as HostSettings, Provision};
use tombolo_engine::Plan;
use tombolo_io::host::{Forwarding, Host, Switch};
use tombolo_io::netfilter::{ForeignRules, Selector};

pub use finding::{Cure, Ends, Finding, Gravity, Report};
use ground::Ground;

use crate::error_chain::in_one_line;
use crate::native::Native;

/// Walks all ways of a plan, and sends probes where nothing is known to stand in the way.
///
/// # Errors
/// What the kernel says that is asked.
pub fn examine(settings: &HostSettings, plan: &Plan, ends: &Ends) -> io::Result<Report> {
    let plan = &as_it_is(plan);
    let (mut report, legs) = match survey(settings, plan, ends)? {
        Surveyed::NoDevice(report) => return Ok(report),
        Surveyed::Walked(report, legs) => (report, legs),
    };
    let ground = Ground::read(&settings.device)?;
    if let Err(why) = probes::send(&legs, &ground, &mut report) {
        report.left_out.push(format!("no probes were sent: {}", in_one_line(&*why)));
        policies(&settings.device, &mut report);
    }
    Ok(report)
}

/// The plan with services that stand by, if native IPv4 works.
fn as_it_is(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    let by = Host::open().and_then(|mut host| host.native_ipv4()).ok().flatten();
    Native::default().seen(by, Instant::now()).complete(&mut plan);
    plan
}

/// What stands in the way when a gateway starts. Nothing is sent.
pub(crate) fn at_start(settings: &HostSettings, plan: &Plan) -> Vec<Finding> {
    // What an administrator sets up comes when it comes.
    if !matches!(settings.provision, Provision::Gateway) {
        let mut report = Report::default();
        forwarding(&mut report);
        return report.findings;
    }
    match survey(settings, plan, &Ends::default()) {
        Ok(Surveyed::NoDevice(report)) => report.findings,
        Ok(Surveyed::Walked(mut report, _)) => {
            policies(&settings.device, &mut report);
            report.findings
        }
        Err(error) => {
            tracing::warn!("the way of packets through the host was not looked at: {error}");
            Vec::new()
        }
    }
}

enum Surveyed {
    NoDevice(Report),
    /// The ways that nothing is known to stand in.
    Walked(Report, Vec<legs::Leg>),
}

fn survey(settings: &HostSettings, plan: &Plan, ends: &Ends) -> io::Result<Surveyed> {
    let mut report = Report::default();
    let ground = Ground::read(&settings.device)?;
    let Some(device) = ground.device() else {
        let found = format!("there is no device {}: the gateway does not run", settings.device);
        let fault = Finding::fault("device", found, String::new());
        report.add(fault.with_words("tombolo run -c FILE, or systemctl start tombolo; then ask again"));
        return Ok(Surveyed::NoDevice(report));
    };
    let forwards = forwarding(&mut report);
    let mut free = Vec::new();
    let legs = legs::of(plan, &ground, device, ends).into_iter();
    for leg in legs.filter(|leg| if leg.source.is_ipv6() { forwards.ipv6 } else { forwards.ipv4 } != Switch::Off) {
        match walk::obstacle(&leg, &ground, device) {
            Some(finding) => report.add(finding),
            None => free.push(leg),
        }
    }
    walk::surroundings(plan, &ground, device, &mut report);
    Ok(Surveyed::Walked(report, free))
}

fn forwarding(report: &mut Report) -> Forwarding {
    let forwarding = Forwarding::read();
    for line in forwarding.remedies() {
        report.add(Finding::fault("forwarding", "the host does not forward packets".into(), line.to_owned()));
    }
    forwarding
}

/// Chains that drop what none of their rules accepts, where no packet finds out.
fn policies(device: &str, report: &mut Report) {
    let found = ForeignRules::watch().and_then(|mut rules| rules.dropping()).unwrap_or_default();
    for chain in found {
        let lines = [Selector::LeavesBy(device), Selector::ComesInBy(device)].map(|to| chain.admission(None, &to));
        let found = format!("{chain} drops what is forwarded, unless one of its rules accepts it");
        report.add(Finding::warning("netfilter", found, lines.join(" && ")));
    }
}

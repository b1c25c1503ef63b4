//! What a running gateway keeps of its privileges: docs/security.md says it for the reader, with the
//! reason of each.
//!
//! Given up when the start is complete, for good and in all threads. What is kept depends on what this
//! gateway does: without the fast path there is no bpf(2), and one that has nothing to look after on its
//! host has no capability at all.

mod account;
mod files;
mod ownership;
mod places;

use tombolo_config::{Host, Provision};
use tombolo_io::privileges::{Calls, Capabilities, Capability, InForce, Restriction, Tasks, Wanted, restricts_ports};

pub use account::SandboxError;

pub(crate) use account::Account;
pub(crate) use places::{Places, Tasked};

/// Gives up what is not needed, and says what is in force. `tasks` was opened when the file system was
/// still the host's. Gives the TCP ports that may be connected to from then on; none if that is not restricted.
pub(crate) fn give_up(
    settings: &Host,
    account: Option<Account>,
    tasked: Tasked,
    places: &Places<'_>,
    tasks: Tasks,
) -> Result<Option<Vec<u16>>, SandboxError> {
    if let Some(account) = &account {
        ownership::hand_over(settings, account, places)?;
    }
    let user = account.as_ref().map_or_else(|| nix::unistd::geteuid().to_string(), |account| account.name.clone());
    let files = settings.sandbox.then(|| files::rules(settings, tasked, places));
    let ports = files.as_ref().map(|files| files.ports.clone());
    let wanted = Wanted {
        capabilities: capabilities(settings, tasked),
        calls: settings.sandbox.then(|| Calls { bpf: tasked.has_programs, listen: restricts_ports() }),
        files,
        user: account.map(|account| (account.user, account.group, account.groups)),
    };
    let in_force = Restriction::prepare(wanted, tasks)?.enforce()?;
    say(&user, &in_force);
    Ok(ports.filter(|_| in_force.restricts_ports()))
}

/// What is needed until the end, each with its reason.
fn capabilities(settings: &Host, tasked: Tasked) -> Capabilities {
    let looks_after_host = match &settings.provision {
        Provision::Gateway => true,
        Provision::Administrator { up, addresses, routes } => *up || !addresses.is_empty() || !routes.is_empty(),
    };
    let mut kept = Capabilities::default();
    if looks_after_host || tasked.has_programs {
        // Routes, rules and addresses are put back, and removed at the end; programs are put on interfaces.
        kept = kept.with(Capability::NetAdmin);
    }
    if tasked.has_programs {
        // Programs of another plan, which read packets by pointers that the verifier has to trust.
        kept = kept.with(Capability::Bpf).with(Capability::Perfmon);
    }
    if tasked.awaits.prefix {
        // Router advertisements come to a raw socket.
        kept = kept.with(Capability::NetRaw);
    }
    kept
}

fn say(user: &str, InForce { capabilities, calls, files, threads }: &InForce) {
    let seccomp = match calls {
        Some(true) => "in force",
        Some(false) => "not in this kernel",
        None => "off",
    };
    let landlock = match files {
        Some(0) => "not in this kernel".to_owned(),
        Some(version) => format!("version {version}"),
        None => "off".to_owned(),
    };
    tracing::info!(user, %capabilities, seccomp, landlock, threads, "privileges given up");
    if *calls == Some(false) {
        tracing::warn!("the kernel filters no system calls: it lacks CONFIG_SECCOMP_FILTER");
    }
    if *files == Some(0) {
        tracing::warn!("the kernel restricts no files: it lacks Landlock (Linux 5.13, and landlock in lsm=)");
    }
}

//! A configuration that is to take the place of the one in force: read, and laid out over the tables and
//! the process that there are. What is bound to these (sizes of tables, the device, its queues) takes a
//! restart, which keeps the state, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tombolo_config::{
    Change, ConfigError, Configuration, FastPath, Host, InsideInterfaces, LogDetail, LogLevel, Wording,
};
use tombolo_engine::Plan;
use tombolo_engine::layout::{self, Misfit};
use tombolo_engine::mapping::slices::Slicing;
use tombolo_engine::plan::{Service, ServiceKind};
use tombolo_io::host::HostError;
use tombolo_tables::tables::Capacity;

use crate::awaits::Awaits;
use crate::discovery;
use crate::error_chain::in_one_line;
use crate::table_text::TableTextError;

/// Keys of `[gateway]` that a reload takes.
const LIVE: [&str; 12] = [
    "gateway.ipv4",
    "gateway.ipv6",
    "gateway.answered_by",
    "gateway.log_level",
    "gateway.icmp_",
    "gateway.proxy_neighbours",
    "gateway.mtu",
    "gateway.table",
    "gateway.fastpath_netfilter",
    "gateway.metrics",
    "gateway.binding_log",
    "gateway.pcp_addresses",
];

/// Why a configuration cannot take the place of another.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What cannot change at run time.
    #[error("{0} changed, which takes a restart of the gateway; the state goes on over it")]
    NeedsRestart(String),
    /// What the running process may not open.
    #[error("{key} cannot be followed, and nothing was changed: {why}")]
    Target {
        /// The key.
        key: &'static str,
        /// Why not.
        why: String,
    },
    /// The tables.
    #[error("{0}, so this takes a restart of the gateway; the state goes on over it")]
    Misfit(#[from] Misfit),
    /// The host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The text beside the tables.
    #[error("the file was read, and nothing was changed: {0}")]
    Text(#[from] TableTextError),
    /// A step.
    #[error("the file was read, and nothing was changed")]
    Step(#[source] std::io::Error),
    /// There is nothing that could be read again.
    #[error("there is no map-file to be read again")]
    Nothing,
    /// The gateway starts or ends.
    #[error("the gateway is starting or ending; try again")]
    NotNow,
    /// Nothing waits for it.
    #[error("no reload waits to be confirmed")]
    NothingToConfirm,
}

/// What a reload is to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wish {
    /// Say what would change, and change nothing.
    pub dry_run: bool,
    /// Go back after so many seconds, unless it is confirmed.
    pub confirm_within: Option<u32>,
    /// Do without the prefix of the PLAT that the network has said before, if it says none now.
    pub forget_prefix: bool,
}

/// What a file says, complete.
#[derive(Debug, Clone)]
pub struct Next {
    /// What the engine does.
    pub plan: Plan,
    /// What the host has to provide.
    pub settings: Host,
    /// The text.
    pub wording: Wording,
}

impl Next {
    /// What the file at `path` says. Only a gateway that has asked the network at its start can ask
    /// it still (`can`); where it gets no answer for the prefix of a PLAT it goes on with the one that it
    /// has, unless the `wish` is to forget it. Pools are divided by `slicing`, where etcd says how.
    ///
    /// # Errors
    /// [`ReloadError`].
    pub fn read(
        path: &Path,
        can: Awaits,
        slicing: Option<Slicing>,
        current: &Plan,
        wish: Wish,
    ) -> Result<Self, ReloadError> {
        let mut read = tombolo_config::load(path)?;
        if let Some(slicing) = slicing {
            read.divide(path, slicing)?;
        }
        let Configuration { host: settings, mut plan, warnings, wording } = read;
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        if let Some(key) = can.lacks(Awaits::of(&plan)) {
            return Err(ReloadError::NeedsRestart(key.to_owned()));
        }
        let awaits = discovery::awaiting(&plan).and_then(|number| plan.service(number));
        let former = awaits.and_then(|service| discovery::in_use(current, &service.name));
        let former = former.filter(|_| !wish.forget_prefix);
        if let Some(lack) = discovery::complete(&mut plan, former, discovery::advertised, discovery::resolved) {
            tracing::warn!("{}", in_one_line(&lack));
        }
        keep_lent(&mut plan, current)?;
        plan.cluster.clone_from(&current.cluster);
        plan.own.ipv4 = plan.own.ipv4.or(current.own.ipv4);
        plan.own.ipv6 = plan.own.ipv6.or(current.own.ipv6);
        Ok(Self { plan, settings, wording })
    }

    /// Lays the plan out to take the place of `current`, which was made of `was`. The keys that differ. Where
    /// there are programs in the kernel, they may be attached elsewhere.
    ///
    /// # Errors
    /// [`ReloadError::NeedsRestart`], [`ReloadError::Misfit`].
    pub(crate) fn follow(
        &mut self,
        was: &Said,
        current: &Plan,
        has_programs: bool,
    ) -> Result<Vec<Change>, ReloadError> {
        let changes = was.wording.changes_to(&self.wording);
        // What nobody has asked for stays as it is.
        let is_asked_for = changes.iter().any(|change| change.key.starts_with("capacity"));
        let kept = Capacity { outside_slots: self.plan.capacity.outside_slots, ..current.capacity };
        let has_other_room = is_asked_for && self.plan.capacity != kept;
        self.plan.capacity = kept;
        if fixed(&self.settings, &self.plan, has_programs) != fixed(&was.settings, current, has_programs)
            || has_other_room
        {
            let takes_restart = |change: &&Change| {
                let key = change.key.as_str();
                let is_mode = key == "gateway.fastpath" || key.starts_with("interface");
                let is_fixed = key.starts_with("gateway.") && !LIVE.iter().any(|live| key.starts_with(live));
                (is_fixed || is_mode) && !(is_mode && has_programs)
                    || key.starts_with("capacity")
                    || key.starts_with("cluster")
                    || key.contains(".dynamic_map")
            };
            let keys: Vec<&str> = changes.iter().filter(takes_restart).map(|change| change.key.as_str()).collect();
            let keys = if keys.is_empty() { "[gateway]".to_owned() } else { keys.join(", ") };
            return Err(ReloadError::NeedsRestart(keys));
        }
        layout::follow(&mut self.plan, current)?;
        Ok(changes)
    }
}

/// What the configuration in force says.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) settings: Host,
    pub(crate) wording: Wording,
}

/// The settings without what a reload takes; files of leases by the name of their service.
fn fixed<'s>(settings: &Host, plan: &'s Plan, has_programs: bool) -> (Host, Vec<(&'s str, PathBuf)>) {
    let name = |place: usize| plan.services.get(place).map_or("", |service| &service.name);
    let leases = settings.lease_files.iter().map(|(place, path)| (name(*place), path.clone())).collect();
    let (fastpath, interfaces) = match has_programs {
        true => (FastPath::Auto, BTreeMap::new()),
        false => (settings.fastpath, settings.interfaces.clone()),
    };
    let host = Host {
        fastpath,
        interfaces,
        addresses: Vec::new(),
        inside_interfaces: InsideInterfaces::Any,
        service_interfaces: BTreeMap::new(),
        lease_files: Vec::new(),
        shared_pools: Vec::new(),
        file_directories: Vec::new(),
        proxy_neighbours: true,
        log_level: LogLevel::Info,
        mtu: 0,
        table: 0,
        fastpath_netfilter: false,
        metrics: None,
        binding_log: None,
        binding_log_rate: 0,
        binding_log_detail: LogDetail::Bindings,
        binding_log_collectors: Vec::new(),
        ..settings.clone()
    };
    (host, leases)
}

/// The new plan goes on lending from the pools of the old one, which know what is lent. Who keeps their
/// files was told at the start which there are.
fn keep_lent(plan: &mut Plan, current: &Plan) -> Result<(), ReloadError> {
    for Service { name, kind, .. } in &mut plan.services {
        let ServiceKind::Siit(siit) = kind else { continue };
        let Some(pool) = &siit.dynamic else { continue };
        let was = current.services.iter().find(|service| service.name == *name);
        let lending = was.and_then(|service| match &service.kind {
            ServiceKind::Siit(was) => was.dynamic.as_ref().filter(|lending| lending.addresses() == pool.addresses()),
            _ => None,
        });
        let lending = lending.ok_or_else(|| ReloadError::NeedsRestart(format!("service.{name}.dynamic_pool")))?;
        siit.dynamic = Some(Arc::clone(lending));
    }
    Ok(())
}

//! The kernel's fast path as the daemon runs it: attached to the host's Ethernet interfaces, those
//! that appear later included, and replaced with each plan.
//!
//! It is an accelerator only: whatever it cannot take, the engine handles. So nothing that fails
//! here ends the gateway, except at the start where the configuration insists. Nor does it take what
//! others' rules of netfilter would have seen, unless the configuration says so: a firewall comes first. Should the programs
//! not follow a new plan, they are taken away: from all interfaces if the kernel does not take them,
//! else from those that do not. An interface is known by its number; it may come, go, and have
//! another name, link-layer address or MTU, each on its own.

mod choice;
mod taken;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tombolo_config::{FastPath as Wanted, Host};
use tombolo_engine::cluster::Cluster;
use tombolo_engine::{Now, Plan};
use tombolo_fastpath::tap::{Sighting, Watch};
use tombolo_fastpath::{
    Attached, FastPath, FastPathError, Loaded, Lost, PinnedMemory, Routes, ServiceStatus, Settings, Slices, TcKind,
};
use tombolo_io::clock::monotonic_nanos;
use tombolo_io::links::{self, Link};
use tombolo_io::netlink::{OTHER_RULES, ipv6_routes_beside};

pub use choice::{Choice, PassedBy, choose};
pub use taken::Taken;

use crate::error_chain::in_one_line;
use crate::source_guard;
use crate::state::State;
use choice::ForeignRulesWatch;

/// The longest wait for a route to change; a gateway that ends waits as long.
const ROUTES_PERIOD: Duration = Duration::from_millis(250);

/// How long until an interface that could not be served is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// What the fast path does with an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceStatus {
    /// The interface.
    pub link: Link,
    /// What was asked for.
    pub wanted: Wanted,
    /// What is attached.
    pub attached: Option<Attached>,
    /// Why it is not what was asked for, or what that means here.
    pub why: String,
}

impl InterfaceStatus {
    /// Where packets are taken, in words.
    #[must_use]
    pub fn takes(&self) -> &'static str {
        match self.attached {
            Some(Attached { xdp: true, tc: Some(_) }) => "xdp+tc",
            Some(Attached { xdp: true, tc: None }) => "xdp",
            Some(Attached { tc: Some(TcKind::Link), .. }) => "tc",
            Some(Attached { tc: Some(TcKind::Filter), .. }) => "tc (filter)",
            _ => "off",
        }
    }
}

/// How the programs find the next hop of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteUse {
    /// They leave that to the kernel's stack, as the configuration says; or there are none.
    None,
    /// By the gateways of so many routes.
    Mirrored(usize),
    /// XDP by asking for each destination, TC not at all, and why.
    EachDestination(&'static str),
}

/// The fast path of a running gateway.
#[derive(Debug)]
pub struct Accelerator {
    parts: Mutex<Parts>,
    /// For the lookout, which takes it.
    routes: Mutex<Option<Routes>>,
    route_use: Mutex<RouteUse>,
    rules: Mutex<ForeignRulesWatch>,
    settings: Mutex<Host>,
    /// Which node of the cluster serves what. Beside the lock of the programs: an owner that is gone does not wait for
    /// the verifier.
    slices: Option<Slices>,
    /// What the programs are to show of packets.
    watch: Mutex<Option<Watch>>,
    /// The kernel goes on counting from one process to the next.
    before: Taken,
}

#[derive(Debug)]
struct Parts {
    programs: FastPath,
    /// By number.
    interfaces: BTreeMap<u32, Served>,
    stage: Stage,
    /// Packets that the programs could not show, as far as that has been said.
    unshown: u64,
}

/// An interface, what was tried on it, and when.
#[derive(Debug)]
struct Served {
    status: InterfaceStatus,
    choice: Choice,
    tried: Instant,
}

/// How far the fast path is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// The programs are loaded. Those of an earlier process, if there are any, go on.
    Loaded,
    /// They are attached.
    Serving,
    /// They are attached nowhere, and why.
    Off(String),
    /// As above, for good.
    Ended,
}

/// Programs for another plan, or why there are none.
#[derive(Debug)]
pub struct Prepared(Result<Loaded, FastPathError>);

impl Accelerator {
    /// Loads the programs for `plan`. Nothing is attached before [`attach`](Self::attach). `None` if
    /// the tables are not in the kernel, or if the programs cannot be loaded and the configuration
    /// allows for that.
    ///
    /// # Errors
    /// [`FastPathError`], if the programs cannot be loaded and the configuration insists.
    pub fn start(settings: &Host, state: &State, plan: &Plan) -> Result<Option<Self>, FastPathError> {
        let Some(memory) = state.kernel_memory() else { return Ok(None) };
        let (routes, route_use) = mirror_routes(memory);
        let slices = plan.cluster.as_deref().and_then(|cluster| tell_slices(memory, cluster));
        let programs = match FastPath::load(memory, &state.tables, plan, programs_settings(settings, None)) {
            Ok(programs) => programs,
            Err(error) if settings.fastpath == Wanted::Auto => {
                tracing::warn!("no fast path: {}", in_one_line(&error));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mut programs = programs;
        if let Err(error) = programs.count_losses() {
            tracing::info!("what the kernel loses behind XDP is not counted: {}", in_one_line(&error));
        }
        let before = programs.counters().as_ref().map(Taken::of).unwrap_or_default();
        for ServiceStatus { name, left_to_engine } in programs.services() {
            match left_to_engine {
                None => tracing::info!(service = name, "accelerated"),
                Some(why) => tracing::info!(service = name, why, "left to the engine"),
            }
        }
        let rules = Mutex::new(ForeignRulesWatch::start());
        let parts = Mutex::new(Parts { programs, interfaces: BTreeMap::new(), stage: Stage::Loaded, unshown: 0 });
        let (routes, route_use) = (Mutex::new(routes), Mutex::new(route_use));
        let settings = Mutex::new(settings.clone());
        Ok(Some(Self { parts, routes, route_use, rules, settings, slices, watch: Mutex::default(), before }))
    }

    /// Has the programs go by what is known of the cluster now.
    pub(crate) fn follow_cluster(&self, cluster: &Cluster) {
        self.slices.iter().for_each(|slices| slices.publish(cluster, Now(monotonic_nanos())));
    }

    /// Attaches the programs to the interfaces, in place of those of an earlier process.
    pub fn attach(&self) {
        self.lock().stage = Stage::Serving;
        self.look();
    }

    /// Attaches to interfaces that have come, follows those that have changed, and forgets those
    /// that are gone; and gives way to what packets would pass by.
    pub fn look(&self) {
        // What is found holds when it is applied: nobody else looks meanwhile.
        let mut parts = self.lock();
        let by = PassedBy {
            netfilter: self.rules().find(),
            routing: self.route_use() == RouteUse::EachDestination(OTHER_RULES),
        };
        match links::ethernet() {
            Ok(links) => parts.look(links, &self.settings(), &by),
            Err(error) => tracing::warn!("the interfaces cannot be listed: {error}"),
        }
    }

    /// Whether rules of netfilter have changed since the last call.
    pub(crate) fn has_other_rules(&self) -> bool {
        self.rules().has_changed()
    }

    /// Other modes are asked for, from the next [`exchange`](Self::exchange) on.
    pub(crate) fn follow_settings(&self, settings: &Host) {
        settings.clone_into(&mut self.settings.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Takes the programs off all interfaces until those of another plan come.
    pub(crate) fn pause(&self, why: &str) {
        let mut parts = self.lock();
        if parts.stage == Stage::Serving {
            parts.turn_off(Stage::Off(why.to_owned()));
        }
    }

    /// Programs for another plan, which takes the kernel a second or so. If there are none, the old
    /// ones are taken away at once: they must not decide otherwise than the engine.
    pub fn prepare(&self, plan: &Plan) -> Prepared {
        let mut parts = self.lock();
        let loaded = parts.programs.prepare(plan, programs_settings(&self.settings(), self.watched().clone()));
        if let Err(error) = &loaded {
            let why = format!("the kernel did not take the programs of the new plan: {}", in_one_line(error));
            tracing::error!("the fast path is off: {why}");
            parts.turn_off(Stage::Off(why));
        }
        Prepared(loaded)
    }

    /// Puts the programs in the place of those for the plan before. Says what has no fast path now,
    /// and why.
    pub fn exchange(&self, Prepared(loaded): Prepared) -> Vec<String> {
        let mut parts = self.lock();
        match (loaded, &parts.stage) {
            (_, Stage::Ended) => Vec::new(),
            (Err(error), _) => {
                vec![format!("everywhere: the kernel did not take the programs: {}", in_one_line(&error))]
            }
            (Ok(loaded), _) => {
                let lost = parts.exchange(loaded);
                parts.stage = Stage::Serving;
                drop(parts);
                self.look();
                lost
            }
        }
    }

    /// Has the programs show packets, or no more of them: others take their places, for the same plan. If the
    /// kernel does not take those, the old ones go on.
    pub(crate) fn watch(&self, plan: &Plan, watch: Option<Watch>) -> Result<(), String> {
        if std::mem::replace(&mut *self.watched(), watch.clone()) == watch {
            return Ok(());
        }
        let mut parts = self.lock();
        if parts.stage != Stage::Serving {
            return Ok(());
        }
        match parts.programs.prepare(plan, programs_settings(&self.settings(), watch)) {
            Ok(loaded) => {
                parts.exchange(loaded);
                Ok(())
            }
            Err(error) => {
                // A plan that comes meanwhile must not fail for that.
                *self.watched() = None;
                Err(in_one_line(&error))
            }
        }
    }

    /// Hands out what the programs have shown. Says how much more they had to show.
    pub(crate) fn sightings(&self, each: &mut dyn FnMut(&Sighting<'_>)) -> u64 {
        let mut parts = self.lock();
        parts.programs.sightings(each);
        let unshown = parts.programs.unshown();
        // Other programs begin anew.
        let before = std::mem::replace(&mut parts.unshown, unshown);
        unshown.checked_sub(before).unwrap_or(unshown)
    }

    /// Takes the programs off all interfaces, for good.
    pub fn detach(&self) {
        self.lock().turn_off(Stage::Ended);
    }

    /// What is attached where, and why not; by name.
    #[must_use]
    pub fn interfaces(&self) -> Vec<InterfaceStatus> {
        let mut found: Vec<_> = self.lock().interfaces.values().map(|served| served.status.clone()).collect();
        found.sort_by(|a, b| a.link.name.cmp(&b.link.name));
        found
    }

    /// The name of an interface that programs are on, by its number.
    pub(crate) fn name_of(&self, number: u32) -> Option<String> {
        self.lock().interfaces.get(&number).map(|served| served.status.link.name.clone())
    }

    /// What was asked for and is not there.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let parts = self.lock();
        if let Stage::Off(why) = &parts.stage {
            return vec![format!("the fast path is off: {why}")];
        }
        let statuses = parts.interfaces.values().map(|served| &served.status);
        let lacking = statuses.filter(|status| status.attached.is_none() && !matches!(status.wanted, Wanted::Off));
        let lacking = lacking.filter(|status| status.wanted != Wanted::Auto && !status.link.is_port);
        lacking.map(|status| format!("no fast path on {}: {}", status.link.name, status.why)).collect()
    }

    /// What becomes of each service.
    #[must_use]
    pub fn services(&self) -> Vec<ServiceStatus> {
        self.lock().programs.services().to_vec()
    }

    /// How the programs find the next hop of packets.
    #[must_use]
    pub fn route_use(&self) -> RouteUse {
        if self.settings().fastpath_netfilter {
            return RouteUse::None;
        }
        *self.route_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take_routes(&self) -> Option<Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits for routes to change, and says once if they cannot be mirrored any more, or can again. True
    /// if that changes what is attached where.
    pub(crate) fn follow(&self, routes: &mut Routes) -> bool {
        let found = match routes.follow(ROUTES_PERIOD) {
            Ok(()) => use_of(routes),
            Err(_) => RouteUse::EachDestination("the kernel's routes cannot be followed"),
        };
        let mut known = self.route_use.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *known, found);
        match found {
            _ if self.settings().fastpath_netfilter => {}
            RouteUse::EachDestination(why) if before != found => {
                tracing::warn!(
                    why,
                    "XDP asks the kernel for the next hop of each destination, and TC leaves routing to the kernel: slower"
                );
            }
            RouteUse::Mirrored(_) if matches!(before, RouteUse::EachDestination(_)) => {
                tracing::info!("the fast path goes by the kernel's routes again");
            }
            _ => {}
        }
        [before, found].contains(&RouteUse::EachDestination(OTHER_RULES)) && before != found
    }

    /// What was counted since the start of this process; nothing if the kernel's counters cannot be
    /// read.
    #[must_use]
    pub fn taken(&self) -> Taken {
        let parts = self.lock();
        let lost = parts.programs.losses().ok().flatten();
        let taken = parts.programs.counters().map(|counters| Taken::of(&counters).since(&self.before));
        Taken { lost, ..taken.unwrap_or_default() }
    }

    fn settings(&self) -> Host {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn watched(&self) -> MutexGuard<'_, Option<Watch>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rules(&self) -> MutexGuard<'_, ForeignRulesWatch> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kernel forwards a packet into the TUN device and, when the engine is done with it, out of it.
const HOPS_OF_THE_DEVICE: u8 = 2;

/// Why an interface has XDP and packets leave it by TC.
const CANNOT_SEND: &str = "the other end takes nothing from XDP (it has neither XDP nor GRO): packets leave here by TC";

/// What the programs are told beside the plan.
fn programs_settings(settings: &Host, watch: Option<Watch>) -> Settings {
    let routes = ipv6_routes_beside(&settings.device).unwrap_or_else(|error| {
        tracing::warn!("the host's IPv6 routes cannot be listed: {error}");
        Vec::new()
    });
    Settings {
        through_stack: settings.fastpath_netfilter,
        core: source_guard::core(settings),
        entrances: source_guard::entrances(settings),
        hops_beside: HOPS_OF_THE_DEVICE,
        routes_beside: routes.iter().map(|route| (route.addr(), route.prefix_len())).collect(),
        watch,
    }
}

/// The routes for the programs, which work without them, too.
///
/// Also where they leave routing to the stack: a reload may have them route again.
fn mirror_routes(memory: &PinnedMemory) -> (Option<Routes>, RouteUse) {
    match Routes::open(memory) {
        Ok(routes) => {
            let found = use_of(&routes);
            (Some(routes), found)
        }
        Err(error) => {
            tracing::warn!("the kernel's routes are not mirrored: {}", in_one_line(&error));
            (None, RouteUse::EachDestination("they could not be mirrored at the start"))
        }
    }
}

/// The slices for the programs, which leave to the engine what other nodes serve without.
fn tell_slices(memory: &PinnedMemory, cluster: &Cluster) -> Option<Slices> {
    if !cluster.has_slices() {
        return None;
    }
    match Slices::open(memory, cluster, Now(monotonic_nanos())) {
        Ok(slices) => Some(slices),
        Err(error) => {
            tracing::warn!("the engine redirects what other nodes serve: {}", in_one_line(&error));
            None
        }
    }
}

fn use_of(routes: &Routes) -> RouteUse {
    match routes.falls_short() {
        Some(why) => RouteUse::EachDestination(why),
        None => RouteUse::Mirrored(routes.prefixes()),
    }
}

impl Parts {
    fn look(&mut self, links: Vec<Link>, settings: &Host, by: &PassedBy) {
        if matches!(self.stage, Stage::Loaded | Stage::Ended) {
            return;
        }
        let there: Vec<u32> = links.iter().map(|link| link.index).collect();
        let gone: Vec<u32> = self.interfaces.keys().copied().filter(|number| !there.contains(number)).collect();
        for number in gone {
            self.programs.forget(number);
            if let Some(Served { status, .. }) = self.interfaces.remove(&number) {
                tracing::info!(interface = status.link.name, "fast path: the interface is gone");
            }
        }
        if let Err(error) = self.programs.forget_others(&there) {
            tracing::warn!("links of interfaces that are gone cannot be removed: {error}");
        }
        for link in links {
            self.see(link, settings, by);
        }
        if self.stage == Stage::Serving {
            self.note_where_xdp_sends();
        }
    }

    /// Does what an interface asks for as it is now.
    fn see(&mut self, link: Link, settings: &Host, by: &PassedBy) {
        let single = settings.interfaces.get(&link.name).copied();
        let wanted = single.unwrap_or(settings.fastpath);
        let choice = choose(&link, single, settings, by);
        if let Stage::Off(why) = &self.stage {
            let status = InterfaceStatus { link, wanted, attached: None, why: why.clone() };
            self.interfaces.insert(status.link.index, Served { status, choice, tried: Instant::now() });
            return;
        }
        if let Some(known) = self.interfaces.get_mut(&link.index) {
            let is_same = known.choice == choice && known.status.wanted == wanted;
            let is_lacking = known.status.attached.is_none() && !choice.modes.is_empty();
            if is_same && !(is_lacking && known.tried.elapsed() >= RETRY) {
                if known.status.link != link {
                    Self::follow(&mut self.programs, &mut known.status, link);
                }
                return;
            }
        }
        let status = self.attach(link, wanted, &choice);
        tracing::info!(interface = status.link.name, takes = status.takes(), why = status.why, "fast path");
        self.interfaces.insert(status.link.index, Served { status, choice, tried: Instant::now() });
    }

    /// The interface has another name, link-layer address, MTU or state, or the kernel takes other packets there.
    fn follow(programs: &mut FastPath, status: &mut InterfaceStatus, link: Link) {
        let old = std::mem::replace(&mut status.link, link);
        let link = &status.link;
        if old.name != link.name {
            tracing::info!(interface = old.name, name = link.name, "fast path: the interface has another name");
        }
        if old.mac != link.mac {
            tracing::info!(interface = link.name, "fast path: the interface has another link-layer address");
        }
        // Next hops carry the MTU, and are asked anew each tick.
        if (old.name != link.name || old.mac != link.mac || old.intake != link.intake)
            && let Err(error) = programs.follow(link)
        {
            tracing::error!("the fast path on {} does not know what it is: {}", link.name, in_one_line(&error));
            programs.forget(link.index);
            status.attached = None;
            status.why = in_one_line(&error);
        }
    }

    fn attach(&mut self, link: Link, wanted: Wanted, choice: &Choice) -> InterfaceStatus {
        let mut status = InterfaceStatus { link, wanted, attached: None, why: choice.why.clone().into_owned() };
        let name = status.link.name.clone();
        for &mode in choice.modes {
            match self.programs.attach(&name, mode) {
                Ok(attached) => {
                    status.attached = Some(attached);
                    break;
                }
                Err(error) => status.why = in_one_line(&error),
            }
        }
        if status.attached.is_none() {
            // What an earlier process may have left there, for another plan and other tables.
            let _ = self.programs.detach(&name);
        }
        status
    }

    /// XDP stays attached where it cannot send: what comes in there may leave elsewhere.
    fn note_where_xdp_sends(&mut self) {
        if let Err(error) = self.programs.refresh() {
            tracing::warn!("where XDP can send is not known: {}", in_one_line(&error));
        }
        for Served { status, .. } in self.interfaces.values_mut() {
            let name = &status.link.name;
            let why = match self.programs.xdp_sends(name) {
                Some(false) => CANNOT_SEND,
                Some(true) => "",
                None => continue,
            };
            if status.why != why {
                tracing::info!(interface = name, why, "fast path");
                why.clone_into(&mut status.why);
            }
        }
    }

    /// Replaces the programs; each interface on which that fails is without, and named.
    fn exchange(&mut self, loaded: Loaded) -> Vec<String> {
        let mut lost = Vec::new();
        for Lost { number, name, error } in self.programs.exchange(loaded) {
            let why = format!("it did not follow the new plan: {}", in_one_line(&error));
            tracing::warn!(interface = name, why, "no fast path");
            lost.push(format!("{name}: {why}"));
            if let Some(Served { status, tried, .. }) = self.interfaces.get_mut(&number) {
                (status.attached, status.why, *tried) = (None, why, Instant::now());
            }
        }
        lost
    }

    fn turn_off(&mut self, stage: Stage) {
        let why = match &stage {
            Stage::Off(why) => why.clone(),
            _ => "the gateway ends".to_owned(),
        };
        for (number, Served { status, .. }) in &mut self.interfaces {
            if status.attached.take().is_some() && self.programs.detach(&status.link.name).is_err() {
                // It is gone, or has another name since.
                self.programs.forget(*number);
            }
            status.why.clone_from(&why);
        }
        self.stage = stage;
    }
}

//! Loads the programs for a plan, attaches them to interfaces, and reads their counters.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aya::maps::{Array, MapData, PerCpuArray};
use aya::programs::links::{FdLink, LinkError, PinnedLink};
use aya::programs::tc::{SchedClassifierLink, TcAttachOptions};
use aya::programs::xdp::{XdpLink, XdpMode};
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType, Xdp};
use aya::{Ebpf, EbpfLoader};
use tombolo_engine::Plan;
use tombolo_io::fault;
use tombolo_io::links::Link;
use tombolo_io::netlink::sends_redirected;
use tombolo_tables::Tables;
use tombolo_tables::tables::Geometry;

use crate::counters::Counters;
use crate::error::FastPathError;
use crate::filter;
use crate::interface::Interface;
use crate::losses::Losses;
use crate::mode::{Attached, Mode, TcKind};
use crate::part::{TC, XDP, part};
use crate::pinned::PinnedMemory;
use crate::plan::{FastPlan, Role, ServiceStatus, Settings};
use crate::record::{INTERFACES, InterfaceRecord, ScratchRecord};
use crate::tap::{Sighting, Tap, Watch};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/fastpath.bpf.o"));
/// The same, for as long as somebody traces.
static TRACED: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/traced.bpf.o"));

/// The programs, loaded for one plan.
///
/// Dropping it leaves attached what is attached: known sessions are forwarded on.
/// [`detach`](Self::detach) takes it away.
#[derive(Debug)]
pub struct FastPath {
    programs: Ebpf,
    directory: PathBuf,
    geometry: Geometry,
    secret: [u64; 2],
    settings: Settings,
    services: Vec<ServiceStatus>,
    /// By number: names change.
    interfaces: BTreeMap<u32, AttachedInterface>,
    losses: Option<Losses>,
    /// What the programs show, if they are those of a trace.
    tap: Option<Tap>,
}

/// Programs that are loaded for another plan and not attached yet.
#[derive(Debug)]
pub struct Loaded {
    programs: Ebpf,
    settings: Settings,
    services: Vec<ServiceStatus>,
    tap: Option<Tap>,
}

/// An interface that did not get the programs of another plan. It has none now.
#[derive(Debug)]
pub struct Lost {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Why.
    pub error: FastPathError,
}

/// An interface with the programs on it.
#[derive(Debug)]
struct AttachedInterface {
    name: String,
    interface: Interface,
    xdp: Option<FdLink>,
    tc: Option<FdLink>,
    attached: Attached,
    /// XDP sends through it.
    xdp_sends: bool,
}

impl FastPath {
    /// Loads the programs for `plan` over `tables`, which must lie in `memory`. Nothing is attached
    /// yet.
    ///
    /// # Errors
    /// [`FastPathError`].
    pub fn load(
        memory: &PinnedMemory,
        tables: &Tables,
        plan: &Plan,
        settings: Settings,
    ) -> Result<Self, FastPathError> {
        if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            return Err(FastPathError::Processor);
        }
        let directory = memory.directory().to_owned();
        let (geometry, secret) = (tables.geometry(), random()?);
        let Loaded { programs, settings, services, tap } =
            load_programs(&directory, plan, &geometry, settings, secret)?;
        let (interfaces, losses) = (BTreeMap::new(), None);
        Ok(Self { programs, directory, geometry, secret, settings, services, interfaces, losses, tap })
    }

    /// What becomes of each service of the plan.
    #[must_use]
    pub fn services(&self) -> &[ServiceStatus] {
        &self.services
    }

    /// Loads the programs for another plan over the same tables. That takes the kernel's verifier a
    /// second or so; what is attached goes on meanwhile.
    ///
    /// # Errors
    /// [`FastPathError`].
    pub fn prepare(&self, plan: &Plan, settings: Settings) -> Result<Loaded, FastPathError> {
        fault::check("reload-programs").map_err(|error| link_error(&self.directory, error))?;
        load_programs(&self.directory, plan, &self.geometry, settings, self.secret)
    }

    /// Replaces the programs that are attached, each link in one instant. The calling thread is in
    /// the network namespace where they were attached: filters, of kernels without links of TC, are
    /// found by their interface.
    ///
    /// An interface on which that cannot be has none afterwards, since the old ones must not decide
    /// by a plan that is over; the others have the new ones.
    pub fn exchange(&mut self, Loaded { programs, settings, services, tap }: Loaded) -> Vec<Lost> {
        self.settings = settings;
        self.programs = programs;
        self.services = services;
        self.tap = tap;
        let mut lost = Vec::new();
        for (number, AttachedInterface { name, interface, xdp, tc, attached, .. }) in
            std::mem::take(&mut self.interfaces)
        {
            // The links close here and stay pinned; attaching finds them and replaces their
            // programs.
            drop((xdp, tc));
            let asked = fault::check("reload-link").map_err(|error| link_error(&self.directory, error));
            match asked.and_then(|()| self.attach_to(&name, interface, attached.xdp)) {
                Ok(replaced) => drop(self.interfaces.insert(number, replaced)),
                Err(error) => {
                    self.forget(number);
                    lost.push(Lost { number, name, error });
                }
            }
        }
        lost
    }

    /// [`prepare`](Self::prepare) and [`exchange`](Self::exchange).
    ///
    /// # Errors
    /// [`FastPathError`]: that of the first interface that has lost its programs.
    pub fn update(&mut self, plan: &Plan, settings: Settings) -> Result<(), FastPathError> {
        let loaded = self.prepare(plan, settings)?;
        match self.exchange(loaded).into_iter().next() {
            None => Ok(()),
            Some(Lost { error, .. }) => Err(error),
        }
    }

    /// Attaches the programs to an interface of the calling thread's network namespace. What an
    /// earlier process left attached there is replaced in one instant.
    ///
    /// # Errors
    /// [`FastPathError`]. With [`Settings::through_stack`] each interface gets TC.
    pub fn attach(&mut self, name: &str, mode: Mode) -> Result<Attached, FastPathError> {
        let interface = Interface::named(name)?;
        let interface = match mode {
            Mode::Off => {
                self.detach(name)?;
                return Ok(Attached { xdp: false, tc: None });
            }
            Mode::Tc => self.attach_to(name, interface, false)?,
            _ if self.settings.through_stack => self.attach_to(name, interface, false)?,
            Mode::Xdp => self.attach_to(name, interface, true)?,
        };
        let attached = interface.attached;
        self.interfaces.insert(interface.interface.number, interface);
        Ok(attached)
    }

    /// Follows an interface that has another name, another link-layer address, or of which the kernel takes other packets
    /// now. Packets for the old address are not the gateway's any more.
    ///
    /// # Errors
    /// [`FastPathError::Map`].
    pub fn follow(&mut self, link: &Link) -> Result<(), FastPathError> {
        let Some(attached) = self.interfaces.get_mut(&link.index) else { return Ok(()) };
        link.name.clone_into(&mut attached.name);
        attached.interface = Interface::of(link);
        let role = Role::of(&link.name, &self.services, &self.settings);
        let record = attached.interface.record(attached.xdp_sends, role);
        self.set_interface(link.index, record)
    }

    /// Forgets an interface that is gone, or on which the programs shall do nothing any more,
    /// whatever state it is in.
    pub fn forget(&mut self, number: u32) {
        self.interfaces.remove(&number);
        // A program that stays somehow lets packets of an interface without a record pass.
        let _ = self.set_interface(number, InterfaceRecord::default());
        for program in [XDP, TC] {
            let _ = remove(&self.link_path(program, number));
        }
        let _ = filter::take_off(&self.directory, number);
    }

    /// Forgets the links of interfaces that are not there any more, as an earlier process has left
    /// them. `there` are the numbers of those that are.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn forget_others(&mut self, there: &[u32]) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let number =
                name.to_str().filter(|name| name.starts_with("link-")).and_then(|name| name.rsplit('-').next());
            if let Some(number) = number.and_then(|number| number.parse().ok())
                && !there.contains(&number)
            {
                self.forget(number);
            }
        }
        Ok(())
    }

    /// Takes the programs off an interface; nothing happens if they are not there.
    ///
    /// # Errors
    /// [`FastPathError`].
    pub fn detach(&mut self, name: &str) -> Result<(), FastPathError> {
        let known = self.interfaces.iter().find(|(_, attached)| attached.name == name).map(|(number, _)| *number);
        let interface = match known.and_then(|number| self.interfaces.remove(&number)) {
            Some(attached) => attached.interface,
            None => Interface::named(name)?,
        };
        self.unlink(XDP, interface)?;
        self.unlink(TC, interface)?;
        let _ = filter::take_off(&self.directory, interface.number);
        self.set_interface(interface.number, InterfaceRecord::default())
    }

    /// What is attached where.
    pub fn interfaces(&self) -> impl Iterator<Item = (&str, Attached)> {
        self.interfaces.values().map(|interface| (interface.name.as_str(), interface.attached))
    }

    /// Whether XDP sends through an interface that it is attached to. Where it cannot, TC sends what is
    /// for there.
    #[must_use]
    pub fn xdp_sends(&self, name: &str) -> Option<bool> {
        let interface = self.interfaces.values().find(|interface| interface.name == name)?;
        interface.attached.xdp.then_some(interface.xdp_sends)
    }

    /// Asks again which interfaces take what XDP redirects to them: the other end of a veth may have
    /// begun to poll, or stopped. The calling thread is in their network namespace.
    ///
    /// # Errors
    /// [`FastPathError::Map`].
    pub fn refresh(&mut self) -> Result<(), FastPathError> {
        let attached = self.interfaces.iter_mut().filter(|(_, interface)| interface.attached.xdp);
        let mut changed = Vec::new();
        for (_, interface) in attached {
            let Ok(Some(xdp_sends)) = sends_redirected(interface.interface.number) else { continue };
            interface.xdp_sends = xdp_sends;
            let role = Role::of(&interface.name, &self.services, &self.settings);
            changed.push(interface.interface.record(xdp_sends, role));
        }
        changed.into_iter().try_for_each(|record| self.set_interface(record.number, record))
    }

    /// Begins to count the frames that the kernel does not send though XDP has redirected them, from
    /// interfaces of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`FastPathError`] if the kernel does not tell.
    pub fn count_losses(&mut self) -> Result<(), FastPathError> {
        self.losses = Some(Losses::load(&self.directory)?);
        Ok(())
    }

    /// Those frames, since the count began; `None` if they are not counted.
    ///
    /// # Errors
    /// [`FastPathError::Map`].
    pub fn losses(&self) -> Result<Option<u64>, FastPathError> {
        self.losses.as_ref().map(Losses::count).transpose()
    }

    /// What the programs have counted, on all processors, since the memory was made.
    ///
    /// # Errors
    /// [`FastPathError::Map`].
    pub fn counters(&self) -> Result<Counters, FastPathError> {
        let fail = || FastPathError::Map("per_processor");
        let map = self.programs.map("per_processor").ok_or_else(fail)?;
        let array: PerCpuArray<&MapData, ScratchRecord> = map.try_into().map_err(|_| fail())?;
        let processors = array.get(&0, 0).map_err(|_| fail())?;
        Ok(Counters::sum(processors.iter()))
    }

    /// Hands out the packets that the programs have shown since the last call; none unless
    /// [`Settings::watch`] asks for some.
    pub fn sightings(&mut self, each: &mut dyn FnMut(&Sighting<'_>)) {
        self.tap.iter_mut().for_each(|tap| tap.take(each));
    }

    /// Packets that the programs had to show, since they were loaded, and had no room for.
    #[must_use]
    pub fn unshown(&self) -> u64 {
        self.tap.as_ref().map_or(0, Tap::lost)
    }

    pub(crate) fn program(&self, name: &str) -> Option<&aya::programs::Program> {
        self.programs.program(name)
    }

    fn attach_to(
        &mut self,
        name: &str,
        interface: Interface,
        with_xdp: bool,
    ) -> Result<AttachedInterface, FastPathError> {
        let xdp_sends = with_xdp && sends(interface.number);
        // Programs that are there already know the services by other places: meanwhile the engine has those whose
        // packets come in by listed interfaces.
        self.claim_interface(name, interface.record(xdp_sends, Role::default()))?;
        let xdp = if with_xdp { Some(self.attach_xdp(name, interface)?) } else { None };
        if !with_xdp {
            self.unlink(XDP, interface)?;
        }
        let tc = self.attach_tc(name, interface)?;
        let role = Role::of(name, &self.services, &self.settings);
        self.set_interface(interface.number, interface.record(xdp_sends, role))?;
        let kind = if tc.is_some() { TcKind::Link } else { TcKind::Filter };
        let attached = Attached { xdp: with_xdp, tc: Some(kind) };
        Ok(AttachedInterface { name: name.to_owned(), interface, xdp, tc, attached, xdp_sends })
    }

    fn attach_xdp(&mut self, name: &str, interface: Interface) -> Result<FdLink, FastPathError> {
        let path = self.link_path(XDP, interface.number);
        let program: &mut Xdp = part(&mut self.programs, XDP)?;
        let attach = |source| FastPathError::Attach { program: XDP, interface: name.to_owned(), source };
        if let Some(old) = pinned(&path)? {
            let link = XdpLink::try_from(old).map_err(|source| link_error(&path, source))?;
            if let Ok(id) = program.attach_to_link(link) {
                let link = program.take_link(id).map_err(attach)?;
                return FdLink::try_from(link).map_err(|source| link_error(&path, source));
            }
            // The interface that it belonged to is gone.
            remove(&path)?;
        }
        let id = program.attach_to_if_index(interface.number, XdpMode::Driver).map_err(attach)?;
        let link = FdLink::try_from(program.take_link(id).map_err(attach)?);
        pin(link.map_err(|source| link_error(&path, source))?, &path)
    }

    /// As a link where the kernel has them, else as a filter, which has no link.
    fn attach_tc(&mut self, name: &str, interface: Interface) -> Result<Option<FdLink>, FastPathError> {
        let path = self.link_path(TC, interface.number);
        let program: &mut SchedClassifier = part(&mut self.programs, TC)?;
        let attach = |source| FastPathError::Attach { program: TC, interface: name.to_owned(), source };
        if let Some(old) = pinned(&path)? {
            let link = SchedClassifierLink::try_from(old).map_err(|source| link_error(&path, source))?;
            if let Ok(id) = program.attach_to_link(link) {
                let link = program.take_link(id).map_err(attach)?;
                return Ok(Some(FdLink::try_from(link).map_err(|source| link_error(&path, source))?));
            }
            remove(&path)?;
        }
        let order = TcAttachOptions::TcxOrder(LinkOrder::default());
        let has_links = fault::check("tcx").is_ok();
        let linked = has_links.then(|| program.attach_with_options(name, TcAttachType::Ingress, order).ok()).flatten();
        let Some(id) = linked else {
            filter::attach(program, &self.directory, name, interface.number).map_err(attach)?;
            return Ok(None);
        };
        let _ = filter::take_off(&self.directory, interface.number);
        let link = FdLink::try_from(program.take_link(id).map_err(attach)?);
        pin(link.map_err(|source| link_error(&path, source))?, &path).map(Some)
    }

    fn unlink(&self, program: &'static str, interface: Interface) -> Result<(), FastPathError> {
        remove(&self.link_path(program, interface.number))
    }

    fn link_path(&self, program: &'static str, number: u32) -> PathBuf {
        self.directory.join(format!("link-{program}-{number}"))
    }

    fn claim_interface(&mut self, name: &str, record: InterfaceRecord) -> Result<(), FastPathError> {
        let collides = |number: &u32| *number != record.number && number % INTERFACES == record.number % INTERFACES;
        if self.interfaces.keys().any(collides) {
            return Err(FastPathError::TooMany(name.to_owned()));
        }
        self.set_interface(record.number, record)
    }

    pub(crate) fn set_interface(&mut self, number: u32, record: InterfaceRecord) -> Result<(), FastPathError> {
        let fail = || FastPathError::Map("interfaces");
        let map = self.programs.map_mut("interfaces").ok_or_else(fail)?;
        let mut array: Array<&mut MapData, InterfaceRecord> = map.try_into().map_err(|_| fail())?;
        array.set(number % INTERFACES, record, 0).map_err(|_| fail())
    }
}

/// Whether the interface takes what XDP redirects to it. Where the kernel does not say (before Linux
/// 6.3) it is tried, and `bpf/losses.bpf.c` ends it.
fn sends(number: u32) -> bool {
    sends_redirected(number).ok().flatten().unwrap_or(true)
}

fn load_programs(
    directory: &Path,
    plan: &Plan,
    geometry: &Geometry,
    settings: Settings,
    secret: [u64; 2],
) -> Result<Loaded, FastPathError> {
    let plan = FastPlan::new(plan, geometry, &settings, secret)?;
    let object = if settings.watch.is_some() { TRACED } else { OBJECT };
    let mut programs = load_object(object, directory, &plan, settings.watch.as_ref())?;
    let failed = |program| move |source| FastPathError::Program { program, source };
    part::<Xdp>(&mut programs, XDP)?.load().map_err(failed(XDP))?;
    part::<SchedClassifier>(&mut programs, TC)?.load().map_err(failed(TC))?;
    let tap = settings.watch.is_some().then(|| Tap::of(&mut programs)).transpose()?;
    Ok(Loaded { programs, settings, services: plan.services, tap })
}

/// Loads an object with its constants, and with the tables that belong to them.
pub(crate) fn load_object(
    object: &[u8],
    directory: &Path,
    plan: &FastPlan,
    watch: Option<&Watch>,
) -> Result<Ebpf, FastPathError> {
    let watch = watch.map(Watch::record);
    let mut loader = EbpfLoader::new();
    loader.default_map_pin_directory(directory).override_global("plan", &plan.record, true);
    if let Some(watch) = &watch {
        loader.override_global("tap", watch, true);
    }
    let mut programs = plan.tables.size(&mut loader).load(object).map_err(FastPathError::Load)?;
    plan.tables.fill(&mut programs)?;
    Ok(programs)
}

fn pinned(path: &Path) -> Result<Option<FdLink>, FastPathError> {
    match PinnedLink::from_pin(path) {
        Ok(link) => Ok(Some(link.into())),
        Err(LinkError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(link_error(path, error)),
    }
}

fn pin(link: FdLink, path: &Path) -> Result<FdLink, FastPathError> {
    link.pin(path).map(FdLink::from).map_err(|source| link_error(path, source))
}

fn remove(path: &Path) -> Result<(), FastPathError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(link_error(path, error)),
        _ => Ok(()),
    }
}

fn link_error(path: &Path, source: impl std::error::Error + Send + Sync + 'static) -> FastPathError {
    FastPathError::Link { path: path.to_owned(), source: Box::new(source) }
}

fn random() -> Result<[u64; 2], FastPathError> {
    Ok([getrandom::u64()?, getrandom::u64()?])
}

//! Building a lab from a topology, and removing it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use crate::{
    LabError, LabRecord, Link, Namespace, Node, Topology, interrupted,
    link::{Plug, connect},
    registry::{NodeRecord, Teardown, directory_of, start_of},
    relay::Relay,
};

/// The node that holds the relays of delayed links; no topology can have one of that name.
const RELAY_NODE: &str = "_relay";

/// A running laboratory. Dropping it kills what runs in it and removes it.
#[derive(Debug)]
pub struct Lab {
    // Relays hold descriptors in the lab's namespaces and end first.
    relays: Vec<Relay>,
    nodes: Vec<(String, Namespace)>,
    teardown: Arc<Teardown>,
}

impl Lab {
    /// Builds a lab with a name of its own, which lives as long as this value and at most as long
    /// as this process.
    ///
    /// # Errors
    /// [`LabError::NotPermitted`] without root, [`LabError::BadTopology`], or what the kernel
    /// refused; what was built until then is removed.
    pub fn create(topology: &Topology) -> Result<Self, LabError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self::build(format!("tombolo-{}-{count}", std::process::id()), None, topology)
    }

    /// Builds a lab that stays when this process ends, until [`crate::remove_named`] or a reboot.
    /// Its namespaces are `tombolo-NAME-NODE`.
    ///
    /// # Errors
    /// As [`Lab::create`]; [`LabError::BadName`] for a name that is taken or begins with a digit;
    /// [`LabError::BadTopology`] for delayed links, which need a living process.
    pub fn create_named(name: &str, topology: &Topology) -> Result<LabRecord, LabError> {
        Self::create_named_with(name, topology, |_| Ok(()))
    }

    /// As [`create_named`](Self::create_named), with `finish` to be done before the lab is left
    /// alone; if that fails the lab is removed.
    pub(crate) fn create_named_with(
        name: &str,
        topology: &Topology,
        finish: impl FnOnce(&Self) -> Result<(), LabError>,
    ) -> Result<LabRecord, LabError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(plain) {
            let reason = "names begin with a letter and have letters, digits and hyphens".to_owned();
            return Err(LabError::BadName { name: name.to_owned(), reason });
        }
        if topology.links.iter().any(|link| !link.delay.is_zero()) {
            let reason = "a named lab cannot have delayed links, which end with their process";
            return Err(LabError::BadTopology { reason: reason.to_owned() });
        }
        let lab = Self::build(format!("tombolo-{name}"), Some(name.to_owned()), topology)?;
        finish(&lab)?;
        lab.teardown.disarm();
        Ok(lab.teardown.record.clone())
    }

    /// The first part of its namespaces' names.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.teardown.record.id
    }

    /// What is written down about it.
    #[must_use]
    pub fn record(&self) -> &LabRecord {
        &self.teardown.record
    }

    /// A directory for the lab's files, which goes with the lab.
    ///
    /// # Errors
    /// [`LabError::System`] when it cannot be made.
    pub fn directory(&self) -> Result<PathBuf, LabError> {
        let path = directory_of(self.id());
        fs::create_dir_all(&path).map_err(|e| LabError::system(format!("create {}", path.display()), e))?;
        Ok(path)
    }

    /// Changes a setting of the whole machine, a file of /proc or /sys. It is put back when the lab
    /// goes, also after a signal.
    ///
    /// # Errors
    /// [`LabError::System`] when it cannot be read or written, [`LabError::Interrupted`] when the
    /// lab is being removed.
    pub fn change_setting(&self, file: &Path, value: &str) -> Result<(), LabError> {
        self.teardown.change_setting(file, value)
    }

    /// The node of that name.
    ///
    /// # Errors
    /// [`LabError::NoSuchNode`], with the names there are.
    pub fn node(&self, name: &str) -> Result<&Namespace, LabError> {
        let found = self.nodes.iter().find(|(node, _)| node == name);
        found.map(|(_, namespace)| namespace).ok_or_else(|| {
            let known: Vec<&str> = self.nodes.iter().map(|(node, _)| node.as_str()).collect();
            LabError::NoSuchNode { node: name.to_owned(), known: known.join(", ") }
        })
    }

    /// Removes the lab now, and reports what dropping it would have swallowed.
    ///
    /// # Errors
    /// [`LabError`] when something of it cannot be removed.
    pub fn remove(mut self) -> Result<(), LabError> {
        self.relays.clear();
        self.teardown.remove()
    }

    fn build(id: String, name: Option<String>, topology: &Topology) -> Result<Self, LabError> {
        topology.check()?;
        let pid = std::process::id();
        let delayed = topology.links.iter().any(|link| !link.delay.is_zero());
        let names = topology.nodes.iter().map(|node| node.name.as_str());
        let names = names.chain(delayed.then_some(RELAY_NODE));
        let nodes = names.map(|node| NodeRecord { node: node.to_owned(), namespace: format!("{id}-{node}") }).collect();
        let started = start_of(pid).unwrap_or_default();
        let record = LabRecord { id, name, pid, started, topology: topology.name.clone(), nodes };
        let teardown = Teardown::arm(record)?;
        // From here on, dropping `lab` removes whatever exists.
        let mut lab = Self { relays: Vec::new(), nodes: Vec::new(), teardown };
        lab.add_namespaces(topology)?;
        for link in &topology.links {
            lab.add_link(link)?;
        }
        for node in topology.nodes.iter().filter(|node| node.switching) {
            let ends = topology.links.iter().flat_map(|link| &link.ends).filter(|end| end.node == node.name);
            let ports: Vec<&str> = ends.map(|end| end.interface.as_str()).collect();
            lab.node(&node.name)?.switch(&ports)?;
        }
        for node in &topology.nodes {
            lab.configure(node)?;
        }
        Ok(lab)
    }

    fn add_namespaces(&mut self, topology: &Topology) -> Result<(), LabError> {
        for NodeRecord { node, namespace } in &self.teardown.record.nodes {
            let groups = Arc::clone(&self.teardown.groups);
            let made = self.teardown.unless_removed(|| Namespace::create(namespace, groups))?;
            let is_silent =
                node == RELAY_NODE || topology.nodes.iter().any(|known| known.switching && known.name == *node);
            prepare(&made, is_silent)?;
            self.nodes.push((node.clone(), made));
        }
        Ok(())
    }

    /// Lays a cable, or two with a relay between them, and gives both ends their addresses.
    fn add_link(&mut self, link: &Link) -> Result<(), LabError> {
        let plugs = [self.plug(link, 0)?, self.plug(link, 1)?];
        if link.delay.is_zero() {
            connect(&plugs[0], &plugs[1], link)?;
        } else {
            let relay = self.add_relay(&plugs, link)?;
            self.relays.push(relay);
        }
        for end in &link.ends {
            for address in &end.addresses {
                self.node(&end.node)?.add_address(&end.interface, *address)?;
            }
        }
        Ok(())
    }

    fn add_relay(&self, plugs: &[Plug<'_>; 2], link: &Link) -> Result<Relay, LabError> {
        let namespace = self.node(RELAY_NODE)?;
        let number = self.relays.len();
        let interfaces = [format!("relay{number}a"), format!("relay{number}b")];
        for (plug, interface) in plugs.iter().zip(&interfaces) {
            connect(plug, &Plug { namespace, interface }, link)?;
        }
        Relay::start(namespace, [&interfaces[0], &interfaces[1]], link.delay)
    }

    fn plug<'a>(&'a self, link: &'a Link, end: usize) -> Result<Plug<'a>, LabError> {
        let end = &link.ends[end];
        Ok(Plug { namespace: self.node(&end.node)?, interface: &end.interface })
    }

    fn configure(&self, node: &Node) -> Result<(), LabError> {
        let namespace = self.node(&node.name)?;
        if node.forwarding {
            namespace.set_sysctl("net.ipv4.ip_forward", "1")?;
            namespace.set_sysctl("net.ipv6.conf.all.forwarding", "1")?;
        }
        for route in &node.routes {
            namespace.add_route(*route)?;
        }
        node.sysctls.iter().try_for_each(|(key, value)| namespace.set_sysctl(key, value))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.relays.clear();
        if let Err(error) = self.teardown.remove() {
            eprintln!("{}; `tombolo lab down --all` tries again", error.chain());
        }
        if interrupted() {
            // The signal's thread is about to end the process; returning would only get errors
            // reported that the removal caused.
            thread::sleep(Duration::from_secs(2));
        }
    }
}

/// Settings before there are interfaces, independent of what the host has set for itself.
fn prepare(namespace: &Namespace, is_silent: bool) -> Result<(), LabError> {
    namespace.set_up("lo")?;
    for (key, value) in [
        // An address works at once; nothing in a lab can be a duplicate.
        ("net.ipv6.conf.default.accept_dad", "0"),
        ("net.ipv6.conf.default.accept_ra", "0"),
        // Translated packets come back on other interfaces than the kernel would choose.
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
        // No connection inherits what an earlier one noted of the path: each measurement stands for
        // itself.
        ("net.ipv4.tcp_no_metrics_save", "1"),
    ] {
        namespace.set_sysctl(key, value)?;
    }
    // BBR, which some hosts have set, paces what no link limits, now so and now so. Linux's own
    // default is refused in a namespace where the host does not allow it to everybody; Reno never
    // is.
    if namespace.set_sysctl("net.ipv4.tcp_congestion_control", "cubic").is_err() {
        namespace.set_sysctl("net.ipv4.tcp_congestion_control", "reno")?;
    }
    if is_silent {
        // Interfaces of relays and switches must not speak for themselves.
        namespace.set_sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
    }
    Ok(())
}

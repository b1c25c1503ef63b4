//! What the kernel has that decides about packets, read once.

use std::io;

use tombolo_io::links::{self, Link};
use tombolo_io::netlink::{Lookup, Neighbours};

use super::finding::Finding;

/// Below it a link has no IPv6 (RFC 8200 section 5).
const IPV6_MINIMUM_MTU: u32 = 1280;

/// Interfaces, rules, routes and neighbours of a moment.
#[derive(Debug)]
pub(super) struct Ground {
    device: Option<Link>,
    pub(super) links: Vec<Link>,
    pub(super) lookup: Lookup,
    pub(super) neighbours: Neighbours,
}

impl Ground {
    pub(super) fn read(device: &str) -> io::Result<Self> {
        let links = links::all()?;
        let device = links.iter().find(|link| link.name == device).cloned();
        Ok(Self { device, links, lookup: Lookup::read()?, neighbours: Neighbours::read()? })
    }

    pub(super) fn device(&self) -> Option<&Link> {
        self.device.as_ref()
    }

    pub(super) fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    pub(super) fn name(&self, index: u32) -> String {
        self.link(index).map_or_else(|| format!("if{index}"), |link| link.name.clone())
    }

    /// Why an interface takes or sends no packets of a family.
    pub(super) fn obstacle_at(&self, link: &Link, is_ipv6: bool) -> Option<Finding> {
        let name = &link.name;
        if !link.is_up {
            let line = format!("ip link set dev {name} up");
            return Some(Finding::fault("interface", format!("{name} is down"), line));
        }
        if link.is_ethernet && !link.asks {
            let found = format!("{name} asks for no neighbours (NOARP), so that it sends to nobody");
            return Some(Finding::fault("interface", found, format!("ip link set dev {name} arp on")));
        }
        if !is_ipv6 {
            return None;
        }
        if link.mtu < IPV6_MINIMUM_MTU {
            let found = format!("{name} has an MTU of {} bytes: there is no IPv6 below {IPV6_MINIMUM_MTU}", link.mtu);
            return Some(Finding::fault("mtu", found, format!("ip link set dev {name} mtu 1500")));
        }
        if Setting::ipv6(name, "disable_ipv6").is("1") {
            let line = Setting::ipv6(name, "disable_ipv6").line("0");
            return Some(Finding::fault("ipv6", format!("IPv6 is switched off on {name}"), line));
        }
        None
    }

    /// An interface that has lost its IPv6, and the routes with it.
    pub(super) fn lost_ipv6(&self) -> Option<Finding> {
        let others = self.links.iter().filter(|link| link.is_up && link.is_ethernet);
        others.filter(|link| link.asks).find_map(|link| self.obstacle_at(link, true))
    }
}

/// A setting of an interface.
pub(super) struct Setting<'i> {
    family: &'static str,
    interface: &'i str,
    name: &'static str,
}

impl<'i> Setting<'i> {
    pub(super) fn ipv4(interface: &'i str, name: &'static str) -> Self {
        Self { family: "ipv4", interface, name }
    }

    pub(super) fn ipv6(interface: &'i str, name: &'static str) -> Self {
        Self { family: "ipv6", interface, name }
    }

    /// Its value; none if it is not there.
    pub(super) fn value(&self) -> Option<String> {
        let path = format!("/proc/sys/net/{}/conf/{}/{}", self.family, self.interface, self.name);
        std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
    }

    pub(super) fn is(&self, value: &str) -> bool {
        self.value().as_deref() == Some(value)
    }

    /// The command that sets it. Dots in an interface's name are slashes there.
    pub(super) fn line(&self, value: &str) -> String {
        let interface = self.interface.replace('.', "/");
        format!("sysctl -w net.{}.conf.{interface}.{}={value}", self.family, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_told_with_the_command_that_sets_it() {
        let line = Setting::ipv4("eth0.5", "rp_filter").line("2");
        assert_eq!(line, "sysctl -w net.ipv4.conf.eth0/5.rp_filter=2");
        assert!(!Setting::ipv6("no-such-interface", "disable_ipv6").is("0"));
    }
}

//! What a host has that a gateway has to do with.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use ipnet::IpNet;
use tombolo_io::host::{Forwarding, Host, Reach};
use tombolo_io::links;
use tombolo_io::netfilter::{Chain, ForeignRules};
use tombolo_io::netlink::{Found, INTERNET, Lookup, Way};

/// Where packages have units of systemd.
const UNITS: [&str; 2] = ["/usr/lib/systemd/system/tombolo.service", "/lib/systemd/system/tombolo.service"];
/// The table of nftables that is firewalld's.
const FIREWALLD: &str = "firewalld";
/// The first radvd that knows PREF64 (RFC 8781).
const RADVD_WITH_PREF64: (u32, u32) = (2, 20);

/// An interface that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its global addresses, each with the length of its network.
    pub addresses: Vec<IpNet>,
}

/// Programs beside the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Programs {
    /// The gateway's unit is from a package, which has made the user `tombolo` as well.
    pub packaged: bool,
    /// Where the gateway's own program is.
    pub tombolo: PathBuf,
    /// unbound is installed.
    pub unbound: bool,
    /// The installed radvd, and whether it knows PREF64.
    pub radvd: Option<bool>,
    /// odhcpd is installed.
    pub odhcpd: bool,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// Its interfaces, but the loopback and ports of bridges.
    pub interfaces: Vec<Interface>,
    /// The interface of the default route of IPv4.
    pub uplink_ipv4: Option<String>,
    /// That of IPv6.
    pub uplink_ipv6: Option<String>,
    /// Interfaces whose default route is from a router's advertisement.
    pub advertised: Vec<String>,
    /// Whether it forwards.
    pub forwarding: Forwarding,
    /// Chains that drop what is forwarded unless a rule accepts it.
    pub dropping: Vec<Chain>,
    /// firewalld decides about what is forwarded.
    pub firewalld: bool,
    /// The resolvers that it asks, but itself.
    pub resolvers: Vec<IpAddr>,
    /// Programs beside the gateway.
    pub programs: Programs,
}

impl Survey {
    /// Looks at the host of the calling thread's network namespace. `device` is a gateway's, which does not count.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read(device: &str) -> io::Result<Self> {
        let links = links::all()?;
        let lookup = Lookup::read()?;
        let addresses = Host::open().and_then(|mut host| host.addresses()).map_err(io::Error::other)?;
        let name_of = |index: u32| links.iter().find(|link| link.index == index).map(|link| link.name.clone());
        let uplink = |address: IpAddr| match lookup.find(Way { source: address, destination: address, interface: "lo" })
        {
            Found::Route(_, route) => name_of(route.hops().first()?.interface).filter(|name| name != device),
            _ => None,
        };
        let (uplink_ipv4, uplink_ipv6) = (uplink(INTERNET.0.into()), uplink(INTERNET.1.into()));
        let own = links.iter().filter(|link| link.is_up && !link.is_port && link.name != "lo" && link.name != device);
        // A kernel without nf_tables has no such chains.
        let mut rules = ForeignRules::watch().ok();
        let mut chains = |asked: fn(&mut ForeignRules) -> io::Result<Vec<Chain>>| {
            rules.as_mut().and_then(|rules| asked(rules).ok()).unwrap_or_default()
        };
        let interfaces = own.map(|link| Interface {
            name: link.name.clone(),
            addresses: addresses
                .iter()
                .filter(|own| own.index == link.index && own.reach == Reach::Global)
                .filter_map(|own| IpNet::new(own.address, own.prefix_len).ok())
                .collect(),
        });
        Ok(Self {
            interfaces: interfaces.collect(),
            uplink_ipv4,
            uplink_ipv6,
            advertised: lookup.advertised().into_iter().filter_map(name_of).collect(),
            forwarding: Forwarding::read(),
            dropping: chains(ForeignRules::dropping),
            firewalld: chains(ForeignRules::filtering).iter().any(|chain| chain.table == FIREWALLD),
            resolvers: resolvers(&fs::read_to_string("/etc/resolv.conf").unwrap_or_default()),
            programs: Programs::find(),
        })
    }

    /// The interface with this name.
    #[must_use]
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    /// The interface that has this address.
    #[must_use]
    pub fn owner_of(&self, address: IpAddr) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.addresses.iter().any(|own| own.addr() == address))
    }
}

impl Interface {
    /// Its networks of a family.
    pub fn networks(&self, is_ipv6: bool) -> impl Iterator<Item = IpNet> {
        self.addresses.iter().filter(move |own| own.addr().is_ipv6() == is_ipv6).map(IpNet::trunc)
    }

    /// Its first address of a family.
    #[must_use]
    pub fn address(&self, is_ipv6: bool) -> Option<IpAddr> {
        self.addresses.iter().map(IpNet::addr).find(|address| address.is_ipv6() == is_ipv6)
    }
}

impl Programs {
    fn find() -> Self {
        Self {
            packaged: UNITS.iter().any(|unit| Path::new(unit).exists()),
            tombolo: std::env::current_exe().unwrap_or_else(|_| "/usr/bin/tombolo".into()),
            unbound: is_installed("unbound"),
            radvd: is_installed("radvd").then(|| radvd_version().is_some_and(|version| version >= RADVD_WITH_PREF64)),
            odhcpd: is_installed("odhcpd"),
        }
    }
}

fn is_installed(program: &str) -> bool {
    ["/usr/sbin", "/usr/bin", "/sbin", "/usr/local/sbin"].iter().any(|folder| Path::new(folder).join(program).exists())
}

fn radvd_version() -> Option<(u32, u32)> {
    let output = Command::new("radvd").arg("--version").env("PATH", "/usr/sbin:/sbin:/usr/local/sbin").output().ok()?;
    version(&[output.stdout, output.stderr].concat())
}

/// The number in `Version: 2.19`.
fn version(text: &[u8]) -> Option<(u32, u32)> {
    let text = String::from_utf8_lossy(text);
    let (_, number) = text.split_once("Version:")?;
    let (major, rest) = number.trim_start().split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Those of resolv.conf, but the host itself, which may be the resolver to be.
fn resolvers(text: &str) -> Vec<IpAddr> {
    let named = text.lines().filter_map(|line| line.strip_prefix("nameserver")?.trim().parse::<IpAddr>().ok());
    named.filter(|address| !address.is_loopback()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn radvd_says_its_version() {
        assert_eq!(version(b"Version: 2.19\n\nCompiled in settings:\n"), Some((2, 19)));
        assert_eq!(version(b"Version: 2.20_rc1\n"), Some((2, 20)));
        assert_eq!(version(b"radvd: unknown option"), None);
    }

    #[test]
    fn the_host_is_no_resolver_of_its_own() {
        let text = "# here\nnameserver 127.0.0.53\nnameserver 198.51.100.2\nnameserver ::1\noptions edns0\n";
        assert_eq!(resolvers(text), ["198.51.100.2".parse::<IpAddr>().unwrap()]);
    }
}

//! What a packet loses of its hop limit, and which path traceroute shows: the same whether the engine
//! has the packet or the kernel's fast path, of every kind of service. Needs root and skips loudly
//! without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::time::Duration;

use tombolo_lab::{Lab, Offload, Process, Scenario, Topology, kernel, skip_without, wait_until};

const TOMBOLO: &str = env!("CARGO_BIN_EXE_tombolo");
const PATIENCE: Duration = Duration::from_secs(20);
const SERVER: &str = "198.51.100.2";
const SERVER_TRANSLATED: &str = "2001:db8:64::198.51.100.2";

/// A gateway takes three: two for the steps of the kernel, and the engine's own. Where the hop limit
/// that counts goes into a softwire or comes out of one, the kernel's step on that side is another
/// header's.
const SERVICES: [Service; 6] = [
    Service { name: "nat64", server: SERVER_TRANSLATED, hops: 3, far: "2001:db8:64::" },
    Service { name: "siit", server: SERVER_TRANSLATED, hops: 3, far: "2001:db8:64::" },
    Service { name: "nat44", server: SERVER, hops: 3, far: "10.0.0.1" },
    Service { name: "map-t", server: SERVER, hops: 6, far: "198.51.100.1" },
    Service { name: "map-e", server: SERVER, hops: HOPS_OF_SOFTWIRES, far: "198.51.100.1" },
    Service { name: "ds-lite", server: SERVER, hops: HOPS_OF_SOFTWIRES, far: "198.51.100.1" },
];
/// Two at each end.
const HOPS_OF_SOFTWIRES: u32 = 4;
/// The first kernel in which TC takes a softwire's header off.
const TAKES_HEADERS_OFF: (u32, u32) = (6, 3);

struct Service {
    name: &'static str,
    /// The server, as the client has it.
    server: &'static str,
    /// What a packet loses on its way to the server.
    hops: u32,
    /// How the address begins that the far side of the gateway has for the client. Of a NAT44 it is the kernel's address
    /// inside, which is the first of all that it has.
    far: &'static str,
}

struct Setup {
    // Dropped first.
    gateways: Vec<Process>,
    lab: Lab,
}

impl Service {
    /// The topology, and the configurations of its gateways.
    fn parts(&self) -> (Topology, Vec<(&'static str, String)>) {
        let own = |keys: &str| {
            let text = format!("[[service]]\nkind = \"{}\"\nprefix = \"2001:db8:64::/96\"\n{keys}\n", self.name);
            (Topology::client_gateway_server(), vec![("gateway", text)])
        };
        match self.name {
            "nat64" => own("pool = [{ addresses = \"192.0.2.1\", ports = \"1024-65535\" }]"),
            "siit" => own("eam = [{ ipv4 = \"192.0.2.1\", ipv6 = \"2001:db8:1::2\" }]"),
            name => {
                let scenario = Scenario::named(name).unwrap();
                // One home is enough.
                let gateways = scenario.gateways.into_iter().filter(|(node, _)| *node != "cpe2");
                (scenario.topology, gateways.collect())
            }
        }
    }

    fn start(&self, fastpath: &str) -> Setup {
        let (topology, gateways) = self.parts();
        let lab = Lab::create(&topology).unwrap();
        for (node, interface) in [("client", "inside0"), ("server", "outside0")] {
            lab.node(node).unwrap().set_offload(interface, Offload::Gro, true).unwrap();
        }
        let start = |(node, text): &(&str, String)| {
            let text = format!("[gateway]\nfastpath = \"{fastpath}\"\n\n{text}");
            lab.start_gateway(node, TOMBOLO, &text).unwrap_or_else(|error| panic!("{}: {error:?}", self.name))
        };
        let gateways = gateways.iter().map(start).collect();
        Setup { gateways, lab }
    }

    /// One ping with this hop limit.
    fn ping(&self, lab: &Lab, hop_limit: u32) -> Result<u32, String> {
        self.pings(lab, 1, hop_limit)
    }

    /// So many: with which hop limit the first answer arrives, or who says that it has run out.
    fn pings(&self, lab: &Lab, count: u32, hop_limit: u32) -> Result<u32, String> {
        let (count, limit) = (count.to_string(), hop_limit.to_string());
        let arguments = ["-n", "-c", &count, "-i", "0.05", "-W", "2", "-t", &limit, self.server];
        let printed = lab.node("client").unwrap().command("ping").args(arguments).run().unwrap().stdout;
        let word_after = |mark: &str| {
            let rest = printed.split_once(mark)?.1;
            rest.split([' ', '\n']).next().map(|word| word.trim_end_matches(':').to_owned())
        };
        match word_after(" ttl=") {
            Some(ttl) => Ok(ttl.parse().unwrap()),
            None => Err(word_after("From ").unwrap_or_else(|| format!("nobody: {printed}"))),
        }
    }

    /// What each hop says, from the first on.
    fn path(&self, fastpath: &str) -> Vec<String> {
        let Service { name, hops, .. } = *self;
        let Setup { gateways, lab } = self.start(fastpath);
        // The first packets resolve neighbours and admit the subscriber.
        wait_until("the server answers", PATIENCE, || self.ping(&lab, 64).ok()).unwrap();
        // Where ports come in blocks the engine has the first packet.
        let before = taken(&lab);
        assert_eq!(self.pings(&lab, 2, 64), Ok(64 - hops), "{name}, {fastpath}");
        let takes = fastpath != "off" && (hops != HOPS_OF_SOFTWIRES || kernel() >= TAKES_HEADERS_OFF);
        assert_eq!(taken(&lab) > before, takes, "{name}, {fastpath}");
        let last = self.ping(&lab, hops + 1);
        assert_eq!(last, Ok(64 - hops), "{name}, {fastpath}: it arrives with its last hop");
        let path = (1..=hops).map(|limit| self.ping(&lab, limit).unwrap_err()).collect();
        drop(gateways);
        path
    }
}

/// Packets that the kernel has translated, at the provider's end.
fn taken(lab: &Lab) -> u64 {
    let output = lab.node("gateway").unwrap().command(TOMBOLO).args(["show", "fastpath", "--json"]).run().unwrap();
    let rows = output.stdout;
    let row = rows.lines().find(|line| line.contains("\"taken-inside\"")).unwrap_or_default();
    let value = row.split("\"value\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("0");
    value.parse().unwrap()
}

#[test]
fn the_programs_take_as_many_hops_as_the_way_through_the_engine() {
    let name = "the_programs_take_as_many_hops_as_the_way_through_the_engine";
    if skip_without(name, &["ip", "ping"]) {
        return;
    }
    for service in SERVICES {
        let modes: &[&str] = if service.name == "nat64" { &["off", "tc", "xdp"] } else { &["off", "tc"] };
        let mut paths: Vec<_> = modes.iter().map(|fastpath| service.path(fastpath)).collect();
        paths.dedup();
        assert_eq!(paths.len(), 1, "{}: the same path for all: {paths:?}", service.name);
        let hops = &paths[0];
        assert!(hops.iter().all(|hop| hop.parse::<std::net::IpAddr>().is_ok()), "{}: {hops:?}", service.name);
        assert!(hops.last().unwrap().starts_with(service.far), "{}: {hops:?}", service.name);
    }
}

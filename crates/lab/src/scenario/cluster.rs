//! A cluster: three gateways serve the same services, and routers spread packets over them by BGP. Each box is
//! a node of its own; switches stand between them, so that a node can lose its power without any router seeing
//! its link go down.
//!
//! ```text
//!  client 10.0.0.2    --- cpe, MAP-T  ---+
//!  neighbour 10.0.0.2 --- cpe2, lwB4  ---+
//!  web 2001:db8:5::2  -------------------+-- r1 ==== inside ==== n1  n2  n3 ==== outside ==== r2 --- server
//!  phone 2001:db8:6::2 ------------------+   BIRD    switch       |   |   |      switch       BIRD   198.51.100.2
//!  lan 100.64.0.2     -------------------+                       core switch
//!  home 10.1.0.2 ...  --- b4, three B4s -+
//!
//!  inside   2001:db8:a::/64    n1 ::1 ...  r1 ::ff          locators  2001:db8:c1:1::/64 ...
//!           10.254.0.0/24      n1 .1 ...   r1 .254          MAP-T     192.0.2.0/24, 2001:db8:ffff::/64
//!  outside  198.18.0.0/24      n1 .1 ...   r2 .254          lwAFTR    203.0.113.0/28, 2001:db8:fffe::1
//!  core     2001:db8:c::/64    n1 ::1 ...                   SIIT      203.0.113.130 = web, 2001:db8:64::/96
//!           10.255.0.0/24      n1 .1 ...                    NAT64     203.0.113.64/28, 2001:db8:6464::/96
//!                                                           NAT44     203.0.113.80/28, 100.64.0.0/10
//!                                                           AFTR      203.0.113.96/28, 2001:db8:fffd::1
//! ```
//!
//! `phone` and `lan` have eight addresses each: as many subscribers.
//!
//! BGP: r1 is AS 65001, r2 AS 65002, the nodes are AS 64512. Nodes tell each other what the routers have
//! told them, over the core, so that one with a broken link on one side goes round by another.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::description::Scenario;
use super::frr;
use super::members;
use super::network::numbered;
use super::start::DIRECTORY;
use crate::{End, Link, Node, Prefix, Route, Topology};

/// The gateways that agree,
pub(super) const AGREEING: [&str; 3] = ["n1", "n2", "n3"];
/// and the members of etcd by which they do.
const MEMBERS: [&str; 3] = ["etcd1", "etcd2", "etcd3"];
/// How many gateways there are.
const NODES: u8 = 3;
/// B4s in the box of the homes with DS-Lite.
const B4S: u8 = 3;
/// Addresses of the hosts of the NAT64 and the NAT44.
const SUBSCRIBERS: u8 = 8;
/// Bytes of the largest frame in the core: what is redirected is larger by a header.
const CORE_MTU: u32 = 1600;

/// Three nodes.
pub(super) fn three_nodes() -> Scenario {
    let gateways = [("n1", 1), ("n2", 2), ("n3", 3)].map(|(name, number)| (name, gateway(number)));
    let routers = [("r1", inside_router()), ("r2", outside_router())].into_iter();
    let nodes = [("n1", 1), ("n2", 2), ("n3", 3)].map(|(name, number)| (name, node_router(number)));
    Scenario {
        name: "cluster",
        about: "Three nodes that serve MAP-T, Lightweight 4over6, SIIT, NAT64, NAT44 and DS-Lite, announced by BGP with BFD",
        topology: topology(),
        gateways: gateways
            .into_iter()
            .chain([("cpe", map_edge()), ("cpe2", softwire_end()), ("b4", softwire_ends())])
            .collect(),
        routers: routers.chain(nodes).collect(),
        members: Vec::new(),
        hints: vec![
            ("client", "ping -c 3 198.51.100.2"),
            ("n1", "tombolo show peers"),
            ("n1", "tombolo show slices"),
            ("home", "ping -c 3 198.51.100.2"),
            ("r2", "ip route show 192.0.2.0/24"),
            ("outside", "ip link set n1 down"),
        ],
    }
}

/// The same three nodes, which agree by etcd on who owns what: members are on hosts of their own, in the network between the nodes.
pub(super) fn three_nodes_that_agree() -> Scenario {
    let mut scenario = three_nodes();
    for member in MEMBERS {
        scenario.topology.nodes.push(Node::host(member));
        let addresses = [(members::address_of(member).into(), 64)];
        let link = cable((member, "core0", &addresses), ("core", member, &[]));
        scenario.topology.links.push(Link { mtu: Some(CORE_MTU), ..link });
    }
    for (node, text) in scenario.gateways.iter_mut().filter(|(node, _)| AGREEING.contains(node)) {
        let begin = text.find("[cluster.slices]").unwrap_or(text.len());
        let end = text.find("[[service]]").unwrap_or(text.len());
        text.replace_range(begin..end, &members::tables(node, &AGREEING, &MEMBERS));
    }
    scenario.members = MEMBERS.to_vec();
    scenario
}

/// The same with FRR as the router of the Internet.
pub(super) fn three_nodes_and_frr() -> Scenario {
    let mut scenario = three_nodes_that_agree();
    for (_, text) in scenario.routers.iter_mut().filter(|(node, _)| *node == "r2") {
        *text = frr::outside_router((1..=NODES).map(|number| format!("198.18.0.{number}")));
    }
    scenario
}

/// The same, whose subscribers have ports in blocks, and whose gateways log whose they are: `NODE.log` in the lab's directory.
pub(super) fn three_nodes_that_log() -> Scenario {
    let mut scenario = three_nodes_that_agree();
    for (node, text) in scenario.gateways.iter_mut().filter(|(node, _)| AGREEING.contains(node)) {
        let pool = "/28\" }]\n";
        let blocks = format!("{pool}allocation = {{ mode = \"blocks\", block_size = 512 }}\n");
        let log = format!("binding_log = \"{DIRECTORY}/{node}.log\"\nbinding_log_detail = \"blocks\"\n");
        *text = format!("[gateway]\n{log}\n{}", text.replace(pool, &blocks));
    }
    scenario
}

/// The configuration of a node: all have the same but for their name.
fn gateway(number: u8) -> String {
    format!(
        r#"[cluster]
node  = "n{number}"
nodes = {{ n1 = "2001:db8:c1:1::/64", n2 = "2001:db8:c1:2::/64", n3 = "2001:db8:c1:3::/64" }}
needs = ["0.0.0.0/0", "2001:db8:5::/64"]
core  = ["core0"]

[cluster.slices]
count  = 8
secret = "8f3b1d5c7e9a20416385a7c9ebfd0f213547698bacdef0021436587a9cbedff1"
owners = [
    {{ slices = "0-2", owner = "n1", backup = "n2" }},
    {{ slices = "3-5", owner = "n2", backup = "n3" }},
    {{ slices = "6-7", owner = "n3", backup = "n1" }},
]

[[service]]
kind   = "nat64"
prefix = "2001:db8:6464::/96"
pool   = [{{ addresses = "203.0.113.64/28" }}]

[[service]]
kind   = "nat44"
inside = ["100.64.0.0/10"]
pool   = [{{ addresses = "203.0.113.80/28" }}]

[[service]]
kind    = "aftr"
address = "2001:db8:fffd::1"
b4s     = ["2001:db8:b4::/48"]
pool    = [{{ addresses = "203.0.113.96/28" }}]
subscriber_prefix = 64

[[service]]
kind  = "map-t"
role  = "br"
dmr   = "2001:db8:ffff::/64"
rules = [{{ ipv6 = "2001:db8:4600::/40", ipv4 = "192.0.2.0/24", ea_bits = 16, psid_offset = 6 }}]

[[service]]
kind      = "lwaftr"
addresses = ["2001:db8:fffe::1"]
ipv4      = ["203.0.113.0/28"]
softwires = [{{ b4 = "2001:db8:1000:200:0:cb00:710a:4", ipv4 = "203.0.113.10", psid_length = 6, psid = 4 }}]

[[service]]
kind   = "siit"
prefix = "2001:db8:64::/96"
eam    = [{{ ipv4 = "203.0.113.130", ipv6 = "2001:db8:5::2" }}]
"#
    )
}

/// The home with MAP-T.
fn map_edge() -> String {
    r#"[[service]]
kind = "map-t"
role = "ce"
dmr  = "2001:db8:ffff::/64"
end_user_prefix = "2001:db8:4612:3400::/56"
inside = ["10.0.0.0/24"]
rules  = [{ ipv6 = "2001:db8:4600::/40", ipv4 = "192.0.2.0/24", ea_bits = 16, psid_offset = 6 }]
static = [{ inside = "10.0.0.2:7", outside = "192.0.2.18:1232", protocol = "udp" }]
"#
    .to_owned()
}

/// The home with Lightweight 4over6.
fn softwire_end() -> String {
    r#"[[service]]
kind = "lwb4"
inside = ["10.0.0.0/24"]
ipv4 = "203.0.113.10"
psid_length = 6
psid = 4
bind_prefix = "2001:db8:1000:200::/56"
aftr = "2001:db8:fffe::1"
static = [{ inside = "10.0.0.2:7", outside = "203.0.113.10:4103", protocol = "udp" }]
"#
    .to_owned()
}

/// The homes with DS-Lite: three B4s in one box.
fn softwire_ends() -> String {
    let service = |number: u8| {
        format!(
            "[[service]]\nkind = \"b4\"\ninside = [\"10.{number}.0.0/24\"]\naddress = \"2001:db8:b4:{number}::b4\"\n\
             aftr = \"2001:db8:fffd::1\"\n"
        )
    };
    (1..=B4S).map(service).collect()
}

/// What all of BIRD's configurations have in common. Times are short, so that what comes back is soon there.
const COMMON: &str = "log stderr all;
protocol device { }
protocol bfd { interface \"*\" { min rx interval 100 ms; min tx interval 100 ms; multiplier 3; }; }
template bgp neighbour {
    bfd on;
    graceful restart off;
    connect delay time 1;
    connect retry time 2;
    error wait time 1, 2;
    hold time 9;
}
";

/// BIRD on a node.
fn node_router(number: u8) -> String {
    let others = (1..=NODES).filter(|other| *other != number).map(|other| {
        format!(
            "protocol bgp n{other} from neighbour {{
    local 2001:db8:c::{number} as 64512;
    neighbor 2001:db8:c::{other} as 64512;
    direct;
    # Locators, and what the routers have said.
    ipv6 {{ import all; export where net ~ LOCATORS || source = RTS_BGP; next hop self; }};
    ipv4 {{ import all; export where source = RTS_BGP; next hop self; next hop address 10.255.0.{number}; }};
}}
"
        )
    });
    let others: String = others.collect();
    format!(
        "{COMMON}router id 10.255.0.{number};
define LOCATORS = [ 2001:db8:c1::/48+ ];

# The gateway's routes, which go with its process.
ipv4 table entrances4;
ipv6 table entrances6;
protocol kernel {{ ipv4 {{ table entrances4; import all; export none; }}; kernel table 8464; learn; }}
protocol kernel {{ ipv6 {{ table entrances6; import all; export none; }}; kernel table 8464; learn; }}
protocol pipe {{ table master4; peer table entrances4; export none;
    # Where hosts inside send to is not where this host does.
    import filter {{ if net = 0.0.0.0/0 then reject; preference = 200; accept; }};
}}
protocol pipe {{ table master6; peer table entrances6; import filter {{ preference = 200; accept; }}; export none; }}

# The sign of life of this host.
protocol static {{ ipv6; route 2001:db8:c1:{number}::/64 blackhole; }}

# What others announce.
protocol kernel {{ ipv4 {{ import none; export where source = RTS_BGP; }}; }}
protocol kernel {{ ipv6 {{ import none; export where source = RTS_BGP; }}; }}

filter to_outside {{ if source = RTS_INHERIT && net != 0.0.0.0/0 then {{ bgp_med = krt_metric; accept; }} reject; }}
filter to_inside {{ if source = RTS_INHERIT && !(net ~ LOCATORS) then {{ bgp_med = krt_metric; accept; }} reject; }}
filter everything_inside {{ if net = 0.0.0.0/0 then {{ bgp_med = krt_metric; accept; }} reject; }}
protocol bgp inside from neighbour {{
    local 2001:db8:a::{number} as 64512;
    neighbor 2001:db8:a::ff as 65001;
    ipv6 {{ import all; export filter to_inside; }};
    ipv4 {{ table entrances4; import all; export filter everything_inside; next hop self; next hop address 10.254.0.{number}; }};
}}
protocol bgp outside from neighbour {{
    local 198.18.0.{number} as 64512;
    neighbor 198.18.0.254 as 65002;
    ipv4 {{ import all; export filter to_outside; }};
}}

# The other nodes.
{others}"
    )
}

/// BIRD on the router that homes are at.
fn inside_router() -> String {
    let nodes = (1..=NODES).map(|number| {
        format!(
            "protocol bgp n{number} from neighbour {{
    local 2001:db8:a::ff as 65001;
    neighbor 2001:db8:a::{number} as 64512;
    ipv6 {{ import all; export where source ~ [ RTS_STATIC, RTS_DEVICE ]; }};
    ipv4 {{ import all; export where source = RTS_DEVICE; next hop self; next hop address 10.254.0.254; }};
}}
"
        )
    });
    let nodes: String = nodes.collect();
    format!(
        "{COMMON}router id 10.255.0.101;
protocol kernel {{ ipv6 {{ import none; export where source != RTS_DEVICE; }}; merge paths on; }}
protocol kernel {{ ipv4 {{ import none; export where source != RTS_DEVICE; }}; merge paths on; }}
protocol direct {{ ipv6; ipv4; interface \"home*\"; }}
protocol static {{ ipv6;
    route 2001:db8:4612:3400::/56 via 2001:db8:e1::2;
    route 2001:db8:1000:200::/56 via 2001:db8:e2::2;
    route 2001:db8:b4::/48 via 2001:db8:e3::2;
}}
{nodes}"
    )
}

/// BIRD on the router of the Internet.
fn outside_router() -> String {
    let nodes = (1..=NODES).map(|number| {
        format!(
            "protocol bgp n{number} from neighbour {{
    local 198.18.0.254 as 65002;
    neighbor 198.18.0.{number} as 64512;
    ipv4 {{ import all; export where source = RTS_STATIC; }};
}}
"
        )
    });
    let nodes: String = nodes.collect();
    format!(
        "{COMMON}router id 10.255.0.102;
protocol kernel {{ ipv4 {{ import none; export where source = RTS_BGP; }}; merge paths on; }}
protocol static {{ ipv4; route 0.0.0.0/0 via 198.51.100.2; }}
{nodes}"
    )
}

fn topology() -> Topology {
    let mut topology = Topology::chain("cluster", &[]);
    for host in ["client", "neighbour", "web", "phone", "lan", "home", "server"] {
        topology.nodes.push(Node::host(host));
    }
    for router in ["cpe", "cpe2", "b4", "r1", "r2", "n1", "n2", "n3"] {
        let mut router = Node::router(router);
        // Flows are spread by their ports.
        for version in ["ipv4", "ipv6"] {
            router.sysctls.push((format!("net.{version}.fib_multipath_hash_policy"), "1".to_owned()));
        }
        topology.nodes.push(router);
    }
    topology.nodes.extend(["inside", "core", "outside"].map(Node::switch));
    topology.links = homes();
    for number in 1..=NODES {
        let (name, host) = (format!("n{number}"), u16::from(number));
        let outside = (Ipv4Addr::new(198, 18, 0, number).into(), 24);
        let core = [(numbered(0xc, host).into(), 64), (Ipv4Addr::new(10, 255, 0, number).into(), 24)];
        let inside = [(numbered(0xa, host).into(), 64), (v4([10, 254, 0, number]), 24)];
        topology.links.push(cable((&name, "inside0", &inside), ("inside", &name, &[])));
        topology.links.push(cable((&name, "outside0", &[outside]), ("outside", &name, &[])));
        let core = cable((&name, "core0", &core), ("core", &name, &[]));
        topology.links.push(Link { mtu: Some(CORE_MTU), ..core });
    }
    let inside = [(numbered(0xa, 0xff).into(), 64), (v4([10, 254, 0, 254]), 24)];
    topology.links.push(cable(("r1", "inside0", &inside), ("inside", "r1", &[])));
    topology.links.push(cable(("r2", "outside0", &[(v4([198, 18, 0, 254]), 24)]), ("outside", "r2", &[])));
    for (node, address) in [("client", v4([10, 0, 0, 1])), ("neighbour", v4([10, 0, 0, 1]))] {
        default_route(&mut topology, node, address);
    }
    default_route(&mut topology, "server", v4([198, 51, 100, 1]));
    default_route(&mut topology, "cpe", numbered(0xe1, 1).into());
    default_route(&mut topology, "cpe2", numbered(0xe2, 1).into());
    default_route(&mut topology, "web", numbered(5, 1).into());
    default_route(&mut topology, "phone", numbered(6, 1).into());
    default_route(&mut topology, "lan", v4([100, 64, 0, 1]));
    default_route(&mut topology, "home", v4([10, 1, 0, 1]));
    default_route(&mut topology, "b4", numbered(0xe3, 1).into());
    topology
}

/// Homes, and the server.
fn homes() -> Vec<Link> {
    let inside = |host| (v4([10, 0, 0, host]), 24);
    let v6 = |link, host| (numbered(link, host).into(), 64);
    let phone: Vec<_> = (0..SUBSCRIBERS).map(|number| v6(6, 2 + u16::from(number))).collect();
    let lan: Vec<_> = (0..SUBSCRIBERS).map(|number| (v4([100, 64, 0, 2 + number]), 24)).collect();
    let home = |host| (1..=B4S).map(move |number| (v4([10, number, 0, host]), 24)).collect::<Vec<_>>();
    vec![
        cable(("client", "inside0", &[inside(2)]), ("cpe", "inside0", &[inside(1)])),
        cable(("cpe", "core0", &[v6(0xe1, 2)]), ("r1", "home1", &[v6(0xe1, 1)])),
        cable(("neighbour", "inside0", &[inside(2)]), ("cpe2", "inside0", &[inside(1)])),
        cable(("cpe2", "core0", &[v6(0xe2, 2)]), ("r1", "home2", &[v6(0xe2, 1)])),
        cable(("web", "inside0", &[v6(5, 2)]), ("r1", "home3", &[v6(5, 1)])),
        cable(("phone", "inside0", &phone), ("r1", "home4", &[v6(6, 1)])),
        cable(("lan", "inside0", &lan), ("r1", "home5", &[(v4([100, 64, 0, 1]), 24)])),
        cable(("home", "inside0", &home(2)), ("b4", "inside0", &home(1))),
        cable(("b4", "core0", &[v6(0xe3, 2)]), ("r1", "home6", &[v6(0xe3, 1)])),
        cable(
            ("server", "outside0", &[(v4([198, 51, 100, 2]), 24)]),
            ("r2", "server0", &[(v4([198, 51, 100, 1]), 24)]),
        ),
    ]
}

/// Node, interface and addresses of an end.
type Plugged<'a> = (&'a str, &'a str, &'a [(IpAddr, u8)]);

fn cable(left: Plugged<'_>, right: Plugged<'_>) -> Link {
    let end = |(node, interface, addresses): Plugged<'_>| {
        let addresses = addresses.iter().map(|&(address, length)| Prefix { address, length }).collect();
        End { node: node.to_owned(), interface: interface.to_owned(), addresses }
    };
    Link::new(end(left), end(right))
}

fn v4(octets: [u8; 4]) -> IpAddr {
    Ipv4Addr::from(octets).into()
}

fn default_route(topology: &mut Topology, node: &str, via: IpAddr) {
    let everything = if via.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    if let Some(node) = topology.node_mut(node) {
        node.routes.push(Route { destination: Prefix { address: everything, length: 0 }, via });
    }
}

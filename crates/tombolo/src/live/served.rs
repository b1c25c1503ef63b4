//! The services that are compared: how each is configured, who talks through it, and by which
//! names and ports the sides know each other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tombolo_wire::Prefix64;

/// A service, and what its two sides look like.
pub(super) struct Served {
    /// The word for it.
    pub(super) name: &'static str,
    /// Its table of the configuration.
    pub(super) service: String,
    pub(super) inside: Facing,
    pub(super) outside: Facing,
    /// Where hosts inside are that no link of the gateway has.
    pub(super) inside_routes: &'static [&'static str],
    /// Where the rest is: a CLAT takes all of IPv4 itself.
    pub(super) outside_routes: &'static [&'static str],
    /// Its outside ports are drawn at random.
    pub(super) binds: bool,
}

/// A side: who is on the gateway's end of its conversations, and who on the far end.
pub(super) struct Facing {
    /// Inside the hosts; outside those endpoints that the gateway has for them.
    pub(super) ours: Vec<Party>,
    /// Inside the remotes as the hosts know them; outside the remotes themselves.
    pub(super) theirs: Vec<Party>,
}

/// Somebody who sends and receives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Party {
    pub(super) address: IpAddr,
    pub(super) ports: Ports,
    /// What it sends and gets is in a softwire with these ends, as in packets to the gateway.
    pub(super) softwire: Option<[Ipv6Addr; 2]>,
}

/// Which ports somebody uses.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ports {
    /// Those of a list.
    Usual,
    /// A port set.
    Set(u16, u16),
    /// What the gateway has bound, statically or not.
    Bound,
}

/// The port that static bindings are for, inside and outside.
pub(super) const SERVER_PORT: u16 = 8080;
/// Static bindings have one of these outside ports.
pub(super) const STATIC_PORTS: [u16; 2] = [1232, 4100];

const EVERYWHERE: &[&str] = &["0.0.0.0/0", "::/0"];

const POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const AFTR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);
const MAP_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 18);
/// The edge of 192.0.2.18 and PSID 0x34 (RFC 7597 section 6).
const MAP_EDGE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x12, 0x3400, 0, 0xc000, 0x212, 0x34);
const OTHER_MAP_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 19);
/// The edge of 192.0.2.19 and PSID 0x35.
const OTHER_MAP_EDGE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x13, 0x3500, 0, 0xc000, 0x213, 0x35);
const LWB4: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x1000, 0x100, 0, 0xc000, 0x20a, 4);
const OTHER_LWB4: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x1000, 0x200, 0, 0xc000, 0x20a, 5);
const WHOLE_LWB4: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x1000, 0x300, 0, 0xc000, 0x20b, 0);

/// All services.
pub(super) fn all() -> Vec<Served> {
    vec![
        siit(),
        clat(),
        nat64(),
        nat44(),
        b4(),
        aftr(),
        lwb4(),
        lwaftr(),
        map_e_ce(),
        map_e_br(),
        map_t_ce(),
        map_t_br(),
    ]
}

impl Party {
    fn usual(address: impl Into<IpAddr>) -> Self {
        Self { address: address.into(), ports: Ports::Usual, softwire: None }
    }

    const fn with(self, ports: Ports) -> Self {
        Self { ports, ..self }
    }

    const fn through(self, source: Ipv6Addr, destination: Ipv6Addr) -> Self {
        Self { softwire: Some([source, destination]), ..self }
    }
}

/// Remotes in the IPv4 Internet; one of them has an address that is not global.
fn remotes() -> Vec<Party> {
    let addresses = [[8, 8, 8, 8], [8, 8, 4, 4], [9, 9, 9, 9], [1, 1, 1, 1], [203, 0, 113, 7]];
    addresses.map(|address| Party::usual(Ipv4Addr::from(address))).to_vec()
}

/// Parties of IPv4 by their names in `prefix`.
fn embedded(prefix: &str, parties: Vec<Party>) -> Vec<Party> {
    #[expect(clippy::expect_used, reason = "prefixes are constants of this file")]
    let prefix: Prefix64 = prefix.parse().expect("a prefix");
    let embed = |party: Party| match party.address {
        IpAddr::V4(address) => Party { address: prefix.embed(address).into(), ..party },
        IpAddr::V6(_) => party,
    };
    parties.into_iter().map(embed).collect()
}

/// IPv4 hosts inside.
fn hosts4() -> Vec<Party> {
    (2..6).map(|host| Party::usual(Ipv4Addr::new(10, 0, 1, host))).collect()
}

/// IPv6 hosts inside.
fn hosts6() -> Vec<Party> {
    (2..6).map(|host| Party::usual(Ipv6Addr::new(0x2001, 0xdb8, 1, 0xf, 0, 0, 0, host))).collect()
}

/// The parties, and hosts inside by their outside names.
fn with_hairpins(mut parties: Vec<Party>, hairpins: &[Party]) -> Vec<Party> {
    // Most go somewhere else.
    parties.extend_from_within(..);
    parties.extend(hairpins);
    parties
}

fn siit() -> Served {
    let [one, other] = [[192, 0, 2, 1], [192, 0, 2, 18]].map(|address| Party::usual(Ipv4Addr::from(address)));
    let host = |last| Party::usual(Ipv6Addr::new(0x2001, 0xdb8, 1, 0xf, 0, 0, 0, last));
    Served {
        name: "siit",
        service: "kind = \"siit\"\nprefix = \"2001:db8:64::/96\"\neam = [\n\
                  { ipv4 = \"192.0.2.1\", ipv6 = \"2001:db8:1:f::1\" },\n\
                  { ipv4 = \"192.0.2.16/28\", ipv6 = \"2001:db8:1:f::10/124\" },\n]\n"
            .into(),
        inside: Facing {
            ours: vec![host(1), host(0x12)],
            theirs: embedded("2001:db8:64::/96", with_hairpins(remotes(), &[one, other])),
        },
        outside: Facing { ours: vec![one, other], theirs: remotes() },
        inside_routes: &[],
        outside_routes: EVERYWHERE,
        binds: false,
    }
}

fn clat() -> Served {
    let stands_for = |host| Party::usual(Ipv6Addr::new(0x2001, 0xdb8, 0x464, 0, 0, 0, 0, host));
    Served {
        name: "clat",
        service: "kind = \"clat\"\nprefix = \"64:ff9b::/96\"\n\
                  eam = [{ ipv4 = \"10.0.1.0/29\", ipv6 = \"2001:db8:464::/125\" }]\n"
            .into(),
        inside: Facing { ours: hosts4(), theirs: remotes() },
        outside: Facing { ours: vec![stands_for(2), stands_for(5)], theirs: embedded("64:ff9b::/96", remotes()) },
        inside_routes: &[],
        outside_routes: &["::/0"],
        binds: false,
    }
}

fn nat64() -> Served {
    let pool = Party::usual(POOL).with(Ports::Bound);
    Served {
        name: "nat64",
        service: format!(
            "kind = \"nat64\"\nprefix = \"64:ff9b::/96\"\npool = [{{ addresses = \"{POOL}\", ports = \"1024-65535\" }}]\n\
             static = [{{ inside = \"[2001:db8:1:f::2]:{SERVER_PORT}\", outside = \"{POOL}:{}\", protocol = \"tcp\" }}]\n",
            STATIC_PORTS[0]
        ),
        inside: Facing {
            ours: hosts6(),
            theirs: with_hairpins(embedded("64:ff9b::/96", remotes()), &embedded("64:ff9b::/96", vec![pool])),
        },
        outside: Facing { ours: vec![pool], theirs: remotes() },
        inside_routes: &[],
        outside_routes: EVERYWHERE,
        binds: true,
    }
}

fn nat44() -> Served {
    let pool = Party::usual(POOL).with(Ports::Bound);
    Served {
        name: "nat44",
        service: format!(
            "kind = \"nat44\"\ninside = [\"10.0.1.0/24\"]\npool = [{{ addresses = \"{POOL}\", ports = \"1024-65535\" }}]\n\
             static = [{{ inside = \"10.0.1.2:{SERVER_PORT}\", outside = \"{POOL}:{}\", protocol = \"tcp\" }}]\n",
            STATIC_PORTS[0]
        ),
        inside: Facing { ours: hosts4(), theirs: with_hairpins(remotes(), &[pool]) },
        outside: Facing { ours: vec![pool], theirs: remotes() },
        inside_routes: &[],
        outside_routes: EVERYWHERE,
        binds: true,
    }
}

fn b4() -> Served {
    let b4 = Ipv6Addr::new(0x2001, 0xdb8, 0x1000, 0x100, 0, 0, 0, 0xb4);
    Served {
        name: "b4",
        service: format!("kind = \"b4\"\ninside = [\"10.0.1.0/24\"]\naddress = \"{b4}\"\naftr = \"{AFTR}\"\n"),
        inside: Facing { ours: hosts4(), theirs: remotes() },
        outside: Facing { ours: hosts4().into_iter().map(|host| host.through(AFTR, b4)).collect(), theirs: remotes() },
        inside_routes: &[],
        outside_routes: EVERYWHERE,
        binds: false,
    }
}

fn aftr() -> Served {
    let pool = Party::usual(POOL).with(Ports::Bound);
    let home = |number| Ipv6Addr::new(0x2001, 0xdb8, 0x1000, number, 0, 0, 0, 0xb4);
    // The same addresses behind both.
    let homes = [home(0x100), home(0x200)].map(|b4| hosts4().into_iter().map(move |host| host.through(b4, AFTR)));
    Served {
        name: "aftr",
        service: format!(
            "kind = \"aftr\"\naddress = \"{AFTR}\"\nb4s = [\"2001:db8:1000::/36\"]\n\
             pool = [{{ addresses = \"{POOL}\", ports = \"1024-65535\" }}]\n\
             static = [{{ softwire = \"{}\", inside = \"10.0.1.2:{SERVER_PORT}\", outside = \"{POOL}:{}\", protocol = \"tcp\" }}]\n",
            home(0x100),
            STATIC_PORTS[0]
        ),
        inside: Facing { ours: homes.into_iter().flatten().collect(), theirs: with_hairpins(remotes(), &[pool]) },
        outside: Facing { ours: vec![pool], theirs: remotes() },
        inside_routes: &["2001:db8:1000::/36"],
        outside_routes: EVERYWHERE,
        binds: true,
    }
}

fn lwb4() -> Served {
    let own = Ipv4Addr::new(192, 0, 2, 10);
    let ours = Party::usual(own).with(Ports::Bound).through(AFTR, LWB4);
    Served {
        name: "lwb4",
        service: format!(
            "kind = \"lwb4\"\ninside = [\"10.0.1.0/24\"]\nipv4 = \"{own}\"\npsid_length = 6\npsid = 4\n\
             bind_prefix = \"2001:db8:1000:100::/56\"\naftr = \"{AFTR}\"\ntell_not_ours = true\n\
             static = [{{ inside = \"10.0.1.2:{SERVER_PORT}\", outside = \"{own}:{}\", protocol = \"tcp\" }}]\n",
            STATIC_PORTS[1]
        ),
        inside: Facing { ours: hosts4(), theirs: with_hairpins(remotes(), &[Party::usual(own).with(Ports::Bound)]) },
        outside: Facing { ours: vec![ours, ours, ours.with(Ports::Set(9000, 9009))], theirs: remotes() },
        inside_routes: &[],
        outside_routes: EVERYWHERE,
        binds: true,
    }
}

fn lwaftr() -> Served {
    let shared = Party::usual(Ipv4Addr::new(192, 0, 2, 10));
    let (first, second) = (shared.with(Ports::Set(4096, 5119)), shared.with(Ports::Set(5120, 6143)));
    let whole = Party::usual(Ipv4Addr::new(192, 0, 2, 11));
    Served {
        name: "lwaftr",
        service: format!(
            "kind = \"lwaftr\"\naddresses = [\"{AFTR}\"]\nipv4 = [\"192.0.2.0/28\"]\nsoftwires = [\n\
             {{ b4 = \"{LWB4}\", ipv4 = \"192.0.2.10\", psid_length = 6, psid = 4 }},\n\
             {{ b4 = \"{OTHER_LWB4}\", ipv4 = \"192.0.2.10\", psid_length = 6, psid = 5 }},\n\
             {{ b4 = \"{WHOLE_LWB4}\", ipv4 = \"192.0.2.11\" }},\n]\n"
        ),
        inside: Facing {
            ours: vec![
                first.through(LWB4, AFTR),
                second.through(OTHER_LWB4, AFTR),
                whole.through(WHOLE_LWB4, AFTR),
                // One that has no such port.
                first.through(OTHER_LWB4, AFTR),
            ],
            theirs: with_hairpins(remotes(), &[first, second, whole]),
        },
        outside: Facing { ours: vec![first, second, whole, shared.with(Ports::Set(9000, 9009))], theirs: remotes() },
        inside_routes: &["2001:db8:1000::/36"],
        outside_routes: EVERYWHERE,
        binds: false,
    }
}

const RULE: &str = "ipv6 = \"2001:db8::/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 16, psid_offset = 6";

/// The ports of the first edge's set, and of the second's: one of the runs of each.
const MAP_PORTS: [Ports; 2] = [Ports::Set(1232, 1235), Ports::Set(1236, 1239)];

fn map_ce(kind: &str, relay: &str) -> String {
    format!(
        "kind = \"{kind}\"\nrole = \"ce\"\n{relay}\nend_user_prefix = \"2001:db8:12:3400::/56\"\n\
         rules = [{{ {RULE}, forwarding = true }}]\ninside = [\"10.0.1.0/24\"]\n\
         static = [{{ inside = \"10.0.1.2:{SERVER_PORT}\", outside = \"{MAP_ADDRESS}:{}\", protocol = \"tcp\" }}]\n",
        STATIC_PORTS[0]
    )
}

/// Remotes of an edge's hosts: some of another edge's ports, and of its own.
fn map_remotes() -> Vec<Party> {
    let other = Party::usual(OTHER_MAP_ADDRESS).with(MAP_PORTS[1]);
    with_hairpins(remotes(), &[other, Party::usual(MAP_ADDRESS).with(Ports::Bound)])
}

fn map_e_ce() -> Served {
    let ours = Party::usual(MAP_ADDRESS).with(Ports::Bound);
    Served {
        name: "map-e-ce",
        service: map_ce("map-e", &format!("br = \"{AFTR}\"")),
        inside: Facing { ours: hosts4(), theirs: map_remotes() },
        outside: Facing {
            ours: vec![ours.through(AFTR, MAP_EDGE), ours.through(OTHER_MAP_EDGE, MAP_EDGE)],
            theirs: with_hairpins(remotes(), &[Party::usual(OTHER_MAP_ADDRESS).with(MAP_PORTS[1])]),
        },
        inside_routes: &[],
        outside_routes: EVERYWHERE,
        binds: true,
    }
}

fn map_t_ce() -> Served {
    let dmr = "2001:db8:ffff::/64";
    Served {
        name: "map-t-ce",
        service: map_ce("map-t", &format!("dmr = \"{dmr}\"")),
        inside: Facing { ours: hosts4(), theirs: map_remotes() },
        outside: Facing {
            ours: vec![Party::usual(MAP_EDGE).with(Ports::Bound)],
            theirs: with_hairpins(embedded(dmr, remotes()), &[Party::usual(OTHER_MAP_EDGE).with(MAP_PORTS[1])]),
        },
        inside_routes: &[],
        outside_routes: EVERYWHERE,
        binds: true,
    }
}

fn map_br(kind: &str, relay: &str) -> String {
    format!("kind = \"{kind}\"\nrole = \"br\"\n{relay}\nrules = [{{ {RULE} }}]\n")
}

/// Both edges' shares by their IPv4 addresses, and a port of nobody.
fn map_shares() -> Vec<Party> {
    let [one, other] = [(MAP_ADDRESS, MAP_PORTS[0]), (OTHER_MAP_ADDRESS, MAP_PORTS[1])]
        .map(|(address, ports)| Party::usual(address).with(ports));
    vec![one, other, one.with(Ports::Set(80, 89))]
}

fn map_e_br() -> Served {
    let (one, other) = (map_shares()[0], map_shares()[1]);
    Served {
        name: "map-e-br",
        service: map_br("map-e", &format!("br = \"{AFTR}\"")),
        inside: Facing {
            ours: vec![
                one.through(MAP_EDGE, AFTR),
                other.through(OTHER_MAP_EDGE, AFTR),
                one.through(OTHER_MAP_EDGE, AFTR),
            ],
            theirs: with_hairpins(remotes(), &[one, other]),
        },
        outside: Facing { ours: map_shares(), theirs: remotes() },
        inside_routes: &["2001:db8::/40"],
        outside_routes: EVERYWHERE,
        binds: false,
    }
}

fn map_t_br() -> Served {
    let dmr = "2001:db8:ffff::/64";
    let edges = [(MAP_EDGE, MAP_PORTS[0]), (OTHER_MAP_EDGE, MAP_PORTS[1]), (MAP_EDGE, MAP_PORTS[1])]
        .map(|(address, ports)| Party::usual(address).with(ports));
    Served {
        name: "map-t-br",
        service: map_br("map-t", &format!("dmr = \"{dmr}\"")),
        inside: Facing { ours: edges.to_vec(), theirs: embedded(dmr, with_hairpins(remotes(), &map_shares()[..2])) },
        outside: Facing { ours: map_shares(), theirs: remotes() },
        inside_routes: &["2001:db8::/40"],
        outside_routes: EVERYWHERE,
        binds: false,
    }
}

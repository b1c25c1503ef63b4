//! A customer's edge while its provider changes what it goes by: native IPv4 comes and goes, the name of an AFTR moves,
//! another prefix is delegated. Service follows, and nothing dies. Each prints how long it took; the promise is five
//! seconds. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod names;
mod running;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use names::Names;
use nix::sys::signal::Signal;
use running::{PATIENCE, TOMBOLO, end, kill};
use tombolo_lab::{End, Lab, Link, Namespace, Prefix, Process, Scenario, skip_without, wait_until};

/// Where a server tells its clients who they are.
const WHO: &str = "198.51.100.2:9";
/// What the server sees by way of native IPv4.
const NATIVE: &str = "203.0.113.2";
const AFTR_NAME: &str = "aftr.example.net";

struct Setup {
    // Dropped first.
    _provider: Process,
    scenario: Scenario,
    lab: Lab,
}

impl Setup {
    /// A scenario without the home's gateway; the provider has native IPv4 for it, at `wan0`.
    fn of(name: &str, provider: &str) -> Self {
        let mut scenario = Scenario::named(name).unwrap();
        let end = |node: &str, host| {
            let address = Prefix { address: Ipv4Addr::new(203, 0, 113, host).into(), length: 24 };
            End { node: node.to_owned(), interface: "wan0".to_owned(), addresses: vec![address] }
        };
        scenario.topology.links.push(Link::new(end("cpe", 2), end("gateway", 1)));
        let lab = Lab::create(&scenario.topology).unwrap();
        let text = if provider.is_empty() { &scenario.gateways[0].1 } else { provider };
        let provider = lab.start_gateway("gateway", TOMBOLO, text).unwrap();
        tell_clients_who_they_are(lab.node("server").unwrap());
        Self { _provider: provider, scenario, lab }
    }

    fn cpe(&self) -> &Namespace {
        self.lab.node("cpe").unwrap()
    }

    /// What the scenario has the home's gateway do.
    fn configuration(&self, fast_path: &str) -> String {
        let (_, text) = self.scenario.gateways.iter().find(|(node, _)| *node == "cpe").unwrap();
        format!("[gateway]\nfastpath = \"{fast_path}\"\n\n{text}")
    }

    fn start(&self, text: &str) -> Process {
        self.lab.start_gateway("cpe", TOMBOLO, text).unwrap_or_else(|error| panic!("{error:?}\n{text}"))
    }

    fn ip(&self, arguments: &str) -> String {
        let output = self.cpe().command("ip").args(arguments.split_ascii_whitespace()).run().unwrap();
        output.success().unwrap_or_else(|error| panic!("ip {arguments}: {error:?}")).stdout
    }

    fn status(&self) -> String {
        self.cpe().command(TOMBOLO).args(["show", "status"]).run().unwrap().success().unwrap().stdout
    }

    /// Waits until the server sees the client at an address that begins so, and prints how long it took.
    #[track_caller]
    fn follows(&self, gateway: &mut Process, what: &str, expected: &str) {
        let began = Instant::now();
        let found = wait_until(what, PATIENCE, || {
            seen(self.lab.node("client").unwrap()).filter(|seen| seen.to_string().starts_with(expected))
        });
        assert!(gateway.is_running(), "{what}: {}", gateway.log_tail(40));
        assert!(found.is_ok(), "{what}: {}\n{}", self.status(), gateway.log_tail(40));
        println!("{what}: service followed after {:.2} s", began.elapsed().as_secs_f64());
    }

    /// What gateways have for IPv4 on the home's router.
    fn marks(&self) -> String {
        format!("{}{}", self.ip("-4 route show table all proto 84"), self.ip("-4 rule show"))
            .lines()
            .filter(|line| !["local", "main", "default"].iter().any(|table| line.ends_with(&format!("lookup {table}"))))
            .collect()
    }
}

/// The server answers each datagram with the address that it came from.
fn tell_clients_who_they_are(server: &Namespace) {
    let socket = server.run(|| UdpSocket::bind(WHO).unwrap()).unwrap();
    std::thread::spawn(move || {
        while let Ok((_, SocketAddr::V4(client))) = socket.recv_from(&mut [0; 16]) {
            let _ = socket.send_to(&client.ip().octets(), client);
        }
    });
}

/// As what the server sees the client; `None` if it does not.
fn seen(client: &Namespace) -> Option<IpAddr> {
    let ask = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        socket.send_to(b"who", WHO).ok()?;
        let mut answer = [0; 4];
        (socket.recv(&mut answer).ok()? == 4).then_some(IpAddr::from(answer))
    };
    client.run(ask).unwrap()
}

/// The home's firewall hides its hosts behind the native address, as those of routers do.
fn masquerade(cpe: &Namespace) {
    let rules = "table ip wan {\n chain out {\n type nat hook postrouting priority srcnat;\n oifname \"wan0\" masquerade\n }\n}\n";
    cpe.command("nft").args(["-f", "-"]).stdin(rules).run().unwrap().success().unwrap();
}

const ADD: &str = "route add default via 203.0.113.1 dev wan0";

/// Native IPv4 is there, goes with its route, comes, goes with its link, comes.
fn leaves_ipv4_to_native(name: &str, fast_path: &str, carried: &str) {
    let test = format!("native IPv4 beside {name}, fast path {fast_path}");
    if skip_without(&test, &["ip", "nft"]) {
        return;
    }
    let setup = Setup::of(name, "");
    masquerade(setup.cpe());
    setup.ip(&format!("{ADD} metric 100"));
    let text = setup.configuration(fast_path) + "native_ipv4 = \"preferred\"\n";
    let mut gateway = setup.start(&text);
    let gateway = &mut gateway;
    setup.follows(gateway, &format!("{test}: it was there"), NATIVE);
    let status = setup.status();
    assert!(
        status.contains("STANDING BY") && status.contains("ready") && setup.marks().is_empty(),
        "{status}{}",
        setup.marks()
    );
    setup.ip("route del default dev wan0");
    setup.follows(gateway, &format!("{test}: its route went"), carried);
    // Of the metric that any other has.
    setup.ip(ADD);
    setup.follows(gateway, &format!("{test}: its route came"), NATIVE);
    let provider = setup.lab.node("gateway").unwrap();
    provider.set_down("wan0").unwrap();
    setup.follows(gateway, &format!("{test}: its link went down"), carried);
    provider.set_up("wan0").unwrap();
    setup.follows(gateway, &format!("{test}: its link came up"), NATIVE);
    wait_until("nothing is diverted", PATIENCE, || setup.marks().is_empty().then_some(())).unwrap();
    // One that starts without finds nothing in its way.
    setup.ip("route del default dev wan0");
    gateway.signal(Signal::SIGTERM).unwrap();
    wait_until("the end", PATIENCE, || (!gateway.is_running()).then_some(())).unwrap();
    let mut gateway = setup.start(&text);
    setup.follows(&mut gateway, &format!("{test}: started again without"), carried);
    assert!(!gateway.log_tail(100).contains("takes packets"), "{}", gateway.log_tail(100));
}

#[test]
fn a_b4_leaves_ipv4_to_native_while_that_works() {
    leaves_ipv4_to_native("ds-lite", "off", "192.0.2.");
}

#[test]
fn a_clat_with_a_fast_path_leaves_ipv4_to_native_while_that_works() {
    leaves_ipv4_to_native("464xlat", "tc", "192.0.2.");
}

#[test]
fn an_edge_of_map_that_stands_by_leaves_nothing_behind_however_it_ends() {
    if skip_without("an_edge_of_map_that_stands_by_leaves_nothing_behind_however_it_ends", &["ip", "nft"]) {
        return;
    }
    let setup = Setup::of("map-e", "");
    masquerade(setup.cpe());
    let text = setup.configuration("off") + "native_ipv4 = \"preferred\"\n";
    let mut gateway = setup.start(&text);
    setup.follows(&mut gateway, "MAP-E without native IPv4", "192.0.2.18");
    // One that comes and goes is none.
    for _ in 0..8 {
        setup.ip(ADD);
        std::thread::sleep(Duration::from_millis(100));
        setup.ip("route del default dev wan0");
        std::thread::sleep(Duration::from_millis(100));
    }
    setup.follows(&mut gateway, "native IPv4 came and went eight times", "192.0.2.18");
    assert!(!gateway.log_tail(100).contains("standing by"), "{}", gateway.log_tail(100));
    // What it keeps private sources in with outlives it; the next one finds native IPv4, and takes that away.
    kill(&mut gateway);
    assert!(setup.marks().contains("prohibit"), "{}", setup.marks());
    setup.ip(ADD);
    let mut gateway = setup.start(&text);
    setup.follows(&mut gateway, "started again, with native IPv4", NATIVE);
    assert!(setup.marks().is_empty(), "{}", setup.marks());
    // A reload meanwhile.
    gateway.signal(Signal::SIGHUP).unwrap();
    gateway.wait_for_text("configuration reloaded", PATIENCE).unwrap();
    setup.follows(&mut gateway, "reloaded while it stands by", NATIVE);
    kill(&mut gateway);
    assert!(setup.marks().is_empty(), "{}", setup.marks());
    // The interface is gone for good.
    let mut gateway = setup.start(&text);
    setup.ip("link del wan0");
    setup.follows(&mut gateway, "the interface of native IPv4 vanished", "192.0.2.18");
    end(gateway);
}

#[test]
fn a_b4_waits_for_the_name_of_its_aftr_and_follows_it() {
    if skip_without("a_b4_waits_for_the_name_of_its_aftr_and_follows_it", &["ping"]) {
        return;
    }
    let aftr = |last: u8, pool: &str| {
        format!(
            "[[service]]\nkind = \"aftr\"\naddress = \"2001:db8:ffff::{last}\"\nb4s = [\"2001:db8:1000::/36\"]\n\
             pool = [{{ addresses = \"{pool}\", ports = \"1024-65535\" }}]\n"
        )
    };
    let provider = aftr(1, "192.0.2.1") + &aftr(2, "192.0.2.2");
    let setup = Setup::of("ds-lite", &provider);
    let text = setup.configuration("tc").replace("2001:db8:ffff::1", AFTR_NAME);
    let mut gateway = setup.start(&text);
    let status = setup.status();
    assert!(status.contains("degraded") && status.contains("waits for an address of aftr.example.net"), "{status}");
    let ping = setup.lab.node("client").unwrap().command("ping").args(["-c", "1", "-W", "5", "198.51.100.2"]);
    let refused = ping.run().unwrap().stdout;
    assert!(refused.contains("+1 errors"), "{refused}");

    let names = Names::serve(setup.cpe());
    names.set(AFTR_NAME, &[]);
    wait_until("the lack", PATIENCE, || setup.status().contains("the resolver has no answer").then_some(())).unwrap();
    names.set(AFTR_NAME, &["fe80::1"]);
    wait_until("the lack", PATIENCE, || setup.status().contains("no softwire can end at").then_some(())).unwrap();
    names.set(AFTR_NAME, &["2001:db8:ffff::1"]);
    setup.follows(&mut gateway, "the AFTR's name has an address", "192.0.2.1");
    wait_until("it is as it should be", PATIENCE, || setup.status().contains("ready").then_some(())).unwrap();
    names.set(AFTR_NAME, &["2001:db8:ffff::2"]);
    setup.follows(&mut gateway, "the AFTR's name moved", "192.0.2.2");
    // The order of two moves nothing, and a name that is gone is known still.
    names.set(AFTR_NAME, &["2001:db8:ffff::1", "2001:db8:ffff::2"]);
    gateway.signal(Signal::SIGHUP).unwrap();
    gateway.wait_for_text("configuration reloaded", PATIENCE).unwrap();
    setup.follows(&mut gateway, "reloaded", "192.0.2.2");
    names.remove(AFTR_NAME);
    wait_until("the word", PATIENCE, || setup.status().contains("stays 2001:db8:ffff::2").then_some(())).unwrap();
    setup.follows(&mut gateway, "the AFTR's name is gone", "192.0.2.2");
    end(gateway);
}

/// Directory of the scripts for DHCPv6 clients.
const CONTRIB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib");

/// A home whose configuration is made by scripts, in a directory of its own.
struct Provisioned {
    setup: Setup,
    home: tempfile::TempDir,
}

impl Provisioned {
    fn of(name: &str, provider: &str) -> Self {
        let setup = Setup::of(name, provider);
        // Hosts that are not carried would leave here as they are.
        setup.ip(ADD);
        let count = "table ip wan {\n counter leaked { }\n chain in {\n type filter hook prerouting priority filter;\n \
                     iifname \"wan0\" counter name leaked\n }\n}\n";
        let provider = setup.lab.node("gateway").unwrap();
        provider.command("nft").args(["-f", "-"]).stdin(count).run().unwrap().success().unwrap();
        Self { setup, home: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.home.path().join(name).display().to_string()
    }

    /// A command in the home's router that finds the gateway's, and the scripts.
    fn command(&self, program: &str) -> tombolo_lab::Command {
        let own = std::path::Path::new(TOMBOLO).parent().unwrap().display();
        let path = format!("{}:{own}:{CONTRIB}/provision:/usr/sbin:/usr/bin:/sbin:/bin", self.home.path().display());
        let command = self.setup.cpe().command(program).env("PATH", path);
        command.env("TOMBOLO_CONFIGURATION", self.path("tombolo.toml")).env("TOMBOLO_RESTART", "true")
    }

    /// The gateway with the configuration that was made.
    fn start(&self) -> Process {
        let mut gateway = self.command(TOMBOLO).args(["run", "-c"]).arg(self.path("tombolo.toml")).spawn().unwrap();
        gateway.wait_for_text("ready", PATIENCE).unwrap();
        gateway
    }

    /// The provider takes one prefix away, and routes another one to the home.
    fn delegate(&self, before: &str, prefix: &str) {
        let routes = [format!("del {before}"), format!("replace {prefix} via 2001:db8:c::2 dev core0")];
        for route in routes {
            let words = format!("-6 route {route}");
            let provider = self.setup.lab.node("gateway").unwrap();
            provider.command("ip").args(words.split_ascii_whitespace()).run().unwrap().success().unwrap();
        }
    }

    fn leaked(&self) -> String {
        let provider = self.setup.lab.node("gateway").unwrap();
        provider.command("nft").args(["list", "counter", "ip", "wan", "leaked"]).run().unwrap().stdout
    }

    #[track_caller]
    fn has_prefix(&self, prefix: &str, before: &str) {
        let routes = wait_until("the routes", PATIENCE, || {
            let routes = self.setup.ip("-6 route show proto 84");
            (routes.contains(prefix) && !routes.contains(before)).then_some(routes)
        });
        assert!(routes.is_ok(), "{}", self.setup.ip("-6 route show"));
        assert!(self.leaked().contains("packets 0 "), "{}", self.leaked());
    }
}

/// As odhcp6c has its script run.
fn odhcp6c(home: &Provisioned, prefixes: &str, (variable, value): (&str, &str)) {
    std::fs::write(home.path("template.toml"), "[gateway]\nfastpath = \"off\"\n\n{service}\n").unwrap();
    let hook = format!("sed 's/preferred/ignored/' {CONTRIB}/openwrt/odhcp6c.user.d/50-tombolo > $0.hook; . $0.hook");
    let command = home.command("sh").args(["-c", &hook]).arg(home.path("sh")).args(["wan0", "updated"]);
    let command = command.env("PREFIXES", prefixes).env(variable, value).env("TOMBOLO_INSIDE", "10.0.0.0/24");
    command.env("TOMBOLO_TEMPLATE", home.path("template.toml")).run().unwrap().success().unwrap();
}

#[test]
fn an_edge_of_map_and_a_b4_follow_the_prefix_that_odhcp6c_gets() {
    if skip_without("an_edge_of_map_and_a_b4_follow_the_prefix_that_odhcp6c_gets", &["ip", "nft", "sed"]) {
        return;
    }
    let home = Provisioned::of("map-e", "");
    let rule = "type=map-e,ealen=16,prefix4len=24,prefix6len=40,ipv4prefix=192.0.2.0,ipv6prefix=2001:db8:4600::,\
                offset=6,psidlen=8,psid=0,br=2001:db8:ffff::1, ";
    let [one, other] = ["2001:db8:4612:3400::/56", "2001:db8:4613:3500::/56"];
    odhcp6c(&home, &format!("{one},3600,7200,1800,2880"), ("MAPE", rule));
    let mut gateway = home.start();
    home.setup.follows(&mut gateway, "MAP-E as odhcp6c said", "192.0.2.18");
    // The old one is still valid for a while, and preferred no more.
    home.delegate(one, other);
    let began = Instant::now();
    odhcp6c(&home, &format!("{one},0,600,0,0 {other},3600,7200,1800,2880"), ("MAPE", rule));
    home.setup.follows(&mut gateway, "MAP-E: another prefix was delegated", "192.0.2.19");
    home.has_prefix("2001:db8:4613:35", "2001:db8:4612:34");
    println!("of which the script took all but what is said, together {:.2} s", began.elapsed().as_secs_f64());
    // Nothing that cannot be used takes the place of what works.
    odhcp6c(&home, &format!("{other},3600,7200,1800,2880"), ("MAPE", "type=map-e,br=none"));
    home.setup.follows(&mut gateway, "MAP-E: what odhcp6c said could not be read", "192.0.2.19");
    end(gateway);
    drop(home);

    let home = Provisioned::of("ds-lite", "");
    let names = Names::serve(home.setup.cpe());
    names.set(AFTR_NAME, &["2001:db8:ffff::1"]);
    let [one, other] = ["2001:db8:1000:100::/56", "2001:db8:1000:300::/56"];
    odhcp6c(&home, &format!("{one},3600,7200,1800,2880"), ("AFTR", AFTR_NAME));
    let mut gateway = home.start();
    home.setup.follows(&mut gateway, "DS-Lite as odhcp6c said", "192.0.2.");
    home.delegate(one, other);
    odhcp6c(&home, &format!("{other},3600,7200,1800,2880"), ("AFTR", AFTR_NAME));
    home.setup.follows(&mut gateway, "DS-Lite: another prefix was delegated", "192.0.2.");
    home.has_prefix("2001:db8:1000:3ff::b4", "2001:db8:1000:1ff::b4");
    end(gateway);
}

#[test]
fn an_edge_of_map_follows_the_prefix_that_networkd_gets() {
    if skip_without("an_edge_of_map_follows_the_prefix_that_networkd_gets", &["ip", "nft"]) {
        return;
    }
    let home = Provisioned::of("map-t", "");
    let template = home.setup.configuration("off").replace("2001:db8:4612:3400::/56", "{prefix}");
    std::fs::write(home.path("template.toml"), template).unwrap();
    let networkctl = format!("#!/bin/sh\ncat {}\n", home.path("status.json"));
    std::fs::write(home.path("networkctl"), networkctl).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(home.path("networkctl"), mode).unwrap();
    // As networkd does: what it knows, and a route.
    let got = |bytes: [u8; 2], prefix: &str| {
        let [low, high] = bytes;
        let status = format!(
            "{{\"Name\":\"wan0\",\"DHCPv6Client\":{{\"Prefixes\":[{{\"Prefix\":[32,1,13,184,70,{low},{high},0,0,0,0,0,0,0,0,0],\
             \"PrefixLength\":56,\"PreferredLifetimeUSec\":9,\"ValidLifetimeUSec\":9}}]}}}}"
        );
        std::fs::write(home.path("status.json"), status).unwrap();
        home.setup.ip(&format!("-6 route add unreachable {prefix} metric 1024"));
    };
    let [one, other] = ["2001:db8:4612:3400::/56", "2001:db8:4613:3500::/56"];
    got([0x12, 0x34], one);
    let script = format!("{CONTRIB}/networkd/tombolo-networkd");
    let follower = home.command(&script).args(["wan0", "--template"]).arg(home.path("template.toml")).spawn().unwrap();
    let made = || std::fs::exists(home.path("tombolo.toml")).unwrap().then_some(());
    wait_until("a configuration", PATIENCE, made).unwrap();
    let mut gateway = home.start();
    home.setup.follows(&mut gateway, "MAP-T as networkd said", "192.0.2.18");
    home.delegate(one, other);
    home.setup.ip(&format!("-6 route del unreachable {one} metric 1024"));
    got([0x13, 0x35], other);
    home.setup.follows(&mut gateway, "MAP-T: another prefix was delegated", "192.0.2.19");
    home.has_prefix("2001:db8:4613:35", "2001:db8:4612:34:");
    follower.stop();
    end(gateway);
}

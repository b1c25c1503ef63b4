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
    assert!(setup.marks().is_empty(), "{}", setup.marks());
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

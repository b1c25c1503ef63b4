//! One configuration, changed live: reload after reload while packets flow, each with other pools, services,
//! static bindings and mappings. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use tombolo_lab::{Lab, Peer, Process, Topology, dropped_by_links, skip_without, wait_until};

mod flows;
mod running;

use flows::{EndOnDrop, Stream, ask, lost_at_the_ends};
use running::{PATIENCE, TOMBOLO, rows, run, settings_of_engine, show, takes};

/// Reloads in a row. Two hundred were tried by hand: docs/reliability.md.
fn rounds(usual: usize) -> usize {
    std::env::var("TOMBOLO_RELOADS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

/// A configuration under which two services go on, and everything else is otherwise in each round: pools
/// larger, smaller, split and with other ports; services that come and go, and stand elsewhere in the file;
/// hosts, static bindings, explicit mappings.
fn configuration(settings: &str, round: usize) -> String {
    let is_odd = round % 2 == 1;
    let extra = "[[service]]\nkind = \"nat64\"\nname = \"extra\"\nprefix = \"2001:db8:64::/96\"\n\
                 pool = [{ addresses = \"192.0.2.9\" }]\n";
    let nat64 = format!(
        "[[service]]\nkind = \"nat64\"\nname = \"nat64\"\nprefix = \"64:ff9b::/96\"\nwell_known_prefix_strict = false\n\
         pool = [{{ addresses = \"192.0.2.1\" }}{}]\n\
         static = [{{ inside = \"[2001:db8:1::2]:80\", outside = \"192.0.2.1:{}\", protocol = \"tcp\" }}]\n",
        if is_odd { ", { addresses = \"192.0.2.3\" }" } else { "" },
        400 + round % 50,
    );
    let cgn = format!(
        "[[service]]\nkind = \"nat44\"\nname = \"cgn\"\ninside = [{}]\npool = [{}]\n",
        if is_odd { "\"10.0.0.0/24\", \"10.9.0.0/24\"" } else { "\"10.0.0.0/24\"" },
        if is_odd {
            "{ addresses = \"192.0.2.16/31\" }, { addresses = \"192.0.2.18-192.0.2.21\", ports = \"512-65535\" }"
        } else {
            "{ addresses = \"192.0.2.16/30\" }"
        },
    );
    let mapped = format!(
        "[[service]]\nkind = \"siit\"\nname = \"mapped\"\n\
         eam = [{{ ipv4 = \"203.0.113.{0}\", ipv6 = \"2001:db8:e::{0}\" }}]\n",
        1 + round % 200
    );
    let services = if is_odd { [extra, &cgn, &mapped, &nat64] } else { [&nat64, "", &mapped, &cgn] };
    let room = "[capacity]\nsubscribers = 100\nbindings = 10000\nsessions = 10000\n";
    format!("{}\n{room}{}", settings_of_engine(settings), services.concat())
}

/// A gateway in a lab, with a log of bindings.
struct Setup {
    lab: Lab,
    gateway: Process,
    settings: String,
}

impl Setup {
    fn new(settings: &str) -> Self {
        let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
        let log = lab.directory().unwrap().join("bindings.jsonl");
        let settings = format!("{settings}\nbinding_log = \"{}\"", log.display());
        let file = lab.directory().unwrap().join("gateway.toml");
        fs::write(&file, configuration(&settings, 0)).unwrap();
        let gateway = run(TOMBOLO, &lab, &file);
        Self { lab, gateway, settings }
    }

    fn configure(&self, text: &str) {
        fs::write(self.lab.directory().unwrap().join("gateway.toml"), text).unwrap();
    }

    /// What a command says, and whether it worked.
    fn tombolo(&self, arguments: &[&str]) -> (String, bool) {
        let output = self.lab.node("gateway").unwrap().command(TOMBOLO).args(arguments.iter().copied()).run().unwrap();
        let worked = output.status.success();
        (format!("{}{}", output.stdout, output.stderr), worked)
    }

    fn reload(&self) -> String {
        let (said, worked) = self.tombolo(&["reload"]);
        assert!(worked, "{said}\n{}", self.gateway.stderr());
        said
    }

    /// Who has which outside endpoint in a service.
    fn bindings(&self, service: &str) -> Vec<String> {
        let fields = ["protocol", "inside", "inside_port", "outside", "outside_port"];
        let dynamic = |row: &&Value| row["service"] == service && row["origin"] == "dynamic";
        let line = |row: &Value| fields.map(|field| row[field].to_string()).join(" ");
        let mut found: Vec<String> = show(&self.lab, "bindings").iter().filter(dynamic).map(line).collect();
        found.sort();
        found
    }

    fn logged(&self, event: &str, service: &str) -> usize {
        let log = fs::read_to_string(self.lab.directory().unwrap().join("bindings.jsonl")).unwrap();
        rows(&log).iter().filter(|line| line["event"] == event && line["service"] == service).count()
    }

    fn end(mut self) {
        self.gateway.signal(Signal::SIGTERM).unwrap();
        wait_until("the gateway is gone", PATIENCE, || (!self.gateway.is_running()).then_some(())).unwrap();
    }
}

/// Reloads under iperf3 through one service and a stream of datagrams through another.
fn reloads_disturb_nobody(settings: &str, count: usize) {
    let setup = Setup::new(settings);
    let lab = &setup.lab;
    let _echo = Peer::udp_echo(lab.node("server").unwrap(), "198.51.100.2:7".parse().unwrap()).unwrap();
    let mut server = lab.node("server").unwrap().command("iperf3").args(["-s", "-1", "--forceflush"]).spawn().unwrap();
    server.wait_for_text("Server listening", PATIENCE).unwrap();
    let words =
        ["-c", "198.51.100.2", "-t", "86400", "-i", "0.5", "-b", "50M", "-w", "200K", "-f", "m", "--forceflush"];
    let mut iperf3 = lab.node("client").unwrap().command("iperf3").args(words).spawn().unwrap();
    let stream = Stream::default();
    let mut took = Vec::new();
    let (mut before, mut after) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    std::thread::scope(|scope| {
        scope.spawn(|| stream.run(lab, "[64:ff9b::c633:6402]:7"));
        let _ends = EndOnDrop(&stream.stop);
        wait_until("both flow", PATIENCE, || {
            (stream.answered() > 300 && setup.bindings("cgn").len() == 2).then_some(())
        })
        .unwrap();
        before = ["nat64", "cgn"].map(|service| setup.bindings(service));
        for round in 1..=count {
            if round % 3 == 0 {
                setup.configure(&configuration(&setup.settings, round).replace("192.0.2.1", "192.0.2.300"));
                let (said, worked) = setup.tombolo(&["reload"]);
                assert!(!worked && said.contains("the old configuration stays in force"), "{said}");
            }
            setup.configure(&configuration(&setup.settings, round));
            let begin = Instant::now();
            let said = setup.reload();
            took.push(begin.elapsed());
            assert!(said.contains("service.nat64.pool: ") && said.contains("service.mapped.eam: "), "{said}");
            if round % 2 == 1 {
                // State that ends with the next reload.
                assert!(said.contains("service.extra: ") && said.contains("is new"), "{said}");
                ask(lab, "[2001:db8:64::c633:6402]:7");
            } else {
                let end = "0 sessions and 1 binding of extra on 192.0.2.9 have ended: there is no service";
                assert!(said.contains(end), "{said}");
            }
        }
        std::thread::sleep(Duration::from_millis(700));
        after = ["nat64", "cgn"].map(|service| setup.bindings(service));
    });
    iperf3.signal(Signal::SIGINT).unwrap();
    let report = iperf3.wait(PATIENCE).unwrap().stdout;
    let said = setup.gateway.stderr();
    let rate = |line: &str| line.split_once(" Mbits/sec")?.0.rsplit(' ').next()?.parse::<f64>().ok();
    let rates: Vec<f64> =
        report.lines().filter(|line| !line.contains("sender") && !line.contains("receiver")).filter_map(rate).collect();
    let slowest = rates.iter().copied().fold(f64::MAX, f64::min);
    let (sent, lost) = (stream.sent.load(Ordering::Acquire), stream.lost());
    let elsewhere = [lost_at_the_ends(lab), dropped_by_links(lab, &["client", "gateway", "server"]).unwrap()];
    took.sort();
    println!(
        "{count} reloads, {:?} each in the median, {:?} at most; {} of {sent} datagrams lost (at the ends and by links \
         {elsewhere:?}); slowest half second of TCP {slowest:.1} Mbit/s of {} half seconds",
        took[took.len() / 2],
        took[took.len() - 1],
        lost.len(),
        rates.len(),
    );
    assert!(!before[0].is_empty() && before == after, "{before:?} {after:?}\n{said}");
    assert!(lost.len() as u64 <= elsewhere.iter().sum(), "lost {lost:?}, elsewhere {elsewhere:?}\n{said}");
    assert!(rates.len() > 3 && slowest > 0.0, "the connection stood still: {rates:?}\n{report}");
    let ended = count / 2;
    wait_until("what ended is logged", PATIENCE, || (setup.logged("removed", "extra") == ended).then_some(())).unwrap();
    // The static binding has another port each time.
    assert_eq!([setup.logged("removed", "nat64"), setup.logged("removed", "cgn")], [count, 0]);
    setup.end();
}

#[test]
fn reloads_in_a_row_disturb_nobody_in_the_engine() {
    if !skip_without("reloads_in_a_row_disturb_nobody_in_the_engine", &["iperf3"]) {
        reloads_disturb_nobody("", rounds(8));
    }
}

#[test]
fn reloads_in_a_row_disturb_nobody_in_the_kernel() {
    if !skip_without("reloads_in_a_row_disturb_nobody_in_the_kernel", &["iperf3"]) {
        reloads_disturb_nobody("fastpath = \"tc\"", rounds(4));
    }
}

/// Two services with a lot to look up beside the one of the stream; `round` is somewhere in all of it.
fn large_tables(directory: &Path, (rows, softwires): (u32, u32), round: u32) -> String {
    let ipv4 = |base: [u8; 4], n: u32| Ipv4Addr::from_bits(Ipv4Addr::from(base).to_bits() + n);
    let ipv6 = |base: &str, n: u32| Ipv6Addr::from_bits(base.parse::<Ipv6Addr>().unwrap().to_bits() + u128::from(n));
    let mut eam = String::new();
    for n in 0..rows {
        let (from, to) = (ipv4([203, 0, 0, 0], n), ipv6("2001:db8:e::", n + round * rows));
        writeln!(eam, "  {{ ipv4 = \"{from}\", ipv6 = \"{to}\" }},").unwrap();
    }
    let mut lines = String::new();
    for n in 0..softwires {
        let (b4, from) = (ipv6("2001:db8:b4::", n + round * softwires), ipv4([100, 64, 0, 0], n / 64));
        writeln!(lines, "{b4},{from},0,6,{}", n % 64).unwrap();
    }
    fs::write(directory.join("softwires.csv"), lines).unwrap();
    let stream = "[[service]]\nkind = \"nat64\"\nprefix = \"64:ff9b::/96\"\nwell_known_prefix_strict = false\n\
                  pool = [{ addresses = \"192.0.2.1\" }]\n";
    format!(
        "[capacity]\nsubscribers = 100\nbindings = 10000\nsessions = 10000\n{stream}\
         [[service]]\nkind = \"siit\"\neam = [\n{eam}]\n\
         [[service]]\nkind = \"lwaftr\"\naddresses = [\"2001:db8:ffff::1\"]\nipv4 = [\"100.64.0.0/16\"]\n\
         softwires_file = \"softwires.csv\"\n"
    )
}

/// Tables of explicit mappings and softwires, all of whose rows are others, take the place of those before
/// while a stream goes on. A hundred thousand and a million were tried by hand: docs/reliability.md.
fn large_tables_are_reloaded(settings: &str) {
    let sizes = if std::env::var_os("TOMBOLO_RELOADS").is_some() { (100_000, 1_000_000) } else { (2_000, 50_000) };
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let directory = lab.directory().unwrap();
    let file = directory.join("gateway.toml");
    let configure = |round| {
        let text = format!("{}\n{}", settings_of_engine(settings), large_tables(&directory, sizes, round));
        fs::write(&file, text).unwrap();
    };
    configure(0);
    let _echo = Peer::udp_echo(lab.node("server").unwrap(), "198.51.100.2:7".parse().unwrap()).unwrap();
    let command = lab.node("gateway").unwrap().command(TOMBOLO).args(["run", "-c"]);
    let mut gateway = command.arg(file.display().to_string()).spawn().unwrap();
    gateway.wait_for_text("ready", Duration::from_secs(120)).unwrap();
    let stream = Stream::default();
    std::thread::scope(|scope| {
        scope.spawn(|| stream.run(&lab, "[64:ff9b::c633:6402]:7"));
        let _ends = EndOnDrop(&stream.stop);
        wait_until("it flows", PATIENCE, || (stream.answered() > 300).then_some(())).unwrap();
        for round in 1..=2 {
            configure(round);
            let begin = Instant::now();
            let said = lab.node("gateway").unwrap().command(TOMBOLO).args(["reload"]).run().unwrap();
            let said = format!("{}{}", said.stdout, said.stderr);
            assert!(said.contains("configuration reloaded") && said.contains("content of "), "{said}");
            assert!(said.contains(&format!("({} in all)", sizes.0)), "{said}");
            println!("{} mappings and {} softwires: {:?}", sizes.0, sizes.1, begin.elapsed());
        }
        std::thread::sleep(Duration::from_millis(500));
    });
    let (sent, lost) = (stream.sent.load(Ordering::Acquire), stream.lost());
    let elsewhere = [lost_at_the_ends(&lab), dropped_by_links(&lab, &["client", "gateway", "server"]).unwrap()];
    println!("{} of {sent} datagrams lost (at the ends and by links {elsewhere:?})", lost.len());
    assert!(lost.len() as u64 <= elsewhere.iter().sum(), "lost {lost:?}\n{}", gateway.stderr());
    gateway.signal(Signal::SIGTERM).unwrap();
    wait_until("the gateway is gone", PATIENCE, || (!gateway.is_running()).then_some(())).unwrap();
}

#[test]
fn large_tables_are_reloaded_while_packets_pass_in_the_engine() {
    if !skip_without("large_tables_are_reloaded_while_packets_pass_in_the_engine", &[]) {
        large_tables_are_reloaded("");
    }
}

#[test]
fn large_tables_are_reloaded_while_packets_pass_in_the_kernel() {
    if !skip_without("large_tables_are_reloaded_while_packets_pass_in_the_kernel", &[]) {
        large_tables_are_reloaded("fastpath = \"tc\"");
    }
}

/// The routes of the gateway's node that lead to its device, and its rules.
fn provided(lab: &Lab) -> String {
    let of =
        |words: &[&str]| lab.node("gateway").unwrap().command("ip").args(words.iter().copied()).run().unwrap().stdout;
    [
        of(&["-4", "route", "show", "dev", "tombolo"]),
        of(&["-6", "route", "show", "dev", "tombolo"]),
        of(&["rule"]),
        of(&["route", "show", "table", "84"]),
    ]
    .concat()
}

#[test]
fn what_is_not_confirmed_goes_back_and_a_dry_run_changes_nothing() {
    if skip_without("what_is_not_confirmed_goes_back_and_a_dry_run_changes_nothing", &["ip"]) {
        return;
    }
    let setup = Setup::new("");
    let lab = &setup.lab;
    let _echo = Peer::udp_echo(lab.node("server").unwrap(), "198.51.100.2:7".parse().unwrap()).unwrap();
    ask(lab, "198.51.100.2:7");
    let (before, host) = (setup.bindings("cgn"), provided(lab));
    assert_eq!(before.len(), 1);
    assert_eq!(setup.tombolo(&["plan"]), ("nothing would change\n".to_owned(), true));

    // Another pool: what would end is said, and nothing ends.
    let text = configuration(&setup.settings, 0);
    let moved = text.replace("192.0.2.16/30", "192.0.2.32/30").replace("10.0.0.0/24", "10.0.0.0/23");
    setup.configure(&moved);
    for words in [&["plan"][..], &["reload", "--dry-run"]] {
        let (said, worked) = setup.tombolo(words);
        assert!(worked && said.contains("service.cgn.pool: { addresses = \"192.0.2.16/30\" } -> "), "{said}");
        let end = "0 sessions and 1 binding of cgn on 192.0.2.16/30 would end: the pool does not have the address";
        assert!(said.contains(end), "{said}");
    }
    assert_eq!((setup.bindings("cgn"), provided(lab)), (before.clone(), host.clone()));

    // It goes back by itself, the host too.
    let (said, worked) = setup.tombolo(&["reload", "--confirm", "2"]);
    assert!(worked && said.contains("have ended") && said.contains("comes back in 2 s"), "{said}");
    assert_eq!(setup.bindings("cgn"), [""; 0]);
    assert!(provided(lab).contains("192.0.2.32/30") && provided(lab).contains("10.0.0.0/23"), "{}", provided(lab));
    ask(lab, "198.51.100.2:7");
    wait_until("it goes back", PATIENCE, || (provided(lab) == host).then_some(())).unwrap();
    ask(lab, "198.51.100.2:7");
    let binding = setup.bindings("cgn");
    assert!(
        binding.len() == 1
            && ["16", "17", "18", "19"].iter().any(|last| binding[0].contains(&format!("192.0.2.{last}\""))),
        "{binding:?}"
    );
    let (said, worked) = setup.tombolo(&["confirm"]);
    assert!(!worked && said.contains("no reload waits to be confirmed"), "{said}");

    // It stays if it is confirmed.
    assert!(setup.tombolo(&["reload", "--confirm", "2"]).1);
    assert_eq!(setup.tombolo(&["confirm"]), ("configuration confirmed\n".to_owned(), true));
    std::thread::sleep(Duration::from_secs(3));
    assert!(provided(lab).contains("192.0.2.32/30"), "{}", provided(lab));

    // What somebody else has is refused, and nothing is changed.
    let (taken, kept) = (moved.replace("192.0.2.32/30", "198.51.100.0/24"), provided(lab));
    setup.configure(&taken);
    let (said, worked) = setup.tombolo(&["reload"]);
    assert!(!worked && said.contains("the old configuration stays in force"), "{said}");
    assert_eq!(provided(lab), kept);
    ask(lab, "198.51.100.2:7");

    // The service goes, and with it what kept private sources in.
    setup.configure(&text[..text.rfind("[[service]]").unwrap()]);
    assert!(setup.reload().contains("service.cgn: "));
    assert!(!provided(lab).contains("10.0.0.0") && !provided(lab).contains("192.0.2.32"), "{}", provided(lab));
    setup.end();
}

#[test]
fn a_restart_after_reloads_has_the_state() {
    if skip_without("a_restart_after_reloads_has_the_state", &[]) {
        return;
    }
    for (end, settings) in [(Signal::SIGTERM, ""), (Signal::SIGKILL, ""), (Signal::SIGKILL, "fastpath = \"tc\"")] {
        let home = tempfile::tempdir().unwrap();
        let settings = format!("{settings}\nrun_directory = \"{}\"", home.path().display());
        let mut setup = Setup::new(&settings);
        let gateway = home.path().display().to_string();
        let _echo = Peer::udp_echo(setup.lab.node("server").unwrap(), "198.51.100.2:7".parse().unwrap()).unwrap();
        for to in ["[64:ff9b::c633:6402]:7", "198.51.100.2:7"] {
            ask(&setup.lab, to);
        }
        for round in 1..=3 {
            setup.configure(&configuration(&setup.settings, round));
            let (said, worked) = setup.tombolo(&["reload", "--gateway", &gateway]);
            assert!(worked, "{said}");
        }
        ask(&setup.lab, "[2001:db8:64::c633:6402]:7");
        let bindings = |setup: &Setup| {
            let rows = rows(&setup.tombolo(&["show", "bindings", "--json", "--gateway", &gateway]).0);
            let fields = ["service", "protocol", "inside_port", "outside", "outside_port"];
            let mut found: Vec<String> =
                rows.iter().map(|row| fields.map(|field| row[field].to_string()).join(" ")).collect();
            found.sort();
            found
        };
        let before = bindings(&setup);
        assert_eq!(before.len(), 4, "one of each service, and the static one: {before:?}");
        setup.gateway.signal(end).unwrap();
        wait_until("the gateway is gone", PATIENCE, || (!setup.gateway.is_running()).then_some(())).unwrap();
        setup.gateway = run(TOMBOLO, &setup.lab, &setup.lab.directory().unwrap().join("gateway.toml"));
        assert_eq!(bindings(&setup), before, "{end} {settings}\n{}", setup.gateway.stderr());
        setup.end();
    }
}

#[test]
fn what_holds_for_interfaces_changes_live() {
    if skip_without("what_holds_for_interfaces_changes_live", &["nft"]) {
        return;
    }
    let setup = Setup::new("fastpath = \"tc\"");
    let lab = &setup.lab;
    let _echo = Peer::udp_echo(lab.node("server").unwrap(), "198.51.100.2:7".parse().unwrap()).unwrap();
    ask(lab, "198.51.100.2:7");
    let served = || ["inside0", "outside0"].map(|name| takes(&show(lab, "fastpath"), name).unwrap());
    let guard = || {
        lab.node("gateway")
            .unwrap()
            .command("nft")
            .args(["list", "table", "inet", "tombolo-tombolo"])
            .run()
            .unwrap()
            .stdout
    };
    assert_eq!(served(), ["tc", "tc"]);
    let before = guard();
    assert!(!before.contains("outside0"), "{before}");

    let text = configuration(&setup.settings, 0);
    setup.configure(&format!("{text}[[interface]]\nname = \"outside0\"\nfastpath = \"off\"\n"));
    assert!(setup.reload().contains("interface.outside0: "));
    assert_eq!(served(), ["tc", "off"]);
    ask(lab, "198.51.100.2:7");
    setup.configure(&text);
    assert!(setup.reload().contains("interface.outside0: "));
    assert_eq!(served(), ["tc", "tc"]);
    ask(lab, "198.51.100.2:7");

    // Hosts inside are said to be at the other end: nothing of theirs is taken any more, on neither way.
    let elsewhere = text.replacen("[gateway]\n", "[gateway]\ninside_interfaces = [\"outside0\"]\n", 1);
    setup.configure(&elsewhere);
    assert!(setup.reload().contains("gateway.inside_interfaces: [\"outside0\"] is new"));
    assert!(guard().contains("outside0"), "{}", guard());
    let socket = lab.node("client").unwrap().run(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let goes = || socket.send_to(b"x", "198.51.100.2:7").is_ok() && socket.recv(&mut [0; 8]).is_ok();
    assert!(!goes());
    let anywhere = text.replacen("[gateway]\n", "[gateway]\ninside_interfaces = \"any\"\n", 1);
    setup.configure(&anywhere);
    setup.reload();
    assert!(goes() && guard().is_empty(), "{}", guard());
    setup.configure(&text);
    setup.reload();
    assert!(goes());
    assert_eq!(guard(), before);

    // The device's MTU, the table that hosts inside are diverted by, and whether netfilter sees what is sent.
    let ip =
        |words: &[&str]| lab.node("gateway").unwrap().command("ip").args(words.iter().copied()).run().unwrap().stdout;
    let routes = || {
        let rows = show(lab, "fastpath");
        rows.iter().find(|row| row["what"] == "routes").unwrap()["value"].as_str().unwrap().to_owned()
    };
    let host = provided(lab);
    assert!(routes().ends_with("mirrored"), "{}", routes());
    let other = "[gateway]\nmtu = 9000\ntable = 90\nfastpath_netfilter = true\n";
    setup.configure(&text.replacen("[gateway]\n", other, 1));
    let said = setup.reload();
    assert!(
        ["mtu", "table", "fastpath_netfilter"].iter().all(|key| said.contains(&format!("gateway.{key}: "))),
        "{said}"
    );
    assert!(ip(&["link", "show", "tombolo"]).contains("mtu 9000"));
    let rules = ip(&["rule"]);
    assert!(rules.contains("lookup 90") && !rules.contains("lookup 84"), "{rules}");
    assert_eq!((served(), routes().as_str()), (["tc", "tc"].map(str::to_owned), "left to the stack"));
    assert!(goes());
    setup.configure(&text);
    setup.reload();
    assert!(ip(&["link", "show", "tombolo"]).contains("mtu 65535"));
    assert!(goes() && provided(lab) == host && routes().ends_with("mirrored"), "{}\n{}", provided(lab), routes());
    setup.end();
}

//! What a gateway does that nobody has told anything about the kernel: it takes packets there where
//! nobody would miss them, and gives way to firewalls. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tombolo_lab::{Lab, Peer, Process, Scenario, skip_without, wait_until};

mod flows;
mod running;

use flows::{EndOnDrop, Stream};
use running::{PATIENCE, TOMBOLO, end, run, show, takes};

const README: &str = include_str!("../../../README.md");
/// What stands for the server's global address.
const REMOTE: &str = "64:ff9b::1.1.1.1";
/// "Followed within a second", on a machine that does other things, too.
const SOON: Duration = Duration::from_secs(2);

/// The README's configuration.
fn readme() -> &'static str {
    let begin = README.find("# gateway.toml\n").unwrap();
    let text = &README[begin..];
    text[..text.find("```").unwrap()].split_once('\n').unwrap().1
}

struct Host {
    lab: Lab,
}

#[test]
fn the_playground_has_the_readmes_gateway() {
    let scenario = Scenario::named("nat64").unwrap();
    assert_eq!(scenario.gateways, [("gateway", readme().to_owned())]);
}

impl Host {
    fn new() -> Self {
        Self { lab: Lab::create(&Scenario::named("nat64").unwrap().topology).unwrap() }
    }

    /// The README's configuration, with more.
    fn start(&self, more: &str) -> Process {
        run(TOMBOLO, &self.lab, &self.configure(more))
    }

    fn configure(&self, more: &str) -> PathBuf {
        let file = self.lab.directory().unwrap().join("gateway.toml");
        fs::write(&file, format!("{more}{}", readme())).unwrap();
        file
    }

    fn run(&self, node: &str, command: &str) -> String {
        let mut words = command.split(' ');
        let program = words.next().unwrap();
        let output = self.lab.node(node).unwrap().command(program).args(words).run().unwrap();
        output.success().unwrap().stdout
    }

    /// Whether three echo requests are answered, and how many packets the kernel took more meanwhile.
    fn ping(&self) -> (bool, u64) {
        let before = self.taken();
        let arguments = ["-c", "3", "-i", "0.05", "-w", "3", REMOTE];
        let ping = self.lab.node("client").unwrap().command("ping").args(arguments).run().unwrap();
        (ping.status.success(), self.taken() - before)
    }

    /// Packets that were translated in the kernel.
    fn taken(&self) -> u64 {
        let rows = show(&self.lab, "fastpath");
        let packets = rows.iter().filter(|row| row["what"] == "packets");
        let taken = packets.filter(|row| row["name"].as_str().is_some_and(|name| name.starts_with("taken-")));
        taken.map(|row| row["value"].as_str().unwrap().parse::<u64>().unwrap()).sum()
    }

    fn takes(&self, what: &str) -> bool {
        takes(&show(&self.lab, "fastpath"), "outside0").as_deref() == Some(what)
    }

    /// How long it takes until it takes packets so.
    fn comes_to(&self, what: &str) -> Duration {
        let begin = Instant::now();
        wait_until(what, PATIENCE, || self.takes(what).then_some(())).unwrap();
        begin.elapsed()
    }

    fn why(&self) -> String {
        let rows = show(&self.lab, "fastpath");
        let row = rows.iter().find(|row| row["what"] == "interface" && row["name"] == "outside0").unwrap();
        row["why"].as_str().unwrap().to_owned()
    }
}

#[test]
fn the_readmes_gateway_takes_packets_in_the_kernel() {
    if skip_without("the_readmes_gateway_takes_packets_in_the_kernel", &["ping"]) {
        return;
    }
    let host = Host::new();
    let gateway = host.start("");
    assert!(host.takes("tc"), "{}", host.why());
    let (answered, _) = host.ping();
    let (again, taken) = host.ping();
    assert!(answered && again && taken >= 4, "{taken} packets were taken");
    let log = end(gateway);
    assert!(!log.contains("WARN"), "{log}");
}

#[test]
fn the_fast_path_gives_way_to_a_firewall() {
    if skip_without("the_fast_path_gives_way_to_a_firewall", &["ping", "nft"]) {
        return;
    }
    let host = Host::new();
    let gateway = host.start("");
    assert!(host.takes("tc") && host.ping().0);
    // What is on no way, has no rules, or is the gateway's own, keeps nobody.
    host.run("gateway", "nft add table inet filter");
    host.run("gateway", "nft add chain inet filter input { type filter hook input priority 0 ; }");
    host.run("gateway", "nft add rule inet filter input counter");
    host.run("gateway", "nft add chain inet filter forward { type filter hook forward priority 0 ; }");
    std::thread::sleep(SOON);
    assert!(host.takes("tc"), "{}", host.why());

    host.run("gateway", "nft add rule inet filter forward counter");
    let gone = host.comes_to("off");
    assert!(host.why().contains("chain forward of table inet filter"), "{}", host.why());
    let (answered, taken) = host.ping();
    assert!(answered && taken == 0, "{taken} packets passed the firewall by");
    let counted = host.run("gateway", "nft list chain inet filter forward");
    assert!(!counted.contains("packets 0 "), "{counted}");
    // Nobody that dropped them was passed by, either.
    host.run("gateway", "nft add rule inet filter forward drop");
    assert!(!host.ping().0, "the firewall drops, and packets pass");
    let doctor = host.run("gateway", &format!("{TOMBOLO} doctor"));
    assert!(doctor.contains("chain forward of table inet filter is on the way"), "{doctor}");

    host.run("gateway", "nft delete table inet filter");
    let back = host.comes_to("tc");
    host.ping();
    let (answered, taken) = host.ping();
    assert!(answered && taken >= 4, "{taken} packets were taken");
    assert!(gone < SOON && back < SOON, "away after {gone:?}, back after {back:?}");
    end(gateway);
}

#[test]
fn rules_of_iptables_count_and_those_who_know_better_are_believed() {
    if skip_without("rules_of_iptables_count_and_those_who_know_better_are_believed", &["iptables"]) {
        return;
    }
    let host = Host::new();
    host.run("gateway", "iptables -t nat -A POSTROUTING -o nowhere0 -j MASQUERADE");
    let gateway = host.start("");
    assert!(host.takes("off") && host.why().contains("chain POSTROUTING of table ip nat"), "{}", host.why());
    assert!(host.ping().0);
    end(gateway);
    for more in ["[gateway]\nfastpath_netfilter = true\n", "[gateway]\nfastpath = \"tc\"\n"] {
        let gateway = host.start(more);
        assert!(host.takes("tc") && host.ping().0, "{more}: {}", host.why());
        end(gateway);
    }
}

/// Switches in a row. Fifty were tried by hand: docs/fastpath.md.
fn switches() -> usize {
    std::env::var("TOMBOLO_SWITCHES").ok().and_then(|count| count.parse().ok()).unwrap_or(4)
}

#[test]
fn the_fast_path_is_switched_on_and_off_and_connections_go_on() {
    if skip_without("the_fast_path_is_switched_on_and_off_and_connections_go_on", &["iperf3"]) {
        return;
    }
    let host = Host::new();
    let gateway = host.start("");
    let _echo = Peer::udp_echo(host.lab.node("server").unwrap(), "1.1.1.1:7".parse().unwrap()).unwrap();
    let mut server =
        host.lab.node("server").unwrap().command("iperf3").args(["-s", "-1", "--forceflush"]).spawn().unwrap();
    server.wait_for_text("Server listening", PATIENCE).unwrap();
    let words = ["-c", REMOTE, "-t", "86400", "-i", "0.5", "-b", "50M", "-w", "200K", "-f", "m", "--forceflush"];
    let mut iperf3 = host.lab.node("client").unwrap().command("iperf3").args(words).spawn().unwrap();
    let stream = Stream::default();
    std::thread::scope(|scope| {
        scope.spawn(|| stream.run(&host.lab, "[64:ff9b::101:101]:7"));
        let _ends = EndOnDrop(&stream.stop);
        // Bindings of the datagrams, of iperf3's two connections, and the static one.
        let before = 4;
        let flow = || (stream.answered() > 300 && show(&host.lab, "bindings").len() == before).then_some(());
        wait_until("both flow", PATIENCE, flow).unwrap();
        for (mode, takes) in
            [("off", "off"), ("xdp", "xdp+tc"), ("tc", "tc"), ("auto", "tc")].into_iter().cycle().take(switches())
        {
            host.configure(&format!("[gateway]\nfastpath = \"{mode}\"\n"));
            let said = host.run("gateway", &format!("{TOMBOLO} reload"));
            assert!(said.contains("fastpath"), "{said}");
            assert!(host.takes(takes), "{mode}: {}", host.why());
            // Both go on, by the way that was asked for.
            let (answered, taken) = (stream.answered(), host.taken());
            wait_until("datagrams flow", PATIENCE, || (stream.answered() > answered + 100).then_some(())).unwrap();
            assert_eq!(host.taken() > taken + 50, takes != "off", "{mode}");
            assert!(iperf3.is_running(), "{mode}: {}", iperf3.stderr());
        }
        assert_eq!(show(&host.lab, "bindings").len(), before, "the same bindings all the time");
    });
    iperf3.signal(Signal::SIGINT).unwrap();
    let said = iperf3.wait(PATIENCE).unwrap().stdout;
    // The last interval is what was left of one when it ended.
    let intervals: Vec<&str> = said.lines().take_while(|line| !line.starts_with("- ")).collect();
    let whole = &intervals[..intervals.len() - 1];
    let stalls = whole.iter().filter(|line| line.contains(" 0.00 ") && line.contains("bits/sec")).count();
    let (sent, lost) = (stream.sent.load(Ordering::Acquire), stream.lost().len());
    println!(
        "{lost} of {sent} datagrams were lost in {} switches; TCP stood still for {stalls} half seconds",
        switches()
    );
    assert!(stalls == 0 && lost * 50 < usize::try_from(sent).unwrap(), "{lost} of {sent} datagrams lost\n{said}");
    end(gateway);
}

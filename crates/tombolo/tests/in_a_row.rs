//! Services in a row on one host: a NAT44 hides a LAN behind the one address that a CLAT carries over IPv6. Needs root
//! and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::{Path, PathBuf};

use tombolo_lab::{Lab, Output, Peer, Process, Topology, skip_without};

mod flows;
mod running;

use flows::{EndOnDrop, Stream};
use running::{PATIENCE, TOMBOLO, end, rows, run};

const CUSTOMER: &str = r#"
[gateway]
fastpath = "FASTPATH"

[[service]]
kind   = "nat44"
inside = ["10.0.0.0/24"]
pool   = [{ addresses = "192.0.0.1" }]
static = [{ protocol = "tcp", inside = "10.0.0.2:8080", outside = "192.0.0.1:8080" }]

[[service]]
kind   = "clat"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
eam    = [{ ipv4 = "192.0.0.1", ipv6 = "2001:db8:c::464" }]
"#;

const PROVIDER: &str = r#"
[gateway]
fastpath = "FASTPATH"

[[service]]
kind   = "nat64"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
pool   = [{ addresses = "192.0.2.1" }]
static = [{ protocol = "tcp", inside = "[2001:db8:c::464]:8080", outside = "192.0.2.1:8080" }]
"#;

struct Line(Lab);

impl Line {
    fn file(&self, name: &str, text: &str, fastpath: &str) -> PathBuf {
        let file = self.0.directory().unwrap().join(name);
        fs::write(&file, text.replace("FASTPATH", fastpath)).unwrap();
        file
    }

    fn start_customer(&self, file: &Path) -> Process {
        let command = self.0.node("cpe").unwrap().command(TOMBOLO).args(["run", "-c"]);
        let mut customer = command.arg(file.display().to_string()).spawn().unwrap();
        customer.wait_for_text("ready", PATIENCE).unwrap();
        customer
    }

    fn run(&self, node: &str, command: &str) -> Output {
        let mut words = command.split(' ');
        let program = words.next().unwrap();
        self.0.node(node).unwrap().command(program).args(words).run().unwrap()
    }
}

#[test]
fn a_lan_behind_one_address_behind_a_clat() {
    if skip_without("a_lan_behind_one_address_behind_a_clat", &["ping", "iperf3", "traceroute", "curl"]) {
        return;
    }
    let line = Line(Lab::create(&Topology::client_cpe_gateway_server()).unwrap());
    let lab = &line.0;
    let server = lab.node("server").unwrap();
    let _echo = Peer::udp_echo(server, "198.51.100.2:7".parse().unwrap()).unwrap();
    let _iperf = server.command("iperf3").args(["-s"]).spawn().unwrap();
    let _page = Peer::http(lab.node("client").unwrap(), "10.0.0.2:8080".parse().unwrap(), b"at home".to_vec()).unwrap();
    for fastpath in ["auto", "off"] {
        let provider = run(TOMBOLO, lab, &line.file("provider.toml", PROVIDER, fastpath));
        let file = line.file("customer.toml", CUSTOMER, fastpath);
        let customer = line.start_customer(&file);
        line.run("client", "ping -c 2 -i 0.1 198.51.100.2").success().unwrap();
        // Two services, two hops; then those of the PLAT and of the kernels.
        let hops = line.run("client", "traceroute -n -w 1 -q 1 198.51.100.2").success().unwrap().stdout;
        assert!(hops.trim_end().ends_with("ms") && hops.contains(" 198.51.100.2 "), "{hops}");
        // Errors find the way back through both: what is too large for the line says so.
        line.run("client", "ip route flush cache").success().unwrap();
        let large = line.run("client", "ping -c 1 -W 1 -M do -s 1472 198.51.100.2");
        assert!(large.stdout.contains("mtu = 1480") || large.stderr.contains("mtu = 1480"), "{large:?}");
        // Datagrams in fragments: cut by the sender, put together where they need a port, cut again for the line.
        for direction in ["", " -R"] {
            let report = line.run("client", &format!("iperf3 -J -u -l 3000 -b 2M -t 1 -c 198.51.100.2{direction}"));
            let report: serde_json::Value = serde_json::from_str(&report.success().unwrap().stdout).unwrap();
            let sum = &report["end"]["sum"];
            assert!(sum["packets"].as_u64().unwrap() > 50 && sum["lost_packets"] == 0, "{sum}");
        }
        // From outside, by a static binding of each.
        let page = line.run("server", "curl -sS --max-time 5 http://192.0.2.1:8080/").success().unwrap().stdout;
        assert_eq!(page, "at home", "{fastpath}");
        let stream = Stream::default();
        std::thread::scope(|scope| {
            let _end = EndOnDrop(&stream.stop);
            scope.spawn(|| stream.run(lab, "[::ffff:198.51.100.2]:7"));
            line.run("client", "iperf3 -c 198.51.100.2 -t 1").success().unwrap();
            line.run("client", "iperf3 -c 198.51.100.2 -t 1 -R").success().unwrap();
        });
        let (sent, lost) = (stream.sent.load(std::sync::atomic::Ordering::Acquire), stream.lost().len());
        println!("fastpath {fastpath}: {lost} of {sent} datagrams lost");
        assert!(sent > 500 && lost as u64 <= sent / 100, "{fastpath}: {lost} of {sent}");
        let story =
            line.run("cpe", &format!("{TOMBOLO} explain -c {} udp 10.0.0.2:5000 198.51.100.2:53", file.display()));
        let story = story.success().unwrap().stdout;
        assert!(
            story.contains("10.0.0.2 is inside service nat44") && story.contains("source 192.0.0.1 is 2001:db8:c::464"),
            "{story}"
        );
        let shown = line.run("cpe", &format!("{TOMBOLO} show fastpath --json")).success().unwrap().stdout;
        if fastpath == "auto" {
            let left = rows(&shown).iter().filter(|row| row.to_string().contains("passes packets on")).count();
            assert_eq!(left, 2, "{shown}");
        }
        let said = [end(customer), end(provider)];
        assert!(said.iter().all(|log| !log.contains("WARN") && !log.contains("ERROR")), "{said:#?}");
    }
}

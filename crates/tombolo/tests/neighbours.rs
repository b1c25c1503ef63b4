//! Addresses behind the gateway that lie in the network of a link: the host answers for them. Needs root and skips
//! loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::PathBuf;

use tombolo_lab::{Lab, Process, Topology, skip_without, wait_until};

mod running;

use running::{PATIENCE, TOMBOLO, end, kill, run, show};

/// Its address lies in the network of the provider's link, as a customer's does who has one /64 and nothing else.
const CLAT: &str = "[gateway]\nfastpath = \"off\"\nPROXY\n[[service]]\nkind = \"clat\"\nprefix = \"64:ff9b::/96\"\n\
                    well_known_prefix_strict = false\neam = [{ ipv4 = \"10.0.0.2\", ipv6 = \"2001:db8:c::464\" }]\n";
/// Its pool lies in the network outside.
const PLAT: &str = "[gateway]\nfastpath = \"tc\"\nPROXY\n[[service]]\nkind = \"nat64\"\nprefix = \"64:ff9b::/96\"\n\
                    well_known_prefix_strict = false\npool = [{ addresses = \"198.51.100.76/31\" }]\n";
const ASKED_OF_IPV6: &str = "net.ipv6.conf.all.proxy_ndp";

struct Links(Lab);

impl Links {
    fn sh(&self, node: &str, script: &str) -> String {
        self.0.node(node).unwrap().command("sh").args(["-ec", script]).run().unwrap().success().unwrap().stdout
    }

    fn file(&self, name: &str, text: &str, proxy: &str) -> PathBuf {
        let file = self.0.directory().unwrap().join(name);
        fs::write(&file, text.replace("PROXY", proxy)).unwrap();
        file
    }

    fn start_clat(&self) -> Process {
        let file = self.file("clat.toml", CLAT, "");
        let mut clat = self.0.node("cpe").unwrap().command(TOMBOLO).args(["run", "-c"]);
        clat = clat.arg(file.display().to_string());
        let mut clat = clat.spawn().unwrap();
        clat.wait_for_text("ready", PATIENCE).unwrap();
        clat
    }

    /// For whom a node answers, in order.
    fn answers(&self, node: &str) -> Vec<String> {
        let text = self.sh(node, "ip -4 neigh show proxy; ip -6 neigh show proxy | sort -u");
        let mut answers: Vec<String> =
            text.lines().map(|line| line.split(" proxy").next().unwrap().to_owned()).collect();
        answers.sort();
        answers
    }

    fn waits_for(&self, node: &str, answers: &[&str]) {
        let is_so = || (self.answers(node) == answers).then_some(());
        let waited = wait_until(&format!("{node} answers for {answers:?}"), PATIENCE, is_so);
        waited.unwrap_or_else(|error| panic!("{error}: {:?}; {:?}", self.answers(node), show(&self.0, "status")));
    }

    /// Nobody on the links remembers who had an address.
    fn forget(&self) {
        for node in ["server", "gateway", "cpe"] {
            self.sh(node, "ip neigh flush all; ip -6 neigh flush all");
        }
    }

    fn passes(&self) -> bool {
        let ping = self.0.node("client").unwrap().command("ping").args(["-c", "1", "-W", "3", "198.51.100.2"]);
        ping.run().unwrap().status.success()
    }
}

#[test]
fn neighbours_are_answered_for_what_lies_in_their_network() {
    if skip_without("neighbours_are_answered_for_what_lies_in_their_network", &["ping", "ip"]) {
        return;
    }
    let links = Links(Lab::create(&Topology::client_cpe_gateway_server()).unwrap());
    let lab = &links.0;
    let pool = ["198.51.100.76 dev outside0", "198.51.100.77 dev outside0"];
    let clat = "2001:db8:c::464 dev core0";
    // An entry of somebody else's is nobody else's business.
    links.sh("gateway", "ip neigh add proxy 198.51.100.99 dev outside0");
    let mut plat = run(TOMBOLO, lab, &links.file("plat.toml", PLAT, ""));
    let mut customer = links.start_clat();
    customer.wait_for_text("neighbours are answered for 2001:db8:c::464 on core0", PATIENCE).unwrap();
    plat.wait_for_text("neighbours are answered for 198.51.100.76 on outside0 to 198.51.100.77", PATIENCE).unwrap();
    assert_eq!(links.answers("cpe"), [clat]);
    assert_eq!(links.answers("gateway"), [pool[0], pool[1], "198.51.100.99 dev outside0"]);
    links.forget();
    assert!(links.passes(), "from a network to the other");
    // Asked of it alone, as neighbours do that are not sure any more.
    links.sh("gateway", "ip -6 neigh change 2001:db8:c::464 dev core0 nud probe");
    let reached = || links.sh("gateway", "ip -6 neigh show 2001:db8:c::464").contains("REACHABLE").then_some(());
    wait_until("the neighbour has answered", PATIENCE, reached).unwrap();

    // The network moves, and comes back.
    links.sh("gateway", "ip addr add 203.0.113.1/24 dev outside0; ip addr del 198.51.100.1/24 dev outside0");
    links.waits_for("gateway", &["198.51.100.99 dev outside0"]);
    links.sh("gateway", "ip addr add 198.51.100.1/24 dev outside0; ip addr del 203.0.113.1/24 dev outside0");
    links.waits_for("gateway", &[pool[0], pool[1], "198.51.100.99 dev outside0"]);
    links.forget();
    assert!(links.passes(), "after the network has moved");

    // By choice.
    links.file("plat.toml", PLAT, "proxy_neighbours = false");
    links.sh("gateway", &format!("{TOMBOLO} reload"));
    links.waits_for("gateway", &["198.51.100.99 dev outside0"]);
    links.file("plat.toml", PLAT, "");
    links.sh("gateway", &format!("{TOMBOLO} reload"));
    links.waits_for("gateway", &[pool[0], pool[1], "198.51.100.99 dev outside0"]);
    assert_eq!(show(lab, "status")[0]["health"], "ready");

    // What one leaves that is killed is taken over, or taken away.
    kill(&mut customer);
    assert_eq!(links.answers("cpe"), [clat]);
    kill(&mut plat);
    let plat = run(TOMBOLO, lab, &links.file("plat.toml", PLAT, ""));
    let customer = links.start_clat();
    links.forget();
    assert!(links.passes(), "after both were killed");
    end(plat);
    assert_eq!(links.answers("gateway"), ["198.51.100.99 dev outside0"]);
    let mut customer = customer;
    kill(&mut customer);
    let file = links.file("clat.toml", CLAT, "");
    let said = links.sh("cpe", &format!("{TOMBOLO} down -c {}", file.display()));
    assert!(said.contains("1 answers for neighbours removed"), "{said}");
    assert_eq!(links.answers("cpe"), Vec::<String>::new());
    assert_eq!(lab.node("cpe").unwrap().sysctl(ASKED_OF_IPV6).unwrap().trim(), "0");
}

#[test]
fn a_prefix_that_is_too_large_for_answers_is_named() {
    if skip_without("a_prefix_that_is_too_large_for_answers_is_named", &["ip"]) {
        return;
    }
    let links = Links(Lab::create(&Topology::client_gateway_server()).unwrap());
    let text = PLAT.replace("64:ff9b::/96", "2001:db8:1::/96").replace("198.51.100.76/31", "192.0.2.1");
    // The hosts' own network has the prefix in it.
    links.sh("gateway", "ip -6 addr del 2001:db8:1::1/64 dev inside0; ip -6 addr add 2001:db8:1:0:1::1/64 dev inside0");
    let gateway = run(TOMBOLO, &links.0, &links.file("plat.toml", &text, ""));
    let status = &show(&links.0, "status")[0];
    assert_eq!(status["health"], "degraded");
    let fault = status["faults"][0].as_str().unwrap();
    assert!(fault.contains("2001:db8:1::/96 lies in the network of inside0, and is too large"), "{fault}");
    end(gateway);
}

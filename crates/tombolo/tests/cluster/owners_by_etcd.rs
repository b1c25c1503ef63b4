//! Nodes agree by etcd on who owns what: whoever is gone loses its slices to those who have their copies.

use std::time::{Duration, Instant};

use serde_json::Value;
use tombolo_lab::{Scenario, skip_without, wait_until};

use crate::boxes::{ALL, Cluster};
use crate::loads::{Flow, RETURN, SILENCE, under_load};
use crate::running::{PATIENCE, TOMBOLO, rows};
use crate::subscribers::{alive, check_all};

/// So long a new subscriber waits at most whose slice's owner is gone: until its lease is over, and its successor knows.
const ADMISSION: Duration = Duration::from_millis(2600);
/// So long the slices of whoever is gone have no whole copy at most.
const PROTECTION: Duration = Duration::from_secs(10);
/// Shortly before the end of a lease that is not renewed.
const BEFORE_DEADLINE: Duration = Duration::from_millis(1800);
/// A gateway that is back within less has its lease still.
const LEASE: Duration = Duration::from_millis(1400);
const PROGRAMS: [&str; 5] = ["bird", "etcd", "etcdctl", "ip", "openssl"];

/// A cluster that is protected, known subscribers with a binding and connections, and others that nobody knows yet.
struct Bed {
    cluster: Cluster,
    known: Vec<Flow>,
    unknown: Vec<Flow>,
    connections: Vec<(String, std::net::TcpStream)>,
}

impl Bed {
    fn up() -> Self {
        let cluster = Cluster::of(Scenario::agreed_cluster());
        cluster.wait_until_protected("n1");
        cluster.wait_for_slices();
        // Connections are from all hosts, and would make all of them known.
        let connections = Vec::new();
        let (known, unknown) = cluster.subscribers().into_iter().partition(|flow| {
            let number: u8 = flow.name.rsplit(' ').next().unwrap().parse().unwrap();
            number.is_multiple_of(2)
        });
        let bed = Self { cluster, known, unknown, connections };
        bed.endpoints();
        // What they have is copied by then.
        std::thread::sleep(Duration::from_millis(200));
        bed
    }

    /// The same, where all hosts are known.
    fn of_known() -> Self {
        let mut bed = Self::up();
        bed.known.append(&mut bed.unknown);
        bed.endpoints();
        bed.connections = bed.cluster.connections();
        assert_eq!(alive(&bed.connections), bed.connections.len());
        std::thread::sleep(Duration::from_millis(200));
        bed
    }

    fn endpoints(&self) -> Vec<std::net::SocketAddr> {
        let seen = self.known.iter();
        seen.map(|flow| self.cluster.endpoint(flow, 10).unwrap_or_else(|| panic!("{} gets no answer", flow.name)))
            .collect()
    }

    /// What known subscribers notice of a fault, and how long each of the others waits for its first answer.
    fn during(&mut self, what: &str, limit: Duration, fault: impl FnOnce(&mut Cluster)) -> Vec<Duration> {
        let Self { cluster, known, unknown, connections } = self;
        let by_all = vec![true; known.len()];
        let mut waits = Vec::new();
        let effects = under_load(cluster, known, &by_all, |cluster| {
            fault(cluster);
            let since = Instant::now();
            waits = std::thread::scope(|scope| {
                let threads: Vec<_> = unknown.iter().map(|flow| scope.spawn(move || admitted(flow, since))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
        });
        check_all(what, &effects, limit, connections);
        waits.sort();
        eprintln!("{what}: new subscribers wait {waits:?}");
        waits
    }
}

/// When a subscriber gets its first answer.
fn admitted(flow: &Flow, since: Instant) -> Duration {
    flow.socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    while since.elapsed() < PATIENCE {
        flow.send();
        if flow.receive() {
            return since.elapsed();
        }
    }
    panic!("{} is not admitted", flow.name);
}

impl Cluster {
    /// How the cluster stands, by a node that can ask etcd.
    fn status(&self, node: &str) -> Value {
        let file = self.lab.directory().unwrap().join(format!("{node}.toml"));
        let line = format!("{TOMBOLO} cluster status --json -c {}", file.display());
        serde_json::from_str(&self.command(node, &line)).unwrap()
    }

    fn wait_until_protected(&self, node: &str) -> Duration {
        let began = Instant::now();
        let is_protected = || (self.status(node)["status"] == "protected").then_some(());
        let found = wait_until("protection", PATIENCE, is_protected);
        found.unwrap_or_else(|error| {
            let shown = ["n1", "n2", "n3"].map(|node| {
                let shown =
                    self.lab.node(node).unwrap().command(TOMBOLO).args(["show", "peers", "--json"]).run().unwrap();
                format!("{}{}", shown.stdout, shown.stderr)
            });
            panic!("{error}\n{}\n{}", self.status(node), shown.join("\n"))
        });
        began.elapsed()
    }

    /// How many slices a node owns, as etcd has it.
    fn owned(&self, by: &str, node: &str) -> u64 {
        let status = self.status(by);
        let found = status["slices"].as_array().unwrap().iter().filter(|row| row["owner"] == node);
        found.map(|row| row["last"].as_u64().unwrap() - row["first"].as_u64().unwrap() + 1).sum()
    }

    /// The sum of all epochs, as etcd has it.
    fn epochs(&self, by: &str) -> u64 {
        let status = self.status(by);
        let of = |row: &Value| {
            let [first, last, epoch] = ["first", "last", "epoch"].map(|key| row[key].as_u64().unwrap());
            (last - first + 1) * epoch
        };
        status["slices"].as_array().unwrap().iter().map(of).sum()
    }

    /// The member that leads, and the others.
    fn leader(&self) -> &'static str {
        let directory = self.lab.directory().unwrap().display().to_string();
        let endpoints: Vec<String> = (1..=3).map(|number| format!("https://[2001:db8:c::e{number}]:2379")).collect();
        let line = format!(
            "ETCDCTL_API=3 etcdctl --endpoints {} --cacert {directory}/ca.pem --cert {directory}/n1.pem --key \
             {directory}/n1.key endpoint status -w json",
            endpoints.join(",")
        );
        let all: Value = serde_json::from_str(&self.command("n1", &line)).unwrap();
        let leads = |one: &&Value| one["Status"]["leader"] == one["Status"]["header"]["member_id"];
        let leader = all.as_array().unwrap().iter().find(leads).unwrap()["Endpoint"].as_str().unwrap().to_owned();
        let place = endpoints.iter().position(|endpoint| *endpoint == leader).unwrap();
        self.scenario.members[place]
    }
}

#[test]
fn an_owner_that_loses_power_loses_its_slices_to_those_who_have_their_copies() {
    if skip_without("an_owner_that_loses_power_loses_its_slices_to_those_who_have_their_copies", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    let known = bed.endpoints();
    let (owned, epochs) = (bed.cluster.owned("n1", "n2"), bed.cluster.epochs("n1"));
    assert!((2..=4).contains(&owned), "n2 owns {owned} of 8 slices");
    assert_eq!(epochs, 8, "all have their first owner");

    let waits = bed.during("the owner loses power", SILENCE, |cluster| cluster.kill_host("n2"));
    let longest = *waits.last().unwrap();
    assert!(longest <= ADMISSION, "a new subscriber waited for {longest:?}");
    let took = bed.cluster.wait_until_protected("n1");
    eprintln!("protected again after {took:?} more");
    assert!(took <= PROTECTION, "protected after {took:?}");
    assert_eq!((bed.cluster.owned("n1", "n2"), bed.cluster.epochs("n1")), (0, epochs + owned));
    assert_eq!(bed.endpoints(), known, "known subscribers have the endpoints that they had");

    // It comes back with empty tables, and owns nothing.
    bed.known.append(&mut bed.unknown);
    let known = bed.endpoints();
    bed.during("it comes back", RETURN, |cluster| {
        // It asks etcd before anything else.
        cluster.plug("n2", &ALL, true);
        cluster.start("n2");
        cluster.wait_for_all();
    });
    bed.cluster.wait_until_protected("n2");
    assert_eq!((bed.cluster.owned("n2", "n2"), bed.endpoints()), (0, known));
    let slices = rows(&bed.cluster.command("n2", &format!("{TOMBOLO} show slices --json")));
    assert!(slices.iter().all(|row| row["state"] == "redirected" && row["phase"] == "protected"), "{slices:?}");
}

#[test]
fn connections_live_on_when_their_owner_loses_power() {
    if skip_without("connections_live_on_when_their_owner_loses_power", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::of_known();
    let known = bed.endpoints();
    bed.during("the owner loses power", SILENCE, |cluster| cluster.kill_host("n2"));
    bed.cluster.wait_until_protected("n1");
    bed.during("its slices are others'", Duration::ZERO, |_| ());
    assert_eq!((bed.cluster.owned("n1", "n2"), bed.endpoints()), (0, known));
}

#[test]
fn a_dead_leader_of_etcd_is_nobodys_loss() {
    if skip_without("a_dead_leader_of_etcd_is_nobodys_loss", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    let (leader, epochs) = (bed.cluster.leader(), bed.cluster.epochs("n1"));
    let waits = bed.during(&format!("{leader}, the leader, is killed"), Duration::ZERO, |cluster| {
        drop(cluster.members.remove(leader).unwrap());
    });
    assert!(*waits.last().unwrap() <= Duration::from_millis(500), "a new subscriber waited");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!((bed.cluster.epochs("n1"), &bed.cluster.status("n1")["status"]), (epochs, &Value::from("protected")));
}

#[test]
fn an_owner_that_only_etcd_does_not_hear_loses_its_slices_and_no_datagram() {
    if skip_without("an_owner_that_only_etcd_does_not_hear_loses_its_slices_and_no_datagram", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    let known = bed.endpoints();
    let cut = |cluster: &mut Cluster, verb: &str| {
        for number in 1..=3 {
            cluster.command("n2", &format!("ip -6 route {verb} blackhole 2001:db8:c::e{number}/128 metric 1"));
        }
    };
    let waits = bed.during("the owner is cut off from etcd", RETURN, |cluster| {
        cut(cluster, "add");
        // Until shortly before its deadline it admits whoever comes.
        std::thread::sleep(BEFORE_DEADLINE);
    });
    let longest = BEFORE_DEADLINE + *waits.last().unwrap();
    assert!(longest <= ADMISSION, "a new subscriber waited for {longest:?}");
    bed.cluster.wait_until_protected("n1");
    assert_eq!((bed.cluster.owned("n1", "n2"), bed.endpoints()), (0, known.clone()));
    bed.during("it is without etcd for a while", RETURN, |_| std::thread::sleep(Duration::from_secs(3)));
    bed.during("etcd hears it again", RETURN, |cluster| {
        cut(cluster, "del");
        cluster.wait_until_protected("n2");
    });
    assert_eq!(bed.endpoints(), known);
}

#[test]
fn a_gateway_that_is_dead_for_good_loses_its_slices() {
    if skip_without("a_gateway_that_is_dead_for_good_loses_its_slices", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    let known = bed.endpoints();
    let waits = bed.during("the owner's process is killed", SILENCE, |cluster| drop(cluster.gateways.remove("n2")));
    let longest = *waits.last().unwrap();
    assert!(longest <= ADMISSION, "a new subscriber waited for {longest:?}");
    bed.cluster.wait_until_protected("n1");
    assert_eq!((bed.cluster.owned("n1", "n2"), bed.endpoints()), (0, known));
}

#[test]
fn a_gateway_that_is_started_again_at_once_keeps_its_slices() {
    if skip_without("a_gateway_that_is_started_again_at_once_keeps_its_slices", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    let (known, owned, epochs) = (bed.endpoints(), bed.cluster.owned("n1", "n2"), bed.cluster.epochs("n1"));
    let mut away = Duration::ZERO;
    let waits = bed.during("the owner's process is killed and started again", SILENCE, |cluster| {
        let began = Instant::now();
        drop(cluster.gateways.remove("n2"));
        cluster.start("n2");
        away = began.elapsed();
        cluster.wait_for_all();
    });
    assert!(*waits.last().unwrap() <= ADMISSION, "a new subscriber waited");
    bed.cluster.wait_until_protected("n1");
    assert_eq!(bed.endpoints(), known);
    let after = (bed.cluster.owned("n1", "n2"), bed.cluster.epochs("n1"));
    eprintln!("it was away for {away:?}; slices and epochs were {:?}, are {after:?}", (owned, epochs));
    assert!(away > LEASE || after == (owned, epochs), "slices have changed hands");
}

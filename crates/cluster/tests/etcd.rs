//! The adapter beside a real etcd, of one member, on this host. Without one it skips loudly.

#![cfg(feature = "etcd")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tombolo_cluster::etcd::{Adapter, Credentials, Etcd, Own, Shape, ShapeError, Wanted, found, init, read_all, want};
use tombolo_cluster::ownership::{
    Action, Assignment, Capacity, Cause, Compare, Epoch, Event, LastHeard, Moment, Names, Node, NodeState, NodeValue,
    Number, Phase, Revision, Transaction, VALUE_VERSION, Wish,
};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

struct Member {
    process: Child,
    etcd: Etcd,
    // Dropped last: the process writes there.
    _directory: Directory,
}

struct Directory(std::path::PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Member {
    /// None if there is no etcd.
    fn start(test: &str) -> Option<Self> {
        // Ports that nobody has, as long as nobody takes them.
        let [client, peer] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port());
        let directory = Directory(std::env::temp_dir().join(format!("tombolo-{test}-{}", std::process::id())));
        let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(&directory.0)
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = process else {
            eprintln!("SKIP: {test}: `etcd` is not installed; fix: apt-get install etcd-server");
            return None;
        };
        // Nobody answers at the first one, as at a member that is dead.
        let endpoints = vec!["http://127.0.0.1:1".to_owned(), client];
        let etcd = Etcd { endpoints, credentials: Credentials::default(), cluster: "test".to_owned() };
        let member = Self { process, etcd, _directory: directory };
        let began = Instant::now();
        while matches!(found(&member.etcd), Err(ShapeError::Etcd(_))) {
            assert!(began.elapsed() < PATIENCE, "etcd does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(member)
    }

    /// A node that speaks with it.
    fn node(&self, name: &str) -> (Adapter, Receiver<Event>) {
        let (tell, events) = channel();
        let names = Names::new(vec!["n1".to_owned(), "n2".to_owned()]);
        let heard = Arc::<LastHeard>::default();
        let own = Own { names, name: name.to_owned(), value: value(), has_adopted: false, clock, heard };
        let (adapter, driver) = Adapter::new(self.etcd.clone(), own, tell);
        std::thread::spawn(move || driver.run().unwrap());
        (adapter, events)
    }
}

fn clock() -> Moment {
    Moment(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap())
}

fn value() -> NodeValue {
    NodeValue {
        version: VALUE_VERSION,
        incarnation: 7,
        locator: std::net::Ipv6Addr::LOCALHOST,
        software: "0".to_owned(),
        protocol: 1,
        weight: 1,
        state: NodeState::Joining,
        began_bare: false,
        configuration: 0,
        capacity: Capacity { subscribers: 1, bindings: 1 },
    }
}

/// The first event that is meant.
fn wait<T>(events: &Receiver<Event>, mut meant: impl FnMut(Event) -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        let left = PATIENCE.saturating_sub(began.elapsed());
        if let Some(found) = meant(events.recv_timeout(left).unwrap()) {
            return found;
        }
    }
}

#[test]
fn a_cluster_is_begun_once() {
    let Some(member) = Member::start("a_cluster_is_begun_once") else { return };
    assert!(matches!(found(&member.etcd), Err(ShapeError::Missing)));
    let shape = Shape { slices: 16, secret: [1, 2, 3, u64::MAX] };
    init(&member.etcd, shape).unwrap();
    assert_eq!(found(&member.etcd).unwrap(), shape);
    init(&member.etcd, shape).unwrap();
    let other = init(&member.etcd, Shape { slices: 32, ..shape });
    assert!(matches!(other, Err(ShapeError::There)), "{other:?}");
    assert_eq!(found(&member.etcd).unwrap(), shape);
}

#[test]
fn what_one_node_writes_the_others_see_and_a_node_that_is_silent_is_gone() {
    let Some(member) = Member::start("what_one_node_writes_the_others_see") else { return };
    let (one, events) = member.node("n1");
    let (_two, seen) = member.node("n2");
    wait(&seen, |event| matches!(event, Event::Read(_)).then_some(()));
    let before = clock();
    one.act(Action::Register);
    let (lease, created) = wait(&events, |event| match event {
        Event::Registered { lease, created, sent } => {
            assert!(sent >= before);
            Some((lease, created))
        }
        // The first member does not answer.
        Event::NotRegistered => {
            one.act(Action::Register);
            None
        }
        _ => None,
    });
    let appeared = |event: Event| match event {
        Event::NodeSeen(Node(0), presence) => Some(presence),
        _ => None,
    };
    let first = wait(&seen, appeared);
    assert_eq!((first.created, first.began_bare), (created, true), "this process has had no key before");

    let assignment = Assignment {
        owner: Node(0),
        owner_revision: created,
        epoch: Epoch(1),
        backup: Some(Node(1)),
        phase: Phase::Syncing,
        cause: Cause::First,
    };
    let transaction = |number, compare| {
        let (compares, puts) = (vec![Compare::NodeIs(Node(0), created), compare], vec![(3, assignment)]);
        Action::Transact(Transaction { number: Number(number), compares, puts })
    };
    one.act(transaction(1, Compare::SliceIs(3, Revision(0))));
    let done = wait(&events, |event| match event {
        Event::Done(Number(1), revision) => Some(revision),
        _ => None,
    });
    let other = wait(&seen, |event| match event {
        Event::SliceSeen(3, other, revision) => Some((other, revision)),
        _ => None,
    });
    assert_eq!(other, (assignment, done));
    // It is not as it was any more; and the owner is not gone.
    for (number, compare) in [(2, Compare::SliceIs(3, Revision(0))), (3, Compare::NodeIsNot(Node(0), created))] {
        one.act(transaction(number, compare));
        wait(&events, |event| (event == Event::Refused(Number(number))).then_some(()));
    }

    one.act(Action::Renew(lease));
    wait(&events, |event| matches!(event, Event::Renewed { .. }).then_some(()));
    one.describe(NodeValue { state: NodeState::Serving, ..value() });
    assert!(wait(&seen, |event| appeared(event).filter(|presence| presence.is_serving)).created == created);
    let all = read_all(&member.etcd).unwrap();
    assert_eq!((all.nodes.len(), all.slices.len(), all.slices[0].1.owner.as_str()), (1, 1, "n1"));

    // Nobody renews the lease.
    wait(&seen, |event| (event == Event::NodeGone(Node(0))).then_some(()));
    one.act(Action::Renew(lease));
    wait(&events, |event| (event == Event::LeaseLost(lease)).then_some(()));
    one.act(Action::Register);
    let again = wait(&seen, |event| appeared(event).filter(|presence| presence.created > created));
    assert!(!again.began_bare, "it may have got copies meanwhile");
    wait(&seen, |event| (event == Event::NodeGone(Node(0))).then_some(()));
    let (_third, late) = member.node("n2");
    let reading = wait(&late, |event| match event {
        Event::Read(reading) => Some(reading),
        _ => None,
    });
    assert_eq!((reading.nodes.len(), reading.slices), (0, vec![(3, assignment, done)]));
}

#[test]
fn that_etcd_is_heard_is_known_as_long_as_it_is_there() {
    const LONG: Duration = Duration::from_millis(1500);
    let Some(member) = Member::start("that_etcd_is_heard_is_known") else { return };
    let (tell, _events) = channel();
    let heard = Arc::<LastHeard>::default();
    let (name, names, noted) = ("n1".to_owned(), Names::new(vec!["n1".to_owned()]), Arc::clone(&heard));
    let own = Own { names, name, value: value(), has_adopted: false, clock, heard: noted };
    let (_adapter, driver) = Adapter::new(member.etcd.clone(), own, tell);
    std::thread::spawn(move || driver.run().unwrap());
    let wait_until = |is_so: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "it is silent for {} ms", heard.silence(clock()));
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait_until(&|| heard.silence(clock()) < 300);
    // Nothing is asked for, and nothing happens: what is heard is that the watch is confirmed.
    let began = Instant::now();
    let mut longest = 0;
    while began.elapsed() < LONG {
        longest = heard.silence(clock()).max(longest);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!((200..1000).contains(&longest), "it was silent for {longest} ms");
    drop(member);
    wait_until(&|| heard.silence(clock()) > 1000);
}

#[test]
fn what_operators_want_all_nodes_hear() {
    let Some(member) = Member::start("what_operators_want_all_nodes_hear") else { return };
    let (_one, events) = member.node("n1");
    wait(&events, |event| matches!(event, Event::Read(_)).then_some(()));
    let drain = |is_wanted| Wanted::Drain("n2".to_owned(), is_wanted);
    let pin = |node: Option<&str>| Wanted::Pin(7, node.map(str::to_owned));
    let heard = |wanted: &Wanted, wish: Wish| {
        want(&member.etcd, wanted).unwrap();
        wait(&events, |event| (event == Event::Wished(wish)).then_some(()));
    };
    heard(&drain(true), Wish::Drain(Node(1), true));
    heard(&pin(Some("n2")), Wish::Pin(7, Some(Node(1))));
    heard(&Wanted::Assume(vec![(3, Epoch(5))]), Wish::Assume(3, Some(Epoch(5))));
    heard(&Wanted::Hold(true), Wish::Hold(true));
    let all = read_all(&member.etcd).unwrap();
    assert_eq!((all.drained.len(), all.pins.get(&7).map(String::as_str), all.is_held), (1, Some("n2"), true));
    // Who comes later reads it.
    let (_late, read) = member.node("n2");
    let wishes = wait(&read, |event| if let Event::Read(reading) = event { Some(reading.wishes) } else { None });
    assert!(wishes.drained.contains(&Node(1)) && wishes.pins.get(&7) == Some(&Node(1)));
    assert_eq!((wishes.assumed.get(&3), wishes.is_held), (Some(&Epoch(5)), true));
    heard(&Wanted::Hold(false), Wish::Hold(false));
    heard(&pin(None), Wish::Pin(7, None));
    heard(&drain(false), Wish::Drain(Node(1), false));
    let all = read_all(&member.etcd).unwrap();
    assert!(all.drained.is_empty() && all.pins.is_empty() && !all.is_held);
}

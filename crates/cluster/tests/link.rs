//! Two nodes over a connection on this host: what one has, the other one gets; whoever is somebody else is refused;
//! a connection that breaks goes on where it was.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tombolo_cluster::link::{
    Copying, CopyingState, Incoming, Outgoing, Promises, Returns, Standings, Successor, Surroundings, Taken, Terms,
    receive, send,
};
use tombolo_cluster::ownership::{Event, Node};
use tombolo_cluster::replica::Sender;
use tombolo_engine::Plan;
use tombolo_engine::cluster::{Assigned, Cluster, Granting, Holders};
use tombolo_tables::audit;
use tombolo_tables::binding::{Binding, InsideKey, flags};
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;
use tombolo_tables::subscriber::{Subscriber, SubscriberKey};
use tombolo_tables::tables::{Candidate, Tables};
use tombolo_tables::tick::Tick;

const NOW: Tick = Tick(10_000);
const PATIENCE: Duration = Duration::from_secs(20);

/// n1 owns everything, and n2 has the copy.
fn plan(node: &str, epoch: u32) -> Arc<Plan> {
    plan_with(node, epoch, &["203.0.113.64/28"])
}

/// The same, with these ranges of outside addresses.
fn plan_with(node: &str, epoch: u32, ranges: &[&str]) -> Arc<Plan> {
    let pool: Vec<String> = ranges.iter().map(|range| format!("{{ addresses = \"{range}\" }}")).collect();
    let text = format!(
        "[cluster]\nnode = \"{node}\"\n\
         nodes = {{ n1 = \"2001:db8:c1:1::/64\", n2 = \"2001:db8:c1:2::/64\" }}\n\
         slices = {{ count = 4, epoch = {epoch}, secret = \"{}\", owners = [{{ slices = \"0-3\", owner = \"n1\", backup = \"n2\" }}] }}\n\
         [[service]]\nkind = \"nat64\"\nprefix = \"2001:db8:6464::/96\"\npool = [{}]\n",
        "8f3b1d5c7e9a20416385a7c9ebfd0f213547698bacdef0021436587a9cbedff1",
        pool.join(", ")
    );
    Arc::new(tombolo_config::parse("test.toml", &text).unwrap_or_else(|error| panic!("{error}")).plan)
}

#[derive(Debug)]
struct Around {
    plan: Mutex<Arc<Plan>>,
    is_over: AtomicBool,
    promises: Promises,
}

impl Surroundings for Around {
    fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan.lock().unwrap())
    }

    fn now(&self) -> Tick {
        NOW
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn promises(&self) -> Option<&Promises> {
        Some(&self.promises)
    }
}

impl Around {
    /// What the agent is told.
    fn heard(&self) -> Receiver<Event> {
        let (agent, heard) = channel();
        self.promises.tell(agent);
        heard
    }
}

fn around(plan: Arc<Plan>) -> Arc<Around> {
    Arc::new(Around { plan: Mutex::new(plan), is_over: AtomicBool::new(false), promises: Promises::default() })
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/certificates/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn terms(certificate: &str) -> Terms {
    Terms::new(&read("ca.pem"), &read(&format!("{certificate}.pem")), &read(&format!("{certificate}.key"))).unwrap()
}

fn tables(plan: &Plan) -> Arc<Tables> {
    let capacity =
        tombolo_tables::tables::Capacity { subscribers: 5000, bindings: 50_000, sessions: 64, ..plan.capacity };
    Arc::new(Tables::new(&mut Heap, capacity, HashKey::new([1, 2, 3, 4])).unwrap().noting_changes())
}

/// A backup that listens.
struct Backup {
    incoming: Arc<Incoming>,
    standings: Arc<Standings>,
    around: Arc<Around>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Backup {
    fn new(plan: Arc<Plan>, certificate: &str) -> Self {
        let tables = tables(&plan);
        Self::of(tables, plan, certificate)
    }

    fn of(tables: Arc<Tables>, plan: Arc<Plan>, certificate: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (standings, around) = (Arc::new(Standings::of(2)), around(plan));
        let sender = Arc::new(Mutex::new(Sender::new(Arc::clone(&tables))));
        let incoming = Incoming::new(terms(certificate), tables, sender, Arc::clone(&standings), around.clone());
        let incoming = Arc::new(incoming);
        let serving = Arc::clone(&incoming);
        let spawn = |serve: Box<dyn FnOnce() + Send>| std::thread::Builder::new().spawn(serve).map(drop);
        let thread = Some(std::thread::spawn(move || receive(&serving, &listener, &spawn).unwrap()));
        Self { incoming, standings, around, address, thread }
    }

    fn tables(&self) -> &Tables {
        &self.incoming.tables
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        self.around.is_over.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// An owner that sends.
struct Owner {
    outgoing: Arc<Outgoing>,
    around: Arc<Around>,
    tables: Arc<Tables>,
    plan: Arc<Plan>,
    thread: Option<JoinHandle<()>>,
}

impl Owner {
    fn new(plan: Arc<Plan>, certificate: &str, to: (&str, SocketAddr)) -> Self {
        Self::with(plan, certificate, to, 77, Returns::none())
    }

    fn with(plan: Arc<Plan>, certificate: &str, to: (&str, SocketAddr), incarnation: u64, returns: Returns) -> Self {
        let tables = tables(&plan);
        Self::of(tables, plan, certificate, to, incarnation, returns)
    }

    fn of(
        tables: Arc<Tables>,
        plan: Arc<Plan>,
        certificate: &str,
        to: (&str, SocketAddr),
        incarnation: u64,
        returns: Returns,
    ) -> Self {
        let around = around(Arc::clone(&plan));
        let outgoing = Outgoing {
            terms: terms(certificate),
            sender: Arc::new(Mutex::new(Sender::new(Arc::clone(&tables)))),
            returns,
            incarnation,
            capacity: (tables.subscribers.capacity(), tables.bindings.capacity()),
            standings: Arc::new(Standings::of(2)),
            around: around.clone(),
        };
        let mut owner = Self { outgoing: Arc::new(outgoing), around, tables, plan, thread: None };
        owner.start(to);
        owner
    }

    fn start(&mut self, (name, address): (&str, SocketAddr)) {
        self.around.is_over.store(false, Ordering::Relaxed);
        let (outgoing, name) = (Arc::clone(&self.outgoing), name.to_owned());
        self.thread = Some(std::thread::spawn(move || send(&outgoing, 1, &name, address)));
    }

    fn stop(&mut self) {
        self.around.is_over.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }

    fn standing(&self) -> Copying {
        self.outgoing.standings.all()[1].clone()
    }

    /// So many bindings of one more subscriber.
    fn bind(&self, host: u8, bindings: u16) {
        bind(&self.tables, &self.plan, host, 0..bindings);
    }
}

/// Makes bindings of a subscriber.
fn bind(tables: &Tables, plan: &Plan, host: u8, ports: std::ops::Range<u16>) {
    let (number, service) = plan.numbered().next().unwrap();
    let pool = service.kind.pool().unwrap();
    let ipv6 = [0x20, 1, 0xd, 0xb8, host, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let key = SubscriberKey { ipv6, service: number, ..SubscriberKey::default() };
    // Of each range some hosts have their address.
    let address = pool.address_for(&key, u32::from(host) % pool.addresses_for(&key)).unwrap();
    let (id, _) = tables.admit(&Subscriber { key, outside_ipv4: address.octets() }, NOW).unwrap();
    for port in ports {
        let inside =
            InsideKey { ipv6, port: port.to_be_bytes(), protocol: 17, service: number, ..InsideKey::default() };
        let template = Binding { inside, subscriber: id.get(), ..Binding::default() };
        let candidates = (0..60_000).map(|n| 1024 + (u32::from(host) * 7919 + u32::from(port) + n) % 60_000);
        let candidates = candidates.map(|port| {
            let port = u16::try_from(port).unwrap();
            let slot = pool.slot(address, tombolo_engine::mapping::pool::PortSpace::Udp, port).unwrap();
            Candidate { slot, ipv4: address.octets(), port: port.to_be_bytes() }
        });
        tables.bind(&template, candidates, 0, NOW).unwrap();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop();
    }
}

#[track_caller]
fn wait(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn what_one_node_has_the_other_one_gets() {
    let backup = Backup::new(plan("n2", 1), "n2");
    let mut owner = Owner::new(plan("n1", 1), "n1", ("n2", backup.address));
    (0..20).for_each(|host| owner.bind(host, 1000));
    let is_copied = |owner: &Owner| backup.tables().bindings.count() == owner.tables.bindings.count();
    wait("everything is copied", || is_copied(&owner) && owner.standing().to == CopyingState::Complete);
    // What is not acknowledged when the connection breaks is sent again.
    wait("all is acknowledged", || owner.standing().pending == 0 && owner.standing().in_flight == 0);
    assert!(backup.incoming.has_copy(0) && !backup.incoming.has_copy(1));
    let sent = owner.standing().sent_bytes;
    assert!((960_000..1_400_000).contains(&sent), "{sent} bytes for 20,000 bindings");

    // When it was heard last is known.
    let heard = owner.standing().heard;
    assert!(heard.is_some());
    owner.bind(41, 10);
    wait("it says that it has them", || is_copied(&owner) && owner.standing().heard > heard);
    wait("all is acknowledged", || owner.standing().pending == 0 && owner.standing().in_flight == 0);
    let sent = owner.standing().sent_bytes;

    // The connection breaks, and the copy is still good.
    owner.stop();
    wait("the end is noticed", || backup.standings.all()[0].from == CopyingState::Broken);
    assert!(backup.incoming.has_copy(0));
    owner.bind(20, 1000);
    owner.start(("n2", backup.address));
    wait("the rest is copied", || is_copied(&owner));
    let more = owner.standing().sent_bytes - sent;
    assert!(more < 80_000, "{more} bytes for 1000 bindings");
    wait("all is acknowledged", || owner.standing().pending == 0 && owner.standing().in_flight == 0);
    assert_eq!((backup.standings.all()[0].applied.unplaced, audit::check(backup.tables())), (0, vec![]));

    // Another plan is in force: they introduce themselves anew, at once.
    let began = Instant::now();
    for host in 21..41 {
        *owner.around.plan.lock().unwrap() = plan("n1", 1);
        owner.bind(host, 10);
        wait("the rest is copied", || is_copied(&owner));
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn an_owner_asks_and_its_backup_promises() {
    let backup = Backup::new(plan("n2", 1), "n2");
    let owner = Owner::new(plan("n1", 1), "n1", ("n2", backup.address));
    let (asked, promised) = (backup.around.heard(), owner.around.heard());
    wait("they are connected", || owner.standing().to == CopyingState::Complete);
    for number in [7, 8] {
        owner.around.promises.ask(1, number);
        assert_eq!(asked.recv_timeout(PATIENCE), Ok(Event::Asked(Node(0), number)));
    }
    backup.around.promises.promise(0, 8);
    assert_eq!(promised.recv_timeout(PATIENCE), Ok(Event::Promised(Node(1), 8)));

    // Nobody has asked for that.
    backup.around.promises.promise(0, 9);
    let is_over = || owner.standing().faults[0].as_ref().is_some_and(|fault| fault.contains("was not asked for"));
    wait("the connection ends", is_over);
    assert!(promised.try_recv().is_err());
}

#[test]
fn an_owner_that_has_lost_its_tables_gets_them_back_before_it_serves() {
    let backup = Backup::new(plan("n2", 1), "n2");
    let mut owner = Owner::new(plan("n1", 1), "n1", ("n2", backup.address));
    (0..20).for_each(|host| owner.bind(host, 1000));
    wait("everything is copied", || {
        let standing = owner.standing();
        backup.tables().bindings.count() == 20_000 && (standing.pending, standing.in_flight) == (0, 0)
    });
    owner.stop();
    let cluster = Arc::clone(backup.around.plan().cluster.as_ref().unwrap());
    wait("the end is noticed", || backup.standings.all()[0].from == CopyingState::Broken);

    let again = Owner::with(plan("n1", 1), "n1", ("n2", backup.address), 78, Returns::from([1]));
    assert!(again.outgoing.returns.are_awaited());
    wait("everything is back", || !again.outgoing.returns.lacks(1));
    assert_eq!((again.tables.bindings.count(), again.standing().to), (20_000, CopyingState::Returning));
    // The backup goes on in its place: what goes there goes here.
    let (id, (binding, seen)) =
        backup.tables().bindings.iter().find_map(|id| Some((id, backup.tables().bindings.read(id)?))).unwrap();
    assert!(backup.tables().unbind(id, &binding, seen, NOW));
    wait("a binding goes", || again.tables.bindings.count() == 19_999);

    cluster.set_serving(|_| true);
    wait("it is copied again", || again.standing().to == CopyingState::Complete && again.standing().in_flight == 0);
    assert_eq!(backup.tables().bindings.count(), 19_999);
    assert!(backup.incoming.has_copy(0));
    for tables in [backup.tables(), &again.tables] {
        assert_eq!(audit::check(tables), Vec::<String>::new());
    }
    // Nothing is given back twice.
    assert_eq!(again.standing().returned.bindings, 20_000);
}

/// It connects before anybody sees it serve.
#[test]
fn an_owner_that_comes_back_with_its_tables_gets_what_was_made_meanwhile() {
    let backup = Backup::new(plan("n2", 1), "n2");
    let mut owner = Owner::new(plan("n1", 1), "n1", ("n2", backup.address));
    owner.bind(1, 10);
    wait("everything is copied", || {
        let standing = owner.standing();
        backup.tables().bindings.count() == 10 && (standing.pending, standing.in_flight) == (0, 0)
    });
    owner.stop();
    wait("the end is noticed", || backup.standings.all()[0].from == CopyingState::Broken);
    let cluster = Arc::clone(backup.around.plan().cluster.as_ref().unwrap());
    cluster.set_copied(|node| node == 0, NOW);
    cluster.note_acting(0);
    bind(backup.tables(), &backup.around.plan(), 1, 10..15);

    let tables = Arc::clone(&owner.tables);
    let again = Owner::of(tables, plan("n1", 1), "n1", ("n2", backup.address), 78, Returns::none());
    wait("what was made meanwhile comes", || again.tables.bindings.count() == 15);
    cluster.set_serving(|_| true);
    wait("it is copied again", || again.standing().to == CopyingState::Complete && again.standing().in_flight == 0);
    let copies = backup.tables().bindings.iter().filter_map(|id| backup.tables().bindings.read(id));
    assert_eq!(copies.filter(|(found, _)| found.flags & flags::COPIED != 0).count(), 15);
    assert!(!cluster.has_acted_for(0));
    for tables in [backup.tables(), &again.tables] {
        assert_eq!(audit::check(tables), Vec::<String>::new());
    }
}

#[test]
fn an_owner_whose_backup_has_nothing_waits_for_nothing() {
    let backup = Backup::new(plan("n2", 1), "n2");
    let owner = Owner::with(plan("n1", 1), "n1", ("n2", backup.address), 78, Returns::from([1]));
    wait("it says so", || !owner.outgoing.returns.are_awaited());
    assert!(!owner.outgoing.returns.lacks(1));
    owner.bind(1, 10);
    wait("everything is copied", || backup.tables().bindings.count() == 10);
}

/// The file is changed on one node after the other.
#[test]
fn what_had_no_place_is_copied_when_there_is_one() {
    let ranges = ["203.0.113.64/28", "203.0.113.96/28"];
    let (before, after) = (plan("n2", 1), plan_with("n2", 1, &ranges));
    let backup = Backup::of(tables(&after), before, "n2");
    let owner = Owner::new(plan_with("n1", 1, &ranges), "n1", ("n2", backup.address));
    (0..40).for_each(|host| owner.bind(host, 10));
    wait("what has a place is copied", || {
        let standing = owner.standing();
        standing.to == CopyingState::Complete && (standing.pending, standing.in_flight) == (0, 0)
    });
    assert!((1..400).contains(&backup.tables().bindings.count()) && backup.standings.all()[0].applied.unplaced > 0);
    *backup.around.plan.lock().unwrap() = after;
    wait("everything is copied", || backup.tables().bindings.count() == 400);
    assert_eq!(audit::check(backup.tables()), Vec::<String>::new());
}

/// What the owner says in the end.
#[track_caller]
fn fault(owner: &Owner) -> String {
    wait("it fails", || owner.standing().faults[0].is_some());
    owner.standing().faults[0].clone().unwrap()
}

#[test]
fn whoever_is_somebody_else_is_refused() {
    let backup = Backup::new(plan("n2", 1), "n2");
    let of = |certificate, name| {
        let owner = Owner::new(plan("n1", 1), certificate, (name, backup.address));
        owner.bind(1, 10);
        fault(&owner)
    };
    let stranger = of("stranger", "n2");
    assert!(stranger.contains("is over"), "{stranger}");
    let other = of("n2", "n2");
    assert!(other.contains("refuses: its certificate is not for the name that it gives"), "{other}");
    let not_the_backup = of("n1", "n3");
    assert!(not_the_backup.contains("not valid for name"), "{not_the_backup}");
    assert_eq!(backup.tables().bindings.count(), 0);
}

#[test]
fn an_owner_of_yesterday_is_refused_and_says_so() {
    let backup = Backup::new(plan("n2", 5), "n2");
    let owner = Owner::new(plan("n1", 4), "n1", ("n2", backup.address));
    owner.bind(1, 10);
    wait("it is refused", || {
        owner.standing().faults[0].as_ref().is_some_and(|fault| fault.contains("as of epoch 4, which is 5 here"))
    });
    assert_eq!(backup.tables().bindings.count(), 0);
    assert!(!backup.incoming.has_copy(0));
}

/// A slice becomes a node's own, alone.
fn own(cluster: &Cluster, slice: u16, owner: u8, epoch: u32) {
    let holders = Holders { owner, backup: None };
    cluster.assign(slice, Assigned { holders, epoch, is_protected: false, granting: Granting::Freely });
}

/// The last word of what node `by` took over is this.
#[track_caller]
fn hears(standings: &Standings, by: u8, slices: &[(u16, u32)]) {
    let taken: Vec<Taken> = slices.iter().map(|&(slice, epoch)| Taken { slice, epoch }).collect();
    let wanted = BTreeMap::from([(by, taken)]);
    wait("what was taken over is said", || standings.take_taken() == wanted);
}

#[test]
fn whoever_takes_slices_over_says_so_to_whom_it_takes_them_from() {
    let backup = Backup::new(plan("n2", 1), "n2");
    let owner = Owner::new(plan("n1", 1), "n1", ("n2", backup.address));
    wait("they are connected", || owner.standing().to == CopyingState::Complete);
    let (of_owner, of_backup) = (owner.plan.cluster.as_ref().unwrap(), backup.around.plan());
    let of_backup = of_backup.cluster.as_ref().unwrap();
    assert!(owner.outgoing.standings.take_taken().is_empty());

    // The backup becomes the owner of two.
    of_backup.depose(2, 0);
    own(of_backup, 2, 1, 2);
    hears(&owner.outgoing.standings, 1, &[(2, 2)]);
    hears(&owner.outgoing.standings, 1, &[(2, 2)]);
    of_backup.depose(0, 0);
    own(of_backup, 0, 1, 7);
    hears(&owner.outgoing.standings, 1, &[(0, 7), (2, 2)]);

    // The other way round, on the same connection.
    of_owner.depose(3, 1);
    own(of_owner, 3, 0, 5);
    hears(&backup.standings, 0, &[(3, 5)]);
    let faults = owner.standing().faults.into_iter().chain(backup.standings.all()[0].faults.clone());
    assert_eq!(faults.flatten().collect::<Vec<_>>(), Vec::<String>::new());
}

/// What is agreed on is no matter of the file.
fn agreed(plan: Arc<Plan>) -> Arc<Plan> {
    let mut plan = Arc::into_inner(plan).unwrap();
    let cluster = plan.cluster.take().and_then(Arc::into_inner).unwrap();
    plan.cluster = Some(Arc::new(cluster.with_agreement()));
    Arc::new(plan)
}

#[test]
fn whoever_copies_nothing_to_a_node_still_tells_it_what_it_took_from_it() {
    let backup = Backup::new(agreed(plan("n2", 1)), "n2");
    let plan = agreed(plan("n1", 1));
    let cluster = Arc::clone(plan.cluster.as_ref().unwrap());
    (0..4).for_each(|slice| own(&cluster, slice, 0, 1));
    cluster.depose(3, 1);
    own(&cluster, 3, 0, 2);
    let _owner = Owner::new(plan, "n1", ("n2", backup.address));
    hears(&backup.standings, 0, &[(3, 2)]);
}

#[test]
fn what_was_handed_over_is_a_copy_until_the_new_owner_s_is() {
    let backup = Backup::new(agreed(plan("n2", 2)), "n2");
    let incoming = &backup.incoming;
    assert!(!incoming.holds(0, 0, 2));
    incoming.keep(0, 0, 2);
    assert!(incoming.holds(0, 0, 2) && !incoming.holds(0, 0, 3) && !incoming.holds(1, 0, 2));
    let mut owner = Owner::new(agreed(plan("n1", 2)), "n1", ("n2", backup.address));
    (0..20).for_each(|host| owner.bind(host, 100));
    wait("its copy takes the place", || !incoming.keeps(0, 2));
    wait("all are whole", || (0..4).all(|slice| incoming.holds(slice, 0, 2)));
    wait("everything is copied", || backup.tables().bindings.count() == 2000);
    // It is one of that ownership alone, and of what there is.
    incoming.lose(|slice| slice == 1);
    assert!(incoming.holds(0, 0, 2) && !incoming.holds(0, 0, 3) && !incoming.holds(1, 0, 2));
    owner.stop();
    wait("the end is noticed", || backup.standings.all()[0].from == CopyingState::Broken);
    assert!(incoming.holds(0, 0, 2));
}

#[test]
fn a_successor_that_speaks_is_heard_before_this_node_knows_more() {
    // It owns everything as of the first epoch, and hands it over to n1, which has heard already.
    let backup = Backup::new(agreed(plan("n2", 1)), "n2");
    let cluster = Arc::clone(backup.around.plan().cluster.as_ref().unwrap());
    for slice in cluster.slices() {
        let holders = Holders { owner: 1, backup: Some(0) };
        cluster.assign(slice, Assigned { holders, ..cluster.assigned(slice) });
    }
    let owner = Owner::new(agreed(plan("n1", 2)), "n1", ("n2", backup.address));
    let heard = Mutex::new(Vec::new());
    wait("it is heard", || {
        heard.lock().unwrap().extend(backup.incoming.take_successors());
        !heard.lock().unwrap().is_empty()
    });
    assert_eq!(heard.lock().unwrap()[0], Successor { slice: 0, epoch: 2, node: 0 });
    // Then this node hears as well.
    for slice in cluster.slices() {
        let holders = Holders { owner: 0, backup: Some(1) };
        cluster.assign(slice, Assigned { holders, epoch: 2, ..cluster.assigned(slice) });
    }
    wait("it is copied", || (0..4).all(|slice| backup.incoming.holds(slice, 0, 2)));
    drop(owner);
}

#[test]
fn whoever_does_not_speak_the_protocol_harms_nobody() {
    use std::io::Write as _;
    let backup = Backup::new(plan("n2", 1), "n2");
    for _ in 0..20 {
        let mut noise = std::net::TcpStream::connect(backup.address).unwrap();
        noise.write_all(&[0x16; 1000]).unwrap();
    }
    let owner = Owner::new(plan("n1", 1), "n1", ("n2", backup.address));
    owner.bind(1, 10);
    wait("everything is copied", || backup.tables().bindings.count() == 10);
}

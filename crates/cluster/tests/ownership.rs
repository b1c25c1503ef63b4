//! What an agent wants done, event by event.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::{BTreeMap, BTreeSet};

use tombolo_cluster::ownership::{
    Action, Agent, Assignment, Beginning, Cause, Compare, CopyState, Epoch, Event, Lease, Moment, Node, Number, Phase,
    Presence, Reading, Revision, Role, Transaction, Wish,
};

const OWN: Node = Node(0);
const OTHER: Node = Node(1);
const THIRD: Node = Node(2);
/// When their keys were made.
const MADE: Revision = Revision(5);
const OTHERS: Revision = Revision(4);
const THIRDS: Revision = Revision(6);
/// What was put, if nothing was.
const NOTHING: [(u16, Assignment); 0] = [];

fn presence(created: Revision) -> Presence {
    Presence { created, is_serving: true, is_draining: false, weight: 1, began_bare: false }
}

/// A slice that one owns, whose backup the other one is.
fn protected(owner: Node, owner_revision: Revision, backup: Node) -> Assignment {
    let (backup, phase, cause) = (Some(backup), Phase::Protected, Cause::Backup);
    Assignment { owner, owner_revision, epoch: Epoch(3), backup, phase, cause }
}

/// An agent of a node that has registered, and has read which slices there are.
struct Seat {
    agent: Agent,
    now: u64,
}

impl Seat {
    /// At 10 s, when nothing is left of what an earlier process may have promised.
    fn new(assigned: Assignment, holds: Option<Epoch>) -> Self {
        Self::since(8000, &[assigned], holds)
    }

    /// Of a process that has begun then, with these slices.
    fn since(began: u64, assigned: &[Assignment], holds: Option<Epoch>) -> Self {
        let mut seat = Self::before_reading(began, assigned.len().try_into().unwrap(), holds);
        let nodes = vec![(OWN, presence(MADE)), (OTHER, presence(OTHERS))];
        let slices = (0..).zip(assigned).map(|(number, assigned)| (number, *assigned, Revision(9))).collect();
        let _ = seat.tell(Event::Read(Reading { nodes, slices, ..Reading::default() }));
        seat
    }

    /// There are protected slices with these owners and backups, and these other nodes; what the node should have a copy of it has.
    fn among(others: &[(Node, Revision)], holders: &[(Node, Node)]) -> Self {
        let mut seat = Self::before_reading(8000, holders.len().try_into().unwrap(), Some(Epoch(3)));
        let all = [(OWN, MADE)].into_iter().chain(others.iter().copied());
        let made: BTreeMap<Node, Revision> = all.collect();
        let slice = |(number, (owner, backup)): (u16, &(Node, Node))| {
            (number, protected(*owner, made[owner], *backup), Revision(9))
        };
        let slices = (0..).zip(holders).map(slice).collect();
        let nodes = made.iter().map(|(node, made)| (*node, presence(*made))).collect();
        let _ = seat.obey(Event::Read(Reading { nodes, slices, ..Reading::default() }));
        seat
    }

    fn before_reading(began: u64, slices: u16, holds: Option<Epoch>) -> Self {
        let mut seat = Self { agent: Agent::new(OWN, slices), now: began };
        let _ = seat.tell(Event::Tick);
        seat.now = 10_000;
        let _ = seat.tell(Event::Registered { lease: Lease(7), created: MADE, sent: Moment(seat.now) });
        for slice in 0..slices {
            let _ = seat.tell(Event::Holds(slice, holds));
        }
        seat
    }

    /// It is told something; etcd carries out what it asks for, and backups have at once what they should have. All that was put.
    fn obey(&mut self, event: Event) -> Vec<(u16, Assignment)> {
        let mut put = Vec::new();
        for action in self.tell(event) {
            let copied = |slice, backup, state| Some(Event::Copying { slice, backup, state });
            let next = match action {
                Action::Transact(Transaction { number, puts, .. }) => {
                    put.extend(puts);
                    Some(Event::Done(number, Revision(100 + number.0)))
                }
                Action::Play(slice, Role::Owner { backup: Some(backup), by_offers, .. }) => {
                    copied(slice, backup, if by_offers { CopyState::Whole } else { CopyState::Near })
                }
                Action::Play(slice, Role::Handing { backup, .. }) => copied(slice, backup, CopyState::Settled),
                _ => None,
            };
            put.extend(next.into_iter().flat_map(|next| self.obey(next)));
        }
        put
    }

    /// Time passes like that, and the lease is renewed.
    fn go_on(&mut self, millis: u64) -> Vec<(u16, Assignment)> {
        let (end, mut put) = (self.now + millis, Vec::new());
        while self.now < end {
            self.now += 100;
            put.extend(self.obey(Event::Tick));
            put.extend(self.obey(Event::Renewed { lease: Lease(7), sent: Moment(self.now) }));
        }
        put
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.agent.handle(Moment(self.now), event, &mut |action| actions.push(action));
        actions
    }

    /// Ticks until so much time has passed; what is wanted meanwhile.
    fn wait(&mut self, millis: u64) -> Vec<Action> {
        let end = self.now + millis;
        let mut all = Vec::new();
        while self.now < end {
            self.now += 100;
            all.extend(self.tell(Event::Tick));
        }
        all
    }
}

fn transactions(actions: &[Action]) -> Vec<&Transaction> {
    actions.iter().filter_map(|action| if let Action::Transact(it) = action { Some(it) } else { None }).collect()
}

fn last_word(actions: &[Action], word: impl Fn(&Action) -> Option<Moment>) -> Option<Moment> {
    actions.iter().rev().find_map(word)
}

fn grant_until(actions: &[Action]) -> Option<Moment> {
    last_word(actions, |action| if let Action::GrantUntil(until) = action { Some(*until) } else { None })
}

/// The backups that are asked for a promise, and the number of the last question.
fn asked(actions: &[Action]) -> (Vec<Node>, u64) {
    let asked =
        actions.iter().filter_map(|action| if let Action::Ask(node, at) = action { Some((*node, *at)) } else { None });
    let (nodes, at): (Vec<Node>, Vec<u64>) = asked.unzip();
    (nodes, at.last().copied().unwrap_or_default())
}

fn serve_until(actions: &[Action]) -> Option<Moment> {
    last_word(actions, |action| if let Action::ServeUntil(until) = action { Some(*until) } else { None })
}

#[test]
fn a_backup_with_a_whole_copy_takes_over_when_the_owners_key_is_gone() {
    let mut seat = Seat::new(protected(OTHER, OTHERS, OWN), Some(Epoch(3)));
    assert_eq!(seat.agent.role(0), Role::Backup { epoch: Epoch(3), owner: OTHER });
    let actions = seat.tell(Event::NodeGone(OTHER));
    let [takeover] = transactions(&actions)[..] else { panic!("{actions:?}") };
    let compares = [Compare::NodeIs(OWN, MADE), Compare::NodeIsNot(OTHER, OTHERS), Compare::SliceIs(0, Revision(9))];
    assert_eq!(takeover.compares, compares);
    let (number, put) = (takeover.number, takeover.puts[0].1);
    assert_eq!((put.owner, put.epoch, put.phase, put.cause), (OWN, Epoch(4), Phase::Single, Cause::Takeover));
    assert_eq!(seat.agent.role(0), Role::Backup { epoch: Epoch(3), owner: OTHER }, "nothing is so before etcd says so");
    let actions = seat.tell(Event::Done(number, Revision(11)));
    assert!(actions.contains(&Action::Begin(0, Epoch(4), Beginning::Copy)), "{actions:?}");
    assert_eq!(seat.agent.role(0), Role::Owner { epoch: Epoch(4), backup: None, by_offers: false });
}

#[test]
fn a_learner_takes_nothing_over() {
    let mut seat = Seat::new(protected(OTHER, OTHERS, OWN), None);
    assert_eq!(seat.agent.role(0), Role::Learner { epoch: Epoch(3), owner: OTHER });
    let mut actions = seat.tell(Event::NodeGone(OTHER));
    actions.extend(seat.wait(1500));
    assert!(transactions(&actions).is_empty(), "{actions:?}");
}

#[test]
fn who_reaches_no_routers_takes_nothing_over() {
    let mut seat = Seat::new(protected(OTHER, OTHERS, OWN), Some(Epoch(3)));
    let _ = seat.tell(Event::Reaches(false));
    let mut actions = seat.tell(Event::NodeGone(OTHER));
    actions.extend(seat.wait(1000));
    assert!(transactions(&actions).is_empty(), "{actions:?}");
    assert_eq!(transactions(&seat.tell(Event::Reaches(true))).len(), 1);
}

#[test]
fn an_owner_grants_by_offers_before_its_backup_may_take_over() {
    let single = Assignment { backup: None, phase: Phase::Single, ..protected(OWN, MADE, OTHER) };
    let mut seat = Seat::new(single, Some(Epoch(3)));
    // It has asked for its backup as soon as it had read.
    let _ = seat.tell(Event::Done(Number(1), Revision(10)));
    let role = |by_offers| Role::Owner { epoch: Epoch(3), backup: Some(OTHER), by_offers };
    assert_eq!(seat.agent.role(0), role(false));
    let copying = |state| Event::Copying { slice: 0, backup: OTHER, state };
    let actions = seat.tell(copying(CopyState::Near));
    assert_eq!((seat.agent.role(0), transactions(&actions).len()), (role(true), 0));
    let mut actions = seat.tell(copying(CopyState::Whole));
    actions.extend(seat.wait(200));
    let put = transactions(&actions).last().map(|last| last.puts[0].1.phase);
    assert_eq!(put, Some(Phase::Protected), "{actions:?}");
}

#[test]
fn an_owner_without_a_lease_serves_on_while_its_backup_vouches() {
    let mut seat = Seat::new(protected(OWN, MADE, OTHER), Some(Epoch(3)));
    let _ = seat.wait(2000);
    assert_eq!(serve_until(&seat.wait(1000)), None, "the lease was not renewed, and nobody vouches");
    let actions = seat.tell(Event::Vouched(OTHER));
    assert_eq!(serve_until(&actions), Some(Moment(seat.now + 3000)));
    let alone = |action: &Action| if let Action::AloneUntil(until) = action { Some(*until) } else { None };
    let word = last_word(&seat.wait(5000), alone);
    assert!(word > Some(Moment(seat.now + 5000)), "an agent that lives says so: {word:?}");
}

#[test]
fn an_owner_without_renewals_grants_for_30_s_while_its_backup_promises() {
    let mut seat = Seat::new(protected(OWN, MADE, OTHER), Some(Epoch(3)));
    assert_eq!(asked(&seat.wait(900)), (vec![], 0), "a renewal may be late");
    let actions = seat.wait(100);
    assert_eq!(asked(&actions), (vec![OTHER], 11_000));
    // Its answer counts from the question, not from when it came, and the lease lasts for as long as it does.
    seat.now += 400;
    assert_eq!(grant_until(&seat.tell(Event::Promised(OTHER, 11_000))), Some(Moment(12_950)));
    assert_eq!((seat.agent.grace(Moment(11_949)), seat.agent.grace(Moment(11_950))), (None, Some(30_000)));
    assert_eq!(grant_until(&seat.wait(1000)), None, "it has not promised again");
    assert_eq!(seat.agent.grace(Moment(12_950)), None);
    let mut last = None;
    let mut questions = 0;
    while seat.now < 50_000 {
        let actions = seat.wait(100);
        if let (nodes, at @ 1..) = asked(&actions) {
            assert_eq!((nodes, at), (vec![OTHER], seat.now));
            questions += 1;
            last = grant_until(&seat.tell(Event::Promised(OTHER, at))).or(last);
        }
    }
    assert_eq!(last, Some(Moment(10_000 + 1950 + 30_000)), "30 s after its lease");
    assert!((90..110).contains(&questions), "each 0.3 s, and no more: {questions}");
    let sent = Moment(seat.now);
    assert_eq!(grant_until(&seat.tell(Event::Renewed { lease: Lease(7), sent })), Some(sent + 1950));
}

#[test]
fn an_owner_grants_by_its_lease_alone_unless_all_of_its_backups_promise() {
    let slices = [protected(OWN, MADE, OTHER), protected(OWN, MADE, Node(2))];
    let mut seat = Seat::since(8000, &slices, Some(Epoch(3)));
    let (nodes, at) = asked(&seat.wait(1000));
    assert_eq!(nodes, [OTHER, Node(2)]);
    assert_eq!(grant_until(&seat.tell(Event::Promised(OTHER, at))), None);
    assert_eq!(grant_until(&seat.tell(Event::Promised(Node(2), at + 1))), None, "nobody was asked by then");
    assert_eq!(grant_until(&seat.tell(Event::Promised(Node(2), at))), Some(Moment(at + 1950)));
    // One more has the copy of a slice, and has promised nothing.
    let other = Assignment { backup: Some(Node(3)), phase: Phase::Syncing, ..slices[1] };
    assert_eq!(grant_until(&seat.tell(Event::SliceSeen(1, other, Revision(12)))), Some(Moment(11_950)));
}

#[test]
fn an_owner_whose_slices_have_no_backup_needs_nobodys_word() {
    let single = Assignment { backup: None, phase: Phase::Single, ..protected(OWN, MADE, OTHER) };
    let mut seat = Seat::new(single, Some(Epoch(3)));
    let actions = seat.wait(1100);
    assert_eq!((asked(&actions).0, grant_until(&actions)), (vec![], Some(Moment(12_950))));
    assert_eq!(grant_until(&seat.wait(40_000)), Some(Moment(41_950)));
}

#[test]
fn grace_ends_with_the_life_of_which_it_was() {
    let mut seat = Seat::new(protected(OWN, MADE, OTHER), Some(Epoch(3)));
    let (_, at) = asked(&seat.wait(1000));
    let _ = seat.tell(Event::Promised(OTHER, at));
    let actions = seat.tell(Event::LeaseLost(Lease(7)));
    assert_eq!(grant_until(&actions), Some(Moment(0)));
    let role = Role::Former { epoch: Epoch(3), backup: Some(OTHER) };
    let places = [Action::GrantUntil(Moment(0)), Action::Play(0, role)]
        .map(|wanted| actions.iter().position(|action| *action == wanted).unwrap());
    assert!(places.is_sorted(), "first it grants no more: {actions:?}");
    let sent = Moment(seat.now);
    let actions = seat.tell(Event::Registered { lease: Lease(8), created: Revision(20), sent });
    assert_eq!((grant_until(&actions), seat.agent.role(0)), (Some(sent + 1950), role));
}

#[test]
fn a_backup_that_etcd_does_not_answer_promises_and_takes_over_when_that_is_over() {
    let mut seat = Seat::new(protected(OTHER, OTHERS, OWN), Some(Epoch(3)));
    let _ = seat.wait(900);
    let promise = Action::Promise(OTHER, 5);
    assert!(!seat.tell(Event::Asked(OTHER, 5)).contains(&promise), "its lease may be renewed");
    let _ = seat.wait(500);
    assert!(seat.tell(Event::Asked(OTHER, 5)).contains(&promise));
    // It has another life meanwhile, and is bound by its word all the same.
    let _ = seat.tell(Event::LeaseLost(Lease(7)));
    let sent = Moment(seat.now);
    let mut actions = seat.tell(Event::Registered { lease: Lease(8), created: Revision(20), sent });
    actions.extend(seat.tell(Event::NodeGone(OTHER)));
    actions.extend(seat.tell(Event::Renewed { lease: Lease(8), sent: Moment(seat.now + 1000) }));
    actions.extend(seat.wait(1900));
    assert!(transactions(&actions).is_empty(), "{actions:?}");
    let actions = seat.wait(100);
    assert_eq!(transactions(&actions).first().map(|first| first.puts[0].1.cause), Some(Cause::Takeover), "{actions:?}");
    assert!(!seat.tell(Event::Asked(OTHER, 6)).contains(&Action::Promise(OTHER, 6)), "it has claimed the slice");
}

#[test]
fn a_backup_that_knows_its_owner_to_be_gone_promises_nothing() {
    let mut seat = Seat::new(protected(OTHER, OTHERS, OWN), Some(Epoch(3)));
    let _ = seat.tell(Event::NodeGone(OTHER));
    let _ = seat.wait(1500);
    let promise = Action::Promise(OTHER, 5);
    assert!(!seat.tell(Event::Asked(OTHER, 5)).contains(&promise));
    // Nor does one that has a claim on its way on a slice of an earlier life.
    let _ = seat.tell(Event::NodeSeen(OTHER, presence(Revision(30))));
    assert!(!seat.tell(Event::Asked(OTHER, 5)).contains(&promise));
}

#[test]
fn a_process_that_has_just_begun_is_bound_by_what_an_earlier_one_may_have_promised() {
    let mut seat = Seat::since(9900, &[protected(OTHER, OTHERS, OWN)], Some(Epoch(3)));
    let mut actions = seat.tell(Event::NodeGone(OTHER));
    actions.extend(wait_with_a_lease(&mut seat, 1800));
    assert!(transactions(&actions).is_empty(), "{actions:?}");
    assert_eq!(transactions(&seat.wait(100)).len(), 1);
}

#[test]
fn a_lease_of_a_later_life_vouches_for_no_slice_of_an_earlier_one() {
    let mut seat = Seat::new(protected(OWN, MADE, OTHER), Some(Epoch(3)));
    let actions = seat.tell(Event::LeaseLost(Lease(7)));
    assert!(actions.contains(&Action::GrantUntil(Moment(0))) && actions.contains(&Action::Register), "{actions:?}");
    assert_eq!(seat.agent.role(0), Role::Former { epoch: Epoch(3), backup: Some(OTHER) });
    seat.now += 1000;
    let sent = Moment(seat.now);
    let actions = seat.tell(Event::Registered { lease: Lease(8), created: Revision(20), sent });
    assert_eq!(serve_until(&actions), None);
    let [back] = transactions(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!((back.puts[0].1.cause, back.puts[0].1.epoch), (Cause::Return, Epoch(4)));
    assert_eq!(back.compares, [Compare::NodeIs(OWN, Revision(20)), Compare::SliceIs(0, Revision(9))]);
}

#[test]
fn a_backup_whose_lease_was_lost_does_not_act_but_takes_over() {
    let mut seat = Seat::new(protected(OTHER, OTHERS, OWN), Some(Epoch(3)));
    let _ = seat.tell(Event::LeaseLost(Lease(7)));
    assert_eq!(seat.agent.role(0), Role::Learner { epoch: Epoch(3), owner: OTHER });
    let mut heard = Seat { agent: seat.agent.clone(), now: seat.now };
    let _ = heard.tell(Event::Holds(0, Some(Epoch(3))));
    assert_eq!(heard.agent.role(0), Role::Backup { epoch: Epoch(3), owner: OTHER }, "its owner was heard");
    let _ = seat.tell(Event::NodeGone(OTHER));
    let sent = Moment(seat.now);
    let actions = seat.tell(Event::Registered { lease: Lease(8), created: Revision(20), sent });
    assert_eq!(transactions(&actions).first().map(|first| first.puts[0].1.cause), Some(Cause::Takeover));
}

#[test]
fn an_owner_that_has_lost_its_tables_begins_anew_at_once_if_its_backup_has_lost_the_copy_as_well() {
    let before = Assignment { owner_revision: Revision(2), ..protected(OWN, MADE, OTHER) };
    let causes = |actions: &[Action]| -> Vec<Cause> {
        transactions(actions).iter().map(|transaction| transaction.puts[0].1.cause).collect()
    };
    let seen = |created, began_bare| {
        let mut seat = Seat::new(before, None);
        let actions = seat.tell(Event::NodeSeen(OTHER, Presence { began_bare, ..presence(created) }));
        (seat, actions)
    };
    // The slice's key was changed at revision 9: since then the other one's life has begun, with nothing.
    let (_, actions) = seen(Revision(12), true);
    assert_eq!(causes(&actions), [Cause::Vacant]);
    // It got the copy in this life, or may have kept it, and has some time to take over.
    for (created, began_bare) in [(Revision(8), true), (Revision(12), false)] {
        let (mut seat, mut actions) = seen(created, began_bare);
        actions.extend(wait_with_a_lease(&mut seat, 2500));
        assert_eq!(causes(&actions), [], "made at {created:?}, bare: {began_bare}");
        assert_eq!(causes(&wait_with_a_lease(&mut seat, 1000)), [Cause::Vacant]);
    }
}

#[test]
fn a_node_registers_as_soon_as_the_key_of_its_former_life_is_gone() {
    let mut seat = Seat { agent: Agent::new(OWN, 1), now: 10_000 };
    assert!(seat.tell(Event::Tick).contains(&Action::Register));
    assert!(!seat.tell(Event::NotRegistered).contains(&Action::Register), "it is there yet");
    assert!(!seat.tell(Event::NodeGone(OTHER)).contains(&Action::Register), "that was another node's");
    assert!(seat.tell(Event::NodeGone(OWN)).contains(&Action::Register));
}

#[test]
fn a_backup_whose_host_is_gone_by_the_routes_as_well_is_given_up_at_once() {
    let phase = |actions: &[Action]| transactions(actions).first().map(|first| first.puts[0].1.phase);
    let mut seat = Seat::new(protected(OWN, MADE, OTHER), Some(Epoch(3)));
    let _ = seat.tell(Event::NodeSeen(Node(2), presence(Revision(10))));
    let _ = seat.tell(copying(CopyState::Whole));
    let mut broken = Seat { agent: seat.agent.clone(), now: seat.now };
    // A connection that is broken may soon be there again.
    let mut actions = broken.tell(copying(CopyState::Broken));
    actions.extend(wait_with_a_lease(&mut broken, 900));
    assert_eq!(phase(&actions), None, "{actions:?}");
    assert_eq!(phase(&wait_with_a_lease(&mut broken, 200)), Some(Phase::Single));

    let actions = seat.tell(copying(CopyState::Lost));
    assert_eq!(phase(&actions), Some(Phase::Single), "{actions:?}");
    let number = transactions(&actions)[0].number;
    let actions = seat.tell(Event::Done(number, Revision(11)));
    let learner = transactions(&actions).first().map(|first| (first.number, first.puts[0].1.backup));
    let Some((number, Some(Node(2)))) = learner else { panic!("the other one is there as well: {actions:?}") };
    // Nobody is reached: the key is changed once a second, not with each look.
    let _ = seat.tell(Event::Done(number, Revision(12)));
    let state = |state| Event::Copying { slice: 0, backup: Node(2), state };
    let mut actions = seat.tell(state(CopyState::Broken));
    actions.extend(wait_with_a_lease(&mut seat, 600));
    actions.extend(seat.tell(state(CopyState::Lost)));
    actions.extend(wait_with_a_lease(&mut seat, 300));
    assert_eq!(phase(&actions), None, "{actions:?}");
    assert_eq!(phase(&wait_with_a_lease(&mut seat, 200)), Some(Phase::Syncing), "a second after it was broken");
}

#[test]
fn who_hears_of_its_successor_owns_nothing() {
    let mut seat = Seat::new(protected(OWN, MADE, OTHER), Some(Epoch(3)));
    let actions = seat.tell(Event::Deposed(0, Epoch(4), Some(OTHER)));
    assert!(actions.contains(&Action::Announce(0, None)), "{actions:?}");
    assert_eq!(seat.agent.role(0), Role::Others { epoch: Epoch(4), owner: Some(OTHER), backup: None });
}

#[test]
fn who_hears_of_an_owner_that_is_no_newer_stays_what_it_is() {
    let mut seat = Seat::new(protected(OWN, MADE, OTHER), Some(Epoch(3)));
    let role = seat.agent.role(0);
    assert!(matches!(role, Role::Owner { epoch: Epoch(3), .. }));
    for epoch in [0, 2, 3] {
        let actions = seat.tell(Event::Deposed(0, Epoch(epoch), Some(OTHER)));
        assert_eq!((actions, seat.agent.role(0)), (vec![], role));
    }
    let actions = seat.tell(Event::Deposed(77, Epoch(9), Some(OTHER)));
    assert_eq!((actions, seat.agent.role(0)), (vec![], role), "there is no such slice");
    // Of two the newer one counts, whichever is heard first.
    let _ = seat.tell(Event::Deposed(0, Epoch(5), Some(Node(2))));
    let _ = seat.tell(Event::Deposed(0, Epoch(4), Some(OTHER)));
    assert_eq!(seat.agent.role(0), Role::Others { epoch: Epoch(5), owner: Some(Node(2)), backup: None });
}

#[test]
fn who_hears_of_its_successor_before_etcd_says_so_neither_grants_nor_claims() {
    let mut seat = Seat::new(protected(OWN, MADE, OTHER), Some(Epoch(3)));
    let actions = seat.tell(Event::LeaseLost(Lease(7)));
    assert!(actions.contains(&Action::GrantUntil(Moment(0))), "{actions:?}");
    let _ = seat.tell(Event::Deposed(0, Epoch(4), Some(OTHER)));
    let sent = Moment(seat.now);
    let mut actions = seat.tell(Event::Registered { lease: Lease(8), created: Revision(20), sent });
    actions.extend(seat.wait(1000));
    assert!(transactions(&actions).is_empty(), "{actions:?}");
    assert_eq!(seat.agent.role(0), Role::Others { epoch: Epoch(4), owner: Some(OTHER), backup: None });
}

/// An owner that has ceased to grant, since its slice is to be the other one's.
fn handing() -> (Seat, Vec<Action>) {
    let mut seat = Seat::new(protected(OWN, MADE, OTHER), Some(Epoch(3)));
    let _ = seat.tell(Event::Wished(Wish::Pin(0, Some(OTHER))));
    let _ = seat.tell(copying(CopyState::Whole));
    let actions = seat.tell(Event::Tick);
    assert_eq!(seat.agent.role(0), Role::Handing { epoch: Epoch(3), backup: OTHER });
    assert!(transactions(&actions).is_empty(), "{actions:?}");
    (seat, actions)
}

fn copying(state: CopyState) -> Event {
    Event::Copying { slice: 0, backup: OTHER, state }
}

/// Renews the lease whenever that is wanted.
fn wait_with_a_lease(seat: &mut Seat, millis: u64) -> Vec<Action> {
    let end = seat.now + millis;
    let mut all = Vec::new();
    while seat.now < end {
        all.extend(seat.wait(100));
        let sent = Moment(seat.now);
        all.extend(seat.tell(Event::Renewed { lease: Lease(7), sent }));
    }
    all
}

#[test]
fn an_owner_hands_over_when_its_backup_has_everything_and_serves_until_it_hears_it() {
    let (mut seat, _) = handing();
    let actions = seat.tell(copying(CopyState::Settled));
    let [handover] = transactions(&actions)[..] else { panic!("{actions:?}") };
    let compares = [Compare::NodeIs(OWN, MADE), Compare::NodeIs(OTHER, OTHERS), Compare::SliceIs(0, Revision(9))];
    assert_eq!(handover.compares, compares);
    let (phase, cause) = (Phase::Protected, Cause::Handover);
    let put = Assignment { owner: OTHER, owner_revision: OTHERS, epoch: Epoch(4), backup: Some(OWN), phase, cause };
    assert_eq!(handover.puts, [(0, put)]);
    let number = handover.number;
    let actions = seat.tell(Event::Done(number, Revision(11)));
    assert_eq!(seat.agent.role(0), Role::Handing { epoch: Epoch(3), backup: OTHER }, "its successor may not know");
    assert!(!actions.iter().any(|action| matches!(action, Action::Announce(..))), "{actions:?}");
    let actions = seat.tell(Event::Deposed(0, Epoch(4), Some(OTHER)));
    let backup = Role::Backup { epoch: Epoch(4), owner: OTHER };
    let wanted = [Action::Keep(0, Epoch(4)), Action::Play(0, backup), Action::Announce(0, backup.metric())];
    assert_eq!(actions, wanted, "its tables are a whole copy");
}

#[test]
fn a_former_owner_that_does_not_hear_its_successor_redirects_soon() {
    let (mut seat, _) = handing();
    let actions = seat.tell(copying(CopyState::Settled));
    let number = transactions(&actions)[0].number;
    let _ = seat.tell(Event::Done(number, Revision(11)));
    let _ = seat.wait(200);
    assert_eq!(seat.agent.role(0), Role::Backup { epoch: Epoch(4), owner: OTHER });
}

#[test]
fn a_successor_adopts_its_copy() {
    let mut seat = Seat::new(protected(OTHER, OTHERS, OWN), Some(Epoch(3)));
    let (backup, cause) = (Some(OTHER), Cause::Handover);
    let own = Assignment { epoch: Epoch(4), cause, backup, ..protected(OWN, MADE, OTHER) };
    let actions = seat.tell(Event::SliceSeen(0, own, Revision(11)));
    assert!(actions.contains(&Action::Begin(0, Epoch(4), Beginning::Copy)), "{actions:?}");
    assert_eq!(seat.agent.role(0), Role::Owner { epoch: Epoch(4), backup, by_offers: true });
}

#[test]
fn an_owner_grants_again_if_its_backup_does_not_get_everything_in_time() {
    let (mut seat, _) = handing();
    let actions = wait_with_a_lease(&mut seat, 1000);
    let owner = Role::Owner { epoch: Epoch(3), backup: Some(OTHER), by_offers: true };
    assert_eq!((seat.agent.role(0), transactions(&actions).len()), (owner, 0), "{actions:?}");
    let _ = wait_with_a_lease(&mut seat, 4000);
    assert_eq!(seat.agent.role(0), owner, "it does not try again at once");
    let _ = wait_with_a_lease(&mut seat, 1100);
    assert_eq!(seat.agent.role(0), Role::Handing { epoch: Epoch(3), backup: OTHER });
}

#[test]
fn while_nobody_knows_whether_a_slice_was_handed_over_nothing_is_granted() {
    let (mut seat, _) = handing();
    let actions = seat.tell(copying(CopyState::Settled));
    let number = transactions(&actions)[0].number;
    let _ = seat.tell(Event::Unknown(number));
    let _ = seat.tell(copying(CopyState::Broken));
    let actions = wait_with_a_lease(&mut seat, 1500);
    let handing = Role::Handing { epoch: Epoch(3), backup: OTHER };
    assert_eq!(seat.agent.role(0), handing);
    // What was asked for is void when the slice's key has changed.
    let [void] = transactions(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!(void.compares, [Compare::NodeIs(OWN, MADE), Compare::SliceIs(0, Revision(9))]);
    assert_eq!((void.puts[0].1.owner, void.puts[0].1.epoch), (OWN, Epoch(3)));
    let number = void.number;
    let _ = seat.tell(Event::Done(number, Revision(11)));
    assert_eq!(seat.agent.role(0), Role::Owner { epoch: Epoch(3), backup: Some(OTHER), by_offers: true });
}

#[test]
fn nothing_is_vouched_for_by_a_lease_while_a_slice_was_perhaps_handed_over() {
    let (mut seat, _) = handing();
    let actions = seat.tell(copying(CopyState::Settled));
    let number = transactions(&actions)[0].number;
    let _ = seat.tell(Event::Unknown(number));
    assert_eq!(serve_until(&wait_with_a_lease(&mut seat, 1500)), None);
    assert!(serve_until(&seat.tell(Event::Vouched(OTHER))).is_some());
}

#[test]
fn a_drained_node_is_no_entrance_as_long_as_there_is_another_one() {
    let mut seat = Seat::new(protected(OTHER, OTHERS, OWN), Some(Epoch(3)));
    let actions = seat.tell(Event::Wished(Wish::Drain(OWN, true)));
    assert!(actions.contains(&Action::Enter(false)), "{actions:?}");
    let actions = seat.tell(Event::NodeGone(OTHER));
    assert!(actions.contains(&Action::Enter(true)), "{actions:?}");
}

#[test]
fn slices_whose_state_is_gone_are_taken_at_once_if_an_operator_says_so() {
    let mut seat = Seat::new(protected(OTHER, OTHERS, Node(2)), None);
    let actions = seat.tell(Event::NodeGone(OTHER));
    assert!(transactions(&actions).is_empty(), "{actions:?}");
    let earlier = seat.tell(Event::Wished(Wish::Assume(0, Some(Epoch(2)))));
    assert!(transactions(&earlier).is_empty(), "that was another ownership: {earlier:?}");
    let actions = seat.tell(Event::Wished(Wish::Assume(0, Some(Epoch(3)))));
    assert_eq!(transactions(&actions).first().map(|first| first.puts[0].1.cause), Some(Cause::Vacant));
}

#[test]
fn a_node_that_has_just_come_gets_nothing_before_all_is_calm() {
    let mut seat = Seat::new(protected(OWN, MADE, OTHER), Some(Epoch(3)));
    let _ = seat.tell(copying(CopyState::Whole));
    let _ = seat.tell(Event::NodeSeen(Node(2), presence(Revision(10))));
    // One slice, three nodes: nothing is uneven.
    let actions = wait_with_a_lease(&mut seat, 12_000);
    assert!(transactions(&actions).is_empty(), "{actions:?}");
}

/// The slices that were given to a node.
fn given_to(node: Node, put: &[(u16, Assignment)]) -> BTreeSet<u16> {
    put.iter().filter(|(_, put)| put.owner == node).map(|(slice, _)| *slice).collect()
}

#[test]
fn while_slices_are_held_nothing_moves_but_what_is_wished() {
    let mut seat = Seat::among(
        &[(OTHER, OTHERS)],
        &[(OWN, OTHER), (OWN, OTHER), (OWN, OTHER), (OTHER, OWN), (OTHER, OWN), (OTHER, OWN)],
    );
    assert_eq!(seat.obey(Event::Wished(Wish::Hold(true))), NOTHING);
    assert_eq!(seat.obey(Event::NodeSeen(THIRD, presence(THIRDS))), NOTHING);
    assert_eq!(seat.go_on(60_000), NOTHING, "a third of the slices is its share");
    let mut drained = Seat { agent: seat.agent.clone(), now: seat.now };
    let mut put = drained.obey(Event::Wished(Wish::Drain(OWN, true)));
    put.extend(drained.go_on(2000));
    assert_eq!(given_to(THIRD, &put), BTreeSet::from([0, 1, 2]), "{put:?}");
    let mut pinned = Seat { agent: seat.agent.clone(), now: seat.now };
    let mut put = pinned.obey(Event::Wished(Wish::Pin(1, Some(THIRD))));
    put.extend(pinned.go_on(2000));
    assert_eq!(given_to(THIRD, &put), BTreeSet::from([1]), "{put:?}");
    let mut put = seat.obey(Event::Wished(Wish::Hold(false)));
    put.extend(seat.go_on(2000));
    assert_eq!(given_to(THIRD, &put).len(), 1, "its share of what this node has: {put:?}");
}

#[test]
fn what_a_node_had_that_is_back_soon_is_not_shared_out_meanwhile() {
    let mut seat = Seat::among(
        &[(OTHER, OTHERS), (THIRD, THIRDS)],
        &[(OWN, OTHER), (OWN, OTHER), (OTHER, OWN), (THIRD, OWN), (THIRD, OWN)],
    );
    assert_eq!(seat.go_on(9800), NOTHING);
    let taken = seat.obey(Event::NodeGone(THIRD));
    assert_eq!(given_to(OWN, &taken), BTreeSet::from([3, 4]), "{taken:?}");
    // Four slices here, and one at the other node.
    assert_eq!(seat.go_on(5000), NOTHING);
    assert_eq!(seat.obey(Event::NodeSeen(THIRD, presence(Revision(50)))), NOTHING);
    assert_eq!(seat.go_on(9900), NOTHING);
    let put = seat.go_on(2000);
    assert_eq!(given_to(THIRD, &put).len(), 1, "{put:?}");
}

#[test]
fn a_node_that_ceases_to_serve_may_be_back_soon() {
    let mut seat =
        Seat::among(&[(OTHER, OTHERS), (THIRD, THIRDS)], &[(OWN, OTHER), (OWN, OTHER), (OWN, OTHER), (OTHER, OWN)]);
    assert_eq!(seat.go_on(9000), NOTHING);
    let draining = Presence { is_serving: false, ..presence(THIRDS) };
    assert_eq!(seat.obey(Event::NodeSeen(THIRD, draining)), NOTHING);
    assert_eq!(seat.go_on(9900), NOTHING);
    let put = seat.go_on(2000);
    assert_eq!(given_to(OTHER, &put).len(), 1, "{put:?}");
}

#[test]
fn a_node_that_has_lost_its_way_gives_its_slices_to_those_who_have_their_copies() {
    let among =
        || Seat::among(&[(OTHER, OTHERS), (THIRD, THIRDS)], &[(OWN, OTHER), (OWN, OTHER), (OWN, THIRD), (OTHER, OWN)]);
    let (mut seat, away) = (among(), Presence { is_serving: false, ..presence(MADE) });
    let mut put = seat.obey(Event::NodeSeen(OWN, away));
    put.extend(seat.go_on(1000));
    let given: Vec<(u16, Option<Node>)> = put.iter().map(|(slice, is)| (*slice, Some(is.owner))).collect();
    assert_eq!(given, [(0, Some(OTHER)), (1, Some(OTHER)), (2, Some(THIRD))], "{put:?}");
    assert!(put.iter().all(|(_, is)| is.cause == Cause::Handover));
    // So does one that is to be drained as well: the copy that the plan has in mind would come too late.
    let mut seat = Seat::among(&[(OTHER, OTHERS), (THIRD, THIRDS)], &[(OWN, OTHER), (OTHER, OWN), (OTHER, OWN)]);
    let stalled = |state| Event::Copying { slice: 0, backup: OTHER, state };
    for event in [stalled(CopyState::Broken), Event::NodeSeen(OWN, away), Event::Wished(Wish::Drain(OWN, true))] {
        assert_eq!(seat.obey(event), NOTHING);
    }
    let put = seat.obey(stalled(CopyState::Whole));
    assert_eq!(given_to(OTHER, &put), BTreeSet::from([0]), "{put:?}");
    // Where an operator has it drained, the plan says who should have them.
    let mut seat = among();
    let draining = Presence { is_serving: false, is_draining: true, ..presence(MADE) };
    let mut put = seat.obey(Event::NodeSeen(OWN, draining));
    put.extend(seat.go_on(3000));
    assert!(put.iter().any(|(_, is)| is.cause != Cause::Handover), "{put:?}");
}

//! What an agent wants done, event by event.

use tombolo_cluster::ownership::{
    Action, Agent, Assignment, Beginning, Cause, Compare, CopyState, Epoch, Event, Lease, Moment, Node, Number, Phase,
    Presence, Reading, Revision, Role, Transaction,
};

const OWN: Node = Node(0);
const OTHER: Node = Node(1);
/// When the keys of both were made.
const MADE: Revision = Revision(5);
const OTHERS: Revision = Revision(4);

fn presence(created: Revision) -> Presence {
    Presence { created, is_serving: true }
}

/// A slice that one owns, whose backup the other one is.
fn protected(owner: Node, owner_revision: Revision, backup: Node) -> Assignment {
    let (backup, phase, cause) = (Some(backup), Phase::Protected, Cause::Backup);
    Assignment { owner, owner_revision, epoch: Epoch(3), backup, phase, cause }
}

/// An agent of a node that has registered, and has read that there is one slice.
struct Seat {
    agent: Agent,
    now: u64,
}

impl Seat {
    fn new(assigned: Assignment, holds: Option<Epoch>) -> Self {
        let mut seat = Self { agent: Agent::new(OWN, 1), now: 10_000 };
        let _ = seat.tell(Event::Tick);
        let _ = seat.tell(Event::Registered { lease: Lease(7), created: MADE, sent: Moment(seat.now) });
        let _ = seat.tell(Event::Holds(0, holds));
        let nodes = vec![(OWN, presence(MADE)), (OTHER, presence(OTHERS))];
        let _ = seat.tell(Event::Read(Reading { nodes, slices: vec![(0, assigned, Revision(9))] }));
        seat
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
fn who_hears_of_its_successor_owns_nothing() {
    let mut seat = Seat::new(protected(OWN, MADE, OTHER), Some(Epoch(3)));
    let actions = seat.tell(Event::Deposed(0, Epoch(4), Some(OTHER)));
    assert!(actions.contains(&Action::Announce(0, None)), "{actions:?}");
    assert_eq!(seat.agent.role(0), Role::Others { epoch: Epoch(4), owner: Some(OTHER), backup: None });
}

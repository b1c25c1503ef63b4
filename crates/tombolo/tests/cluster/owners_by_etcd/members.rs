//! Members of etcd that die: one, and all but one.

use std::time::{Duration, Instant};

use tombolo_lab::{first_answers, skip_without};

use super::PROGRAMS;
use super::bed::Bed;
use super::limits::{AT_ONCE, NOTHING};

/// Longer than a lease, and than an owner serves by it.
const PAST_ALL_DEADLINES: Duration = Duration::from_secs(4);
/// So long is waited for an answer that does not come.
const REFUSED: Duration = Duration::from_secs(1);
/// So long after etcd is back somebody new is admitted again: by then a renewal was tried again, and answered.
const ADMITTED_AGAIN: Duration = Duration::from_secs(4);

#[test]
fn members_of_etcd_that_die_are_nobodys_loss_and_without_most_of_them_nobody_new_is_admitted() {
    let name = "members_of_etcd_that_die_are_nobodys_loss_and_without_most_of_them_nobody_new_is_admitted";
    if skip_without(name, &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    let (known, epochs) = (bed.endpoints(), bed.cluster.epochs("n1"));
    one_member_dies(&mut bed, true);
    one_member_dies(&mut bed, false);
    assert_eq!((bed.endpoints(), bed.cluster.epochs("n1")), (known.clone(), epochs), "nothing has changed hands");
    most_members_die(&mut bed);
    bed.all_live(name);
    assert_eq!((bed.endpoints(), bed.cluster.epochs("n1")), (known, epochs), "nothing has changed hands");
}

fn one_member_dies(bed: &mut Bed, is_leader: bool) {
    let leader = bed.cluster.leader().unwrap();
    let member = bed.cluster.scenario.members.iter().copied().find(|member| (*member == leader) == is_leader).unwrap();
    let which = if is_leader { "the leader of etcd" } else { "another member of etcd" };
    let strangers = bed.strangers(&[0, 1, 2, 3, 4, 5, 6, 7]);
    let seen = bed.during(&format!("{which} is killed"), &strangers, |cluster| cluster.kill_member(member));
    seen.within(NOTHING);
    assert!(seen.longest_wait() <= AT_ONCE, "new subscribers waited for {:?}", seen.waits);
    bed.cluster.protected("n1");
    let seen =
        bed.during(&format!("{which} is started again"), &[], |cluster| cluster.start_members(&[member]).unwrap());
    seen.within(NOTHING);
    bed.cluster.protected("n1");
}

fn most_members_die(bed: &mut Bed) {
    let dead = [bed.cluster.scenario.members[0], bed.cluster.scenario.members[1]];
    let strangers = bed.strangers(&[0, 1, 2, 3, 4, 5, 6, 7]);
    let seen = bed.during("two of three members of etcd are killed", &[], |cluster| {
        dead.iter().for_each(|member| cluster.kill_member(member));
    });
    seen.within(NOTHING);
    std::thread::sleep(PAST_ALL_DEADLINES);
    // What is promised without a majority: whoever is known goes on. Nobody new is admitted, also within the 30 s of the design.
    let seen = bed.during_for("etcd has no majority", &strangers, REFUSED, |_| ());
    seen.within(NOTHING);
    assert!(seen.waits.iter().all(Option::is_none), "nobody may admit: {:?}", seen.waits);
    let seen = bed.during("etcd has a majority again", &[], |cluster| {
        cluster.start_members(&dead[..1]).unwrap();
        let back = Instant::now();
        let waits = first_answers(&strangers, back, 2 * ADMITTED_AGAIN);
        eprintln!("  after etcd serves again new subscribers wait {waits:?}");
        assert!(waits.iter().all(|wait| wait.is_some_and(|wait| wait <= ADMITTED_AGAIN)), "{waits:?}");
    });
    seen.within(NOTHING);
    bed.cluster.start_members(&dead[1..]).unwrap();
    bed.cluster.mended();
}

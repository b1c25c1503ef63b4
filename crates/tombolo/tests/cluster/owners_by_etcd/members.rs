//! Members of etcd that die: one, and all but one.

use std::time::{Duration, Instant};

use tombolo_lab::{first_answers, skip_without, wait_until};

use super::PROGRAMS;
use super::bed::Bed;
use super::limits::{AT_ONCE, NOTHING};
use crate::running::{PATIENCE, TOMBOLO, rows};

/// Longer than a lease, and than an owner serves by it.
const PAST_ALL_DEADLINES: Duration = Duration::from_secs(4);
/// Owners go on by their backups' word for 30 s after their leases, which last for 1.95 s after their renewal: some time before that is over,
const LATE_IN_GRACE: Duration = Duration::from_secs(26);
/// and when it is over for all.
const PAST_GRACE: Duration = Duration::from_secs(33);
/// So long is waited for an answer that does not come.
const REFUSED: Duration = Duration::from_secs(1);
/// So long after etcd is back somebody new is admitted again: by then a renewal was tried again, and answered.
const ADMITTED_AGAIN: Duration = Duration::from_secs(4);

#[test]
fn members_of_etcd_that_die_are_nobodys_loss_and_without_most_of_them_all_are_admitted_for_30_s() {
    let name = "members_of_etcd_that_die_are_nobodys_loss_and_without_most_of_them_all_are_admitted_for_30_s";
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
    assert!(seen.longest_wait() <= seen.allowed(AT_ONCE), "new subscribers waited for {:?}", seen.waits);
    bed.cluster.protected("n1");
    let seen =
        bed.during(&format!("{which} is started again"), &[], |cluster| cluster.start_members(&[member]).unwrap());
    seen.within(NOTHING);
    bed.cluster.protected("n1");
}

fn most_members_die(bed: &mut Bed) {
    let dead = [bed.cluster.scenario.members[0], bed.cluster.scenario.members[1]];
    let [first, second, strangers] = [(); 3].map(|()| bed.strangers(&[0, 1, 2, 3, 4, 5, 6, 7]));
    let mut killed = Instant::now();
    let seen = bed.during("two of three members of etcd are killed", &[], |cluster| {
        dead.iter().for_each(|member| cluster.kill_member(member));
        killed = Instant::now();
    });
    seen.within(NOTHING);
    // Whoever is known goes on; whoever is new is admitted as long as owners have their backups' word, and 30 s are not over.
    for (what, since, strangers) in [("for 4 s", PAST_ALL_DEADLINES, first), ("for 26 s", LATE_IN_GRACE, second)] {
        std::thread::sleep(since.saturating_sub(killed.elapsed()));
        let seen = bed.during(&format!("etcd has no majority {what}"), &strangers, |_| ());
        seen.within(NOTHING);
        assert!(seen.longest_wait() <= seen.allowed(AT_ONCE), "new subscribers waited for {:?}", seen.waits);
        wait_for_words(bed, "new subscribers are admitted for ");
    }
    std::thread::sleep(PAST_GRACE.saturating_sub(killed.elapsed()));
    let before = refused(bed);
    let seen = bed.during_for("etcd has no majority for 33 s", &strangers, REFUSED, |_| ());
    seen.within(NOTHING);
    assert!(seen.waits.iter().all(Option::is_none), "nobody may admit: {:?}", seen.waits);
    assert!(refused(bed) > before, "they are refused as not-granting");
    wait_for_words(bed, "nobody new is admitted");
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

/// Each node says so of itself.
fn wait_for_words(bed: &Bed, words: &str) {
    for node in ["n1", "n2", "n3"] {
        let status = || bed.cluster.command(node, &format!("{TOMBOLO} show status --json"));
        wait_until(&format!("{node} to say: {words}"), PATIENCE, || status().contains(words).then_some(())).unwrap();
    }
}

/// So many packets were refused by all nodes since nothing may be granted.
fn refused(bed: &Bed) -> u64 {
    let drops =
        ["n1", "n2", "n3"].map(|node| rows(&bed.cluster.command(node, &format!("{TOMBOLO} show drops --json"))));
    let refused = drops.iter().flatten().filter(|row| row["reason"] == "not-granting");
    refused.map(|row| row["packets"].as_u64().unwrap_or_default()).sum()
}

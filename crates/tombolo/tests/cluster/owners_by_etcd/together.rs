//! Two boxes at once, and all of them.

use std::time::{Duration, Instant, SystemTime};

use tombolo_lab::cluster::Owned;
use tombolo_lab::{first_answers, skip_without};

use super::PROGRAMS;
use super::bed::Bed;
use super::limits::{ADMISSION_WITHOUT_LEADER, ANOTHER_COPY, BFD, LEASE_LEFT, LINK, NOTHING, PROTECTION, RETURN};

const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// Slices whose owner and backup are gone are anybody's after 40 s, without their bindings. The lease is over two seconds later, and
/// whoever takes them needs some tenths.
const VACANT: std::ops::RangeInclusive<Duration> = Duration::from_secs(39)..=Duration::from_secs(46);
/// After a site had no power, hosts are served so soon after etcd is: until leases of the lives before are over, and meanwhile three
/// gateways have started on two processors, and BGP has come up.
const SITE: Duration = Duration::from_secs(9);

#[test]
fn an_owner_and_the_leader_of_etcd_at_once_and_then_a_backup() {
    if skip_without("an_owner_and_the_leader_of_etcd_at_once_and_then_a_backup", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    an_owner_goes_with_the_leader_of_etcd(&mut bed);
    a_backup_dies(&mut bed);
}

#[test]
fn an_owner_and_its_backup_at_once_and_then_the_whole_site() {
    if skip_without("an_owner_and_its_backup_at_once_and_then_the_whole_site", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    an_owner_and_its_backup_go(&mut bed);
    the_whole_site_loses_power(&mut bed);
}

fn an_owner_goes_with_the_leader_of_etcd(bed: &mut Bed) {
    let (known, of_owner) = (bed.endpoints(), bed.slices_of("n2"));
    let leader = bed.cluster.leader().unwrap();
    let strangers = bed.strangers(&of_owner);
    let seen = bed.during("the owner loses power, and the leader of etcd dies", &strangers, |cluster| {
        cluster.kill_host("n2");
        cluster.kill_member(leader);
    });
    seen.within(BFD);
    let longest = seen.longest_wait();
    assert!(
        (LEASE_LEFT..=seen.allowed(ADMISSION_WITHOUT_LEADER)).contains(&longest),
        "a new subscriber waited for {longest:?}"
    );
    let took = bed.without("n2");
    assert!(took <= PROTECTION, "protected after {took:?}");
    bed.cluster.start_members(&[leader]).unwrap();
    bed.cluster.revive_host("n2").unwrap();
    bed.cluster.mended();
    bed.all_live("the owner loses power, and the leader of etcd dies");
    assert_eq!((bed.slices_of("n2"), bed.endpoints()), (Vec::new(), known));
}

/// Slices of others whose copies it has, where nothing enters by it.
fn a_backup_dies(bed: &mut Bed) {
    bed.cluster.enter_by(1);
    let known = bed.endpoints();
    let before = bed.cluster.owned("n1");
    let backed_up = |slice: u16| before[&slice].owner.as_deref() != Some("n3");
    let is_copied = |(slice, owned): &(&u16, &Owned)| backed_up(**slice) && owned.backup.as_deref() == Some("n3");
    let copied: Vec<u16> = before.iter().filter(is_copied).map(|(slice, _)| *slice).collect();
    assert!(!copied.is_empty(), "{before:?}");
    let gone = SystemTime::now();
    let seen = bed.during("a backup loses power", &[], |cluster| cluster.kill_host("n3"));
    seen.within_of(NOTHING, backed_up);
    seen.within(BFD);
    let took = bed.without("n3");
    assert!(took <= PROTECTION, "protected after {took:?}");
    let another = bed.written_after(gone, &copied);
    eprintln!("  another node has the copies of {copied:?} after {another:?}");
    assert!(another <= seen.allowed(ANOTHER_COPY), "after {another:?}");
    let after = bed.cluster.owned("n1");
    for (slice, owned) in after.iter().filter(|(slice, _)| backed_up(**slice)) {
        assert_eq!(
            (&owned.owner, owned.epoch),
            (&before[slice].owner, before[slice].epoch),
            "slice {slice} has not changed hands"
        );
    }
    bed.cluster.revive_host("n3").unwrap();
    bed.cluster.enter_by_all();
    bed.cluster.mended();
    bed.all_live("a backup loses power");
    assert_eq!(bed.endpoints(), known);
}

/// The slices that two nodes shared begin anew at the third; all others go on.
fn an_owner_and_its_backup_go(bed: &mut Bed) {
    let owned = bed.cluster.owned("n1");
    let holders = owned[&0].owner.iter().chain(&owned[&0].backup).cloned().collect::<Vec<_>>();
    let (dead, stays): (Vec<&'static str>, Vec<&'static str>) =
        NODES.into_iter().partition(|node| holders.iter().any(|holder| holder == node));
    let stays = stays[0];
    let is_lost =
        |slice: u16| owned[&slice].owner.as_deref() != Some(stays) && owned[&slice].backup.as_deref() != Some(stays);
    let lost: Vec<u16> = (0..8).filter(|slice| is_lost(*slice)).collect();
    eprintln!("  slices of owner and backup that are gone: {lost:?}");
    assert!(!lost.is_empty() && lost.len() < 8, "{owned:?}");
    let strangers = bed.strangers(&lost);
    let gone = Instant::now();
    let seen = bed.during_for("an owner and its backup lose power", &strangers, Duration::from_secs(1), |cluster| {
        dead.iter().copied().for_each(|node| cluster.kill_host(node));
    });
    seen.within_of(LINK, |slice| !is_lost(slice));
    assert!(seen.waits.iter().all(Option::is_none), "nobody may admit: {:?}", seen.waits);
    let waits = first_answers(&strangers, gone, Duration::from_secs(60));
    eprintln!("CASE an owner and its backup lose power: new subscribers of what they shared wait {waits:?}");
    assert!(waits.iter().all(|wait| wait.is_some_and(|wait| VACANT.contains(&wait))), "{waits:?}");
    for node in dead {
        bed.cluster.revive_host(node).unwrap();
    }
    bed.cluster.mended();
    let seen = bed.during("they are back", &[], |_| ());
    seen.within_of(NOTHING, |_| true);
}

/// All tables are gone, and who owns what is not.
fn the_whole_site_loses_power(bed: &mut Bed) {
    let members = bed.cluster.scenario.members.clone();
    NODES.into_iter().for_each(|node| bed.cluster.kill_host(node));
    members.iter().for_each(|member| bed.cluster.kill_member(member));
    bed.cluster.start_members(&members).unwrap();
    let since = Instant::now();
    bed.cluster.revive_hosts(&NODES).unwrap();
    let started = since.elapsed();
    let strangers = bed.strangers(&[0, 1, 2, 3, 4, 5, 6, 7]);
    let waits = first_answers(&strangers, since, 3 * SITE);
    eprintln!(
        "CASE the whole site loses power: gateways started within {started:?}, and all hosts are served after {waits:?}"
    );
    assert!(waits.iter().all(|wait| wait.is_some_and(|wait| wait <= SITE)), "{waits:?}");
    bed.cluster.mended();
    let seen = bed.during("the site is back", &[], |_| ());
    seen.within_of(RETURN, |_| true);
}

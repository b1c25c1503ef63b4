//! Whoever is gone loses its slices to those who have their copies.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tombolo_lab::cluster::Owned;
use tombolo_lab::{Flow, Scenario, skip_without};

use super::PROGRAMS;
use super::bed::Bed;
use super::limits::{ADMISSION, ADMISSION_BY_DEPOSED, BFD, BFD_OF_FRR, CORE, LEASE_LEFT, NOTHING, PROTECTION, RETURN};
use crate::boxes::{ALL, Cluster};
use crate::running::{TOMBOLO, rows};

/// Shortly before the end of a lease that is not renewed.
const BEFORE_DEADLINE: Duration = Duration::from_millis(1800);
/// A gateway that is back within less has its lease still.
const LEASE: Duration = Duration::from_millis(1400);
/// So long a process stands still that loses its slices meanwhile.
const ASLEEP: Duration = Duration::from_secs(5);

#[test]
fn an_owner_that_loses_power_loses_its_slices_to_those_who_have_their_copies() {
    if skip_without("an_owner_that_loses_power_loses_its_slices_to_those_who_have_their_copies", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    let known = bed.endpoints();
    let (of_owner, before) = (bed.slices_of("n2"), bed.cluster.owned("n1"));
    let epochs = bed.cluster.epochs("n1");
    assert!((2..=3).contains(&of_owner.len()), "n2 owns {of_owner:?} of 8 slices");

    let strangers = bed.strangers(&of_owner);
    let seen = bed.during("the owner loses power", &strangers, |cluster| cluster.kill_host("n2"));
    seen.within(BFD);
    let longest = seen.longest_wait();
    assert!(
        longest >= LEASE_LEFT,
        "a new subscriber of a dead owner waited for {longest:?} only: who has admitted it?"
    );
    assert!(longest <= seen.allowed(ADMISSION), "a new subscriber waited for {longest:?}");
    let took = bed.without("n2");
    assert!(took <= PROTECTION, "protected after {took:?}");
    assert_eq!((bed.slices_of("n2"), bed.cluster.epochs("n1")), (Vec::new(), epochs + of_owner.len() as u64));
    granted_by_owners(&bed, &strangers, &of_owner, &before);
    bed.all_live("the owner loses power");
    assert_eq!(bed.endpoints(), known, "known subscribers have the endpoints that they had");

    // It comes back with empty tables, and owns nothing.
    let seen = bed.during("it comes back with empty tables", &[], |cluster| {
        cluster.revive_host("n2").unwrap();
        cluster.wait_for_all();
    });
    seen.within(RETURN);
    bed.cluster.protected("n2");
    assert_eq!((bed.slices_of("n2"), bed.endpoints()), (Vec::new(), known));
    let slices = rows(&bed.cluster.command("n2", &format!("{TOMBOLO} show slices --json")));
    assert!(slices.iter().all(|row| row["state"] == "redirected" && row["phase"] == "protected"), "{slices:?}");
    let written = bed.cluster.history().unwrap();
    let is_told = |is_so: fn(&String) -> bool| assert!(written.iter().any(is_so), "{written:#?}");
    is_told(|line| line.ends_with("/nodes/n2 removed"));
    is_told(|line| line.contains("/slices/") && line.contains("takeover"));
    a_process_that_was_asleep_wakes_and_is_nobody(&mut bed);
}

/// New subscribers have addresses of their slices, which other nodes than the dead one own, as of the next epoch.
fn granted_by_owners(bed: &Bed, strangers: &[Flow], slices: &[u16], before: &BTreeMap<u16, Owned>) {
    let owned = bed.cluster.owned("n1");
    for (flow, slice) in strangers.iter().zip(slices) {
        let owner = owned[slice].owner.as_deref().unwrap();
        assert_eq!(bed.cluster.slice_seen(flow).unwrap(), *slice, "{} has an address of its slice", flow.name());
        assert!(owner != "n2" && owned[slice].epoch == before[slice].epoch + 1, "slice {slice}: {:?}", owned[slice]);
        let state = rows(&bed.cluster.command(owner, &format!("{TOMBOLO} show slices --json")));
        let is_in = |row: &&serde_json::Value| {
            row["first"].as_u64().unwrap() <= u64::from(*slice) && u64::from(*slice) <= row["last"].as_u64().unwrap()
        };
        assert_eq!(state.iter().find(is_in).unwrap()["state"], "own", "slice {slice} at {owner}");
        eprintln!("  {}: slice {slice}, granted by {owner}", flow.name());
    }
}

/// A host that stands still as a whole, and goes on after its slices were taken over.
fn a_process_that_was_asleep_wakes_and_is_nobody(bed: &mut Bed) {
    let (known, of_owner) = (bed.endpoints(), bed.slices_of("n3"));
    let freeze = |cluster: &mut Cluster, is_frozen: bool| {
        let cluster = &mut **cluster;
        for processes in [&mut cluster.gateways, &mut cluster.routers] {
            tombolo_lab::cluster::ClusterLab::freeze(processes.get_mut("n3"), is_frozen).unwrap();
        }
    };
    let strangers = bed.strangers(&of_owner);
    let seen = bed.during("gateway and BIRD stand still, ports are down", &strangers, |cluster| {
        cluster.plug("n3", &ALL, false);
        freeze(cluster, true);
    });
    seen.within(BFD);
    assert!(seen.longest_wait() <= seen.allowed(ADMISSION));
    std::thread::sleep(ASLEEP);
    bed.without("n3");
    bed.all_live("n3 stands still");
    let epochs = bed.cluster.epochs("n1");
    let strangers = bed.strangers(&of_owner);
    let seen = bed.during("they go on", &strangers, |cluster| {
        cluster.plug("n3", &ALL, true);
        freeze(cluster, false);
    });
    seen.within(RETURN);
    bed.cluster.mended();
    assert_eq!((bed.slices_of("n3"), bed.cluster.epochs("n1")), (Vec::new(), epochs));
    bed.all_live("they go on");
    assert_eq!(bed.endpoints(), known);
}

#[test]
fn frr_as_a_router_goes_round_a_dead_node_and_prefers_the_newest_owner() {
    let name = "frr_as_a_router_goes_round_a_dead_node_and_prefers_the_newest_owner";
    if skip_without(name, &[&PROGRAMS[..], &["/usr/lib/frr/bgpd"]].concat()) {
        return;
    }
    let mut bed = Bed::of(Scenario::agreed_cluster_and_frr());
    let (known, of_owner) = (bed.endpoints(), bed.slices_of("n2"));
    let strangers = bed.strangers(&of_owner);
    let seen = bed.during("the owner loses power, with FRR", &strangers, |cluster| cluster.kill_host("n2"));
    seen.within(BFD_OF_FRR);
    assert!(seen.longest_wait() <= seen.allowed(ADMISSION), "a new subscriber waited for {:?}", seen.waits);
    bed.without("n2");
    let seen = bed.during("it comes back, with FRR", &[], |cluster| {
        cluster.revive_host("n2").unwrap();
        cluster.wait_for_all();
    });
    seen.within(RETURN);
    bed.cluster.mended();
    // Its link to the other nodes goes: it announces as of its old epoch, and FRR goes by the new one.
    let of_owner = bed.slices_of("n3");
    let strangers = bed.strangers(&of_owner);
    let seen = bed.during("the core link of an owner is gone, with FRR", &strangers, |cluster| {
        cluster.plug("n3", &["core"], false);
    });
    assert!(seen.longest_wait() <= seen.allowed(ADMISSION), "a new subscriber waited for {:?}", seen.waits);
    seen.within(CORE);
    bed.without("n3");
    let seen = bed.during("it stays gone, with FRR", &[], |_| ());
    seen.within(NOTHING);
    bed.cluster.plug("n3", &["core"], true);
    bed.cluster.mended();
    bed.all_live(name);
    assert_eq!(bed.endpoints(), known);
}

#[test]
fn an_owner_that_only_etcd_does_not_hear_loses_its_slices_and_no_datagram() {
    if skip_without("an_owner_that_only_etcd_does_not_hear_loses_its_slices_and_no_datagram", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    let known = bed.endpoints();
    bed.cluster.enter_by(1);
    only_etcd_does_not_hear(&mut bed, "n2", "the owner is cut off from etcd", ADMISSION);
    // Who is cut off hears from its successor that it is the owner no more, and redirects new hosts that come to itself.
    bed.cluster.enter_by(3);
    only_etcd_does_not_hear(
        &mut bed,
        "n3",
        "the owner is cut off from etcd, and all enter by it",
        ADMISSION_BY_DEPOSED,
    );
    bed.cluster.enter_by_all();
    bed.cluster.mended();
    assert_eq!(bed.endpoints(), known);
}

fn only_etcd_does_not_hear(bed: &mut Bed, node: &'static str, what: &str, limit: Duration) {
    let (known, of_owner) = (bed.endpoints(), bed.slices_of(node));
    let strangers = bed.strangers(&of_owner);
    let seen = bed.during(what, &strangers, |cluster| {
        cluster.cut_from_etcd(node, true).unwrap();
        // Until shortly before its deadline it admits whoever comes.
        std::thread::sleep(BEFORE_DEADLINE);
    });
    seen.within(RETURN);
    let longest = BEFORE_DEADLINE + seen.longest_wait();
    assert!(longest <= seen.allowed(limit), "a new subscriber waited for {longest:?}");
    bed.without(node);
    assert_eq!((bed.slices_of(node), bed.endpoints()), (Vec::new(), known.clone()));
    let seen = bed.during("it is without etcd for a while", &[], |_| std::thread::sleep(Duration::from_secs(3)));
    seen.within(RETURN);
    let seen = bed.during("etcd hears it again", &[], |cluster| {
        cluster.cut_from_etcd(node, false).unwrap();
        cluster.protected(node);
    });
    seen.within(RETURN);
    bed.all_live(what);
    assert_eq!(bed.endpoints(), known);
}

#[test]
fn a_gateway_that_dies_keeps_its_slices_if_it_is_started_at_once_and_loses_them_else() {
    if skip_without("a_gateway_that_dies_keeps_its_slices_if_it_is_started_at_once_and_loses_them_else", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    let (known, of_owner, epochs) = (bed.endpoints(), bed.slices_of("n2"), bed.cluster.epochs("n1"));
    let mut away = Duration::ZERO;
    let strangers = bed.strangers(&of_owner);
    let seen = bed.during("the owner's process is killed and started again", &strangers, |cluster| {
        let began = Instant::now();
        drop(cluster.gateways.remove("n2"));
        cluster.start("n2");
        away = began.elapsed();
        cluster.wait_for_all();
    });
    seen.within(BFD);
    assert!(seen.longest_wait() <= seen.allowed(ADMISSION), "a new subscriber waited");
    bed.cluster.mended();
    let after = (bed.slices_of("n2"), bed.cluster.epochs("n1"));
    eprintln!("  it was away for {away:?}; slices and epochs were {:?}, are {after:?}", (&of_owner, epochs));
    assert!(away > LEASE || after == (of_owner, epochs), "slices have changed hands");
    bed.all_live("the owner's process is killed and started again");
    assert_eq!(bed.endpoints(), known);

    let of_owner = bed.slices_of("n3");
    let strangers = bed.strangers(&of_owner);
    let seen = bed.during("another owner's process is killed, for good", &strangers, |cluster| {
        drop(cluster.gateways.remove("n3"));
    });
    seen.within(BFD);
    let longest = seen.longest_wait();
    assert!((LEASE_LEFT..=seen.allowed(ADMISSION)).contains(&longest), "a new subscriber waited for {longest:?}");
    bed.without("n3");
    assert_eq!(bed.slices_of("n3"), [] as [u16; 0]);
    bed.all_live("another owner's process is killed, for good");
    assert_eq!(bed.endpoints(), known);
    let seen = bed.during("it is started again", &[], |cluster| {
        cluster.start("n3");
        cluster.wait_for_all();
    });
    seen.within(NOTHING);
    bed.cluster.mended();
}

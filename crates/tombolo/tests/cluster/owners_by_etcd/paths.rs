//! Routing daemons, links and paths of a node that lives: routers go round it, and it keeps what it owns, but for the network between
//! the nodes.

use std::time::{Duration, SystemTime};

use tombolo_lab::cluster::{ClusterLab, Owned, PATIENCE};
use tombolo_lab::{Process, skip_without, wait_until};

use super::PROGRAMS;
use super::bed::Bed;
use super::limits::{ADMISSION, ANOTHER_COPY, AT_ONCE, BFD, CORE, LINK, NOTHING, RETURN};
use crate::running::TOMBOLO;

/// So long a new subscriber waits whose slice's owner has lost its way to the routers, and hands it over.
const HANDED_OVER: Duration = Duration::from_millis(1500);

#[test]
fn routers_go_round_a_node_whose_routing_daemon_or_link_is_gone() {
    if skip_without("routers_go_round_a_node_whose_routing_daemon_or_link_is_gone", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    let known = bed.endpoints();
    a_routing_daemon_is_killed(&mut bed);
    a_routing_daemon_stands_still(&mut bed);
    for side in ["outside", "inside"] {
        a_link_to_one_side_is_gone(&mut bed, side);
    }
    bed.all_live("routers go round a node");
    assert_eq!(bed.endpoints(), known);
}

/// It lives, has its lease, and what its routing daemon has left of routes. Its backup serves all that are known, and others tell it that they do
/// not see it: it hands its slices over.
fn a_routing_daemon_is_killed(bed: &mut Bed) {
    let owner = bed.greatest_owner();
    let of_owner = bed.slices_of(owner);
    let strangers = bed.strangers(&of_owner);
    let seen = bed.during("BIRD of the owner is killed", &strangers, |cluster| {
        cluster.kill_router(owner);
        cluster.wait_for_routes_without(owner);
    });
    seen.within(NOTHING);
    assert!(seen.longest_wait() <= seen.allowed(HANDED_OVER), "new subscribers waited for {:?}", seen.waits);
    says_that_it_is_not_seen(bed, owner);
    let seen = bed.during("BIRD of the owner is started again", &[], |cluster| {
        cluster.start_router(owner).unwrap();
        cluster.wait_for_all();
    });
    seen.within(RETURN);
    bed.cluster.mended();
}

/// It owns nothing any more, and says why.
fn says_that_it_is_not_seen(bed: &Bed, node: &str) {
    assert_eq!(bed.slices_of(node), [] as [u16; 0]);
    let status = bed.cluster.command(node, &format!("{TOMBOLO} show status --json"));
    assert!(status.contains("their routes do not lead to it any more"), "{status}");
}

fn a_routing_daemon_stands_still(bed: &mut Bed) {
    let owner = bed.greatest_owner();
    let of_owner = bed.slices_of(owner);
    let strangers = bed.strangers(&of_owner);
    let seen = bed.during("BIRD of the owner stands still", &strangers, |cluster| {
        ClusterLab::freeze(cluster.routers.get_mut(owner), true).unwrap();
        cluster.wait_for_routes_without(owner);
    });
    seen.within(BFD);
    assert!(seen.longest_wait() <= seen.allowed(HANDED_OVER), "new subscribers waited for {:?}", seen.waits);
    says_that_it_is_not_seen(bed, owner);
    let seen = bed.during("BIRD of the owner goes on", &[], |cluster| {
        ClusterLab::freeze(cluster.routers.get_mut(owner), false).unwrap();
        cluster.wait_for_all();
    });
    seen.within(RETURN);
    bed.cluster.mended();
}

/// It has its lease, and hands its slices over.
fn a_link_to_one_side_is_gone(bed: &mut Bed, side: &str) {
    let owner = bed.greatest_owner();
    let of_owner = bed.slices_of(owner);
    let strangers = bed.strangers(&of_owner);
    let seen = bed.during(&format!("the {side} link of the owner is gone"), &strangers, |cluster| {
        cluster.plug(owner, &[side], false);
    });
    seen.within(LINK);
    assert!(seen.longest_wait() <= seen.allowed(HANDED_OVER), "new subscribers waited for {:?}", seen.waits);
    let seen = bed.during(&format!("the {side} link of the owner is back"), &[], |cluster| {
        cluster.plug(owner, &[side], true);
        cluster.wait_for_all();
    });
    seen.within(RETURN);
    bed.cluster.mended();
}

#[test]
fn nodes_that_do_not_reach_each_other_go_on_by_others() {
    if skip_without("nodes_that_do_not_reach_each_other_go_on_by_others", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    let (known, epochs) = (bed.endpoints(), bed.cluster.epochs("n1"));
    two_nodes_are_apart(&mut bed);
    assert_eq!((bed.endpoints(), bed.cluster.epochs("n1")), (known.clone(), epochs), "nothing has changed hands");
    a_node_is_cut_off_from_all_others(&mut bed);
    a_narrow_core_keeps_a_node_out(&mut bed);
    bed.all_live("nodes do not reach each other");
    assert_eq!(bed.endpoints(), known);
}

/// Of the slices of each of two nodes the other one has copies, and the third: this is the path from the owner to its backup, and that to
/// one other node, at once.
fn two_nodes_are_apart(bed: &mut Bed) {
    let before = bed.cluster.owned("n3");
    let mut cut = SystemTime::now();
    let seen = bed.during("the path between two nodes is gone", &[], |cluster| {
        cluster.part(["n1", "n2"], true).unwrap();
        cut = SystemTime::now();
    });
    seen.within(BFD);
    let has_its_copy = |owned: &Owned| owned.owner.as_deref() == Some("n3") || owned.backup.as_deref() == Some("n3");
    let at_the_third = || bed.cluster.owned("n3").values().all(has_its_copy).then_some(());
    wait_until("each other's copies to be at the third", PATIENCE, at_the_third).unwrap();
    bed.cluster.protected("n3");
    let moved: Vec<u16> = before.iter().filter(|(_, owned)| !has_its_copy(owned)).map(|(slice, _)| *slice).collect();
    let another = bed.written_after(cut, &moved);
    eprintln!("  each other's copies, of {moved:?}, are at the third {another:?} after the cut");
    assert!(another <= seen.allowed(ANOTHER_COPY), "after {another:?}");
    let strangers = bed.strangers(&[0, 1, 2, 3, 4, 5, 6, 7]);
    let seen = bed.during("the path stays gone", &strangers, |_| ());
    seen.within(NOTHING);
    assert!(seen.longest_wait() <= seen.allowed(AT_ONCE), "new subscribers waited for {:?}", seen.waits);
    let seen = bed.during("the path is back", &[], |cluster| {
        cluster.part(["n1", "n2"], false).unwrap();
        cluster.wait_for_all();
    });
    seen.within(RETURN);
    bed.cluster.mended();
}

/// Neither etcd nor another node: its slices are taken over, and routers bring nothing to it any more.
fn a_node_is_cut_off_from_all_others(bed: &mut Bed) {
    let of_owner = bed.slices_of("n2");
    let strangers = bed.strangers(&of_owner);
    let seen =
        bed.during("the core link of the owner is gone", &strangers, |cluster| cluster.plug("n2", &["core"], false));
    assert!(seen.longest_wait() <= seen.allowed(ADMISSION), "new subscribers waited for {:?}", seen.waits);
    seen.within(CORE);
    bed.without("n2");
    assert_eq!(bed.slices_of("n2"), [] as [u16; 0]);
    let seen = bed.during("it stays gone", &[], |_| ());
    seen.within(NOTHING);
    let seen = bed.during("the core link is back", &[], |cluster| {
        cluster.plug("n2", &["core"], true);
        cluster.wait_for_all();
    });
    seen.within(RETURN);
    bed.cluster.mended();
}

/// A node that could not redirect packets of full size says why, announces nothing, and is given nothing.
fn a_narrow_core_keeps_a_node_out(bed: &mut Bed) {
    drop(bed.cluster.gateways.remove("n3").map(Process::stop));
    assert_eq!(bed.slices_of("n3"), [] as [u16; 0], "it hands over what it has before it ends");
    bed.without("n3");
    bed.cluster.command("n3", "ip link set core0 mtu 1500");
    bed.cluster.start("n3");
    let says_why = || {
        let status = bed.cluster.command("n3", &format!("{TOMBOLO} show status --json"));
        let size = "packets of 1580 bytes do not reach node ";
        (status.contains(&format!("{size}n1")) && status.contains(&format!("{size}n2"))).then_some(())
    };
    wait_until("n3 to say why it announces nothing", PATIENCE, says_why).unwrap();
    let announced = bed.cluster.command("n3", "ip route show table 8464; ip -6 route show table 8464");
    assert_eq!(announced.trim(), "", "nothing is announced");
    let status = bed.cluster.status("n1").unwrap();
    let found = status["nodes"].as_array().unwrap().iter().find(|row| row["node"] == "n3").unwrap();
    assert!(found["state"] == "joining" && found["owns"] == 0 && found["backs_up"] == 0, "{found}");
    eprintln!("CASE the core's MTU is too small at a node that starts: it is joining, and says why");
    bed.cluster.command("n3", "ip link set core0 mtu 1600");
    bed.cluster.mended();
}

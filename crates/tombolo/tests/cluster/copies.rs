//! Backups have copies of the bindings, and serve by them.

use std::net::SocketAddr;

use tombolo_lab::skip_without;

use crate::boxes::{ALL, Cluster};
use crate::loads::{RETURN, SILENCE, under_load};
use crate::running::{TOMBOLO, rows};
use crate::subscribers::{alive, check_all};

#[test]
fn known_hosts_go_on_when_the_owner_of_their_slices_loses_its_power() {
    if skip_without("known_hosts_go_on_when_the_owner_of_their_slices_loses_its_power", &["bird", "ip"]) {
        return;
    }
    let mut cluster = Cluster::with_copies();
    cluster.wait_for_slices();
    let flows = cluster.subscribers();
    let endpoints = |cluster: &Cluster| -> Vec<SocketAddr> {
        let seen = flows
            .iter()
            .map(|flow| cluster.endpoint(flow, 10).unwrap_or_else(|| panic!("{} gets no answer", flow.name())));
        seen.collect()
    };
    let known = endpoints(&cluster);
    let connections = cluster.connections();
    assert_eq!(alive(&connections), connections.len());
    cluster.wait_for_copies();
    let by_all = vec![true; flows.len()];

    // Its network is gone, and it lives on without.
    let effects = under_load(&mut cluster, &flows, &by_all, |cluster| cluster.plug("n2", &ALL, false));
    assert!(effects.iter().any(|effect| effect.seen.lost > 0), "nothing was lost, so nothing was tried");
    check_all("the owner of a third of the slices is cut off", &effects, SILENCE, &connections);
    // Programs in the kernel act as well.
    let before = cluster.counted_in_kernel("n3", "policy");
    for _ in 0..100 {
        assert_eq!(endpoints(&cluster), known);
    }
    let left = cluster.counted_in_kernel("n3", "policy") - before;
    eprintln!("{left} packets were left to the engine");
    assert!(left < 50, "{left} packets were left to the engine");
    assert_eq!(
        (endpoints(&cluster), cluster.states("n3")),
        (known.clone(), vec!["redirected".to_owned(), "acting".to_owned(), "own".to_owned()])
    );
    let effects = under_load(&mut cluster, &flows, &by_all, |cluster| {
        cluster.plug("n2", &ALL, true);
        cluster.wait_for_all();
    });
    check_all("it comes back with its tables", &effects, RETURN, &connections);
    cluster.wait_for_slices();
    cluster.wait_for_copies();
    assert_eq!(endpoints(&cluster), known);

    // Power is gone, and all that it had.
    let effects = under_load(&mut cluster, &flows, &by_all, |cluster| cluster.kill_host("n2"));
    check_all("the owner loses power", &effects, SILENCE, &connections);
    let effects = under_load(&mut cluster, &flows, &by_all, |cluster| {
        cluster.start("n2");
        cluster.plug("n2", &ALL, true);
        cluster.wait_for_all();
        cluster.wait_for_slices();
    });
    check_all("it comes back without its tables", &effects, RETURN, &connections);
    assert_eq!(
        (endpoints(&cluster), cluster.states("n2")),
        (known, vec!["redirected".to_owned(), "own".to_owned(), "redirected".to_owned()])
    );
    let peers = rows(&cluster.command("n2", &format!("{TOMBOLO} show peers --json")));
    assert!(peers.iter().any(|row| row["returned"].as_u64().unwrap() > 20), "{peers:?}");
    cluster.wait_for_copies();
}

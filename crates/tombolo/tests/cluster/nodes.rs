//! What happens to a node is its flows alone, and not for long.

use std::time::Duration;

use nix::sys::signal::Signal;
use tombolo_lab::skip_without;

use crate::boxes::Cluster;
use crate::loads::{RETURN, SILENCE, check, during, report};
use crate::running::{PATIENCE, TOMBOLO};

#[test]
fn what_happens_to_a_node_is_its_flows_alone_and_not_for_long() {
    if skip_without("what_happens_to_a_node_is_its_flows_alone_and_not_for_long", &["bird", "ip"]) {
        return;
    }
    let mut cluster = Cluster::up();
    let all = ["inside", "core", "outside"];

    let effects = during(&mut cluster, "n2", |cluster| cluster.plug("n2", &all, false));
    check("n2 loses power", &effects, SILENCE);
    assert!(effects.iter().any(|effect| effect.seen.lost > 0), "nothing was lost, so nothing was tried");
    let effects = during(&mut cluster, "n2", |cluster| {
        cluster.plug("n2", &all, true);
        cluster.wait_for_all();
    });
    report("n2 comes back", &effects);
    let silence = effects.iter().map(|effect| effect.seen.silence).max().unwrap_or_default();
    assert!(silence <= RETURN, "n2 comes back, and flows are silent for {silence:?}");

    let effects = during(&mut cluster, "n3", |cluster| cluster.plug("n3", &["outside"], false));
    check("n3 loses its link to the outside", &effects, SILENCE);
    cluster.plug("n3", &["outside"], true);
    cluster.wait_for_all();

    let effects = during(&mut cluster, "n1", |cluster| drop(cluster.gateways.remove("n1")));
    check("n1's gateway is killed", &effects, SILENCE);
    cluster.start("n1");
    cluster.wait_for_all();

    let effects = during(&mut cluster, "n1", |cluster| {
        let mut gateway = cluster.gateways.remove("n1").unwrap();
        gateway.signal(Signal::SIGTERM).unwrap();
        gateway.wait(PATIENCE).unwrap().success().unwrap();
    });
    check("n1's gateway is stopped", &effects, Duration::ZERO);
    cluster.start("n1");
    cluster.wait_for_all();

    let effects = during(&mut cluster, "n3", |cluster| {
        cluster.command("n3", &format!("{TOMBOLO} drain"));
        cluster.wait_for_routes_without("n3");
    });
    check("n3 is drained", &effects, Duration::ZERO);
    cluster.command("n3", &format!("{TOMBOLO} drain --off"));
    cluster.wait_for_all();
}

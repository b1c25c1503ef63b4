//! Packets of services with bindings come to any node.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use tombolo_lab::{Flow, Process, skip_without, wait_until};

use crate::boxes::Cluster;
use crate::running::{PATIENCE, TOMBOLO, rows};
use crate::subscribers::BOUND;

/// Bytes that each host sends over TCP.
const STREAM: usize = 1_000_000;

#[test]
fn any_node_is_an_entrance_of_services_with_bindings() {
    if skip_without("any_node_is_an_entrance_of_services_with_bindings", &["bird", "ip"]) {
        return;
    }
    let mut cluster = Cluster::up();
    cluster.wait_for_slices();
    let flows = cluster.subscribers();
    let mut endpoints: Vec<SocketAddr> = Vec::new();
    for node in 1..=3 {
        cluster.enter_by(node);
        let before = cluster.peers_total("redirected_to");
        let seen = flows.iter().map(|flow| {
            cluster.endpoint(flow, 10).unwrap_or_else(|| panic!("{} gets no answer by n{node}", flow.name()))
        });
        let seen: Vec<SocketAddr> = seen.collect();
        if endpoints.is_empty() {
            endpoints.clone_from(&seen);
        }
        assert_eq!(seen, endpoints, "a subscriber has one outside endpoint, also by n{node}");
        assert!(cluster.peers_total("redirected_to") > before, "n{node} has not everything itself");
    }
    let bindings = ["n1", "n2", "n3"]
        .map(|node| rows(&cluster.command(node, &format!("{TOMBOLO} show bindings --protocol udp --json"))).len());
    assert!(bindings.iter().all(|count| *count > 0) && bindings.iter().sum::<usize>() == flows.len(), "{bindings:?}");
    let slices = rows(&cluster.command("n2", &format!("{TOMBOLO} show slices --json")));
    let states: Vec<_> = slices.iter().map(|row| row["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["redirected", "own", "redirected"], "{slices:?}");
    streams_pass(&cluster);
    programs_redirect(&cluster);
    one_owner_less(&mut cluster, &flows, &endpoints);
    a_narrow_core_keeps_a_node_out(&mut cluster);
}

/// Full-size segments of TCP pass the network between the nodes.
fn streams_pass(cluster: &Cluster) {
    let listen = || TcpListener::bind("198.51.100.2:9").unwrap();
    let listener = cluster.lab.node("server").unwrap().run(listen).unwrap();
    for node in 1..=3 {
        cluster.enter_by(node);
        for (host, _, _, to) in BOUND {
            let to: SocketAddr = format!("{to}:9").parse().unwrap();
            let connect = || TcpStream::connect_timeout(&to, PATIENCE).unwrap();
            let mut stream = cluster.lab.node(host).unwrap().run(connect).unwrap();
            let (mut other, _) = listener.accept().unwrap();
            other.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            let began = Instant::now();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    stream.write_all(&vec![0x5a; STREAM]).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                });
                let mut bytes = Vec::new();
                other.read_to_end(&mut bytes).unwrap();
                assert_eq!(bytes.len(), STREAM, "{host} by n{node}");
            });
            eprintln!("{host} by n{node}: {STREAM} bytes in {:?}", began.elapsed());
        }
    }
}

/// What is plain the programs in the kernel redirect, and serve when it comes so.
fn programs_redirect(cluster: &Cluster) {
    for node in ["n1", "n2", "n3"] {
        let [redirected, taken] = ["redirected", "taken-inside"].map(|name| cluster.counted_in_kernel(node, name));
        eprintln!("{node}: {redirected} packets redirected in the kernel");
        // Of a stream few: a super-packet counts once.
        assert!(redirected > 20 && taken > 20, "{node}: {redirected} redirected, {taken} taken");
    }
}

/// A node whose gateway is dead has nobody in its place; it knows its subscribers when it comes back.
fn one_owner_less(cluster: &mut Cluster, flows: &[Flow], endpoints: &[SocketAddr]) {
    cluster.enter_by(1);
    drop(cluster.gateways.remove("n3"));
    let is_known = || {
        let slices = rows(&cluster.command("n1", &format!("{TOMBOLO} show slices --json")));
        slices.iter().any(|row| row["state"] == "unowned").then_some(())
    };
    wait_until("n1 to know of it", PATIENCE, is_known).unwrap();
    let served = flows.iter().map(|flow| cluster.endpoint(flow, 2)).collect::<Vec<_>>();
    let lost = served.iter().filter(|endpoint| endpoint.is_none()).count();
    assert!(lost > 0 && lost < flows.len(), "{lost} of {} have no answer", flows.len());
    let kept = served.iter().zip(endpoints).all(|(now, before)| now.is_none_or(|now| now == *before));
    assert!(kept, "the others keep their endpoints: {served:?}");
    let drops = rows(&cluster.command("n1", &format!("{TOMBOLO} show drops --json")));
    assert!(drops.iter().any(|row| row["reason"] == "slice-unowned"), "{drops:?}");
    cluster.start("n3");
    cluster.wait_for_all();
    cluster.wait_for_slices();
    let again: Vec<_> = flows.iter().filter_map(|flow| cluster.endpoint(flow, 10)).collect();
    assert_eq!(again, endpoints, "the tables were kept");
}

/// A node that could not redirect packets of full size announces nothing, says why, and comes when that is mended.
fn a_narrow_core_keeps_a_node_out(cluster: &mut Cluster) {
    drop(cluster.gateways.remove("n3").map(Process::stop));
    cluster.command("n3", "ip link set core0 mtu 1500");
    cluster.start("n3");
    let says_why = || {
        let status = cluster.command("n3", &format!("{TOMBOLO} show status --json"));
        status.contains("packets of 1580 bytes do not reach node n1").then_some(())
    };
    wait_until("n3 to say why it announces nothing", PATIENCE, says_why).unwrap();
    let announced = cluster.command("n3", "ip route show table 8464; ip -6 route show table 8464");
    assert_eq!(announced.trim(), "", "nothing is announced");
    cluster.command("n3", "ip link set core0 mtu 1600");
    cluster.wait_for_all();
    cluster.wait_for_slices();
}

//! What the gateway has counted, as metrics for Prometheus. They derive from the same counters as
//! `tombolo show counters`, and reasons from the one list of [`DropReason`]. Names end with their unit, and
//! with `_total` where they only grow; values of labels are in snake case.

use std::sync::atomic::{AtomicU64, Ordering};

use tombolo_cluster::link::{Copying, CopyingState};
use tombolo_engine::cluster::Cluster;
use tombolo_engine::counters::Totals;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::plan::Standby;
use tombolo_engine::{Answered, DropReason, Plan};
use tombolo_fastpath::{Forwarded, Miss};
use tombolo_io::queue::QueueTotals;
use tombolo_tables::tables::Tables;
use tombolo_wire::pcp::ResultCode;

use super::exposition::{Labels, Page, one};
use super::process;
use crate::accelerator::{Accelerator, Taken};
use crate::agreement::name_of_phase;
use crate::binding_log::collectors::Delivery;
use crate::control::pools;
use crate::health::State;
use crate::running::Running;
use crate::table_rows::service_name;

fn label(name: &str, value: &str) -> Labels {
    Labels::default().word(name, value)
}

/// Samples by side, of the engine and of the kernel's fast path.
fn sides(engine: [u64; 2], kernel: [u64; 2]) -> impl Iterator<Item = (Labels, u64)> {
    let paths = [("engine", engine), ("kernel", kernel)].into_iter();
    paths.flat_map(|(path, values)| {
        let sides = ["inside", "outside"].into_iter().zip(values);
        sides.map(move |(side, value)| (label("side", side).word("path", path), value))
    })
}

/// All metrics of a running gateway.
pub(super) fn render(running: &Running) -> String {
    let mut page = Page::default();
    let plan = running.plan.load_full();
    let taken = running.accelerator.as_ref().map(Accelerator::taken);
    packets(&mut page, running, taken.as_ref());
    by_service(&mut page, running, &plan, &taken.unwrap_or_default());
    queues(&mut page, running);
    state(&mut page, running, &plan);
    ports(&mut page, running, &plan);
    nodes(&mut page, running, &plan);
    log(&mut page, running);
    life(&mut page, running, &plan);
    page.finish()
}

/// How the gateway does.
fn life(page: &mut Page, running: &Running, plan: &Plan) {
    let version = Labels::default().and("version", env!("CARGO_PKG_VERSION"));
    page.gauge("tombolo_build_info", "1, with the version that runs.", [(version, 1)]);
    let (health, _) = running.health.report();
    let states = State::ALL.map(|state| (label("state", state.name()), u64::from(state == health)));
    page.gauge("tombolo_health", "1 for how the gateway does; tombolo show status says what is wrong.", states);
    let may_stand_by = plan.services.iter().filter(|service| service.standby != Standby::Never);
    page.gauge(
        "tombolo_standing_by",
        "1 while the service stands by, because native IPv4 works.",
        may_stand_by.map(|service| (Labels::default().and("service", &service.name), u64::from(service.stands_by()))),
    );
    let draining = u64::from(plan.times.draining_since.is_some());
    page.gauge("tombolo_draining", "1 while nothing new may begin.", one(draining));
    page.gauge("tombolo_workers", "Threads that handle packets.", one(running.counters.len()));
    let put_back = running.put_back.load(Ordering::Relaxed);
    let help = "Routes, rules and addresses put back after somebody removed them.";
    page.counter("tombolo_put_back_things_total", help, one(put_back));
    let reloads = running.reloads.read().map(|(result, count)| (label("result", result), count));
    page.counter("tombolo_reloads_total", "Times the configuration was read again, by what came of it.", reloads);
    let uptime = running.now().0.saturating_sub(running.started.0) / 1_000_000;
    process::render(page, std::time::Duration::from_millis(uptime).as_secs_f64());
}

/// The nodes of the cluster.
fn nodes(page: &mut Page, running: &Running, plan: &Plan) {
    let Some(cluster) = plan.cluster.as_deref() else { return };
    let of = |name: &str| Labels::default().and("node", name);
    let nodes = cluster.nodes().iter().enumerate();
    let serves = nodes.clone().map(|(number, node)| (of(&node.name), u64::from(cluster.serves(number))));
    page.gauge("tombolo_node_serving", "1 for a node of the cluster that serves, as the host's routes say.", serves);
    let redirected = running.redirected();
    let packets = nodes.flat_map(|(number, node)| {
        let ways = ["to", "by"].into_iter().zip(redirected);
        ways.map(move |(way, counts)| (of(&node.name).word("way", way), counts[number]))
    });
    let help = "Packets that were redirected to a node of the cluster, and by it.";
    page.counter("tombolo_redirected_packets_total", help, packets);
    let places = || cluster.slices().map(|slice| cluster.place_of(slice, running.now()).name());
    let states = ["own", "acting", "redirected", "unowned"].into_iter().filter(|_| cluster.has_slices());
    let count = |state: &str| u64::try_from(places().filter(|place| *place == state).count()).unwrap_or(u64::MAX);
    let slices = states.map(|state| (label("state", state), count(state)));
    let help = "Slices of the cluster by where their packets go: served here, as owner or in its place, redirected, or nowhere.";
    page.gauge("tombolo_slices", help, slices);
    agreed(page, running, cluster);
    copies(page, running, cluster);
}

/// What nodes have agreed on in etcd.
fn agreed(page: &mut Page, running: &Running, cluster: &Cluster) {
    let Some(agreement) = running.agreement.as_deref() else { return };
    let roles = || {
        cluster.slices().map(|slice| {
            let role = match () {
                () if cluster.is_nobodys(slice) => "nobody",
                () if cluster.owns(slice) => "owner",
                () if cluster.backs_up(slice) && cluster.assigned(slice).is_protected => "backup",
                () if cluster.backs_up(slice) => "learner",
                () => "others",
            };
            (role, agreement.assignment(slice).map_or("vacant", |assigned| name_of_phase(assigned.phase)))
        })
    };
    let all = ["owner", "backup", "learner", "others", "nobody"]
        .into_iter()
        .flat_map(|role| ["protected", "syncing", "single", "vacant"].into_iter().map(move |phase| (role, phase)));
    let counted = all.map(|(role, phase)| {
        let count = roles().filter(|found| *found == (role, phase)).count() as u64;
        (label("role", role).word("phase", phase), count)
    });
    let help = "Slices of the cluster by what this node is to them, and how their state is kept.";
    page.gauge("tombolo_agreed_slices", help, counted);
    let help = "Slices that have changed their owner since this process was started, by cause.";
    let changes = agreement.changes().map(|(cause, count)| (label("cause", cause), count));
    page.counter("tombolo_epoch_changes_total", help, changes);
    let left = cluster.grants_until().saturating_sub(running.now().0) / 1_000_000;
    let help = "Milliseconds until this node may admit nobody new, unless its lease in etcd is renewed before, or its backups promise again to take over nothing; 0 if it may not.";
    page.gauge("tombolo_lease_milliseconds", help, one(left));
}

/// Copies of the tables, here and there.
fn copies(page: &mut Page, running: &Running, cluster: &Cluster) {
    let Some(copies) = running.copies.as_deref() else { return };
    let standings = copies.standings();
    let of = |count: fn(&Copying) -> u64| {
        let named = cluster.nodes().iter().zip(&standings);
        named.map(|(node, copying)| (Labels::default().and("node", &node.name), count(copying))).collect::<Vec<_>>()
    };
    let help = "1 for a node that has a complete copy of this node's slices.";
    page.gauge("tombolo_copied_to", help, of(|copying| u64::from(copying.to == CopyingState::Complete)));
    let help = "1 for a node of whose slices there is a complete copy here.";
    page.gauge("tombolo_copied_from", help, of(|copying| u64::from(copying.from == CopyingState::Complete)));
    let help = "Subscribers and bindings that have changed and that the node is still to be sent.";
    page.gauge("tombolo_copy_pending_records", help, of(|copying| copying.pending));
    let help = "Bytes that the node was sent and has not acknowledged.";
    page.gauge("tombolo_copy_unacknowledged_bytes", help, of(|copying| copying.in_flight));
    let help = "Microseconds since the oldest batch was sent that the node has not acknowledged.";
    page.gauge("tombolo_copy_lag_microseconds", help, of(|copying| copying.lag));
    page.counter("tombolo_copy_sent_bytes_total", "Bytes of copies that the node was sent.", of(|to| to.sent_bytes));
    let help = "Subscribers and bindings that came from the node.";
    page.counter(
        "tombolo_copy_applied_records_total",
        help,
        of(|from| from.applied.subscribers + from.applied.bindings + from.applied.removed),
    );
    let help = "Bindings that the node has given back, which this one had lost or not heard of.";
    let returned = |from: &Copying| from.returned.bindings.saturating_sub(from.returned.unplaced);
    page.counter("tombolo_copy_returned_bindings_total", help, of(returned));
    let help = "Subscribers and bindings of the node that have no place here: no such service or port, or no room.";
    page.counter("tombolo_copy_unplaced_records_total", help, of(|from| from.applied.unplaced));
}

/// The log of bindings, and who gets it.
fn log(page: &mut Page, running: &Running) {
    let help = "Events that are in no line of the log of bindings.";
    page.counter("tombolo_log_lost_events_total", help, one(running.removals.lost()));
    let deliveries = running.removals.deliveries();
    let of = |count: fn(&Delivery) -> u64| {
        let named = deliveries.iter().map(|to| (Labels::default().and("collector", &to.collector), count(to)));
        named.collect::<Vec<_>>()
    };
    let help = "Lines of the log of bindings that were sent to a collector.";
    page.counter("tombolo_collector_sent_lines_total", help, of(Delivery::sent));
    let help = "Lines of the log of bindings that a collector did not get.";
    page.counter("tombolo_collector_lost_lines_total", help, of(Delivery::lost));
}

/// Ports of the pools.
fn ports(page: &mut Page, running: &Running, plan: &Plan) {
    let rows = pools::by_service(running, plan);
    let samples = rows.into_iter().flat_map(|row| {
        let states = [("taken", row.taken), ("kept_back", row.kept_back), ("free", row.free)];
        states.map(|(state, count)| {
            let labels = Labels::default().and("service", &row.service);
            (labels.word("protocol", row.protocol).word("state", state), count)
        })
    });
    page.gauge("tombolo_pool_ports", "Outside ports of a service, by what they are used for.", samples);
}

fn packets(page: &mut Page, running: &Running, taken: Option<&Taken>) {
    let totals = running.totals();
    let kernel = taken.map(Taken::forwarded).unwrap_or_default();
    // What the kernel takes, it takes to send it on.
    let received = sides(totals.received, kernel.packets);
    page.counter("tombolo_received_packets_total", "Packets received.", received);
    let bytes = sides(totals.received_bytes, kernel.bytes);
    page.counter("tombolo_received_bytes_total", "Bytes received, IP headers included.", bytes);
    let sent = sides(totals.forwarded, kernel.packets);
    page.counter("tombolo_forwarded_packets_total", "Packets translated and sent on.", sent);
    page.counter("tombolo_to_host_packets_total", "Packets that were not the gateway's.", one(totals.to_host));
    page.counter("tombolo_held_packets_total", "Packets kept for later, mostly fragments.", one(totals.held));
    let help = "Packets answered: with an ICMP error, an echo reply, or a response of PCP.";
    page.counter("tombolo_replied_packets_total", help, one(totals.replied));
    let help = "Segments that a helper would have changed, and had to leave as they were.";
    page.counter("tombolo_helper_unchanged_segments_total", help, one(running.tables.conversations.unchanged()));
    let drops = DropReason::ALL.iter().map(|&reason| (label("reason", reason.name()), totals.drops[reason as usize]));
    page.counter("tombolo_dropped_packets_total", "Packets not forwarded; see docs/drop-reasons.md.", drops);
    let help = "Requests of PCP that were answered, by what was asked for and how that ended.";
    let requests = Answered::OPCODES.iter().zip(totals.pcp).flat_map(|(opcode, counts)| {
        let results = ResultCode::ALL.iter().zip(counts);
        results.map(move |(result, count)| (label("opcode", opcode).word("result", result.name()), count))
    });
    page.counter("tombolo_pcp_requests_total", help, requests);
    if let Some(dropped) = running.guard.dropped() {
        let help = "Packets from inside that came in where their source is not (RFC 3704).";
        page.counter("tombolo_inside_spoofed_packets_total", help, one(dropped));
    }
    if let Some(taken) = taken {
        let left = Miss::ALL
            .iter()
            .map(|reason| (label("reason", reason.name()), taken.passed.get(reason).copied().unwrap_or(0)));
        let help = "Packets that the fast path left to the engine or the host.";
        page.counter("tombolo_fastpath_left_packets_total", help, left);
        let made = [("bindings", taken.bindings_made), ("sessions", taken.sessions_made)];
        let made = made.map(|(table, count)| (label("table", table), count));
        if let Some(lost) = taken.lost {
            let about = "Packets that XDP has redirected and the kernel has not sent; they count as forwarded, too.";
            page.counter("tombolo_fastpath_lost_packets_total", about, one(lost));
        }
        let help = "Packets that the fast path translated and the kernel's stack routed.";
        page.counter("tombolo_fastpath_to_stack_packets_total", help, one(taken.to_stack));
        page.counter("tombolo_fastpath_made_entries_total", "Entries made in the kernel.", made);
    }
}

/// The same by service. Of reasons for drops only those that occurred: there are a hundred for each
/// service.
fn by_service(page: &mut Page, running: &Running, plan: &Plan, taken: &Taken) {
    let services: Vec<_> = plan
        .numbered()
        .map(|(number, service)| {
            let kernel = taken.services.get(&number).copied().unwrap_or_default();
            (service.name.as_str(), running.totals_of(number), kernel)
        })
        .collect();
    let named = |name: &str, labels: Labels| labels.and("service", name);
    let each = |of: fn(&Totals, &Forwarded) -> [[u64; 2]; 2]| {
        let samples = services.iter().flat_map(|(name, engine, kernel)| {
            let [engine, kernel] = of(engine, kernel);
            sides(engine, kernel).map(|(labels, value)| (named(name, labels), value))
        });
        samples.collect::<Vec<_>>()
    };
    let received = each(|engine, kernel| [engine.received, kernel.packets]);
    page.counter("tombolo_service_received_packets_total", "Packets received for a service.", received);
    let bytes = each(|engine, kernel| [engine.received_bytes, kernel.bytes]);
    page.counter("tombolo_service_received_bytes_total", "Bytes of them, IP headers included.", bytes);
    let sent = each(|engine, kernel| [engine.forwarded, kernel.packets]);
    page.counter("tombolo_service_forwarded_packets_total", "Packets that a service translated and sent on.", sent);
    let drops = services.iter().flat_map(|(name, engine, _)| {
        engine.drops().map(|(reason, count)| (named(name, Labels::default().word("reason", reason.name())), count))
    });
    let help = "Packets of a service that were not forwarded; see docs/drop-reasons.md.";
    page.counter("tombolo_service_dropped_packets_total", help, drops);
}

/// What the queues of the device have received and sent.
fn queues(page: &mut Page, running: &Running) {
    let queues: Vec<QueueTotals> = running.queues.iter().map(|queue| queue.read()).collect();
    let both = |counts: fn(&QueueTotals) -> [u64; 2]| {
        let samples = queues.iter().enumerate().flat_map(move |(number, queue)| {
            let named = ["received", "sent"].into_iter().zip(counts(queue));
            named.map(move |(name, count)| (Labels::default().and("queue", number).word("direction", name), count))
        });
        samples.collect::<Vec<_>>()
    };
    let packets = both(|queue| [queue.received_packets, queue.sent_packets]);
    page.counter("tombolo_queue_packets_total", "Packets of the device's queues; a super-packet is one.", packets);
    let bytes = both(|queue| [queue.received_bytes, queue.sent_bytes]);
    page.counter("tombolo_queue_bytes_total", "Bytes of the device's queues.", bytes);
    let unusable = queues
        .iter()
        .enumerate()
        .map(|(number, queue)| (Labels::default().and("queue", number), queue.received_unusable));
    let help = "Packets received with a header that makes no sense.";
    page.counter("tombolo_queue_unusable_packets_total", help, unusable);
}

fn state(page: &mut Page, running: &Running, plan: &Plan) {
    let tables = &running.tables;
    let capacity = [
        ("subscribers", u64::from(tables.subscribers.capacity())),
        ("bindings", u64::from(tables.bindings.capacity())),
        ("sessions", plan.capacity.sessions),
        ("leases", u64::from(tables.leases.capacity())),
        ("conversations", u64::from(tables.conversations.capacity())),
    ];
    let capacity = capacity.map(|(table, room)| (label("table", table), room));
    page.gauge("tombolo_table_capacity_entries", "Entries that there is room for.", capacity);
    // Of sessions, unknown until the first sweep is complete, some ten seconds after the start.
    let entries = [
        ("subscribers", Some(u64::from(tables.subscribers.count()))),
        ("bindings", Some(u64::from(tables.bindings.count()))),
        ("sessions", running.sessions()),
        ("leases", Some(u64::from(tables.leases.count()))),
        ("conversations", Some(u64::from(tables.conversations.count()))),
    ];
    let entries = entries.into_iter().filter_map(|(table, count)| Some((label("table", table), count?)));
    page.gauge("tombolo_table_entries", "Entries that there are; sessions as of the last sweep.", entries);
    page.gauge("tombolo_table_bytes", "Memory of the tables in bytes.", one(tables.memory().total()));
    let help = "Sessions in the overflow table.";
    page.gauge("tombolo_overflowed_sessions", help, one(tables.sessions.overflowed()));
    page.gauge("tombolo_bindings", "Bindings: outside ports in use.", bindings(tables, plan));
    let swept = &running.swept;
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let expired = [
        ("sessions", read(&swept.expired_sessions)),
        ("bindings", read(&swept.expired_bindings)),
        ("subscribers", read(&swept.expired_subscribers)),
    ];
    let expired = expired.map(|(table, count)| (label("table", table), count));
    page.counter("tombolo_expired_entries_total", "Entries that expired.", expired);
}

/// Bindings by service and protocol.
fn bindings(tables: &Tables, plan: &Plan) -> Vec<(Labels, u64)> {
    let bindings = &tables.bindings;
    // By number: after reloads that is not the place in the plan.
    let mut counts = [[0_u64; PortSpace::ALL.len()]; 256];
    for (binding, _) in bindings.iter().filter_map(|id| bindings.read(id)) {
        if let Some(space) = PortSpace::of_protocol(binding.inside.protocol) {
            counts[usize::from(binding.inside.service)][space as usize] += 1;
        }
    }
    let stateful = plan.numbered().filter_map(|(number, service)| Some((number, service.kind.nat()?)));
    let samples = stateful.flat_map(|(number, nat)| nat.policy.protocols.iter().map(move |space| (number, space)));
    let samples = samples.map(|(number, space)| {
        let labels = Labels::default().and("service", service_name(plan, number)).word("protocol", space.name());
        (labels, counts[usize::from(number)][space as usize])
    });
    samples.collect()
}

#[cfg(test)]
mod tests {
    use tombolo_tables::hash::HashKey;
    use tombolo_tables::memory::Heap;

    use super::*;

    #[test]
    fn a_service_is_counted_by_its_number_wherever_it_stands() {
        let text = "[[service]]\nkind = \"nat44\"\ninside = [\"10.0.0.0/8\"]\npool = [{ addresses = \"192.0.2.1\" }]\n";
        let mut plan = tombolo_config::parse("gateway.toml", text).unwrap().plan;
        plan.services[0].number = 7;
        let tables = Tables::new(&mut Heap, plan.capacity, HashKey::new([1, 2, 3, 4])).unwrap();
        let counted = bindings(&tables, &plan);
        assert_eq!(counted.len(), 6, "TCP, UDP, ICMP, SCTP, DCCP, UDP-Lite");
    }
}

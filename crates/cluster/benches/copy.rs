//! What copying costs: noting changes, sending and applying, a binding each. `cargo bench -p tombolo-cluster`.
//!
//! ```text
//! note      a binding made and removed, with changes noted, beside the same without, in turns
//! send      bits taken, records read and written into batches
//! apply     batches read, bindings made
//! ```

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tombolo_cluster::replica::{Applier, Purpose, Sender, To, View};
use tombolo_engine::Plan;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_tables::binding::{Binding, InsideKey};
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;
use tombolo_tables::subscriber::{Subscriber, SubscriberKey};
use tombolo_tables::tables::{Candidate, Capacity, Tables};
use tombolo_tables::tick::Tick;

const NOW: Tick = Tick(1000);
const BINDINGS: u32 = 500_000;
const OF_A_SUBSCRIBER: u32 = 50;
const ROUNDS: usize = 7;

fn plan(node: &str) -> Plan {
    let text = format!(
        "[cluster]\nnode = \"{node}\"\nnodes = {{ n1 = \"2001:db8:c1:1::/64\", n2 = \"2001:db8:c1:2::/64\" }}\n\
         slices = {{ count = 16, secret = \"{}\", owners = [{{ slices = \"0-15\", owner = \"n1\", backup = \"n2\" }}] }}\n\
         [[service]]\nkind = \"nat64\"\nprefix = \"2001:db8:6464::/96\"\npool = [{{ addresses = \"203.0.113.0/26\" }}]\n",
        "8f3b1d5c7e9a20416385a7c9ebfd0f213547698bacdef0021436587a9cbedff1"
    );
    match tombolo_config::parse("bench.toml", &text) {
        Ok(configuration) => configuration.plan,
        Err(error) => panic!("{error}"),
    }
}

fn tables(plan: &Plan) -> Tables {
    let capacity = Capacity { subscribers: 20_000, bindings: 1 << 20, sessions: 1024, ..plan.capacity };
    match Tables::new(&mut Heap, capacity, HashKey::new([1, 2, 3, 4])) {
        Ok(tables) => tables,
        Err(error) => panic!("{error}"),
    }
}

/// What each binding is made of: drawn before, so that it is not measured.
fn wanted(plan: &Plan, tables: &Tables) -> Vec<(Binding, Candidate)> {
    let Some((number, service)) = plan.numbered().next() else { return Vec::new() };
    let Some(pool) = service.kind.pool() else { return Vec::new() };
    let mut next_port = std::collections::HashMap::<Ipv4Addr, u16>::new();
    let mut wanted = Vec::new();
    for host in 0..BINDINGS / OF_A_SUBSCRIBER {
        let ipv6 = (0x2001_0db8_u128 << 96 | u128::from(host) << 64 | 1).to_be_bytes();
        let key = SubscriberKey { ipv6, service: number, ..SubscriberKey::default() };
        let Some(address) = pool.address_for(&key, host).or_else(|| pool.address_for(&key, 0)) else { continue };
        let Some((id, _)) = tables.admit(&Subscriber { key, outside_ipv4: address.octets() }, NOW) else { continue };
        for n in 0..OF_A_SUBSCRIBER {
            let port = next_port.entry(address).or_insert(1024);
            let Some(slot) = pool.slot(address, PortSpace::Udp, *port) else { break };
            let inside = InsideKey {
                ipv6,
                port: u16::try_from(n).unwrap_or(0).to_be_bytes(),
                protocol: 17,
                service: number,
                ..InsideKey::default()
            };
            let template = Binding { inside, subscriber: id.get(), ..Binding::default() };
            wanted.push((template, Candidate { slot, ipv4: address.octets(), port: port.to_be_bytes() }));
            *port = port.saturating_add(1);
        }
    }
    wanted
}

fn make(tables: &Tables, wanted: &[(Binding, Candidate)]) -> Duration {
    let began = Instant::now();
    for (template, candidate) in wanted {
        let _ = tables.bind(template, [*candidate], 0, NOW);
    }
    began.elapsed()
}

fn remove(tables: &Tables) -> Duration {
    let began = Instant::now();
    for id in tables.bindings.iter() {
        if let Some((binding, seen)) = tables.bindings.read(id) {
            tables.unbind(id, &binding, seen, NOW);
        }
    }
    began.elapsed()
}

fn nanos(took: Duration, count: usize) -> f64 {
    took.as_secs_f64() * 1e9 / count as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let (owner, backup) = (plan("n1"), plan("n2"));
    let plain = tables(&owner);
    let noting = Arc::new(tables(&owner).noting_changes());
    let (of_plain, of_noting) = (wanted(&owner, &plain), wanted(&owner, &noting));
    let count = of_plain.len();
    let (mut without, mut with): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        without.push(nanos(make(&plain, &of_plain) + remove(&plain), count));
        with.push(nanos(make(&noting, &of_noting) + remove(&noting), count));
        if round == 0 {
            // Memory is there now.
            without.clear();
            with.clear();
        }
        noting.changed_bindings.take(&mut |_| ());
    }
    let (without, with) = (median(without), median(with));
    println!("note/binding made and removed: {without:.0} ns without, {with:.0} ns with: {:+.0} ns", with - without);

    let (Some(here), Some(there)) = (View::of(&owner), View::of(&backup)) else { return };
    let (mut sending, mut applying) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    for _ in 0..ROUNDS {
        make(&noting, &of_noting);
        let copy = Arc::new(tables(&backup));
        let mut sender = Sender::new(Arc::clone(&noting));
        let capacity = (noting.subscribers.capacity(), noting.bindings.capacity());
        let mut applier = Applier::new(Arc::clone(&copy), Purpose::Copy, 0, capacity);
        applier.connect(&here.services(), there);
        sender.connect(1, false, here);
        let (mut sent, mut applied) = (Duration::ZERO, Duration::ZERO);
        bytes = 0;
        loop {
            let mut batch = Vec::with_capacity(20_000);
            let began = Instant::now();
            let is_there = sender.fill(To::Backup(1), here, &|_| 1, NOW, &mut batch);
            sent += began.elapsed();
            if !is_there {
                break;
            }
            bytes += batch.len();
            let began = Instant::now();
            let number = applier.apply(&batch, there, &|_| 1, NOW, false);
            applied += began.elapsed();
            if !number.is_ok_and(|number| sender.acknowledge(To::Backup(1), number)) {
                println!("a batch was refused");
                return;
            }
        }
        assert_eq!(copy.bindings.count(), noting.bindings.count(), "everything is copied");
        sending.push(nanos(sent, count));
        applying.push(nanos(applied, count));
        remove(&noting);
        noting.changed_bindings.take(&mut |_| ());
    }
    println!("send/binding: {:.0} ns, {:.1} bytes", median(sending), bytes as f64 / count as f64);
    println!("apply/binding: {:.0} ns", median(applying));
}

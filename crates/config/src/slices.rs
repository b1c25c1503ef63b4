//! `cluster.slices`: who has which part of the subscribers and of the outside addresses, in the file or in one beside
//! it.

use tombolo_engine::cluster::{Holders, Node as ClusterNode};
use tombolo_engine::mapping::allocation::Allocation;
use tombolo_engine::mapping::slices::{MOST_SLICES, PoolSlices, Slicing};
use tombolo_engine::mechanism::napt::Nat;
use tombolo_engine::plan::Service;

use crate::difference::Wording;
use crate::document::{self, Node, Table};
use crate::host::Slices;
use crate::problem::{Log, Problem};
use crate::reference::{SLICE_OWNER, SLICES};

/// Epochs that there can be: they are in metrics of routes.
const MOST_EPOCHS: u32 = 1_000_000_000;
/// Hexadecimal digits of the secret.
const SECRET_DIGITS: usize = 64;

/// Reads the slices of the table `[cluster]`, which has these nodes.
pub(crate) fn read(cluster: &Table<'_>, nodes: &[ClusterNode], log: &mut Log) -> Option<Slices> {
    let node = cluster.find("slices")?;
    if node.is_table() {
        return of_table(&node.table(&SLICES, log)?, nodes, log);
    }
    let path = log.keep(node.beside())?;
    let text = std::fs::read_to_string(&path);
    log.reads(&path, text.as_deref().ok().map(Wording::digest));
    let name = path.display().to_string();
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            let text =
                format!("{name} cannot be read ({error}); name a file with \"count\", \"secret\" and \"owners\"");
            log.mistake(node.problem(text));
            return None;
        }
    };
    let tree = match document::parse(&name, &text) {
        Ok(tree) => tree,
        Err(error) => {
            error.problems().iter().for_each(|problem| log.mistake(problem.clone()));
            return None;
        }
    };
    of_table(&document::root((&name, &text), &tree, &SLICES, log), nodes, log)
}

fn of_table(table: &Table<'_>, nodes: &[ClusterNode], log: &mut Log) -> Option<Slices> {
    let count = table.require("count", log).and_then(|node| log.keep(count(&node)));
    let secret = table.require("secret", log).and_then(|node| log.keep(secret(&node)));
    let owners = table.require("owners", log);
    let epoch = table.read_or("epoch", 1, log, |node| node.number32(1..=MOST_EPOCHS));
    let (count, secret) = (count?, secret?);
    let holders = holders(&owners?, count, nodes, log)?;
    Some(Slices { slicing: Slicing::new(secret, count)?, holders, epoch })
}

fn count(node: &Node<'_>) -> Result<u16, Problem> {
    let number = u16::try_from(node.number32(1..=MOST_SLICES.into())?).unwrap_or(MOST_SLICES);
    if !number.is_power_of_two() {
        let above = number.next_power_of_two();
        return Err(node.problem(format!("not a power of two; use {} or {above}", above / 2)));
    }
    Ok(number)
}

fn secret(node: &Node<'_>) -> Result<[u64; 4], Problem> {
    let text = node.text()?;
    let word = |place: usize| u64::from_str_radix(text.get(place * 16..(place + 1) * 16)?, 16).ok();
    let is_hexadecimal = text.len() == SECRET_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words = [word(0), word(1), word(2), word(3)];
    match words {
        [Some(a), Some(b), Some(c), Some(d)] if is_hexadecimal => Ok([a, b, c, d]),
        _ => {
            let text = format!("not {SECRET_DIGITS} hexadecimal digits; use what openssl rand -hex 32 prints");
            // It may be most of the secret: the error does not repeat it.
            Err(Problem { place: node.path().to_owned(), ..node.problem(text) })
        }
    }
}

/// Who has each of `count` slices.
fn holders(node: &Node<'_>, count: u16, nodes: &[ClusterNode], log: &mut Log) -> Option<Vec<Holders>> {
    let mut holders: Vec<Option<(Holders, String)>> = vec![None; count.into()];
    let mut is_complete = true;
    for item in log.keep(node.items())? {
        let Some((run, own)) = item.table(&SLICE_OWNER, log).and_then(|table| run_of(&table, count, nodes, log)) else {
            is_complete = false;
            continue;
        };
        let name = item.path().rsplit('.').next().unwrap_or_default().to_owned();
        for slice in run {
            let place = &mut holders[usize::from(slice)];
            if let Some((_, other)) = place {
                log.mistake(item.problem(format!("slice {slice} is in {other} as well; give each to one owner")));
                is_complete = false;
                break;
            }
            *place = Some((own, name.clone()));
        }
    }
    if let Some(slice) = holders.iter().position(Option::is_none).filter(|_| is_complete) {
        log.mistake(node.problem(format!("slice {slice} has no owner; give one to each of 0 to {}", count - 1)));
    }
    holders.into_iter().map(|place| place.map(|(holders, _)| holders)).collect()
}

/// Slices of one owner.
fn run_of(
    table: &Table<'_>,
    count: u16,
    nodes: &[ClusterNode],
    log: &mut Log,
) -> Option<(std::ops::RangeInclusive<u16>, Holders)> {
    let run = table.require("slices", log).and_then(|node| log.keep(run(&node, count)));
    let owner = table.require("owner", log).and_then(|node| log.keep(number_of(&node, nodes)));
    let backup = table.read_or("backup", None, log, |node| match number_of(node, nodes)? {
        backup if Some(backup) == owner => {
            Err(node.problem("the owner as well; name another node, or leave the key out"))
        }
        backup => Ok(Some(backup)),
    });
    Some((run?, Holders { owner: owner?, backup }))
}

fn run(node: &Node<'_>, count: u16) -> Result<std::ops::RangeInclusive<u16>, Problem> {
    let text = node.text()?;
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u16>().ok().filter(|number| *number < count);
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => {
            Err(node
                .problem(format!("no slices; write one of 0 to {}, or the first and the last as \"0-1\"", count - 1)))
        }
    }
}

fn number_of(node: &Node<'_>, nodes: &[ClusterNode]) -> Result<u8, Problem> {
    let name = node.text()?;
    let number = nodes.iter().position(|node| node.name == name).and_then(|number| u8::try_from(number).ok());
    number.ok_or_else(|| {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        node.problem(format!("not one of the nodes; use one of {}", names.join(", ")))
    })
}

/// Divides the pool of a service among the slices.
pub(crate) fn divide(service: &mut Service, slices: &Slices, cluster: &Table<'_>, log: &mut Log) {
    let node = cluster.find("slices").unwrap_or_else(|| cluster.node().clone());
    divide_service(service, slices.slicing).into_iter().for_each(|text| log.mistake(node.problem(text)));
}

/// The same; what is in the way of it.
pub(crate) fn divide_service(service: &mut Service, slicing: Slicing) -> Vec<String> {
    let Service { name, kind, .. } = service;
    let Some(nat) = kind.nat_mut() else { return Vec::new() };
    let mut faults = Vec::new();
    let count = slicing.count();
    for range in nat.pool.ranges().iter().filter(|range| range.addresses() < count.into()) {
        let addresses = range.addresses();
        faults.push(format!(
            "{count} slices are more than service {name} has addresses in {}-{} ({addresses}), and each slice has some of \
             each range; use count = {}, or give the range more",
            range.first,
            range.last,
            1 << addresses.ilog2()
        ));
    }
    let ranges = nat.pool.ranges().iter().map(|range| (range.first, range.last));
    let divided = PoolSlices::new(slicing, ranges);
    match pinned(nat, divided) {
        Ok(divided) => nat.pool = std::mem::take(&mut nat.pool).with_slices(divided),
        Err(text) => faults.push(format!("service {name}: {text}")),
    }
    faults
}

/// Subscribers with static bindings have the slices of their addresses.
fn pinned(nat: &Nat, mut slices: PoolSlices) -> Result<PoolSlices, String> {
    for binding in &nat.static_bindings {
        let (inside, address) = (binding.inside, binding.outside.address);
        let Some(slice) = slices.of_address(address) else { continue };
        let key = nat.policy.subscriber.key(&binding.key(0));
        if let Err(other) = slices.pin(&key, slice) {
            return Err(format!(
                "the subscriber of {inside} has static bindings in slices {other} and {slice} ({address}); give it addresses \
                 of one slice, which one node has"
            ));
        }
        if let Allocation::Deterministic(shares) = nat.pool.allocation()
            && let Some(share) = shares.share(&key).filter(|share| slices.of_address(share.address) != Some(slice))
        {
            return Err(format!(
                "{inside} has a static binding on {address}, and its computed share on {}, which is of another slice; bind it \
                 to an address of that one",
                share.address
            ));
        }
    }
    Ok(slices)
}

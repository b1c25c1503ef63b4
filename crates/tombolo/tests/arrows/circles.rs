//! Circles among modules that import each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::imports::Module;

/// The circles among these arrows: for each the modules of which every one can be reached from
/// every other, with the arrows that stay among them.
pub(crate) fn circles(arrows: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<BTreeMap<Module, BTreeSet<Module>>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = arrows.keys().map(|from| (from, reach(arrows, from))).collect();
    let mut circles: Vec<BTreeMap<Module, BTreeSet<Module>>> = Vec::new();
    for (from, targets) in &reached {
        if !targets.contains(from) || circles.iter().any(|circle| circle.contains_key(*from)) {
            continue;
        }
        let members: BTreeSet<Module> =
            targets.iter().filter(|to| reached[**to].contains(from)).map(|to| (*to).clone()).collect();
        circles.push(members.iter().map(|member| (member.clone(), &arrows[member] & &members)).collect());
    }
    circles
}

/// Everything that can be reached from a module by one arrow or more.
fn reach<'a>(arrows: &'a BTreeMap<Module, BTreeSet<Module>>, from: &'a Module) -> BTreeSet<&'a Module> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        open.extend(arrows[module].iter().filter(|to| found.insert(*to)));
    }
    found
}

/// A circle in words, an arrow of each of its modules a line.
pub(crate) fn describe(circle: &BTreeMap<Module, BTreeSet<Module>>) -> String {
    let lines = circle.iter().map(|(from, to)| {
        let to: Vec<String> = to.iter().map(name).collect();
        format!("  {} -> {}\n", name(from), to.join(", "))
    });
    lines.collect()
}

/// A module in words.
pub(crate) fn name(module: &Module) -> String {
    if module.is_empty() { "the root".to_owned() } else { module.join("::") }
}

//! Next-hop numbers: equal targets share one, so that a million routes need a handful.
//!
//! The two lowest bits of a number say what the destination alone decides about the packets of its
//! routes ([`BY_GATEWAY`], [`ON_LINK`]). If neither is set there is more to it: several next hops,
//! a path MTU, a type of service.

use std::collections::HashMap;

use tombolo_tables::lpm::{LpmError, NextHop};

use super::parse::{Hop, Target};

/// Set in a next-hop number whose routes send all packets by the same gateway, whatever else they
/// carry.
pub const BY_GATEWAY: u32 = 1;

/// Set in a next-hop number whose routes send each packet to its destination, on the same link.
pub const ON_LINK: u32 = 2;

/// Targets by number, counted by the routes that lead to them.
#[derive(Debug, Default)]
pub(super) struct Targets {
    rows: Vec<Option<(Target, usize)>>,
    numbers: HashMap<(Target, u32), usize>,
    free: Vec<usize>,
}

impl Targets {
    /// The number of a target, for one route more. Of a plain one the destination alone decides.
    pub(super) fn hold(&mut self, target: &Target, plain: bool) -> Result<NextHop, LpmError> {
        let certain = if plain { certain(target) } else { 0 };
        let key = (target.clone(), certain);
        if let Some(row) = self.numbers.get(&key)
            && let Some(Some((_, routes))) = self.rows.get_mut(*row)
        {
            *routes += 1;
            return number(*row, certain);
        }
        let row = self.free.pop().unwrap_or(self.rows.len());
        let next_hop = number(row, certain)?;
        if row == self.rows.len() {
            self.rows.push(None);
        }
        self.rows[row] = Some((target.clone(), 1));
        self.numbers.insert(key, row);
        Ok(next_hop)
    }

    /// One route less leads to the target.
    pub(super) fn release(&mut self, next_hop: NextHop) {
        let row = row_of(next_hop);
        let Some(entry) = self.rows.get_mut(row) else { return };
        let Some((_, routes)) = entry else { return };
        *routes -= 1;
        if *routes == 0
            && let Some((target, _)) = entry.take()
        {
            self.numbers.remove(&(target, next_hop.number() & (BY_GATEWAY | ON_LINK)));
            self.free.push(row);
        }
    }

    pub(super) fn get(&self, next_hop: NextHop) -> Option<&Target> {
        self.rows.get(row_of(next_hop))?.as_ref().map(|(target, _)| target)
    }

    /// Targets in use.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }
}

fn certain(target: &Target) -> u32 {
    match target.hops.as_slice() {
        [Hop { gateway: Some(_), .. }] => BY_GATEWAY,
        [Hop { gateway: None, .. }] => ON_LINK,
        _ => 0,
    }
}

fn number(row: usize, certain: u32) -> Result<NextHop, LpmError> {
    NextHop::new(u32::try_from(row * 4).unwrap_or(u32::MAX - 3) | certain)
}

fn row_of(next_hop: NextHop) -> usize {
    (next_hop.number() / 4) as usize
}

#[cfg(test)]
mod tests {
    use super::super::parse::RouteKind;
    use super::*;

    #[test]
    fn equal_targets_share_a_number_until_the_last_route_is_gone() {
        let mut targets = Targets::default();
        let blackhole = Target { kind: RouteKind::Blackhole, hops: Vec::new() };
        let local = Target { kind: RouteKind::Local, hops: Vec::new() };
        let first = targets.hold(&blackhole, false).unwrap();
        assert_eq!(targets.hold(&blackhole, false).unwrap(), first);
        assert_ne!(targets.hold(&local, false).unwrap(), first);
        assert_eq!(targets.hold(&blackhole, true).unwrap(), first, "it has no next hop");
        targets.release(first);
        targets.release(first);
        assert_eq!(targets.get(first), Some(&blackhole));
        targets.release(first);
        assert_eq!(targets.get(first), None);
        assert_eq!(targets.len(), 1);
    }

    #[test]
    fn a_number_tells_what_the_destination_decides() {
        let mut targets = Targets::default();
        let unicast =
            |gateway| Target { kind: RouteKind::Unicast, hops: vec![Hop { interface: 2, gateway, weight: 1 }] };
        let mut bits = |target: &Target, plain| targets.hold(target, plain).unwrap().number() & 3;
        let (far, near) = (unicast(Some("192.0.2.1".parse().unwrap())), unicast(None));
        assert_eq!([bits(&far, true), bits(&near, true)], [BY_GATEWAY, ON_LINK]);
        assert_eq!([bits(&far, false), bits(&near, false)], [0, 0]);
        assert_eq!(targets.len(), 4);
    }
}

//! Next-hop numbers: equal targets share one, so that a million routes need a handful.
//!
//! The lowest bit of a number tells whether all packets of its routes take one way ([`UNIFORM`]).

use std::collections::HashMap;

use tombolo_tables::lpm::{LpmError, NextHop};

use super::parse::Target;

/// Set in a next-hop number whose routes send all packets one way: by the same gateway, whatever else they carry.
pub const UNIFORM: u32 = 1;

/// Targets by number, counted by the routes that lead to them.
#[derive(Debug, Default)]
pub(super) struct Targets {
    rows: Vec<Option<(Target, usize)>>,
    numbers: HashMap<(Target, bool), usize>,
    free: Vec<usize>,
}

impl Targets {
    /// The number of a target, for one route more, which is uniform or not.
    pub(super) fn hold(&mut self, target: &Target, uniform: bool) -> Result<NextHop, LpmError> {
        let key = (target.clone(), uniform);
        if let Some(place) = self.numbers.get(&key)
            && let Some(Some((_, routes))) = self.rows.get_mut(*place)
        {
            *routes += 1;
            return number(*place, uniform);
        }
        let place = self.free.pop().unwrap_or(self.rows.len());
        let next_hop = number(place, uniform)?;
        if place == self.rows.len() {
            self.rows.push(None);
        }
        self.rows[place] = Some((target.clone(), 1));
        self.numbers.insert(key, place);
        Ok(next_hop)
    }

    /// One route less leads to the target.
    pub(super) fn release(&mut self, next_hop: NextHop) {
        let place = place(next_hop);
        let Some(row) = self.rows.get_mut(place) else { return };
        let Some((_, routes)) = row else { return };
        *routes -= 1;
        if *routes == 0
            && let Some((target, _)) = row.take()
        {
            self.numbers.remove(&(target, next_hop.number() & UNIFORM != 0));
            self.free.push(place);
        }
    }

    pub(super) fn get(&self, next_hop: NextHop) -> Option<&Target> {
        self.rows.get(place(next_hop))?.as_ref().map(|(target, _)| target)
    }

    /// Targets in use.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }
}

fn number(place: usize, uniform: bool) -> Result<NextHop, LpmError> {
    NextHop::new(u32::try_from(place * 2).unwrap_or(u32::MAX - 1) | if uniform { UNIFORM } else { 0 })
}

fn place(next_hop: NextHop) -> usize {
    (next_hop.number() / 2) as usize
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
        let uniform = targets.hold(&blackhole, true).unwrap();
        assert_eq!((uniform.number() & UNIFORM, first.number() & UNIFORM), (1, 0));
        targets.release(uniform);
        targets.release(first);
        assert_eq!(targets.get(first), Some(&blackhole));
        targets.release(first);
        assert_eq!(targets.get(first), None);
        assert_eq!(targets.len(), 1);
    }
}

//! Next-hop numbers: equal targets share one, so that a million routes need a handful.

use std::collections::HashMap;

use tombolo_tables::lpm::{LpmError, NextHop};

use super::parse::Target;

/// Targets by number, counted by the routes that lead to them.
#[derive(Debug, Default)]
pub(super) struct Targets {
    rows: Vec<Option<(Target, usize)>>,
    numbers: HashMap<Target, usize>,
    free: Vec<usize>,
}

impl Targets {
    /// The number of a target, for one route more.
    pub(super) fn hold(&mut self, target: &Target) -> Result<NextHop, LpmError> {
        if let Some(number) = self.numbers.get(target)
            && let Some(Some((_, routes))) = self.rows.get_mut(*number)
        {
            *routes += 1;
            return NextHop::new(u32::try_from(*number).unwrap_or(u32::MAX));
        }
        let number = self.free.pop().unwrap_or(self.rows.len());
        let next_hop = NextHop::new(u32::try_from(number).unwrap_or(u32::MAX))?;
        if number == self.rows.len() {
            self.rows.push(None);
        }
        self.rows[number] = Some((target.clone(), 1));
        self.numbers.insert(target.clone(), number);
        Ok(next_hop)
    }

    /// One route less leads to the target.
    pub(super) fn release(&mut self, next_hop: NextHop) {
        let number = next_hop.number() as usize;
        let Some(row) = self.rows.get_mut(number) else { return };
        let Some((target, routes)) = row else { return };
        *routes -= 1;
        if *routes == 0 {
            self.numbers.remove(target);
            *row = None;
            self.free.push(number);
        }
    }

    pub(super) fn get(&self, next_hop: NextHop) -> Option<&Target> {
        self.rows.get(next_hop.number() as usize)?.as_ref().map(|(target, _)| target)
    }

    /// Targets in use.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }
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
        let first = targets.hold(&blackhole).unwrap();
        assert_eq!(targets.hold(&blackhole).unwrap(), first);
        assert_ne!(targets.hold(&local).unwrap(), first);
        targets.release(first);
        assert_eq!(targets.get(first), Some(&blackhole));
        targets.release(first);
        assert_eq!(targets.get(first), None);
        assert_eq!(targets.len(), 1);
    }
}

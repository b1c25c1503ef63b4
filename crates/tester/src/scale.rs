//! What a scalability series goes over, and what is measured at each point.

use serde::Serialize;

/// The points of a series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Scale {
    /// Numbers of connections.
    pub connections: Connections,
    /// Whether it goes over 1, 2, 4, ... of the gateway's cores.
    pub cores: bool,
    /// What is measured.
    pub rates: Rates,
}

/// Numbers of connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Connections {
    /// A hundredth, a tenth and all; inside ports stay, outside ports vary.
    Parts,
    /// A tenth and all.
    Ends,
    /// Inside and outside ports of each point, upwards; without any, no such series.
    Ports(Vec<(u32, u32)>),
}

/// What is measured at each point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rates {
    /// Connection establishment of stateful gateways, and throughput.
    Forwarding,
    /// Connection tear-down.
    Teardown,
}

impl Default for Scale {
    fn default() -> Scale {
        Scale { connections: Connections::Parts, cores: true, rates: Rates::Forwarding }
    }
}

impl Scale {
    /// Inside and outside ports of each point over connections, none more than there are.
    pub(crate) fn points(&self, inside: u32, outside: u32) -> Vec<(u32, u32)> {
        match &self.connections {
            Connections::Parts => parts(&[100, 10, 1], inside, outside),
            Connections::Ends => parts(&[10, 1], inside, outside),
            Connections::Ports(points) => {
                points.iter().copied().filter(|(a, b)| *a <= inside && *b <= outside).collect()
            }
        }
    }

    /// Connections of everything that is measured, points over cores included.
    pub(crate) fn connections_of_points(&self, inside: u32, outside: u32, hosts: u64, cores: usize) -> Vec<u64> {
        let connections = |(a, b): (u32, u32)| u64::from(a) * u64::from(b) * hosts;
        let over_connections = self.points(inside, outside);
        let is_alone = over_connections.is_empty();
        let over_cores = if self.cores && (cores > 1 || is_alone) { numbers_of_cores(cores.max(1)).len() } else { 0 };
        let all = over_connections.into_iter().chain(std::iter::repeat_n((inside, outside), over_cores));
        all.map(connections).collect()
    }
}

/// Powers of two, and the number itself.
pub(crate) fn numbers_of_cores(all: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < all).collect();
    numbers.push(all);
    numbers
}

fn parts(parts: &[u32], inside: u32, outside: u32) -> Vec<(u32, u32)> {
    parts.iter().map(|part| (inside, outside / part)).filter(|(_, ports)| *ports > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_have_no_more_ports_than_there_are() {
        assert_eq!(Scale::default().points(4000, 50), [(4000, 5), (4000, 50)]);
        let asked = Connections::Ports(vec![(2500, 6), (5000, 12), (10_000, 25)]);
        let asked = Scale { connections: asked, ..Scale::default() };
        assert_eq!(asked.points(5000, 12), [(2500, 6), (5000, 12)]);
        assert_eq!(asked.connections_of_points(5000, 12, 2, 4), [30_000, 120_000, 120_000, 120_000, 120_000]);
        let cores = Scale { connections: Connections::Ports(Vec::new()), ..Scale::default() };
        assert_eq!(cores.connections_of_points(10, 10, 1, 1), [100]);
    }

    #[test]
    fn points_end_with_the_cores_that_there_are() {
        assert_eq!([2, 3, 4, 6].map(numbers_of_cores), [vec![1, 2], vec![1, 2, 3], vec![1, 2, 4], vec![1, 2, 4, 6]]);
    }
}

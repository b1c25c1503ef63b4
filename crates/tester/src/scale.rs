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

/// Powers of two, and the number itself.
pub(crate) fn numbers_of_cores(all: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < all).collect();
    numbers.push(all);
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_end_with_the_cores_that_there_are() {
        assert_eq!([2, 3, 4, 6].map(numbers_of_cores), [vec![1, 2], vec![1, 2, 3], vec![1, 2, 4], vec![1, 2, 4, 6]]);
    }
}

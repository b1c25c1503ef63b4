//! Hosts that come, send, and are gone again, so that blocks of ports are granted and given back all the time.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tombolo_lab::cluster::{ClusterLab, Subscriber};
use tombolo_lab::{Flow, LabError, Namespace};

/// From one guest to the next.
const PACE: Duration = Duration::from_millis(150);
/// So long a guest asks.
const PATIENCE: Duration = Duration::from_millis(200);

/// All guests, and what became of them.
#[derive(Debug, Default)]
pub(super) struct Guests {
    hosts: Vec<(Namespace, Subscriber)>,
    served: AtomicU64,
    refused: AtomicU64,
}

impl Guests {
    pub(super) fn of(cluster: &ClusterLab, hosts: Vec<Subscriber>) -> Result<Self, LabError> {
        let with_box = |host: Subscriber| Ok((cluster.lab.node(host.host)?.clone(), host));
        let hosts = hosts.into_iter().map(with_box).collect::<Result<_, LabError>>()?;
        Ok(Self { hosts, ..Self::default() })
    }

    /// One comes after the other, until it is over.
    pub(super) fn come(&self, is_over: &AtomicBool) {
        for (host, guest) in self.hosts.iter().cycle() {
            if is_over.load(Ordering::Acquire) {
                break;
            }
            let from = SocketAddr::new(guest.address, 0);
            let flow = Flow::open(host, guest.name.clone(), from, guest.server(7));
            let is_served = flow.is_ok_and(|flow| flow.first_answer(Instant::now(), PATIENCE).is_some());
            let count = if is_served { &self.served } else { &self.refused };
            count.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(PACE);
        }
    }

    /// How many were served, and how many were not.
    pub(super) fn counts(&self) -> [u64; 2] {
        [&self.served, &self.refused].map(|count| count.load(Ordering::Relaxed))
    }
}

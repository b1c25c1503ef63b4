//! A measurement: TCP by the node that has the subscriber's bindings, and by another one.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use tombolo_lab::skip_without;

use crate::boxes::Cluster;
use crate::running::PATIENCE;
use crate::subscribers::{BOUND, connected};

/// How long each stream of a comparison lasts, and how many there are of each kind.
const EACH: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;

/// TCP by the node that has the subscriber's bindings, and by another one that redirects it there: for section 14 of the
/// design. `cargo test --release --test cluster -- --ignored --nocapture redirected_tcp` on a machine that does nothing else.
#[test]
#[ignore = "a measurement, of half a minute and more"]
fn redirected_tcp_beside_direct() {
    if skip_without("redirected_tcp_beside_direct", &["bird", "ip"]) {
        return;
    }
    let cluster = Cluster::up();
    cluster.wait_for_slices();
    let flows = cluster.subscribers();
    let listener = cluster.lab.node("server").unwrap().run(|| TcpListener::bind("198.51.100.2:9").unwrap()).unwrap();
    for (host, _, _, to) in BOUND {
        let flow = flows.iter().find(|flow| flow.name().starts_with(host)).unwrap();
        let address = flow.source().unwrap();
        let owner = (1..=3).find(|&node| {
            cluster.enter_by(node);
            let before = cluster.peers_total("redirected_to");
            cluster.endpoint(flow, 10).unwrap();
            cluster.peers_total("redirected_to") == before
        });
        let owner = owner.unwrap_or_else(|| panic!("no node has {}", flow.name()));
        let other = owner % 3 + 1;
        let mut ratios: Vec<f64> = Vec::new();
        for _ in 0..ROUNDS {
            let [direct, redirected] = [owner, other].map(|node| {
                cluster.enter_by(node);
                cluster.throughput(host, address, &format!("{to}:9"), &listener)
            });
            ratios.push(redirected / direct);
            eprintln!("{host}: direct {:.2}, redirected {:.2} Gbit/s", direct / 1e9, redirected / 1e9);
        }
        ratios.sort_by(f64::total_cmp);
        eprintln!(
            "{host}: redirected over direct {:.2} ({:.2} to {:.2})",
            ratios[ROUNDS / 2],
            ratios[0],
            ratios[ROUNDS - 1]
        );
    }
}

impl Cluster {
    /// Bits a second of a stream that a host sends from an address of its own.
    fn throughput(&self, host: &str, from: IpAddr, to: &str, listener: &TcpListener) -> f64 {
        let to: SocketAddr = to.parse().unwrap();
        let mut stream = self.lab.node(host).unwrap().run(|| connected(SocketAddr::new(from, 0), to)).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        other.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let began = Instant::now();
        let received = std::thread::scope(|scope| {
            scope.spawn(move || {
                let bytes = vec![0x5a; 1 << 17];
                while began.elapsed() < EACH {
                    stream.write_all(&bytes).unwrap();
                }
            });
            let mut bytes = vec![0; 1 << 17];
            let mut received = 0_usize;
            while let Ok(count @ 1..) = other.read(&mut bytes) {
                received += count;
            }
            received
        });
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let bits = received as f64 * 8.0;
        bits / began.elapsed().as_secs_f64()
    }
}

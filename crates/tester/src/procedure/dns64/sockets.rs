//! The tester's UDP sockets, and what the kernel dropped for want of room in them.

use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};

use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};

use crate::bench::BenchError;

/// Room for what arrives while a thread is kept from its core.
const RECEIVE_BUFFER: usize = 32 << 20;

/// What went wrong with a socket.
pub(super) fn failed(action: &str) -> impl Fn(io::Error) -> BenchError + use<'_> {
    move |source| BenchError::Unsuitable(format!("cannot {action}: {source}"))
}

/// A socket bound to this address, with much room.
pub(super) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    // Without privileges it has as much as the system gives everybody.
    let _ = setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER);
    Ok(socket)
}

/// Datagrams that the kernel dropped at sockets on these local ports of this thread's namespace.
pub(super) fn drops(ports: &[u16]) -> u64 {
    let tables = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];
    let lines = tables.iter().filter_map(|table| fs::read_to_string(table).ok());
    lines.map(|table| table.lines().filter_map(|line| drops_of(line, ports)).sum::<u64>()).sum()
}

/// The last column of a line whose second column is `ADDRESS:PORT`, in hexadecimal.
fn drops_of(line: &str, ports: &[u16]) -> Option<u64> {
    let mut columns = line.split_whitespace();
    let port = u16::from_str_radix(columns.nth(1)?.rsplit(':').next()?, 16).ok()?;
    ports.contains(&port).then(|| columns.last()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_those_of_the_ports() {
        let line = "  123: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 4711 2 0000 42";
        assert_eq!((drops_of(line, &[53]), drops_of(line, &[54])), (Some(42), None));
        assert_eq!(drops_of("  sl  local_address rem_address   st tx_queue drops", &[53]), None);
    }
}

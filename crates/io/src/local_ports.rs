//! Ports that sockets of the host have, over IPv4.

use std::fs;
use std::io;

/// TCP's state TIME-WAIT, as `/proc/net/tcp` has it: nobody holds the port any more.
const TIME_WAIT: &str = "06";
/// What IPv4-mapped addresses begin with there, each word in the processor's byte order.
const MAPPED: &str =
    if cfg!(target_endian = "little") { "0000000000000000FFFF0000" } else { "00000000000000000000FFFF" };

/// The TCP ports and the UDP ports that sockets of this network namespace have, ascending, each once. Sockets
/// of the loopback addresses do not count, nor those of single IPv6 addresses.
///
/// # Errors
/// What the kernel says.
pub fn in_use() -> io::Result<[Vec<u16>; 2]> {
    Ok([of(["tcp", "tcp6"])?, of(["udp", "udp6"])?])
}

fn of(tables: [&str; 2]) -> io::Result<Vec<u16>> {
    let mut ports = Vec::new();
    for table in tables {
        match fs::read_to_string(format!("/proc/self/net/{table}")) {
            Ok(text) => ports.extend(text.lines().skip(1).filter_map(port)),
            // A host without IPv6 has no such table.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    ports.sort_unstable();
    ports.dedup();
    Ok(ports)
}

/// The port of a line: `   0: 0100007F:0016 00000000:0000 0A ...`.
fn port(line: &str) -> Option<u16> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, state) = (words.next()?, words.nth(1)?);
    let (address, port) = local.rsplit_once(':')?;
    let ipv4 = match address.len() {
        8 => address,
        _ if address.bytes().all(|digit| digit == b'0') => "00000000",
        _ => address.strip_prefix(MAPPED)?,
    };
    let first_octet = u32::from_str_radix(ipv4, 16).ok()?.to_ne_bytes()[0];
    (first_octet != 127 && state != TIME_WAIT).then(|| u16::from_str_radix(port, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn lines_of_the_kernel_name_ports() {
        let listening = "   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1";
        assert_eq!(port(listening), Some(22));
        assert_eq!(port(&listening.replace("00000000:0016", "0100007F:0016")), None, "127.0.0.1");
        assert_eq!(port(&listening.replace("00000000:0016", "050071CB:0016")), Some(22), "203.113.0.5");
        assert_eq!(port(&listening.replace("0A", "06")), None, "TIME-WAIT");
        let six = |address: &str| port(&format!("  0: {address}:1F90 00000000000000000000000000000000:0000 0A 0:0"));
        assert_eq!(six("00000000000000000000000000000000"), Some(8080));
        assert_eq!(six("0000000000000000FFFF0000050071CB"), Some(8080));
        assert_eq!(six("B80D0120000000000000000001000000"), None);
    }

    #[test]
    fn a_socket_shows() {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert!(in_use().unwrap()[1].contains(&port));
    }
}

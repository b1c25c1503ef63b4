//! SIIT between Linux hosts, for a transport that the gateway only knows by its header. Needs root
//! and skips loudly without it.

use std::io;
use std::net::{SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{SockaddrIn, SockaddrIn6, SockaddrLike, bind};
use tombolo_lab::{Lab, Topology, skip_without};

const TOMBOLO: &str = env!("CARGO_BIN_EXE_tombolo");
const PATIENCE: Duration = Duration::from_secs(20);
const CONFIGURATION: &str = r#"
[gateway]
fastpath = "off"

[[service]]
kind = "siit"
prefix = "2001:db8:64::/96"
eam = [{ ipv4 = "192.0.2.1", ipv6 = "2001:db8:1::2" }]
"#;

/// A socket of UDP-Lite, which the kernel checks as strictly as UDP.
fn udp_lite(family: i32, address: &dyn SockaddrLike) -> io::Result<UdpSocket> {
    const UDP_LITE: i32 = 136;
    // SAFETY: the call has no pointers.
    let number = unsafe { nix::libc::socket(family, nix::libc::SOCK_DGRAM | nix::libc::SOCK_CLOEXEC, UDP_LITE) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the socket was made just now, and nobody else has its number.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    bind(socket.as_raw_fd(), address)?;
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

#[test]
fn udp_lite_of_linux_hosts_crosses_with_right_checksums() {
    let name = "udp_lite_of_linux_hosts_crosses_with_right_checksums";
    if skip_without(name, &["ip"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let (client, server) = (lab.node("client").unwrap(), lab.node("server").unwrap());
    let here: SocketAddrV6 = "[2001:db8:1::2]:5000".parse().unwrap();
    let there: SocketAddrV4 = "198.51.100.2:7".parse().unwrap();
    let server = server.run(|| udp_lite(nix::libc::AF_INET, &SockaddrIn::from(there))).unwrap();
    if let Err(error) = &server {
        eprintln!("SKIP: {name}: no UDP-Lite in this kernel ({error})");
        return;
    }
    let server = server.unwrap();
    let client = client.run(|| udp_lite(nix::libc::AF_INET6, &SockaddrIn6::from(here))).unwrap().unwrap();
    let file = lab.directory().unwrap().join("gateway.toml");
    std::fs::write(&file, CONFIGURATION).unwrap();
    let command = lab.node("gateway").unwrap().command(TOMBOLO).args(["run", "-c"]);
    let mut gateway = command.arg(file.display().to_string()).spawn().unwrap();
    gateway.wait_for_text("ready", PATIENCE).unwrap();

    let mut buffer = [0; 2000];
    for length in [0, 1, 100, 1400] {
        let question: Vec<u8> = (0..length).map(|n: u32| n.to_le_bytes()[0]).collect();
        client.send_to(&question, "[2001:db8:64::c633:6402]:7").unwrap();
        let (received, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..received], from.to_string().as_str()), (&question[..], "192.0.2.1:5000"));
        server.send_to(&question, from).unwrap();
        let (received, from) = client.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..received], from.port()), (&question[..], 7));
    }
}

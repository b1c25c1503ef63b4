//! SIIT between Linux hosts: a transport that the gateway only knows by its header, what becomes of what it refuses,
//! and networks that lie in its prefix. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::io;
use std::net::{SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{SockaddrIn, SockaddrIn6, SockaddrLike, bind};
use tombolo_lab::{Lab, Process, Topology, skip_without};

const TOMBOLO: &str = env!("CARGO_BIN_EXE_tombolo");
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a SIIT with this in `[gateway]`.
fn start(lab: &Lab, settings: &str) -> Process {
    let text = format!(
        "[gateway]\nfastpath = \"off\"\n{settings}\n[[service]]\nkind = \"siit\"\nprefix = \"2001:db8:64::/96\"\n\
         eam = [{{ ipv4 = \"192.0.2.1\", ipv6 = \"2001:db8:1::2\" }}]\n"
    );
    lab.start_gateway("gateway", TOMBOLO, &text).unwrap()
}

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
    let _gateway = start(&lab, "");

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

#[test]
fn what_is_refused_is_told_and_logged_unless_the_file_says_otherwise() {
    let name = "what_is_refused_is_told_and_logged_unless_the_file_says_otherwise";
    if skip_without(name, &["ip"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let client = lab.node("client").unwrap();
    // To 169.254.1.1, which no router forwards to. What comes back within the time, if anything does.
    let refused = |patience: Duration| {
        let socket = client.run(|| UdpSocket::bind("[2001:db8:1::2]:5000")).unwrap().unwrap();
        socket.set_read_timeout(Some(patience)).unwrap();
        socket.connect("[2001:db8:64::169.254.1.1]:7").unwrap();
        socket.send(b"who is there?").unwrap();
        socket.recv(&mut [0]).unwrap_err().kind()
    };
    let mut gateway = start(&lab, "");
    assert_eq!(refused(PATIENCE), io::ErrorKind::PermissionDenied, "ICMPv6 1/1");
    let line = "refused reason=link-local-address source=2001:db8:1::2 destination=2001:db8:64::a9fe:101 protocol=17 \
                source_port=5000 destination_port=7";
    gateway.wait_for_text(line, PATIENCE).unwrap();
    gateway.stop();
    let gateway = start(&lab, "icmp_refusals = false");
    assert_eq!(refused(Duration::from_millis(500)), io::ErrorKind::WouldBlock);
    let said = gateway.stop().stderr;
    assert!(said.contains("reason=\"link-local-address\" count=1"), "it is counted: {said}");
    assert!(!said.contains("destination=2001:db8:64::a9fe:101"), "{said}");
}

/// RFC 7915 section 5.6: what has a more specific route than the prefix is not for the translator.
#[test]
fn networks_of_the_host_that_lie_in_the_prefix_keep_their_routes() {
    let name = "networks_of_the_host_that_lie_in_the_prefix_keep_their_routes";
    if skip_without(name, &["ip", "ping"]) {
        return;
    }
    for path in ["off", "tc"] {
        let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
        let run = |node: &str, program: &str, arguments: &str| {
            let command = lab.node(node).unwrap().command(program).args(arguments.split_ascii_whitespace());
            command.run().unwrap().success().unwrap_or_else(|error| panic!("{path}: {node}: {error:?}"));
        };
        for (node, address) in [("gateway", "2001:db8:1ff:1::1/64"), ("client", "2001:db8:1ff:1::2/64")] {
            run(node, "ip", &format!("address add {address} dev inside0 nodad"));
        }
        run("server", "ip", "-6 route replace default via 2001:db8:2::1");
        let text = format!(
            "[gateway]\nfastpath = \"{path}\"\n[[service]]\nkind = \"siit\"\nprefix = \"2001:db8:100::/40\"\n\
             eam = [{{ ipv4 = \"192.0.2.1\", ipv6 = \"2001:db8:1::2\" }}]\n"
        );
        let gateway = lab.start_gateway("gateway", TOMBOLO, &text).unwrap();
        let ping = |node: &str, to: &str| run(node, "ping", &format!("-c 3 -i 0.05 -W 2 {to}"));
        ping("client", "-I 2001:db8:1::2 2001:db8:1c6:3364:2::");
        ping("client", "2001:db8:1ff:1::1");
        ping("gateway", "2001:db8:1ff:1::2");
        ping("server", "2001:db8:1ff:1::2");
        drop(gateway);
        ping("server", "2001:db8:1ff:1::2");
    }
}

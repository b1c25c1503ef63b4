//! `tombolo doctor` with faults that somebody plants on the host of a gateway: no packet passes, the
//! doctor names the fault and the line that mends it, and with that line, as it is printed, packets
//! pass. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use tombolo_lab::{Lab, Peer, Topology, skip_without};

mod running;

use running::{SERVICES, TOMBOLO, rows, run};

/// The address of the NAT64 lies in the network of the link outside: nobody answers for it there.
fn services(fast_path: &str) -> String {
    let services = SERVICES.replace("\"192.0.2.1\"", "\"198.51.100.77\"");
    format!("[gateway]\nfastpath = \"{fast_path}\"\nproxy_neighbours = false\n{services}")
}

const NAT44: &str = "198.51.100.2:7";
const NAT64: &str = "[64:ff9b::198.51.100.2]:7";

/// Something that stops packets.
struct Fault {
    /// By a line for the shell.
    planted_by: &'static str,
    /// Who does not pass.
    stops: &'static str,
    /// What the doctor says of it, among other words.
    named: &'static str,
    /// What undoes what the fault and its cure have left.
    cleared_by: &'static str,
}

const FAULTS: &[Fault] = &[
    // An address of the pool on the link, and nobody answers for it. By the configuration.
    Fault { planted_by: "ip neigh flush proxy", stops: NAT64, named: "nobody answers there", cleared_by: "" },
    Fault {
        planted_by: "nft 'add table inet guard; \
                     add chain inet guard forward { type filter hook forward priority 0; policy drop; }'",
        stops: NAT44,
        named: "chain forward of table inet guard",
        cleared_by: "nft delete table inet guard",
    },
    Fault {
        planted_by: "nft 'table inet guard { chain guests { tcp dport 22 accept; udp dport != 53 drop; }; \
                     chain forward { type filter hook forward priority 0; iifname inside0 jump guests; }; }'",
        stops: NAT64,
        named: "chain guests of table inet guard",
        cleared_by: "nft delete table inet guard",
    },
    Fault {
        planted_by: "nft 'table ip6 early { chain raw { type filter hook prerouting priority raw; \
                     ip6 daddr 64:ff9b::/96 drop; }; }'",
        stops: NAT64,
        named: "chain raw of table ip6 early",
        cleared_by: "nft delete table ip6 early",
    },
    Fault {
        planted_by: "nft 'table inet guard { chain forward { type filter hook forward priority 0; policy drop; \
                     ct state established,related accept; iifname inside0 accept; }; }'",
        stops: NAT44,
        named: "from the gateway nat44: to outside: chain forward of table inet guard",
        cleared_by: "nft delete table inet guard",
    },
    Fault {
        planted_by: "iptables-nft -P FORWARD DROP",
        stops: NAT44,
        named: "chain FORWARD of table ip filter",
        cleared_by: "iptables-nft -P FORWARD ACCEPT; iptables-nft -F FORWARD; nft delete table ip filter",
    },
    Fault {
        planted_by: "ip6tables-nft -A FORWARD -s 2001:db8:1::/64 -j DROP",
        stops: NAT64,
        named: "chain FORWARD of table ip6 filter",
        cleared_by: "nft delete table ip6 filter",
    },
    // The way there is another one than the way back.
    Fault {
        planted_by: "M=$(ip neigh show 198.51.100.2 dev outside0 | sed 's/.*lladdr \\([^ ]*\\).*/\\1/'); \
                     ip link add link outside0 name other0 type macvlan mode bridge; \
                     sysctl -w net.ipv4.conf.other0.arp_ignore=1; ip link set other0 up; \
                     ip neigh add 198.51.100.2 lladdr $M dev other0; \
                     ip route add 198.51.100.2 dev other0 src 198.51.100.1; \
                     sysctl -w net.ipv4.conf.outside0.rp_filter=1",
        stops: NAT44,
        named: "rp_filter is strict on outside0",
        cleared_by: "ip link del other0",
    },
    Fault {
        planted_by: "sysctl -w net.ipv4.conf.inside0.forwarding=0",
        stops: NAT44,
        named: "no IPv4 packet that comes in by inside0",
        cleared_by: "",
    },
    Fault {
        planted_by: "sysctl -w net.ipv6.conf.tombolo.disable_ipv6=1",
        stops: NAT64,
        named: "IPv6 is switched off on tombolo",
        cleared_by: "",
    },
    Fault {
        planted_by: "ip -6 route add 64:ff9b::c633:6400/120 via 2001:db8:2::2",
        stops: NAT64,
        named: "takes packets for 64:ff9b::c633:6402",
        cleared_by: "",
    },
    Fault {
        planted_by: "ip route add 192.0.2.16/29 via 198.51.100.2; ip route add 192.0.2.24/29 via 198.51.100.2",
        stops: NAT44,
        named: "a part of 192.0.2.16/28",
        cleared_by: "",
    },
    Fault {
        planted_by: "ip -6 rule add pref 100 to 64:ff9b::/96 lookup 77; \
                     ip -6 route add default via 2001:db8:2::2 table 77",
        stops: NAT64,
        named: "the rule pref 100",
        cleared_by: "ip -6 route flush table 77",
    },
    Fault {
        planted_by: "ip rule add pref 100 iif outside0 lookup 77; ip route add default via 198.51.100.2 table 77",
        stops: NAT44,
        named: "the rule pref 100",
        cleared_by: "ip route flush table 77",
    },
    Fault {
        planted_by: "ip rule add pref 90 from 192.0.2.0/24 prohibit",
        stops: NAT44,
        named: "a rule of routing refuses",
        cleared_by: "",
    },
    Fault {
        planted_by: "ip route add blackhole 198.51.100.2",
        stops: NAT44,
        named: "drops packets for 198.51.100.2",
        cleared_by: "",
    },
    Fault {
        planted_by: "ip -6 route add unreachable 2001:db8:1::2",
        stops: NAT64,
        named: "drops packets for 2001:db8:1::2",
        cleared_by: "",
    },
    Fault {
        planted_by: "ip link set dev outside0 arp off",
        stops: NAT44,
        named: "outside0 asks for no neighbours",
        cleared_by: "",
    },
    Fault { planted_by: "sysctl -w net.ipv4.ip_forward=0", stops: NAT44, named: "does not forward", cleared_by: "" },
];

fn sh(lab: &Lab, line: &str) {
    lab.node("gateway").unwrap().command("sh").args(["-c", line]).run().unwrap().success().unwrap();
}

/// Whether a datagram of a new connection is answered within a time.
fn passes(lab: &Lab, to: &str, patience: Duration) -> bool {
    let to: SocketAddr = to.parse().unwrap();
    let began = Instant::now();
    loop {
        let from = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
        let socket = lab.node("client").unwrap().run(|| UdpSocket::bind(from).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(250))).unwrap();
        if socket.connect(to).is_ok() && socket.send(b"anybody?").is_ok() && socket.recv(&mut [0; 8]).is_ok() {
            return true;
        }
        if began.elapsed() > patience {
            return false;
        }
    }
}

/// Whether the doctor is content, and what it says.
fn doctor(lab: &Lab, file: &Path) -> (bool, Vec<Value>) {
    let command = lab.node("gateway").unwrap().command(TOMBOLO).args(["doctor", "--json", "-c"]);
    let command = command.arg(file.display().to_string());
    let ends = ["--inside", "10.0.0.2", "--inside", "2001:db8:1::2", "--remote", "198.51.100.2"];
    let output = command.args(ends).run().unwrap();
    let said = rows(&output.stdout);
    (output.success().is_ok(), said)
}

#[test]
fn each_of_the_planted_faults_is_found_and_mended_by_the_line() {
    let name = "each_of_the_planted_faults_is_found_and_mended_by_the_line";
    if skip_without(name, &["ip", "nft", "iptables-nft", "sysctl"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let file = lab.directory().unwrap().join("gateway.toml");
    fs::write(&file, services("off")).unwrap();
    let _server = Peer::udp_echo(lab.node("server").unwrap(), "0.0.0.0:7".parse().unwrap()).unwrap();
    let _gateway = run(TOMBOLO, &lab, &file);
    for &Fault { planted_by, stops, named, cleared_by } in FAULTS {
        let began = Instant::now();
        sh(&lab, planted_by);
        assert!(!passes(&lab, stops, Duration::ZERO), "{planted_by}: packets pass to {stops}");
        let (is_content, said) = doctor(&lab, &file);
        assert!(!is_content, "{planted_by}: {said:#?}");
        let faults: Vec<&Value> = said.iter().filter(|row| row["state"] == "fault").collect();
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        assert!(faults.iter().any(|row| text(row, "found").contains(named)), "{planted_by}: {faults:#?}");
        for row in &faults {
            sh(&lab, &text(row, "run"));
        }
        let lines: Vec<String> = faults.iter().map(|row| text(row, "run")).collect();
        assert!(passes(&lab, stops, Duration::from_secs(10)), "{planted_by}: not mended by {lines:?}");
        let (is_content, said) = doctor(&lab, &file);
        assert!(is_content, "{planted_by}: {said:#?}");
        assert!(said.iter().any(|row| text(row, "found").starts_with("8 packets came through")), "{said:#?}");
        println!("{:5.1} s  {planted_by}\n         {}", began.elapsed().as_secs_f64(), lines.join("\n         "));
        sh(&lab, cleared_by);
    }
}

/// What a gateway warns of when it starts, the doctor finds as well; and where the fast path takes its
/// packets, they have passed.
#[test]
fn a_gateway_warns_of_what_stands_in_the_way_when_it_starts() {
    if skip_without("a_gateway_warns_of_what_stands_in_the_way_when_it_starts", &["ip", "nft", "sysctl"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let file = lab.directory().unwrap().join("gateway.toml");
    fs::write(&file, services("tc")).unwrap();
    sh(&lab, "nft 'table inet guard { chain forward { type filter hook forward priority 0; policy drop; }; }'");
    sh(&lab, "ip rule add pref 100 to 192.0.2.0/24 prohibit");
    let gateway = run(TOMBOLO, &lab, &file);
    let said = gateway.stderr();
    for line in [
        "run: ip neigh replace proxy 198.51.100.77 dev outside0",
        "run: ip rule del pref 100 from all to 192.0.2.0/24 prohibit",
        "nft 'insert rule inet guard forward oifname \"tombolo\" accept'",
    ] {
        assert!(said.contains(line), "no {line} in {said}");
    }
    let (_, said) = doctor(&lab, &file);
    said.iter().filter_map(|row| row["run"].as_str()).for_each(|line| sh(&lab, line));
    sh(&lab, "nft delete table inet guard");
    let (is_content, said) = doctor(&lab, &file);
    assert!(is_content && said.iter().any(|row| row["check"] == "packets"), "{said:#?}");
}

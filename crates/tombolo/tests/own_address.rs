//! A host with one address: the gateway shares it with ssh, a resolver and connections of the host's own, and
//! follows it when it changes. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tombolo_lab::{Lab, Output, Peer, Process, Topology, skip_without, wait_until};

mod flows;
mod running;

use flows::{EndOnDrop, Stream};
use running::{PATIENCE, TOMBOLO, end, kill, rows, run, show};

const HOST: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// The server, as hosts inside and the host itself see it.
const THROUGH: &str = "64:ff9b::198.51.100.2";
const SERVER: &str = "198.51.100.2";
/// Of the gateway, and never of the host.
const PORTS: std::ops::RangeInclusive<u16> = 20_000..=39_999;

/// How long everything goes on at once.
fn duration() -> Duration {
    let seconds = std::env::var("TOMBOLO_ONE_ADDRESS_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(5))
}

struct Host {
    lab: Lab,
}

impl Host {
    fn new() -> Self {
        Self { lab: Lab::create(&Topology::client_gateway_server()).unwrap() }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.lab.directory().unwrap().join(name);
        fs::write(&file, text).unwrap();
        file
    }

    fn configure(&self, fastpath: &str, pool: &str) -> PathBuf {
        let text = format!(
            "[gateway]\nfastpath = \"{fastpath}\"\n[[service]]\nkind = \"nat64\"\nprefix = \"64:ff9b::/96\"\n\
             well_known_prefix_strict = false\n{pool}\n"
        );
        self.file("gateway.toml", &text)
    }

    fn start(&self, fastpath: &str) -> Process {
        let pool = "pool = [{ interface = \"outside0\", ports = \"20000-39999\" }]";
        run(TOMBOLO, &self.lab, &self.configure(fastpath, pool))
    }

    fn try_to(&self, node: &str, command: &str) -> Output {
        let mut words = command.split(' ');
        let program = words.next().unwrap();
        self.lab.node(node).unwrap().command(program).args(words).run().unwrap()
    }

    fn run(&self, node: &str, command: &str) -> String {
        // A server of iperf3 that has not done with its last client yet says so to the next one.
        let done = wait_until(command, PATIENCE, || {
            let output = self.try_to(node, command);
            let is_busy = [&output.stdout, &output.stderr].iter().any(|said| said.contains("the server is busy"));
            (!is_busy).then_some(output)
        });
        done.unwrap().success().unwrap().stdout
    }

    fn start_in(&self, node: &str, script: &str) -> Process {
        self.lab.node(node).unwrap().command("sh").args(["-c", script]).spawn().unwrap()
    }

    /// What of the host is the gateway's to change: rules, reserved ports, rules of netfilter.
    fn settings(&self) -> [String; 3] {
        let reserved = self.lab.node("gateway").unwrap().sysctl("net.ipv4.ip_local_reserved_ports").unwrap();
        [self.run("gateway", "ip rule"), reserved, self.run("gateway", "nft list ruleset")]
    }

    fn status(&self) -> String {
        show(&self.lab, "status")[0]["health"].as_str().unwrap().to_owned()
    }

    /// Until an echo request is answered that left by `address`.
    fn reaches_by(&self, address: &str) -> Duration {
        let began = Instant::now();
        let left = |row: &serde_json::Value| row["outside"] == *address;
        let answered = || {
            self.reaches("the server");
            show(&self.lab, "bindings").iter().any(left).then_some(())
        };
        wait_until("the other address is used", PATIENCE, answered).unwrap();
        began.elapsed()
    }

    /// Until an echo request is answered.
    fn reaches(&self, what: &str) -> Duration {
        let began = Instant::now();
        let ping = || self.try_to("client", &format!("ping -c 1 -W 0.1 {THROUGH}")).status.success().then_some(());
        wait_until(what, PATIENCE, ping).unwrap();
        began.elapsed()
    }

    /// sshd at port 22, and its key.
    fn sshd(&self) -> (Process, PathBuf) {
        let directory = self.lab.directory().unwrap();
        let [host_key, key] = ["host_key", "key"].map(|name| directory.join(name));
        for key in [&host_key, &key] {
            self.run("gateway", &format!("ssh-keygen -q -t ed25519 -f {} -N ", key.display()));
        }
        let configuration = format!(
            "HostKey {}\nAuthorizedKeysFile {}.pub\nPermitRootLogin yes\nUsePAM no\nStrictModes no\nPidFile none\n",
            host_key.display(),
            key.display()
        );
        let file = self.file("sshd_config", &configuration);
        // It wants a directory of its own in /run, where the lab's are.
        let script = format!(
            "mount --bind {0} /mnt && mount -t tmpfs none /run && mkdir -p /run/sshd {0} && mount --bind /mnt {0} && \
             exec /usr/sbin/sshd -D -e -f {1}",
            directory.display(),
            file.display()
        );
        let command = self.lab.node("gateway").unwrap().command("unshare").args(["-m", "sh", "-c", &script]);
        let mut sshd = command.spawn().unwrap();
        sshd.wait_for_text("listening on 0.0.0.0 port 22", PATIENCE).unwrap();
        (sshd, key)
    }

    /// A session from the server to the host: a line each tenth of a second, `lines` of them.
    fn session(&self, key: &std::path::Path, lines: u64) -> Process {
        let options = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes";
        let script = format!(
            "ssh {options} -i {} root@{HOST} 'n=0; while [ $n -lt {lines} ]; do n=$((n+1)); echo $n; sleep 0.1; done'",
            key.display()
        );
        self.start_in("server", &script)
    }

    /// A resolver of the host, that asks the one of the server whatever it is asked.
    fn resolvers(&self) -> [Process; 2] {
        let common = "username: \"\"\n chroot: \"\"\n pidfile: \"\"\n use-syslog: no\n do-daemonize: no\n verbosity: 1\n \
                      access-control: ::/0 allow\n access-control: 0.0.0.0/0 allow\n module-config: iterator\n";
        let there = format!(
            "server:\n {common} interface: {SERVER}\n local-zone: \"example.\" redirect\n local-data: \"example. 0 A {SERVER}\"\n"
        );
        let here = format!(
            "server:\n {common} interface: 2001:db8:1::1\n do-not-query-localhost: no\n do-ip6: yes\n prefer-ip4: yes\n\
             forward-zone:\n name: \".\"\n forward-addr: {SERVER}\n"
        );
        [("server", there), ("gateway", here)].map(|(node, text)| {
            let file = self.file(&format!("unbound-{node}.conf"), &text);
            let command = self.lab.node(node).unwrap().command("unbound").args(["-d", "-c"]);
            let mut unbound = command.arg(file.display().to_string()).spawn().unwrap();
            unbound.wait_for_text("start of service", PATIENCE).unwrap();
            unbound
        })
    }
}

/// Names that are asked for, one after the other: how many were, and which had no answer.
fn resolve(host: &Host, stop: &AtomicBool) -> (u64, Vec<String>) {
    let (mut asked, mut failed) = (0, Vec::new());
    while !stop.load(Ordering::Acquire) {
        asked += 1;
        let name = format!("n{asked}.example");
        let answer = host.try_to("client", &format!("dig +short +tries=1 +time=5 @2001:db8:1::1 {name}"));
        if answer.stdout.trim() != SERVER {
            failed.push(format!("{name}: {}", answer.stdout));
        }
    }
    (asked, failed)
}

/// Pages that a host inside fetches.
fn fetch(host: &Host, stop: &AtomicBool) -> (u64, Vec<String>) {
    let (mut asked, mut failed) = (0, Vec::new());
    while !stop.load(Ordering::Acquire) {
        asked += 1;
        let answer = host.try_to("client", &format!("curl -sS --max-time 5 http://[{THROUGH}]:8080/"));
        if answer.stdout != "a page" {
            failed.push(answer.stderr);
        }
    }
    (asked, failed)
}

/// Connections of the host itself: which local ports they had, and what went wrong.
fn connect(host: &Host, stop: &AtomicBool) -> (Vec<u16>, Vec<String>) {
    let (mut ports, mut failed) = (Vec::new(), Vec::new());
    let server: SocketAddr = format!("{SERVER}:8080").parse().unwrap();
    let body = || {
        while !stop.load(Ordering::Acquire) {
            match TcpStream::connect_timeout(&server, Duration::from_secs(3)).and_then(|stream| stream.local_addr()) {
                Ok(local) => ports.push(local.port()),
                Err(error) => failed.push(error.to_string()),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    host.lab.node("gateway").unwrap().run(body).unwrap();
    (ports, failed)
}

#[test]
fn ssh_a_resolver_and_hosts_inside_share_the_address() {
    if skip_without(
        "ssh_a_resolver_and_hosts_inside_share_the_address",
        &["sshd", "ssh", "ssh-keygen", "unbound", "dig", "curl", "iperf3", "nft"],
    ) {
        return;
    }
    let host = Host::new();
    let lab = &host.lab;
    let before = host.settings();
    let (_sshd, key) = host.sshd();
    let _resolvers = host.resolvers();
    let server = lab.node("server").unwrap();
    let _page = Peer::http(server, format!("{SERVER}:8080").parse().unwrap(), b"a page".to_vec()).unwrap();
    let _echo = Peer::udp_echo(server, format!("{SERVER}:7777").parse().unwrap()).unwrap();
    let _iperf = host.start_in("server", "exec iperf3 -s");
    for fastpath in ["tc", "xdp", "off"] {
        let gateway = host.start(fastpath);
        let lines = duration().as_secs() * 10;
        let session = host.session(&key, lines);
        let (stream, stop) = (Stream::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let _end = (EndOnDrop(&stop), EndOnDrop(&stream.stop));
            let names = scope.spawn(|| resolve(&host, &stop));
            let pages = scope.spawn(|| fetch(&host, &stop));
            let own = scope.spawn(|| connect(&host, &stop));
            let datagrams = scope.spawn(|| stream.run(lab, &format!("[{THROUGH}]:7777")));
            let bulk = host.start_in("client", &format!("exec iperf3 -c {THROUGH} -b 50M -t {}", duration().as_secs()));
            let said = session.wait(duration() * 3 + PATIENCE).unwrap().success().unwrap().stdout;
            assert_eq!(said.lines().count() as u64, lines, "{fastpath}: lines of the ssh session");
            bulk.wait(PATIENCE).unwrap().success().unwrap();
            stop.store(true, Ordering::Release);
            stream.stop.store(true, Ordering::Release);
            let (asked, unanswered) = names.join().unwrap();
            let (fetched, failed) = pages.join().unwrap();
            let (ports, refused) = own.join().unwrap();
            datagrams.join().unwrap();
            let lost = stream.lost().len() as u64 - flows::lost_at_the_ends(lab).min(stream.lost().len() as u64);
            println!(
                "fastpath {fastpath}: {lines} lines of ssh, {asked} names, {fetched} pages, {} connections of the host, \
                 {} datagrams of which {lost} were lost",
                ports.len(),
                stream.sent.load(Ordering::Acquire),
            );
            assert_eq!(unanswered, Vec::<String>::new(), "{fastpath}: of {asked} names");
            assert_eq!(failed, Vec::<String>::new(), "{fastpath}: of {fetched} pages");
            assert_eq!(refused, Vec::<String>::new(), "{fastpath}: of {} connections", ports.len());
            assert!(ports.len() > 50 && asked > 10 && fetched > 10);
            assert!(ports.iter().all(|port| !PORTS.contains(port)), "{fastpath}: the host has a port of the gateway");
            assert!(lost <= stream.sent.load(Ordering::Acquire) / 1000, "{fastpath}: {lost} datagrams");
        });
        for row in show(lab, "bindings") {
            let port = row["outside_port"].as_u64().unwrap();
            assert!(row["outside"] == HOST.to_string() && PORTS.contains(&u16::try_from(port).unwrap()), "{row}");
        }
        assert_eq!(host.status(), "ready");
        let log = end(gateway);
        assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
        assert_eq!(host.settings(), before, "{fastpath}: what was changed on the host is taken back");
    }
}

#[test]
fn the_host_keeps_what_is_its_own() {
    if skip_without("the_host_keeps_what_is_its_own", &["ping", "iperf3", "nft"]) {
        return;
    }
    let host = Host::new();
    let before = host.settings();
    host.lab.node("gateway").unwrap().set_sysctl("net.ipv4.conf.all.rp_filter", "1").unwrap();
    // A port of the range that the host has already, and one that it takes later.
    let mut early = host.start_in("gateway", "exec iperf3 -s --forceflush -p 25000");
    early.wait_for_text("listening", PATIENCE).unwrap();
    let gateway = host.start("off");
    let rules = host.run("gateway", "ip rule");
    assert!(rules.contains("dport 20000-24999") && rules.contains("dport 25001-39999"), "{rules}");
    let mut late = host.start_in("gateway", "exec iperf3 -s --forceflush -p 26000");
    late.wait_for_text("listening", PATIENCE).unwrap();
    let _server = host.start_in("server", "exec iperf3 -s");
    for port in ["25000", "26000"] {
        host.run("server", &format!("iperf3 -c {HOST} -p {port} -n 1M"));
        host.run("client", &format!("iperf3 -c 64:ff9b::{HOST} -p {port} -n 1M"));
    }
    let left_out = || host.run("gateway", "ip rule").contains("dport 26001-39999").then_some(());
    wait_until("the later port is left out, too", PATIENCE, left_out).unwrap();
    host.run("client", &format!("iperf3 -c 64:ff9b::{HOST} -p 26000 -n 1M"));
    // Pings in all directions; fragments, which have no ports, to a host inside and to the host.
    host.run("server", &format!("ping -c 2 -i 0.05 -s 3000 {HOST}"));
    host.run("client", &format!("ping -c 2 -i 0.05 64:ff9b::{HOST}"));
    host.run("gateway", &format!("ping -c 2 -i 0.05 -s 3000 {SERVER}"));
    host.run("gateway", &format!("ping -c 2 -i 0.05 {HOST}"));
    let report = host.run("client", &format!("iperf3 -J -u -R -l 3000 -b 2M -t 1 -c {THROUGH}"));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let sum = &report["end"]["sum"];
    assert!(sum["packets"].as_u64().unwrap() > 50 && sum["lost_packets"] == 0, "{sum}");
    // Errors about the host's own packets: the way is found to be narrower.
    let closed = host.try_to("gateway", &format!("iperf3 -c {SERVER} -p 9 -n 1M"));
    assert!(closed.stdout.contains("Connection refused") || closed.stderr.contains("Connection refused"));
    end(gateway);
    assert_eq!(host.settings(), before);
    drop((early, late));
}

#[test]
fn the_address_is_followed_and_everything_is_taken_back() {
    if skip_without("the_address_is_followed_and_everything_is_taken_back", &["ping", "nft"]) {
        return;
    }
    let host = Host::new();
    let before = host.settings();
    host.run("gateway", "ip route add default via 198.51.100.2");
    for fastpath in ["tc", "off"] {
        let file = host.configure(fastpath, "masquerade = true");
        let mut gateway = run(TOMBOLO, &host.lab, &file);
        host.reaches("the server");
        // As a DHCP client does it.
        host.run("gateway", "ip addr add 198.51.100.9/24 dev outside0");
        host.run("gateway", "ip addr del 198.51.100.1/24 dev outside0");
        host.run("gateway", "ip addr replace 198.51.100.9/24 dev outside0");
        host.run("gateway", "ip route replace default via 198.51.100.2");
        let took = host.reaches_by("198.51.100.9");
        println!("fastpath {fastpath}: the new address was followed within {took:?}");
        assert!(took < PATIENCE, "{fastpath}: {took:?}");
        gateway.wait_for_text("of nat64 on 198.51.100.1 end", PATIENCE).unwrap();
        let rows = show(&host.lab, "bindings");
        let outside = |row: &serde_json::Value| row["outside"] == "198.51.100.9";
        assert!(!rows.is_empty() && rows.iter().all(outside), "{rows:?}");
        // Without an address nobody gets out, and the gateway says so.
        host.run("gateway", "ip addr flush dev outside0");
        let degraded = || (host.status() == "degraded").then_some(());
        wait_until("the gateway lacks an address", PATIENCE, degraded).unwrap();
        host.run("gateway", "ip addr add 198.51.100.1/24 dev outside0");
        host.run("gateway", "ip route replace default via 198.51.100.2");
        host.reaches("the server, by the first address");
        wait_until("the gateway has one", PATIENCE, || (host.status() == "ready").then_some(())).unwrap();
        if fastpath == "tc" {
            end(gateway);
            assert_eq!(host.settings(), before, "{fastpath}");
            continue;
        }
        // Other ports, by a reload.
        host.configure(fastpath, "pool = [{ interface = \"auto\", ports = \"30000-30999\" }]");
        let plan = host.run("gateway", &format!("{TOMBOLO} plan"));
        assert!(plan.contains("pool"), "{plan}");
        host.run("gateway", &format!("{TOMBOLO} reload"));
        let [rules, reserved, _] = host.settings();
        assert!(rules.contains("dport 30000-30999") && !rules.contains("dport 10000-29999"), "{rules}");
        assert_eq!(reserved.trim(), "30000-30999");
        host.reaches("the server, by other ports");
        // A gateway that is killed leaves rules that lead nowhere: the host has its address for itself.
        kill(&mut gateway);
        host.run("server", &format!("ping -c 1 {HOST}"));
        let gateway = run(TOMBOLO, &host.lab, &file);
        host.reaches("the server, after a restart");
        end(gateway);
        assert_eq!(host.settings(), before, "{fastpath}");
        let mut gateway = run(TOMBOLO, &host.lab, &file);
        kill(&mut gateway);
        host.run("gateway", &format!("{TOMBOLO} down -c {}", file.display()));
        assert_eq!(host.settings(), before, "{fastpath}");
    }
}

#[test]
fn an_address_is_waited_for() {
    if skip_without("an_address_is_waited_for", &["ping"]) {
        return;
    }
    let host = Host::new();
    host.run("gateway", "ip addr flush dev outside0");
    let gateway = host.start("off");
    let status = host.run("gateway", &format!("{TOMBOLO} show status --json"));
    let status = &rows(&status)[0];
    assert_eq!(status["health"], "degraded");
    assert!(status["faults"][0].as_str().unwrap().contains("outside0 has no IPv4 address"), "{status}");
    host.run("gateway", "ip addr add 198.51.100.1/24 dev outside0");
    let took = host.reaches("the server");
    println!("the address was there, and used after {took:?}");
    assert!(took < PATIENCE, "{took:?}");
    end(gateway);
}

/// What a host inside and the host itself do at once, through a service with IPv4 inside.
fn shares_with_hosts_of_ipv4(lab: &Lab, what: &str) {
    let server = lab.node("server").unwrap();
    let page = Peer::http(server, format!("{SERVER}:8080").parse().unwrap(), b"a page".to_vec()).unwrap();
    let _echo = Peer::udp_echo(server, format!("{SERVER}:7777").parse().unwrap()).unwrap();
    let try_to = |node: &str, script: &str| lab.node(node).unwrap().command("sh").args(["-c", script]).run().unwrap();
    // Who is on the links has been found out before anything is counted: the host answers for a B4 after a while.
    try_to("client", &format!("ping -c 1 {SERVER}")).success().unwrap();
    let fetch = format!("curl -sS --max-time 5 http://{SERVER}:8080/");
    let stream = Stream::default();
    std::thread::scope(|scope| {
        let _end = EndOnDrop(&stream.stop);
        scope.spawn(|| stream.run(lab, &format!("[::ffff:{SERVER}]:7777")));
        for _ in 0..20 {
            let fetched = try_to("client", &fetch).success().unwrap().stdout;
            let client = page.last_client().unwrap();
            assert_eq!((fetched.as_str(), client.ip()), ("a page", HOST.into()), "{what}");
            assert!(PORTS.contains(&client.port()), "{what}: {client}");
            let own = try_to("gateway", &fetch).success().unwrap().stdout;
            let client = page.last_client().unwrap();
            assert!(own == "a page" && client.ip() == HOST && !PORTS.contains(&client.port()), "{what}: {client}");
        }
        for node in ["client", "gateway"] {
            try_to(node, &format!("ping -c 3 -i 0.05 {SERVER}")).success().unwrap();
        }
        try_to("server", &format!("ping -c 3 -i 0.05 {HOST}")).success().unwrap();
    });
    let (sent, lost) = (stream.sent.load(Ordering::Acquire), stream.lost().len());
    println!("{what}: {lost} of {sent} datagrams were lost");
    assert!(sent > 100 && lost as u64 <= sent / 1000, "{what}: {lost} of {sent}");
    assert_eq!(show(lab, "status")[0]["health"], "ready", "{what}");
}

#[test]
fn a_nat44_shares_the_address() {
    if skip_without("a_nat44_shares_the_address", &["ping", "curl", "nft"]) {
        return;
    }
    let host = Host::new();
    for fastpath in ["tc", "xdp", "off"] {
        let text = format!(
            "[gateway]\nfastpath = \"{fastpath}\"\n[[service]]\nkind = \"nat44\"\ninside = [\"10.0.0.0/24\"]\n\
             pool = [{{ interface = \"outside0\", ports = \"20000-39999\" }}]\n"
        );
        let gateway = run(TOMBOLO, &host.lab, &host.file("gateway.toml", &text));
        shares_with_hosts_of_ipv4(&host.lab, &format!("NAT44, fastpath {fastpath}"));
        end(gateway);
    }
}

#[test]
fn an_aftr_shares_the_address() {
    if skip_without("an_aftr_shares_the_address", &["ping", "curl", "nft"]) {
        return;
    }
    let host = Host { lab: Lab::create(&Topology::client_cpe_gateway_server()).unwrap() };
    let b4 = "[gateway]\nfastpath = \"off\"\n[[service]]\nkind = \"b4\"\naftr = \"2001:db8:a::1\"\n\
              address = \"2001:db8:c::b4\"\ninside = [\"10.0.0.0/24\"]\n";
    let file = host.file("b4.toml", b4);
    let command = host.lab.node("cpe").unwrap().command(TOMBOLO).args(["run", "-c"]);
    let mut b4 = command.arg(file.display().to_string()).spawn().unwrap();
    b4.wait_for_text("ready", PATIENCE).unwrap();
    for fastpath in ["tc", "off"] {
        let text = format!(
            "[gateway]\nfastpath = \"{fastpath}\"\n[[service]]\nkind = \"aftr\"\naddress = \"2001:db8:a::1\"\nb4s = [\"2001:db8:c::/64\"]\n\
             pool = [{{ interface = \"outside0\", ports = \"20000-39999\" }}]\n"
        );
        let gateway = run(TOMBOLO, &host.lab, &host.file("gateway.toml", &text));
        shares_with_hosts_of_ipv4(&host.lab, &format!("AFTR, fastpath {fastpath}"));
        end(gateway);
    }
}

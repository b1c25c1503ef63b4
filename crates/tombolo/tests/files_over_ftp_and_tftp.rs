//! FTP and TFTP between Debian's servers and clients, through a NAT44 and a NAT64 that know nothing of either, and that
//! help FTP: what docs/decisions/application-helpers.md says of them. Needs root, vsftpd, curl and tftp-hpa, and skips loudly
//! without them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tombolo_lab::{Lab, Output, Process, Topology, skip_without, wait_until};

mod running;

use running::{PATIENCE, SERVICES, TOMBOLO, end, kill, run, show};

/// What is fetched: more than TFTP's blocks of 512 bytes, and not a whole number of them.
fn content() -> Vec<u8> {
    (0..200_001_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0]).collect()
}

/// Servers on the outside, with one file.
struct Servers {
    directory: PathBuf,
    _ftp: Process,
    _tftp: Process,
}

impl Servers {
    fn start(lab: &Lab, settings_of_ftp: &str) -> Self {
        let directory = lab.directory().unwrap().join("served");
        let empty = lab.directory().unwrap().join("empty");
        for (path, mode) in [(&lab.directory().unwrap(), 0o755), (&directory, 0o555), (&empty, 0o555)] {
            fs::create_dir_all(path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::write(directory.join("file"), content()).unwrap();
        fs::set_permissions(directory.join("file"), fs::Permissions::from_mode(0o444)).unwrap();
        let settings = format!(
            "listen=YES\nbackground=NO\nanonymous_enable=YES\nno_anon_password=YES\nanon_root={}\nsecure_chroot_dir={}\n\
             seccomp_sandbox=NO\nisolate=NO\nisolate_network=NO\nxferlog_enable=NO\n\
             {settings_of_ftp}\n",
            directory.display(),
            empty.display()
        );
        let file = lab.directory().unwrap().join("vsftpd.conf");
        fs::write(&file, settings).unwrap();
        let server = lab.node("server").unwrap();
        let ftp = server.command("vsftpd").args([&file.display().to_string()]).spawn().unwrap();
        let tftp = server.command("in.tftpd").args(["--foreground", "--listen", "--address", "198.51.100.2:69"]);
        let tftp = tftp.args(["--secure", &directory.display().to_string()]).spawn().unwrap();
        let listen = || server.command("ss").args(["-Htuln"]).run().unwrap().success().unwrap().stdout;
        let is_ready = |text: &str| text.contains(":21 ") && text.contains(":69 ");
        wait_until("the servers listen", PATIENCE, || is_ready(&listen()).then_some(())).unwrap();
        Self { directory, _ftp: ftp, _tftp: tftp }
    }
}

fn curl(lab: &Lab, url: &str, options: &[&str]) -> (Output, Vec<u8>) {
    let file = lab.directory().unwrap().join("fetched");
    let _ = fs::remove_file(&file);
    let curl = lab.node("client").unwrap().command("curl");
    let output = curl.args(["-sS", "--globoff", "--max-time", "15", "-o", &file.display().to_string()]);
    let output = output.args(options.iter().copied()).args([url]).run().unwrap();
    (output, fs::read(file).unwrap_or_default())
}

#[track_caller]
fn assert_fetched(lab: &Lab, url: &str, options: &[&str]) {
    let (output, fetched) = curl(lab, url, options);
    output.success().unwrap_or_else(|error| panic!("{url} {options:?}: {error}"));
    assert!(fetched == content(), "{url} {options:?}: {} bytes", fetched.len());
}

/// With the client of tftp-hpa, which writes into the directory where it is.
fn tftp(lab: &Lab, family: &str, server: &str, into: &Path) {
    let _ = fs::remove_file(into.join("fetched"));
    let script = format!("cd {} && tftp {family} -m octet {server} -c get file fetched", into.display());
    lab.node("client").unwrap().command("sh").args(["-c", &script]).run().unwrap().success().unwrap();
    assert!(fs::read(into.join("fetched")).unwrap() == content(), "{server}");
}

#[test]
fn ftp_and_tftp_of_debian_cross_without_a_helper() {
    let needed = ["ip", "ss", "curl", "vsftpd", "in.tftpd", "tftp"];
    if skip_without("ftp_and_tftp_of_debian_cross_without_a_helper", &needed) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let servers = Servers::start(&lab, "");
    let file = lab.directory().unwrap().join("gateway.toml");
    // The strictest filtering there is: a server may answer from another port, but not from another address.
    let strict = SERVICES.replace("pool   =", "filtering = \"address-dependent\"\npool   =");
    for fastpath in ["off", "auto"] {
        fs::write(&file, format!("[gateway]\nfastpath = \"{fastpath}\"\n{strict}")).unwrap();
        let gateway = run(TOMBOLO, &lab, &file);
        let (ipv4, ipv6) = ("ftp://198.51.100.2/file", "ftp://[64:ff9b::c633:6402]/file");
        // EPSV names a port alone (RFC 2428), which is right on either side of any translator.
        assert_fetched(&lab, ipv4, &[]);
        assert_fetched(&lab, ipv6, &[]);
        // PASV names the server's address: behind a NAT44 it is the one that the client knows.
        assert_fetched(&lab, ipv4, &["--disable-epsv"]);
        // Here the server opens the connection, to an address that it does not know (RFC 959 PORT, RFC 2428 EPRT).
        // curl's status 30: the server has refused it; 28: nobody has come.
        for (url, address) in [(ipv4, "10.0.0.2"), (ipv6, "2001:db8:1::2")] {
            let (output, _) = curl(&lab, url, &["-P", address, "--max-time", "4"]);
            let refused = output.success().unwrap_err().to_string();
            assert!(refused.contains("status 30") || refused.contains("status 28"), "{refused}");
        }
        // The answer comes from a port of its own (RFC 1350 section 4).
        for server in ["198.51.100.2", "[64:ff9b::c633:6402]"] {
            assert_fetched(&lab, &format!("tftp://{server}/file"), &[]);
        }
        tftp(&lab, "-4", "198.51.100.2", &lab.directory().unwrap());
        tftp(&lab, "-6", "64:ff9b::c633:6402", &lab.directory().unwrap());
        end(gateway);
    }
    assert!(servers.directory.exists());
}

/// What the gateways of these tests help with, and whom they let in.
fn services_with_a_helper() -> String {
    SERVICES.replace("pool   =", "filtering = \"address-dependent\"\nhelpers = [\"ftp\"]\npool   =")
}

/// Packets that the programs in the kernel have left to the engine for the helper.
fn left_for_the_helper(lab: &Lab) -> u64 {
    let rows = show(lab, "fastpath");
    let left = rows.iter().find(|row| row["what"] == "left" && row["name"] == "helper");
    left.map_or(0, |row| row["value"].as_str().unwrap().parse().unwrap())
}

#[test]
fn active_mode_and_servers_without_epsv_cross_with_the_helper() {
    let needed = ["ip", "ss", "curl", "vsftpd", "in.tftpd"];
    if skip_without("active_mode_and_servers_without_epsv_cross_with_the_helper", &needed) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    // A server that has never heard of IPv6.
    let _servers = Servers::start(&lab, "cmds_denied=EPSV,EPRT");
    let file = lab.directory().unwrap().join("gateway.toml");
    let (ipv4, ipv6) = ("ftp://198.51.100.2/file", "ftp://[64:ff9b::c633:6402]/file");
    for fastpath in ["off", "auto"] {
        fs::write(&file, format!("[gateway]\nfastpath = \"{fastpath}\"\n{}", services_with_a_helper())).unwrap();
        let gateway = run(TOMBOLO, &lab, &file);
        assert_fetched(&lab, ipv4, &["--disable-epsv"]);
        assert_fetched(&lab, ipv4, &["-P", "10.0.0.2", "--disable-eprt"]);
        // EPSV, which the server would refuse, and which it hears as PASV; EPRT, as PORT.
        assert_fetched(&lab, ipv6, &[]);
        assert_fetched(&lab, ipv6, &["-P", "2001:db8:1::2"]);
        // Several files in one connection, each announced anew.
        let (output, _) = curl(&lab, ipv6, &["-P", "2001:db8:1::2", ipv6, "-o", "/dev/null", ipv6, "-o", "/dev/null"]);
        output.success().unwrap();
        assert_eq!(left_for_the_helper(&lab) > 50, fastpath == "auto", "{:?}", show(&lab, "fastpath"));
        end(gateway);
    }
}

/// A control connection of FTP.
struct Control(BufReader<TcpStream>);

impl Control {
    fn open() -> Self {
        let stream = TcpStream::connect("198.51.100.2:21").unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut control = Self(BufReader::new(stream));
        control.expect("220");
        control
    }

    /// Opens one and fetches the file over it, so that its numbers differ.
    fn used() -> Self {
        let mut control = Self::open();
        control.say("USER anonymous", "230");
        assert!(control.fetch() == content());
        control
    }

    fn expect(&mut self, code: &str) {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert!(line.starts_with(code), "{line}");
    }

    fn say(&mut self, command: &str, code: &str) {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        self.expect(code);
    }

    /// Fetches the file in active mode.
    fn fetch(&mut self) -> Vec<u8> {
        let listener = TcpListener::bind("10.0.0.2:0").unwrap();
        let [high, low] = listener.local_addr().unwrap().port().to_be_bytes();
        self.say(&format!("PORT 10,0,0,2,{high},{low}"), "200");
        self.say("RETR file", "150");
        let (mut data, _) = listener.accept().unwrap();
        let mut fetched = Vec::new();
        data.read_to_end(&mut fetched).unwrap();
        self.expect("226");
        fetched
    }
}

#[test]
fn a_control_connection_outlives_a_gateway_that_is_killed() {
    if skip_without("a_control_connection_outlives_a_gateway_that_is_killed", &["ip", "ss", "vsftpd", "in.tftpd"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let _servers = Servers::start(&lab, "");
    let file = lab.directory().unwrap().join("gateway.toml");
    fs::write(&file, services_with_a_helper()).unwrap();
    let mut gateway = run(TOMBOLO, &lab, &file);
    let client = lab.node("client").unwrap();
    let mut control = client.run(Control::used).unwrap();
    kill(&mut gateway);
    let gateway = run(TOMBOLO, &lab, &file);
    client
        .run(|| {
            assert!(control.fetch() == content(), "the numbers still differ by what was rewritten before");
            control.say("QUIT", "221");
        })
        .unwrap();
    end(gateway);
    // Room for other numbers of bindings: the tables are made anew, and what they held is carried over.
    let mut gateway = run(TOMBOLO, &lab, &file);
    let mut control = client.run(Control::used).unwrap();
    kill(&mut gateway);
    fs::write(&file, services_with_a_helper().replace("bindings = 10000", "bindings = 20000")).unwrap();
    let gateway = run(TOMBOLO, &lab, &file);
    client.run(|| assert!(control.fetch() == content(), "and they are carried over")).unwrap();
    end(gateway);
}

//! FTP and TFTP between Debian's servers and clients, through a NAT44 and a NAT64 that know nothing of either: what
//! docs/decisions/no-application-helpers.md says of them. Needs root, vsftpd, curl and tftp-hpa, and skips loudly
//! without them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tombolo_lab::{Lab, Output, Process, Topology, skip_without, wait_until};

mod running;

use running::{PATIENCE, SERVICES, TOMBOLO, end, run};

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
    fn start(lab: &Lab) -> Self {
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
             seccomp_sandbox=NO\nisolate=NO\nisolate_network=NO\nxferlog_enable=NO\n",
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
    let servers = Servers::start(&lab);
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

//! The log of bindings over TLS (RFC 5425): whom it is sent to and whom not, and rsyslogd where it is unpacked
//! (`scripts/tools.sh`). Needs root and openssl, and skips loudly without them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::io::Read as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use tombolo_lab::{Lab, Namespace, Peer, Process, Topology, skip, skip_without, wait_until};

mod flows;
mod running;

use flows::ask;
use running::{PATIENCE, SERVICES, TOMBOLO, end, rows, run};

const ADDRESS: &str = "198.51.100.2";

/// An authority and what it has signed: a collector that is what it says, one whose time is over, a gateway.
struct Certificates(PathBuf);

impl Certificates {
    fn make(directory: &Path) -> Self {
        let made = Self(directory.join("certificates"));
        fs::create_dir(&made.0).unwrap();
        let settings = format!(
            "[ca]\ndefault_ca = d\n[d]\ndatabase = index\nnew_certs_dir = .\nserial = serial\npolicy = p\ndefault_md = sha256\n\
             unique_subject = no\nx509_extensions = v\n[p]\ncommonName = supplied\n[v]\nsubjectAltName = IP:{ADDRESS}, DNS:logs.example.net\n"
        );
        fs::write(made.0.join("ca.conf"), settings).unwrap();
        fs::write(made.0.join("index"), "").unwrap();
        fs::write(made.0.join("serial"), "01\n").unwrap();
        for name in ["ca", "stranger"] {
            made.openssl(&format!("req -x509 {NEW} -keyout {name}.key -out {name}.pem -subj /CN={name} -days 2"));
        }
        for (name, end) in [("good", "20991231000000Z"), ("old", "20200102000000Z"), ("gateway", "20991231000000Z")] {
            made.openssl(&format!("req {NEW} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
            made.openssl(&format!(
                "ca -batch -config ca.conf -notext -cert ca.pem -keyfile ca.key -in {name}.csr -out {name}.pem \
                 -startdate 20200101000000Z -enddate {end}"
            ));
        }
        made
    }

    fn openssl(&self, words: &str) -> String {
        let output = Command::new("openssl").args(words.split_whitespace()).current_dir(&self.0).output().unwrap();
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn fingerprint(&self, name: &str) -> String {
        let said = self.openssl(&format!("x509 -in {name}.pem -noout -fingerprint -sha256"));
        said.trim().split_once('=').unwrap().1.to_owned()
    }

    fn chain(&self, name: &str) -> Vec<CertificateDer<'static>> {
        vec![CertificateDer::from_pem_file(self.path(name)).unwrap()]
    }

    /// What comes to a port, over TLS; from those alone who have a certificate, if that `is_asked_for`.
    fn collect(&self, node: &Namespace, port: u16, name: &str, is_asked_for: bool) -> Arc<Mutex<String>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = if is_asked_for {
            let mut roots = RootCertStore::empty();
            roots.add(self.chain("ca.pem").remove(0)).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).unwrap();
        let config = Arc::new(builder.with_single_cert(self.chain(&format!("{name}.pem")), key).unwrap());
        let listener = node.run(move || TcpListener::bind((ADDRESS, port)).unwrap()).unwrap();
        let taken = Arc::<Mutex<String>>::default();
        let all = Arc::clone(&taken);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
                let all = Arc::clone(&all);
                std::thread::spawn(move || {
                    let mut piece = [0; 4096];
                    while let Ok(length @ 1..) = stream.read(&mut piece) {
                        all.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..length]));
                    }
                });
            }
        });
        taken
    }
}

const NEW: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

struct Setup {
    lab: Lab,
    log: PathBuf,
    file: PathBuf,
}

impl Setup {
    fn new() -> Self {
        let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
        let directory = lab.directory().unwrap();
        let (log, file) = (directory.join("bindings.jsonl"), directory.join("gateway.toml"));
        Self { lab, log, file }
    }

    fn configure(&self, collectors: &str) {
        let log = self.log.display();
        let own = format!("fastpath = \"off\"\nbinding_log = \"{log}\"\nbinding_log_collectors = [{collectors}]\n");
        fs::write(&self.file, format!("[gateway]\n{own}\n{SERVICES}")).unwrap();
    }

    fn start(&self) -> Process {
        run(TOMBOLO, &self.lab, &self.file)
    }

    fn tombolo(&self, words: &[&str]) -> String {
        let output = self.lab.node("gateway").unwrap().command(TOMBOLO).args(words.iter().copied()).run().unwrap();
        output.success().unwrap().stdout
    }

    fn wait_for_fault(&self, fault: &str) {
        wait_until(fault, PATIENCE, || self.tombolo(&["show", "status", "--json"]).contains(fault).then_some(()))
            .unwrap();
    }

    /// It has all lines that there are.
    fn wait_for_lines(&self, what: &str, taken: impl Fn() -> String) {
        wait_until(what, PATIENCE, || {
            let (lines, taken) = (fs::read_to_string(&self.log).unwrap(), taken());
            lines.lines().all(|line| taken.contains(line)).then_some(())
        })
        .unwrap();
    }
}

#[test]
fn a_collector_that_is_not_whom_it_should_be_gets_nothing() {
    let name = "a_collector_that_is_not_whom_it_should_be_gets_nothing";
    if skip_without(name, &["openssl"]) {
        return;
    }
    let setup = Setup::new();
    let made = Certificates::make(&setup.lab.directory().unwrap());
    let server = setup.lab.node("server").unwrap();
    let _echo = Peer::udp_echo(server, "198.51.100.2:7".parse().unwrap()).unwrap();
    let good = made.collect(server, 6514, "good", false);
    let old = made.collect(server, 601, "old", false);
    let asking = made.collect(server, 4739, "good", true);
    let to = |port: u16, more: &str| format!("{{ to = \"syslog+tls://{ADDRESS}:{port}\", {more} }}");
    let by = |authority: &str| format!("ca = \"{}\"", made.path(authority));

    // The right one, and one whose certificate is too old.
    setup.configure(&[to(6514, &by("ca.pem")), to(601, &by("ca.pem"))].join(", "));
    let gateway = setup.start();
    ask(&setup.lab, "198.51.100.2:7");
    wait_until("it gets lines", PATIENCE, || good.lock().unwrap().contains("\"created\"").then_some(())).unwrap();
    setup.wait_for_lines("the right one gets all lines", || good.lock().unwrap().clone());
    setup.wait_for_fault("198.51.100.2:601 gets no lines: invalid peer certificate: certificate expired");
    let text = good.lock().unwrap().clone();
    assert!(text.contains(" tombolo "), "{text}");

    // One for another name; the old one, which is known by its fingerprint; one that asks who is there.
    let fingerprint = format!("fingerprint = \"{}\"", made.fingerprint("old"));
    let other = format!("{}, name = \"other.example.net\"", by("ca.pem"));
    setup.configure(&[to(6514, &other), to(601, &fingerprint), to(4739, &by("ca.pem"))].join(", "));
    setup.tombolo(&["reload"]);
    setup.wait_for_fault("198.51.100.2:6514 gets no lines: invalid peer certificate: certificate not valid for name");
    setup.wait_for_fault("198.51.100.2:4739 gets no lines: received fatal alert");
    ask(&setup.lab, "[64:ff9b::c633:6402]:7");
    wait_until("the old one gets lines", PATIENCE, || old.lock().unwrap().contains("\"nat64\"").then_some(())).unwrap();

    // An authority that nobody knows, another fingerprint; and the gateway says who it is.
    let wrong = format!("fingerprint = \"{}\"", made.fingerprint("good"));
    let own = format!("certificate = \"{}\", key = \"{}\"", made.path("gateway.pem"), made.path("gateway.key"));
    let with_name = format!("{}, name = \"logs.example.net\", {own}", by("ca.pem"));
    setup.configure(&[to(6514, &by("stranger.pem")), to(601, &wrong), to(4739, &with_name)].join(", "));
    setup.tombolo(&["reload"]);
    setup.wait_for_fault("198.51.100.2:6514 gets no lines: invalid peer certificate: UnknownIssuer");
    setup.wait_for_fault("198.51.100.2:601 gets no lines: invalid peer certificate");
    setup.tombolo(&["flush"]);
    wait_until("it gets lines", PATIENCE, || asking.lock().unwrap().contains("\"removed\"").then_some(())).unwrap();

    // What is no certificate is refused, and nothing is changed.
    fs::write(made.path("empty.pem"), "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n").unwrap();
    setup.configure(&to(6514, &by("empty.pem")));
    let output = setup.lab.node("gateway").unwrap().command(TOMBOLO).arg("reload").run().unwrap();
    assert!(output.stderr.contains("gateway.binding_log cannot be followed"), "{}", output.stderr);
    end(gateway);
    let (good, old, asking) = (good.lock().unwrap(), old.lock().unwrap(), asking.lock().unwrap());
    assert!(!good.contains("\"nat64\"") && !asking.contains("\"event\":\"created\"") && !old.contains("\"removed\""));
    let lines = rows(&fs::read_to_string(&setup.log).unwrap());
    assert!(lines.iter().any(|line| line["event"] == "stop"));
}

#[test]
fn rsyslogd_takes_the_log_over_tls() {
    let name = "rsyslogd_takes_the_log_over_tls";
    if skip_without(name, &["openssl"]) {
        return;
    }
    let tools = std::env::var_os("TOMBOLO_TOOLS").map(PathBuf::from).unwrap_or_default();
    let libraries = tools.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    if !libraries.join("rsyslog/lmnsd_gtls.so").exists() {
        return skip(name, "rsyslogd with TLS is not there: TOMBOLO_TOOLS=$(scripts/tools.sh)");
    }
    let setup = Setup::new();
    let directory = setup.lab.directory().unwrap();
    let made = Certificates::make(&directory);
    let server = setup.lab.node("server").unwrap();
    let _echo = Peer::udp_echo(server, "198.51.100.2:7".parse().unwrap()).unwrap();
    let (taken, file) = (directory.join("tls.log"), directory.join("rsyslog.conf"));
    let configuration = format!(
        "global(defaultNetstreamDriver=\"gtls\" defaultNetstreamDriverCAFile=\"{}\" \
         defaultNetstreamDriverCertFile=\"{}\" defaultNetstreamDriverKeyFile=\"{}\")\n\
         module(load=\"imtcp\" streamDriver.name=\"gtls\" streamDriver.mode=\"1\" streamDriver.authMode=\"x509/certvalid\")\n\
         template(name=\"line\" type=\"string\" string=\"%msg:::drop-last-lf%\\n\")\n\
         if $app-name == \"tombolo\" then action(type=\"omfile\" file=\"{}\" template=\"line\")\n\
         input(type=\"imtcp\" address=\"{ADDRESS}\" port=\"6514\")\n",
        made.path("ca.pem"),
        made.path("good.pem"),
        made.path("good.key"),
        taken.display()
    );
    fs::write(&file, configuration).unwrap();
    let command = server.command(tools.join("usr/sbin/rsyslogd").display().to_string());
    let command = command.env("LD_LIBRARY_PATH", libraries.display().to_string());
    let (file, pid) = (file.display().to_string(), directory.join("rsyslogd.pid").display().to_string());
    let modules = libraries.join("rsyslog").display().to_string();
    let mut rsyslogd = command.args(["-n", "-f", &file, "-i", &pid, "-M", &modules]).spawn().unwrap();
    wait_until("rsyslogd listens", PATIENCE, || {
        server.command("ss").args(["-Hlnt"]).run().unwrap().stdout.contains(":6514").then_some(())
    })
    .unwrap();

    let own = format!("certificate = \"{}\", key = \"{}\"", made.path("gateway.pem"), made.path("gateway.key"));
    setup.configure(&format!("{{ to = \"syslog+tls://{ADDRESS}:6514\", ca = \"{}\", {own} }}", made.path("ca.pem")));
    let gateway = setup.start();
    ask(&setup.lab, "198.51.100.2:7");
    wait_until("a binding is logged", PATIENCE, || {
        fs::read_to_string(&setup.log).unwrap().contains("\"created\"").then_some(())
    })
    .unwrap();
    end(gateway);
    setup.wait_for_lines("rsyslogd has all lines", || fs::read_to_string(&taken).unwrap_or_default());
    rsyslogd.signal(nix::sys::signal::Signal::SIGTERM).unwrap();
    rsyslogd.wait(PATIENCE).unwrap();
}

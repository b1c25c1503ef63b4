//! The resolver under test, and the tester's two ends around it.

use std::fmt;
use std::fs;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use tombolo_lab::{Lab, LabError, Namespace, Process, Topology};

use super::authority::Authority;
use super::client::{Answers, Asked, Client};
use super::names::Names;
use super::sockets::{bind, drops, failed};
use crate::bench::BenchError;
use crate::gateway::GatewayError;
use crate::gateway::between_ports::placement::pin_inhabitants;
use crate::machine;

/// RFC 6052 section 2.1.
const WELL_KNOWN: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);
/// Each has 65,536 identifications.
const CLIENT_SOCKETS: usize = 16;
const START: Duration = Duration::from_secs(15);

/// Which resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolver {
    /// Unbound, in a lab.
    Unbound,
    /// Somebody's.
    At {
        /// Where it is asked.
        server: SocketAddr,
        /// Where it finds the zone `dns64perf.test`: an address of this machine.
        authority: SocketAddr,
        /// Under which it synthesizes, a /96.
        prefix: Ipv6Addr,
    },
}

impl fmt::Display for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resolver::Unbound => f.write_str("unbound"),
            Resolver::At { server, .. } => write!(f, "{server}"),
        }
    }
}

/// The resolver, and who asks and answers it.
pub(super) struct Rig {
    pub(super) authority: Authority,
    pub(super) prefix: Ipv6Addr,
    /// What the resolver is.
    pub(super) version: String,
    resolver: Client,
    /// The tester alone.
    own: Client,
    /// Where the sockets are; none where they are in the machine's own namespace.
    client_node: Option<Namespace>,
    server_node: Option<Namespace>,
    client_ports: Vec<u16>,
    authority_port: u16,
    // Last: dropping the lab ends what runs in it.
    _process: Option<Process>,
    _lab: Option<Lab>,
}

impl Rig {
    pub(super) fn open(resolver: &Resolver, cores: (usize, usize)) -> Result<Rig, BenchError> {
        match resolver {
            Resolver::Unbound => Rig::with_unbound(cores),
            Resolver::At { server, authority, prefix } => {
                let own = bind(*authority).map_err(failed("listen as the authority"))?;
                let any: SocketAddr = if server.is_ipv6() { ([0u16; 8], 0).into() } else { ([0u8; 4], 0).into() };
                let clients = (0..CLIENT_SOCKETS).map(|_| bind(any)).collect::<Result<Vec<_>, _>>();
                let selves: SocketAddr = if authority.is_ipv6() { ([0u16; 8], 0).into() } else { ([0u8; 4], 0).into() };
                let mine = (0..CLIENT_SOCKETS).map(|_| bind(selves)).collect::<Result<Vec<_>, _>>();
                let clients =
                    clients.and_then(|clients| Ok((clients, mine?))).map_err(failed("open the client's sockets"))?;
                let authority_at = own.local_addr().map_err(failed("listen as the authority"))?;
                Rig::around(cores.0, clients, vec![own], (*server, authority_at), *prefix, server.to_string())
            }
        }
    }

    fn around(
        core: usize,
        clients: (Vec<UdpSocket>, Vec<UdpSocket>),
        authority: Vec<UdpSocket>,
        (server, authority_at): (SocketAddr, SocketAddr),
        prefix: Ipv6Addr,
        version: String,
    ) -> Result<Rig, BenchError> {
        let ports = clients.0.iter().chain(&clients.1).filter_map(|socket| socket.local_addr().ok());
        let client_ports = ports.map(|address| address.port()).collect();
        Ok(Rig {
            authority: Authority::start(authority, core).map_err(failed("start the authority"))?,
            prefix,
            version,
            resolver: Client::new(clients.0, server).map_err(failed("open the client's sockets"))?,
            own: Client::new(clients.1, authority_at).map_err(failed("open the client's sockets"))?,
            client_node: None,
            server_node: None,
            client_ports,
            authority_port: authority_at.port(),
            _process: None,
            _lab: None,
        })
    }

    /// client - resolver - authority, three namespaces.
    fn with_unbound(cores: (usize, usize)) -> Result<Rig, BenchError> {
        let lab = Lab::create(&Topology::client_gateway_server()).map_err(lab_error)?;
        let (client, server) = (lab.node("client").map_err(lab_error)?, lab.node("server").map_err(lab_error)?);
        let address =
            |text: &str| text.parse::<SocketAddr>().map_err(|error| BenchError::Unsuitable(error.to_string()));
        let (resolver_at, authority4, authority6) =
            (address("[2001:db8:1::1]:53")?, address("198.51.100.2:53")?, address("[2001:db8:2::2]:53")?);
        let any = address("[::]:0")?;
        let open = |node: &Namespace, at: SocketAddr, count: usize| {
            let sockets = node.run(|| (0..count).map(|_| bind(at)).collect::<Result<Vec<_>, _>>());
            sockets.map_err(lab_error)?.map_err(failed("open a socket in the lab"))
        };
        let clients = (open(client, any, CLIENT_SOCKETS)?, open(client, any, CLIENT_SOCKETS)?);
        let mut authority = open(server, authority4, 1)?;
        authority.extend(open(server, authority6, 1)?);
        let process = start_unbound(&lab, cores.1)?;
        let version = machine::version_of("unbound", &["-V"]);
        let (client, server) = (client.clone(), server.clone());
        let rig = Rig::around(cores.0, clients, authority, (resolver_at, authority6), WELL_KNOWN, version)?;
        Ok(Rig {
            client_node: Some(client),
            server_node: Some(server),
            _process: Some(process),
            _lab: Some(lab),
            ..rig
        })
    }

    /// Asks until one answer is right: a resolver needs a moment to start.
    pub(super) fn wait_until_it_answers(&self, names: &mut Names) -> Result<(), BenchError> {
        let first = names.choose(u64::MAX);
        let answers = self.resolver.teach(names, std::iter::once(first), START).map_err(failed("ask the resolver"))?;
        match answers {
            true => Ok(()),
            false => Err(BenchError::Unsuitable(format!(
                "{}: no right answer to a query for {first} in {} s: it has to find the zone dns64perf.test at the tester, \
                 and to synthesize under {}/96",
                self.version,
                START.as_secs(),
                self.prefix
            ))),
        }
    }

    /// Asks for the names that the resolver is to know.
    pub(super) fn warm(&self, names: &Names) -> Result<(), BenchError> {
        let all = self.resolver.teach(names, names.known(), START).map_err(failed("ask the resolver"))?;
        if all { Ok(()) } else { Err(BenchError::Unsuitable("the resolver does not answer any more".to_owned())) }
    }

    pub(super) fn ask_the_resolver(&self, asked: &Asked, names: &mut Names) -> Result<Answers, BenchError> {
        self.ask(&self.resolver, asked, names)
    }

    /// The tester alone.
    pub(super) fn ask_the_authority(&self, asked: &Asked, names: &mut Names) -> Result<Answers, BenchError> {
        self.ask(&self.own, asked, names)
    }

    fn ask(&self, client: &Client, asked: &Asked, names: &mut Names) -> Result<Answers, BenchError> {
        let (drops, queries) = (self.drops(), self.authority.queries());
        let answers = client.ask(asked, names).map_err(failed("ask"))?;
        let dropped_by_tester = self.drops().saturating_sub(drops);
        Ok(Answers { dropped_by_tester, authority_queries: self.authority.queries() - queries, ..answers })
    }

    /// Datagrams that the tester's own sockets had no room for.
    fn drops(&self) -> u64 {
        let seen = |node: &Option<Namespace>, ports: &[u16]| match node {
            Some(node) => node.run(|| drops(ports)).unwrap_or(0),
            None => drops(ports),
        };
        seen(&self.client_node, &self.client_ports) + seen(&self.server_node, &[self.authority_port])
    }
}

fn lab_error(source: LabError) -> BenchError {
    GatewayError::Lab { gateway: "unbound".to_owned(), source }.into()
}

/// Unbound with one thread: what it answers is that of a core.
fn start_unbound(lab: &Lab, core: usize) -> Result<Process, BenchError> {
    let directory = lab.directory().map_err(lab_error)?;
    let file: PathBuf = directory.join("unbound.conf");
    let text = format!(
        "server:\n\
         \x20 interface: 2001:db8:1::1\n  access-control: ::/0 allow\n  num-threads: 1\n\
         \x20 module-config: \"dns64 iterator\"\n  dns64-prefix: {WELL_KNOWN}/96\n\
         \x20 do-daemonize: no\n  username: \"\"\n  chroot: \"\"\n  pidfile: \"\"\n  directory: \"{}\"\n  use-syslog: no\n  logfile: \"\"\n\
         \x20 do-not-query-localhost: no\n  qname-minimisation: no\n  minimal-responses: yes\n\
         \x20 so-rcvbuf: 8m\n  so-sndbuf: 8m\n  outgoing-range: 8192\n  num-queries-per-thread: 4096\n\
         \x20 msg-cache-size: 64m\n  rrset-cache-size: 128m\n\
         \x20 local-zone: \"test.\" nodefault\n\
         remote-control:\n  control-enable: no\n\
         stub-zone:\n  name: \"dns64perf.test\"\n  stub-addr: 198.51.100.2\n",
        directory.display()
    );
    fs::write(&file, text).map_err(failed("write unbound.conf"))?;
    let gateway = lab.node("gateway").map_err(lab_error)?;
    let command = gateway.command("unbound").args(["-d", "-c"]).arg(file.display().to_string());
    let process = command.spawn().map_err(lab_error)?;
    pin_inhabitants(gateway, &[core]).map_err(failed("pin unbound"))?;
    Ok(process)
}

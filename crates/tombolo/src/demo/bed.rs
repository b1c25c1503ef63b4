//! A lab with a gateway, and with peers to talk to on both sides.

use std::net::{SocketAddr, SocketAddrV6};

use tombolo_lab::{
    Lab, Namespace, Peer, Process,
    topology::{CLIENT_V6, SERVER_V4, SERVER_V6},
};
use tombolo_tester::{
    gateway::{
        Kind,
        start::{Options, Running, STATIC_PORT, start},
    },
    iperf3,
};

use super::report::DemoError;

/// The page that the HTTP servers give.
pub(super) const PAGE_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Bed {
    pub(super) gateway: Running,
    /// On the server, for the client to fetch from.
    pub(super) web: Peer,
    /// On the server.
    pub(super) echo: Peer,
    /// On the client, for the server to fetch from.
    pub(super) client_web: Peer,
    _iperf3: Process,
    // Last: dropping it takes everything else with it.
    lab: Lab,
}

impl Bed {
    pub(super) fn make(kind: Kind, options: &Options) -> Result<Self, DemoError> {
        let lab = Lab::create(&kind.topology())?;
        let (client, server) = (lab.node("client")?, lab.node("server")?);
        // Peers listen where the packets arrive: after the gateway.
        let inside = kind == Kind::Plain;
        let address = |port| -> SocketAddr { if inside { (SERVER_V6, port).into() } else { (SERVER_V4, port).into() } };
        let web = Peer::http(server, address(80), page())?;
        let echo = Peer::udp_echo(server, address(7))?;
        let client_web = Peer::http(client, (CLIENT_V6, STATIC_PORT).into(), page())?;
        let iperf3 = iperf3::serve(server)?;
        let gateway = start(kind, &lab, options)?;
        Ok(Self { gateway, web, echo, client_web, _iperf3: iperf3, lab })
    }

    pub(super) fn client(&self) -> Result<&Namespace, DemoError> {
        Ok(self.lab.node("client")?)
    }

    pub(super) fn server(&self) -> Result<&Namespace, DemoError> {
        Ok(self.lab.node("server")?)
    }

    /// A port of the server as the client sees it.
    pub(super) fn server_port(&self, port: u16) -> SocketAddr {
        (self.gateway.server_seen_by_client, port).into()
    }

    /// The client's web server as the server sees it: itself where nothing translates.
    pub(super) fn client_web_from_outside(&self) -> SocketAddr {
        let untranslated = SocketAddrV6::new(CLIENT_V6, STATIC_PORT, 0, 0);
        self.gateway.client_seen_by_server.map_or(untranslated.into(), Into::into)
    }

    /// A new file in the lab's directory.
    pub(super) fn file(&self, name: &str) -> Result<std::path::PathBuf, DemoError> {
        Ok(self.lab.directory()?.join(name))
    }
}

/// Lines of numbers: any damage shows.
pub(super) fn page() -> Vec<u8> {
    let lines = (0..).flat_map(|line: u32| format!("{line:07}\n").into_bytes());
    lines.take(PAGE_BYTES).collect()
}

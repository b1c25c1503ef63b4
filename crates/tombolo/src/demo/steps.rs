//! The steps of the demo, each a function of a lab: what it sees there, and one figure to compare.

use std::{
    fs,
    net::{SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use tombolo_lab::{LabError, Namespace};
use tombolo_tester::iperf3::{Protocol, Run, Sender, WARM_UP_SECONDS};

use super::bed::{Bed, PAGE_BYTES, page};
use super::report::{DemoError, Seen};

/// A step: what it is, and how it is taken. `take` gets the length of its transfers, if it makes
/// any.
pub(super) struct Step {
    pub(super) what: &'static str,
    pub(super) unit: &'static str,
    pub(super) take: fn(&Bed, Duration) -> Result<Seen, DemoError>,
}

/// All steps, in the order of the table.
pub(super) const STEPS: &[Step] = &[
    Step { what: "ping", unit: "ms", take: ping },
    Step { what: "HTTP, client to server", unit: "ms", take: fetch },
    Step { what: "UDP echo", unit: "round trips/s", take: datagrams },
    Step { what: "TCP 6to4 (client sends)", unit: "Gbit/s", take: |bed, time| stream(bed, time, Sender::Client) },
    Step { what: "TCP 4to6 (server sends)", unit: "Gbit/s", take: |bed, time| stream(bed, time, Sender::Server) },
    Step { what: "HTTP, server to client", unit: "ms", take: fetch_from_outside },
];

/// The steps with a pair of gateways, in the order of its row.
pub(super) const PAIR_STEPS: &[Step] = STEPS.split_at(STEPS.len() - 1).0;

/// Twenty echo requests; the figure is the mean round trip.
fn ping(bed: &Bed, _: Duration) -> Result<Seen, DemoError> {
    let address = bed.gateway.server_seen_by_client;
    let ping = bed.client()?.command("ping").args(["-n", "-q", "-c", "20", "-i", "0.01", "-W", "1"]);
    let output = ping.arg(address.to_string()).run()?.success()?.stdout;
    let summary = output.lines().find(|line| line.contains("packets transmitted")).unwrap_or_default();
    if !summary.contains(" 20 received") {
        return Err(DemoError::Wrong(summary.to_owned()));
    }
    let mean = output.lines().find_map(|line| line.strip_prefix("rtt min/avg/max/mdev = ")?.split('/').nth(1));
    let mean = mean.and_then(|mean| mean.parse().ok());
    let figure = mean.ok_or_else(|| DemoError::Wrong("ping printed no round-trip times".to_owned()))?;
    Ok(Seen { text: format!("20 of 20 from {address}"), figure })
}

fn fetch(bed: &Bed, _: Duration) -> Result<Seen, DemoError> {
    let figure = curl(bed, bed.client()?, bed.server_port(80))?;
    Ok(Seen { text: intact(bed.web.last_client()), figure })
}

/// A connection from the IPv4 side to the client, through the static binding.
fn fetch_from_outside(bed: &Bed, _: Duration) -> Result<Seen, DemoError> {
    let address = bed.client_web_from_outside();
    let figure = curl(bed, bed.server()?, address)?;
    Ok(Seen { text: format!("{address}: {}", intact(bed.client_web.last_client())), figure })
}

fn intact(client: Option<SocketAddr>) -> String {
    let seen = client.map_or_else(|| "nobody".to_owned(), |client| client.ip().to_string());
    format!("{} KiB intact; the peer saw {seen}", PAGE_BYTES >> 10)
}

/// Fetches the page, compares it, and says how long it took, in milliseconds.
fn curl(bed: &Bed, from: &Namespace, address: SocketAddr) -> Result<f64, DemoError> {
    let file = bed.file("page")?;
    let curl = from
        .command("curl")
        .args(["-g", "-sS", "--max-time", "10", "-w", "%{time_total}", "-o"])
        .args([file.display().to_string(), format!("http://{address}/")]);
    let output = curl.run()?.success()?;
    let action = || format!("read {}", file.display());
    let received = fs::read(&file).map_err(|source| LabError::System { action: action(), source })?;
    if received != page() {
        return Err(DemoError::Wrong(format!("{} bytes came, not the page that was sent", received.len())));
    }
    let seconds: Result<f64, _> = output.stdout.trim().parse();
    seconds.map(|seconds| seconds * 1e3).map_err(|_| DemoError::Wrong("curl printed no time".to_owned()))
}

/// A thousand datagrams of 1 to 1400 bytes, each compared with its echo.
fn datagrams(bed: &Bed, _: Duration) -> Result<Seen, DemoError> {
    const COUNT: u32 = 1000;
    let server = bed.server_port(bed.echo.address().port());
    let begun = Instant::now();
    bed.client()?.run(|| (0..COUNT).try_for_each(echo_through(server)?))??;
    let figure = f64::from(COUNT) / begun.elapsed().as_secs_f64();
    let client = bed.echo.last_client().map_or_else(|| "nobody".to_owned(), |client| client.to_string());
    Ok(Seen { text: format!("{COUNT} of {COUNT} datagrams intact; the peer saw {client}"), figure })
}

/// A function that sends datagram number n and checks what comes back.
fn echo_through(server: SocketAddr) -> Result<impl FnMut(u32) -> Result<(), DemoError>, DemoError> {
    let failed = move |action: &str, source| LabError::System { action: format!("{action} {server}"), source };
    let any: SocketAddr = if server.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" }
        .parse()
        .map_err(|_| DemoError::Wrong("no address to send from".to_owned()))?;
    let socket = UdpSocket::bind(any).map_err(|e| failed("send UDP to", e))?;
    socket.connect(server).map_err(|e| failed("send UDP to", e))?;
    socket.set_read_timeout(Some(Duration::from_secs(1))).map_err(|e| failed("send UDP to", e))?;
    Ok(move |number: u32| {
        // Contents and lengths differ from one datagram to the next.
        let length = 1 + usize::try_from(number * 7919 % 1400).unwrap_or_default();
        let sent: Vec<u8> = number.to_be_bytes().into_iter().cycle().take(length).collect();
        socket.send(&sent).map_err(|e| failed("send UDP to", e))?;
        let mut buffer = [0; 2048];
        let received = socket.recv(&mut buffer).map_err(|e| failed(&format!("get datagram {number} back from"), e))?;
        if buffer[..received] == sent[..] {
            return Ok(());
        }
        Err(DemoError::Wrong(format!("datagram {number} of {length} bytes came back damaged, {received} bytes long")))
    })
}

fn stream(bed: &Bed, time: Duration, sender: Sender) -> Result<Seen, DemoError> {
    let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    let run = Run {
        server: bed.gateway.server_seen_by_client,
        protocol: Protocol::Tcp,
        sender,
        flows: 1,
        seconds,
        warm_up_seconds: WARM_UP_SECONDS,
    };
    let rate = run.measure(bed.client()?)?;
    if rate.bits_per_second <= 0.0 {
        return Err(DemoError::Wrong("connected, but nothing arrived".to_owned()));
    }
    Ok(Seen {
        text: format!("1 flow, {seconds} s, {} retransmits", rate.retransmits),
        figure: rate.bits_per_second / 1e9,
    })
}

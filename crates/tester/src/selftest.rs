//! The tester against itself, without a gateway: how fast it makes and checks frames on this machine,
//! and how exactly it paces them. Over a veth pair, or over two ports of the machine with a cable
//! between them. Every result carries it; a result near the tester's own limit says more about the
//! tester.

use std::time::Duration;

use serde::Serialize;
use tombolo_generator::{
    Answer, Capacity, Direction, DirectionOutcome, Ends, Exchange, FrameKind, HeaderRule, LinkRule, Means, Namespace,
    Order, Pace, Port, PortRule, Rig, Template, Timing, Transport, link_address,
};
use tombolo_lab::{Lab, LabError, Topology, topology::End, topology::Link};

use crate::bench::BenchError;
use crate::gateway::between_ports::placement::{napi_threads, processor_ns, spread};
use crate::gateway::{Addresses, Flows, GatewayError, Technology, TestFrames};
use crate::ports::PortRecord;

/// Rate of the pacing test, frames a second.
const PACED_RATE: u64 = 100_000;
/// A rate at which frames come in bursts, as they do through a gateway, and none waits long.
const RECEIVED_RATE: u64 = 500_000;
const RECEIVED_FRAMES: u32 = 200_000;
/// Ethernet header and FCS.
const ETHERNET_BYTES: u16 = 18;
const USUAL_MTU: u32 = 1500;

/// What the tester can do here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SelfTest {
    /// How frames leave.
    pub generator: &'static str,
    /// Length of the frames, bytes with FCS.
    pub frame_bytes: u16,
    /// The core that made and checked them.
    pub core: usize,
    /// Frames a second made, sent, received and checked on that core.
    pub highest_rate: u64,
    /// Frames of all runs that came back damaged, or twice.
    pub wrong: u64,
    /// Frames of all runs that did not come back: at full speed the port has no room for what comes while its
    /// processor is kept away from it.
    pub lost: u64,
    /// Rate reached when 100,000 frames a second were asked for.
    pub paced_rate: f64,
    /// Its error, percent.
    pub pacing_error_percent: f64,
    /// The latest frame of that run, microseconds after its time.
    pub paced_late_max_us: f64,
    /// Median delay of that run, microseconds: what the tester itself adds.
    pub calibration_us: f64,
    /// What the receiver's program and its port take of the gateway's core, nanoseconds a frame;
    /// absent without a second core.
    pub receiver_ns: Option<f64>,
    /// Longest hole that the machine tore into any of these runs, microseconds: other work, or
    /// the hypervisor.
    pub longest_pause_us: f64,
    /// What was done about the kernel's limit for real-time threads, or why it is in force.
    pub realtime_limit: String,
    /// The two ports, where they are the machine's own; none where they are a veth pair.
    pub ports: Vec<PortRecord>,
    /// Frames of all runs that the ports' drivers did not take.
    pub refused: u64,
}

/// What is tried.
#[derive(Clone, Debug)]
pub struct SelfTestPlan {
    /// Kind of the frames.
    pub kind: FrameKind,
    /// Their length, bytes with FCS.
    pub frame_bytes: u16,
    /// The core that sends.
    pub core: usize,
    /// The gateway's, on which it is measured what the receiver costs.
    pub gateway_core: Option<usize>,
    /// How frames leave; as their length and the ports want where absent.
    pub means: Option<Means>,
    /// Ports of the machine with a cable between them, in place of a veth pair.
    pub between: Option<(Port, Port)>,
}

/// Runs it.
///
/// # Errors
/// If labs or BPF programs do not work here.
pub fn run(plan: &SelfTestPlan) -> Result<SelfTest, BenchError> {
    let SelfTestPlan { kind, frame_bytes, core, gateway_core, means, .. } = *plan;
    let lab = if plan.between.is_none() { Some(wire(frame_bytes)?) } else { None };
    let (left, right) = match (&plan.between, &lab) {
        (Some((left, right)), _) => (left.clone(), right.clone()),
        (None, Some(lab)) => (port(lab, "left")?, port(lab, "right")?),
        (None, None) => return Err(BenchError::Interrupted),
    };
    let capacity = Capacity { frames: 1 << 22, records: 1, a_hosts: 1, b_hosts: 1 };
    let mut rig = Rig::open(&left, &right, capacity)?;
    means.into_iter().for_each(|means| rig.set_means(means));
    let realtime_limit = match rig.realtime_limit() {
        Ok(words) => words.to_owned(),
        Err(why) => format!("real-time threads are stopped for 50 ms of each second: {why}"),
    };
    let technology = if kind == FrameKind::Ipv4 { Technology::Forward4 } else { Technology::Forward6 };
    let test_frames =
        TestFrames::new(technology, &Addresses::default(), &Flows::RFC_4814).map_err(BenchError::Unsuitable)?;
    rig.set_endpoints(&test_frames.a, &test_frames.b)?;
    let kind = test_frames.left;
    let (source, destination) = (link_address(&left)?, link_address(&right)?);
    let template = Template {
        ends: Ends { source, destination },
        kind,
        transport: Transport::Udp,
        frame_bytes: frame_bytes.max(kind.shortest()),
        hop_limit: 10,
    };
    let mut refused = 0;
    let mut play = |rate: u64, frames: u32| -> Result<DirectionOutcome, BenchError> {
        let direction = Direction {
            template,
            order: Order::Random { seed: 1 },
            shape: test_frames.shape,
            frames,
            pace: Pace::at(rate),
            cores: vec![core],
            background: None,
            imix: None,
            timed: None,
            answer: Answer {
                kind,
                source: test_frames.source,
                source_port: PortRule::Exact,
                hop_limit: 10,
                inner_hop_limit: 0,
                header: HeaderRule::default(),
                link: LinkRule { source: Some(source), destination: Some(destination) },
                record: false,
                timing: Timing::Delays,
                timeout_ns: 0,
            },
        };
        let exchange = Exchange {
            forward: Some(direction),
            reverse: None,
            drain: Duration::from_millis(200),
            always_drain: false,
        };
        let outcome = rig.run(&exchange, &mut |_, _| !tombolo_lab::interrupted())?;
        if outcome.stopped {
            return Err(BenchError::Interrupted);
        }
        let mut forward = outcome.forward.ok_or(BenchError::Interrupted)?;
        // A veth does not take what its other end has no room for: those are lost, not unsent.
        if plan.between.is_some() {
            forward.departures.sent -= rig.refused().min(forward.departures.sent);
            refused += rig.refused();
        }
        Ok(forward)
    };
    // The best of three: a pause of the machine lowers a rate, nothing raises it.
    let bursts = [play(0, 1_000_000)?, play(0, 1_000_000)?, play(0, 1_000_000)?];
    let paced = [play(PACED_RATE, 30_000)?, play(PACED_RATE, 30_000)?, play(PACED_RATE, 30_000)?];
    let receiver_ns = match (gateway_core.filter(|other| *other != core), &lab) {
        (Some(other), Some(lab)) => receiver_cost(lab, other, &mut || play(RECEIVED_RATE, RECEIVED_FRAMES))?,
        _ => None,
    };
    let fastest = bursts.iter().map(|o| o.departures.rate()).fold(0.0, f64::max);
    let error = |o: &DirectionOutcome| (o.departures.rate() / PACED_RATE as f64 - 1.0).abs() * 100.0;
    let Some(best) = paced.iter().min_by(|a, b| error(a).total_cmp(&error(b))) else {
        return Err(BenchError::Interrupted);
    };
    let all = bursts.iter().chain(&paced);
    let wrong = all.clone().map(|o| o.arrivals.errored + o.arrivals.duplicates).sum();
    let lost = all.clone().map(|o| o.departures.sent.saturating_sub(o.arrivals.received + o.arrivals.errored)).sum();
    let pause = all.clone().map(|o| o.departures.late_max_ns).max().unwrap_or(0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, far below 2^64")]
    let highest_rate = fastest as u64;
    let ports = || {
        let [left_xdp, right_xdp] = rig.port_xdp();
        vec![PortRecord::of(&left, left_xdp), PortRecord::of(&right, right_xdp)]
    };
    Ok(SelfTest {
        generator: rig.sending().name(),
        frame_bytes: template.frame_bytes,
        core,
        highest_rate,
        wrong,
        lost,
        paced_rate: best.departures.rate(),
        pacing_error_percent: error(best),
        paced_late_max_us: best.departures.late_max_ns as f64 / 1000.0,
        calibration_us: best.arrivals.delays.percentile_ns(0.5).unwrap_or(0) as f64 / 1000.0,
        receiver_ns,
        longest_pause_us: pause as f64 / 1000.0,
        realtime_limit,
        ports: if plan.between.is_some() { ports() } else { Vec::new() },
        refused,
    })
}

/// The time that a processor needs to take frames out of a port and to check and count them: the
/// port's NAPI thread does nothing else. The least of three.
fn receiver_cost(
    lab: &Lab,
    core: usize,
    play: &mut dyn FnMut() -> Result<DirectionOutcome, BenchError>,
) -> Result<Option<f64>, BenchError> {
    let right = lab.node("right").map_err(lab_error)?;
    // Not every kernel has threaded NAPI; then it is not known.
    let Ok(threads) = napi_threads(right, &["wire0"], 1) else { return Ok(None) };
    if threads.is_empty() || spread(&threads, &[core]).is_err() {
        return Ok(None);
    }
    let busy = || threads.iter().filter_map(|thread| processor_ns(*thread)).sum::<u64>();
    let mut least: Option<f64> = None;
    for _ in 0..3 {
        let before = busy();
        let received = play()?.arrivals.received;
        let each = busy().saturating_sub(before) as f64 / received.max(1) as f64;
        least = Some(least.map_or(each, |least| least.min(each)));
    }
    Ok(least)
}

fn lab_error(source: LabError) -> GatewayError {
    GatewayError::Lab { gateway: "self-test".to_owned(), source }
}

/// Two nodes and a cable that takes frames of so many bytes.
fn wire(frame_bytes: u16) -> Result<Lab, BenchError> {
    let mut topology = Topology::chain("wire", &["left", "right"]);
    let end = |node: &str| End { node: node.to_owned(), interface: "wire0".to_owned(), addresses: Vec::new() };
    let mtu = u32::from(frame_bytes.saturating_sub(ETHERNET_BYTES));
    let link = Link { mtu: (mtu > USUAL_MTU).then_some(mtu), ..Link::new(end("left"), end("right")) };
    topology.links = vec![link];
    Lab::create(&topology).map_err(|source| lab_error(source).into())
}

fn port(lab: &Lab, node: &str) -> Result<Port, BenchError> {
    let node = lab.node(node).map_err(lab_error)?;
    Ok(Port { name: "wire0".to_owned(), namespace: Some(Namespace::at(node.path())) })
}

//! The records by which the programs know what to send and what to expect.

use crate::bitmap::lane_words;
use crate::exchange::{Answer, Direction, HeaderRule, Order, PortRule, SourceRule, Timing};
use crate::frame::Template;
use crate::layout::{
    EXPECT_IMIX, EXPECT_IPDV, EXPECT_RECORD, EXPECT_UNTIMED, Expectation, FrameKind, ORDER_ENUMERATE, ORDER_RANDOM,
    ORDER_RECORDS_ONCE, ORDER_RECORDS_RANDOM, PORT_ANY, PORT_EXACT, PermutationRecord, SOURCE_ANY, SOURCE_EXACT,
    SOURCE_POOL, STREAM_IMIX, STREAM_MIXED, STREAM_UNTIMED, Stream, TEMPLATE_BACKGROUND, TEMPLATE_FOREGROUND,
    TEMPLATE_LONGEST, TEMPLATE_MIDDLE,
};
use crate::permutation::{Permutation, mix64};
use crate::transport::Transport;

/// A burst this late is counted.
const LATE_NS: u64 = 100_000;
/// Longer than any frame takes.
const NO_TIMEOUT_NS: u64 = 1 << 62;

/// The record for the receiver of this direction; its frames' bits begin at word `bitmap_first`.
pub(crate) fn expectation(trial: u8, bitmap_first: u64, direction: &Direction) -> Expectation {
    let answer = &direction.answer;
    let payload = direction.template.payload_bytes();
    let (pool_first, pool_last) = match answer.source {
        SourceRule::Pool(first, last) => (first.to_bits(), last.to_bits()),
        _ => (0, 0),
    };
    let mut expectation = Expectation {
        active: 1,
        kind: answer.kind as u8,
        trial,
        flags: if answer.record { EXPECT_RECORD } else { 0 }
            | if direction.imix.is_some() { EXPECT_IMIX } else { 0 }
            | match answer.timing {
                Timing::Off => EXPECT_UNTIMED,
                Timing::Delays => 0,
                Timing::Variations => EXPECT_IPDV,
            },
        source_rule: match answer.source {
            SourceRule::Any => SOURCE_ANY,
            SourceRule::Exact => SOURCE_EXACT,
            SourceRule::Pool(..) => SOURCE_POOL,
        },
        source_port_rule: if answer.source_port == PortRule::Exact { PORT_EXACT } else { PORT_ANY },
        hop_limit: answer.hop_limit,
        inner_hop_limit: answer.inner_hop_limit,
        pool_first,
        pool_last,
        sample_mask: if payload <= 128 && direction.imix.is_none() { 0 } else { 15 },
        index_stride: u32::try_from(direction.cores.len()).unwrap_or(1),
        timed_from: direction.timed.map_or(0, |t| t.from),
        timed_every: direction.timed.map_or(0, |t| t.every),
        bitmap_first,
        frames: direction.frames,
        protocol: direction.template.transport.protocol(),
        transport_bytes: direction.template.transport.header_bytes(),
        tcp: match direction.template.transport {
            Transport::Udp => [0; 12],
            Transport::Tcp(tcp) => tcp.words(),
        },
        lane_words: u32::try_from(lane_words(direction.frames, direction.cores.len())).unwrap_or(u32::MAX),
        shape: direction.shape,
        timeout_ns: if answer.timeout_ns == 0 { NO_TIMEOUT_NS } else { answer.timeout_ns },
        ..Expectation::default()
    };
    put_fields(&mut expectation, answer);
    let mut expect = |which: usize, kind: FrameKind, template: &Template| {
        expectation.ip_bytes[which] = template.ip_bytes(kind);
        expectation.filler_sums[which] = template.filler_sum();
    };
    expect(TEMPLATE_FOREGROUND, answer.kind, &direction.template);
    if let Some([middle, longest]) = &direction.imix {
        expect(TEMPLATE_MIDDLE, answer.kind, middle);
        expect(TEMPLATE_LONGEST, answer.kind, longest);
    }
    if let Some(background) = &direction.background {
        expect(TEMPLATE_BACKGROUND, FrameKind::Ipv6, &background.template);
    }
    if let Some(background) = &direction.background {
        expectation.background_hop_limit = background.hop_limit;
        expectation.background_source = background.source.octets();
        expectation.background_destination = background.destination.octets();
    }
    expectation
}

/// The fields that are the same in all frames.
fn put_fields(expectation: &mut Expectation, answer: &Answer) {
    let HeaderRule { traffic_class, dont_fragment, identification, flow_label } = answer.header;
    let masked = |value: u32, mask: u32, is_checked: bool| {
        (value.to_be_bytes(), (if is_checked { mask } else { 0 }).to_be_bytes())
    };
    let class = u32::from(traffic_class.unwrap_or(0));
    let label = flow_label.unwrap_or(0) & 0xf_ffff;
    let df = u32::from(dont_fragment.unwrap_or(false)) << 14;
    let id = u32::from(identification.unwrap_or(0)) << 16;
    (expectation.ipv6_word, expectation.traffic_class_mask) =
        masked(class << 20 | label, 0xff << 20, traffic_class.is_some());
    (_, expectation.flow_label_mask) = masked(0, 0xf_ffff, flow_label.is_some());
    (expectation.tos_word, expectation.tos_mask) = masked(class << 16, 0xff << 16, traffic_class.is_some());
    (expectation.ipv4_word, expectation.dont_fragment_mask) = masked(id | df, 1 << 14, dont_fragment.is_some());
    (_, expectation.identification_mask) = masked(0, 0xffff << 16, identification.is_some());
    for (at, address) in [(0, answer.link.destination), (6, answer.link.source)] {
        expectation.link[at..at + 6].copy_from_slice(&address.unwrap_or_default());
        expectation.link_mask[at..at + 6].fill(if address.is_some() { 0xff } else { 0 });
    }
    if let PortRule::Set { mask, value, least } = answer.source_port {
        (expectation.port_mask, expectation.port_value, expectation.port_least) = (mask, value, least);
    }
}

/// Which of a trial's streams it is.
#[derive(Clone, Copy)]
pub(crate) struct StreamPlace {
    pub(crate) trial: u8,
    /// Right to left.
    pub(crate) reverse: bool,
    /// Which of the direction's own cores sends it.
    pub(crate) lane: usize,
    /// When the direction's first frame is due.
    pub(crate) start_ns: u64,
    /// Other frames share its pages.
    pub(crate) mixed: bool,
}

/// The record for the generator of one core.
pub(crate) fn stream(direction: &Direction, place: StreamPlace) -> Stream {
    let StreamPlace { trial, reverse, lane, start_ns, mixed } = place;
    let lanes = u32::try_from(direction.cores.len()).unwrap_or(1);
    let lane = u32::try_from(lane).unwrap_or(0);
    let (order, permutation, seed) = order_of(direction);
    let all_begun = match direction.order {
        Order::OneAfterAnother { all_begun, .. } | Order::RecordsOneAfterAnother { all_begun, .. } => all_begun,
        _ => 0,
    };
    let pace = direction.pace;
    let period = period_of(pace.rate, lanes);
    let (second_from, second_rate) = pace.then.unwrap_or((direction.frames, pace.rate));
    let burst = pace.burst();
    let whole = |period: u64| (period >> 32) * u64::from(burst);
    Stream {
        start_ns: start_ns + pace.due_ns(lane),
        period,
        second_period: period_of(second_rate, lanes),
        batch_gap_ns: whole(period) * 3 / 4,
        late_ns: LATE_NS,
        frames: share(direction.frames, lane, lanes),
        second_from: share(second_from, lane, lanes),
        index_offset: lane,
        index_stride: lanes,
        burst,
        order,
        timed_from: direction.timed.map_or(0, |t| t.from),
        timed_every: direction.timed.map_or(0, |t| t.every),
        mix_n: direction.background.map_or(0, |b| b.n),
        mix_m: direction.background.map_or(0, |b| b.m),
        seed,
        all_begun,
        reserved2: 0,
        trial,
        direction: u8::from(reverse),
        flags: if mixed { STREAM_MIXED } else { 0 }
            | if direction.answer.timing == Timing::Off { STREAM_UNTIMED } else { 0 }
            | if direction.imix.is_some() { STREAM_IMIX } else { 0 },
        reserved: 0,
        permutation,
        shape: direction.shape,
        foreground: direction.template.render(trial),
        background: match &direction.background {
            Some(b) => b.template.render_between(trial, b.source, b.destination),
            None => direction.template.render(trial),
        },
        middle: direction.imix.map_or(direction.template, |[middle, _]| middle).render(trial),
        longest: direction.imix.map_or(direction.template, |[_, long]| long).render(trial),
    }
}

/// How many of `frames` fall to `lane` when dealt out in turn.
fn share(frames: u32, lane: u32, lanes: u32) -> u32 {
    frames / lanes + u32::from(lane < frames % lanes)
}

/// Nanoseconds between two frames of one lane, 32.32 fixed point.
fn period_of(rate: u64, lanes: u32) -> u64 {
    match rate {
        0 => 0,
        rate => u64::try_from(((u128::from(lanes) * 1_000_000_000) << 32) / u128::from(rate)).unwrap_or(u64::MAX),
    }
}

fn order_of(direction: &Direction) -> (u32, PermutationRecord, u32) {
    let tuples = u32::try_from(direction.shape.tuples()).unwrap_or(u32::MAX);
    let low = |seed: u64| (mix64(seed) & 0xffff_ffff) as u32;
    match direction.order {
        Order::Enumerate { seed } => (ORDER_ENUMERATE, Permutation::new(tuples, seed).record(), low(seed)),
        Order::Random { seed } | Order::OneAfterAnother { seed, .. } => {
            (ORDER_RANDOM, Permutation::new(tuples, seed).record(), low(seed))
        }
        Order::RecordsOnce { count, seed } => (ORDER_RECORDS_ONCE, Permutation::new(count, seed).record(), low(seed)),
        Order::RecordsRandom { count, seed } | Order::RecordsOneAfterAnother { count, seed, .. } => {
            (ORDER_RECORDS_RANDOM, Permutation::new(count, seed).record(), low(seed))
        }
    }
}

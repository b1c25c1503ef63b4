//! How much a rig holds, and whether what is asked for fits.

use crate::bitmap::words_of;
use crate::exchange::{Direction, Order};
use crate::frame::Template;
use crate::layout::{Counters, Endpoint, FrameKind, Histogram, LANES, Record, TAGGED_MAX};
use crate::transport::Transport;

/// How much a rig has to hold.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Frames of one direction in one run.
    pub frames: u32,
    /// Four tuples that the responder records: 16 bytes each.
    pub records: u32,
    /// "a" hosts.
    pub a_hosts: u32,
    /// "b" hosts.
    pub b_hosts: u32,
}

impl Capacity {
    /// Bytes that a rig of this capacity takes on a machine with so many processors.
    pub fn bytes(&self, cpus: usize) -> u64 {
        let bitmaps = 2 * words_of(self.frames, LANES) * 8;
        let records = self.records as usize * size_of::<Record>();
        let hosts = (self.a_hosts as usize + self.b_hosts as usize) * size_of::<Endpoint>();
        // Delays of both directions, and their variations up and down.
        let each_cpu = 2 * (size_of::<Counters>() + 3 * size_of::<Histogram>());
        (bitmaps + records + hosts + cpus * each_cpu + 2 * TAGGED_MAX * 8) as u64
    }
}

/// Whether the direction fits; in words why not.
pub(crate) fn check_direction(direction: &Direction, capacity: Capacity) -> Result<(), String> {
    let template = &direction.template;
    let mut cores = direction.cores.clone();
    cores.sort_unstable();
    cores.dedup();
    if cores.is_empty() || cores.len() != direction.cores.len() {
        return Err(format!("sending cores {:?}: there must be at least one, each once", direction.cores));
    }
    if template.frame_bytes < template.shortest() {
        let shortest = template.shortest();
        return Err(format!(
            "frames of {} bytes have no room for the tester's tag; {shortest} is the least here",
            template.frame_bytes
        ));
    }
    if direction.frames > capacity.frames {
        return Err(format!("{} frames, but the rig was opened for {}", direction.frames, capacity.frames));
    }
    if direction.shape.tuples() > u64::from(u32::MAX) || direction.shape.tuples() == 0 {
        return Err(format!("{} four tuples; between 1 and {} are possible", direction.shape.tuples(), u32::MAX));
    }
    if direction.shape.a_hosts > capacity.a_hosts.max(1) || direction.shape.b_hosts > capacity.b_hosts.max(1) {
        return Err(format!(
            "{} x {} hosts are more than the rig was opened for",
            direction.shape.a_hosts, direction.shape.b_hosts
        ));
    }
    if direction.answer.record && direction.frames > capacity.records {
        return Err(format!("{} frames to record, but the rig was opened for {}", direction.frames, capacity.records));
    }
    if let Order::RecordsOnce { count, .. }
    | Order::RecordsRandom { count, .. }
    | Order::RecordsOneAfterAnother { count, .. } = direction.order
        && (count > capacity.records || count == 0)
    {
        return Err(format!("cannot answer {count} records"));
    }
    if let Some(others) = &direction.imix {
        let of = |template: &Template| (template.kind, template.transport);
        let same = others.iter().all(|other| of(other) == of(template));
        if !same || direction.background.is_some() {
            return Err("frames of three lengths have one kind, and no native traffic among them".to_owned());
        }
    }
    if let Some(background) = &direction.background {
        if [template, &background.template].iter().any(|template| template.transport != Transport::Udp) {
            return Err("native traffic is of UDP, and so is what it is mixed into".to_owned());
        }
        let odd = [template.length(), background.template.length()].iter().any(|l| *l > 80 && *l < 100);
        if odd || background.n < 2 || background.m > background.n || background.template.kind != FrameKind::Ipv6 {
            return Err("background traffic needs n >= 2, m <= n, and frames of 84 or at least 104 bytes".to_owned());
        }
    }
    Ok(())
}

//! What would become of a packet, in rows: what is known of it, each decision, and the end.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;
use tombolo_engine::Plan;

use super::request::{Asked, Flow};
use super::rows::{Failure, Rows};
use crate::rehearsal::flow::{Ends, Segment};
use crate::rehearsal::{Rehearsal, rehearse};
use crate::running::Running;

/// The end of a packet's way.
#[derive(Debug, Serialize)]
struct EndRow {
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'static str>,
    /// The packet, and what would be sent, in hexadecimal digits.
    received: String,
    sent: Vec<String>,
}

/// Rehearses it: nothing of the gateway's changes.
pub(crate) fn explain(running: &Running, plan: &Plan, asked: &Asked, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let packet = match asked {
        Asked::Packet(digits) => bytes_of(digits)
            .ok_or_else(|| Failure::Refused("a packet is an even number of hexadecimal digits".to_owned()))?,
        Asked::Flow(Flow { protocol, source, destination, softwire, later }) => {
            let ends = Ends { protocol, source: *source, destination: *destination, softwire: *softwire };
            let segment = if *later { Segment::Later } else { Segment::First };
            ends.packet(plan, segment).map_err(Failure::Refused)?
        }
    };
    let Rehearsal { known, steps, verdict, sent } =
        rehearse(&running.tables, plan, &packet, running.now()).map_err(Failure::Refused)?;
    for known in known {
        rows.row(&json!({ "known": known }))?;
    }
    for step in steps {
        rows.row(&json!({ "step": step.text, "clause": step.clause }))?;
    }
    let reason = verdict.reason();
    rows.row(&EndRow {
        verdict: verdict.name(),
        reason: reason.map(tombolo_engine::DropReason::name),
        cause: reason.map(|reason| reason.cause().trim()),
        remedy: reason.map(tombolo_engine::DropReason::remedy),
        received: digits_of(&packet),
        sent: sent.iter().map(|packet| digits_of(packet)).collect(),
    })
}

/// Bytes in hexadecimal digits.
#[must_use]
pub fn digits_of(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes that hexadecimal digits stand for.
#[must_use]
pub fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let is_whole = digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    (is_whole && !digits.is_empty()).then(|| (0..digits.len()).step_by(2).map(byte).collect()).flatten()
}

//! Lines of the log as messages of RFC 5424: the line is the message, its number the sequence id.
//!
//! ```text
//! <134>1 2026-11-21T08:31:52Z gw1 tombolo 812 created [meta sequenceId="17"] {"time":...}
//!   |                         |       |    |     |         |                 `- the line of the log
//!   |                         |       |    |     |         `- 1 to 2147483647, then 1 again (section 7.3.1)
//!   local0, informational     host    |    |     `- the event
//!                                     |    `- the process
//! ```

use super::record::Record;
use crate::utc::Utc;

/// Facility "local0" (16), severity "informational" (6).
const INFORMATIONAL: u8 = 16 << 3 | 6;
/// Severity "warning" (4).
const WARNING: u8 = 16 << 3 | 4;
/// The largest sequence id.
const LAST: u32 = 0x7fff_ffff;

/// Makes messages.
#[derive(Debug, Clone)]
pub(super) struct Syslog {
    /// Host and process, as they stand in each message.
    origin: String,
    sequence: u32,
}

impl Syslog {
    pub(super) fn new(host: &str, process: u32) -> Self {
        // Printable ASCII, at most 255 of it; "-" where there is none (section 6.2.4).
        let host: String = host.chars().filter(char::is_ascii_graphic).take(255).collect();
        let host = if host.is_empty() { "-" } else { &host };
        Self { origin: format!("{host} tombolo {process}"), sequence: 0 }
    }

    /// The message of a line.
    pub(super) fn message(&mut self, record: &Record) -> Vec<u8> {
        let priority = if record.event == "lost" { WARNING } else { INFORMATIONAL };
        self.compose(priority, record.time, record.event, &record.line)
    }

    /// Says that the collector did not get so many lines.
    pub(super) fn lost(&mut self, count: u64, now: Utc) -> Vec<u8> {
        let text = format!("{{\"time\":\"{now}\",\"event\":\"not-sent\",\"count\":{count}}}");
        self.compose(WARNING, now, "not-sent", text.as_bytes())
    }

    fn compose(&mut self, priority: u8, time: Utc, event: &str, text: &[u8]) -> Vec<u8> {
        self.sequence = self.sequence % LAST + 1;
        let Self { origin, sequence } = self;
        let mut message =
            format!("<{priority}>1 {time} {origin} {event} [meta sequenceId=\"{sequence}\"] ").into_bytes();
        message.extend_from_slice(text);
        message
    }
}

/// The message in a stream: its length in octets is counted before it (RFC 6587 section 3.4.1).
pub(super) fn frame(message: &[u8], stream: &mut Vec<u8>) {
    stream.extend_from_slice(format!("{} ", message.len()).as_bytes());
    stream.extend_from_slice(message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_as_in_rfc_5424() {
        let record = Record {
            time: Utc(1_795_248_000),
            event: "created",
            line: b"{\"seq\":17}".as_slice().into(),
            change: None,
        };
        let mut syslog = Syslog::new("gw 1\n", 812);
        let expected = "<134>1 2026-11-21T08:00:00Z gw1 tombolo 812 created [meta sequenceId=\"1\"] {\"seq\":17}";
        assert_eq!(String::from_utf8(syslog.message(&record)).unwrap(), expected);
        let mut stream = Vec::new();
        frame(b"<134>1 -", &mut stream);
        assert_eq!(stream, b"8 <134>1 -");
        syslog.sequence = LAST;
        let lost = String::from_utf8(syslog.lost(3, Utc(0))).unwrap();
        assert!(
            lost.starts_with("<132>1 1970") && lost.contains("sequenceId=\"1\"") && lost.contains("\"count\":3"),
            "{lost}"
        );
    }
}

//! iperf3 as the source and sink of TCP and UDP streams.

use std::{net::IpAddr, time::Duration};

use serde::{Deserialize, Serialize};
use tombolo_lab::{LabError, Namespace, Process};

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sender {
    /// The client sends and the server receives.
    Client,
    /// The server sends (`iperf3 -R`); the client still opens the connections.
    Server,
}

/// What the streams are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Connections.
    Tcp,
    /// Datagrams, as fast as they go.
    Udp,
}

/// What goes before the seconds that count, in seconds. When the other end sends than in the run before, the
/// rate stays at a third of what it will be for up to that long: free pages pile up on one
/// processor's list and are wanted on the other's.
pub const WARM_UP_SECONDS: u32 = 2;

/// One run of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The server's address as the client sees it.
    pub server: IpAddr,
    /// What the streams are made of.
    pub protocol: Protocol,
    /// Who sends.
    pub sender: Sender,
    /// Parallel connections.
    pub flows: u32,
    /// How long, in seconds.
    pub seconds: u32,
    /// What goes before, in seconds.
    pub warm_up_seconds: u32,
}

/// What a run gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Payload that arrived, over all connections, in bits a second.
    pub bits_per_second: f64,
    /// Segments sent again.
    pub retransmits: u64,
    /// What was sent, in bits a second, and lost, in percent; of datagrams alone.
    pub sent: Option<(f64, f64)>,
}

/// Why there is no rate.
#[derive(Debug, thiserror::Error)]
pub enum Iperf3Error {
    /// It could not be run, or did not end.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// It ran and reports an error.
    #[error("iperf3: {0}")]
    Reported(String),
    /// It printed something else than a report.
    #[error("iperf3 printed no report")]
    Unreadable(#[source] serde_json::Error),
}

#[derive(Deserialize)]
struct Report {
    error: Option<String>,
    end: Option<End>,
}

#[derive(Deserialize)]
struct End {
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    bits_per_second: f64,
    #[serde(default)]
    retransmits: u64,
}

/// Starts a server for both protocols on port 5201, and waits until it listens.
///
/// # Errors
/// [`LabError`], with iperf3's words.
pub fn serve(server: &Namespace) -> Result<Process, LabError> {
    let mut process = server.command("iperf3").args(["-s", "--forceflush"]).spawn()?;
    process.wait_for_text("Server listening", Duration::from_secs(10))?;
    Ok(process)
}

impl Run {
    /// The client's arguments.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["-c".to_owned(), self.server.to_string()];
        arguments.extend(["-P".to_owned(), self.flows.to_string()]);
        arguments.extend(["-t".to_owned(), self.seconds.to_string(), "--json".to_owned()]);
        arguments.extend(["-O".to_owned(), self.warm_up_seconds.to_string()]);
        if self.protocol == Protocol::Udp {
            arguments.extend(["-u", "-b", "0"].map(str::to_owned));
        }
        if self.sender == Sender::Server {
            arguments.push("-R".to_owned());
        }
        // No link limits the rate here, so without a window of its own each connection would fill
        // its receiver's queue: megabytes that are out of the cache when they are read. 200 KB are
        // below what every kernel grants.
        arguments.extend(["-w".to_owned(), "200K".to_owned()]);
        // Each end on a processor of its own, if there are two: else the scheduler's choice of the
        // moment decides the rate.
        if std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1) {
            arguments.extend(["-A".to_owned(), "0,1".to_owned()]);
        }
        // A gateway that swallows everything must not hold up a run for the two minutes that TCP
        // would try.
        arguments.extend(["--connect-timeout".to_owned(), "5000".to_owned()]);
        arguments
    }

    /// Runs the client.
    ///
    /// # Errors
    /// [`Iperf3Error::Reported`] with iperf3's own message, or why there is none.
    pub fn measure(&self, client: &Namespace) -> Result<Rate, Iperf3Error> {
        let limit = Duration::from_secs(u64::from(self.warm_up_seconds + self.seconds) + 20);
        let output = client.command("iperf3").args(self.arguments()).limit(limit).run()?;
        parse(&output.stdout, self.protocol)
    }
}

/// Reads a report of `iperf3 --json`.
fn parse(text: &str, protocol: Protocol) -> Result<Rate, Iperf3Error> {
    let report: Report = serde_json::from_str(text).map_err(Iperf3Error::Unreadable)?;
    if let Some(error) = report.error {
        return Err(Iperf3Error::Reported(error));
    }
    let end = report.end;
    let sums = end.and_then(|end| Some((end.sum_sent, end.sum_received?)));
    let (sent, received) = sums.ok_or_else(|| Iperf3Error::Reported("the report has no sums".to_owned()))?;
    let arrived = received.bits_per_second;
    Ok(match (protocol, sent) {
        (Protocol::Tcp, sent) => {
            Rate { bits_per_second: arrived, retransmits: sent.map_or(0, |sum| sum.retransmits), sent: None }
        }
        (Protocol::Udp, sent) => {
            // Not by `lost_percent`: iperf3 3.12 counts what was lost in the warm-up, too, and ends above 100.
            let sent = sent.map_or(arrived, |sum| sum.bits_per_second).max(arrived);
            let lost = if sent > 0.0 { 100.0 * (1.0 - arrived / sent) } else { 0.0 };
            Rate { bits_per_second: arrived, retransmits: 0, sent: Some((sent, lost)) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_what_arrived() {
        let text = r#"{ "start": {}, "end": {
            "sum_sent": { "bits_per_second": 9.5e9, "retransmits": 7 },
            "sum_received": { "bits_per_second": 9.0e9 } } }"#;
        let rate = Rate { bits_per_second: 9.0e9, retransmits: 7, sent: None };
        assert_eq!(parse(text, Protocol::Tcp).unwrap(), rate);
    }

    #[test]
    fn what_is_lost_of_datagrams_is_what_was_sent_and_did_not_arrive() {
        let text = r#"{ "start": {}, "end": {
            "sum_sent": { "bits_per_second": 8e9, "lost_percent": 0 },
            "sum_received": { "bits_per_second": 2e9, "lost_percent": 129.0 } } }"#;
        let rate = parse(text, Protocol::Udp).unwrap();
        assert_eq!(rate, Rate { bits_per_second: 2e9, retransmits: 0, sent: Some((8e9, 75.0)) });
    }

    #[test]
    fn its_errors_are_quoted() {
        let text = r#"{ "start": {}, "end": {}, "error": "error - unable to connect to server" }"#;
        assert_eq!(parse(text, Protocol::Tcp).unwrap_err().to_string(), "iperf3: error - unable to connect to server");
    }

    #[test]
    fn no_report_is_an_error() {
        assert!(matches!(parse("Segmentation fault", Protocol::Tcp), Err(Iperf3Error::Unreadable(_))));
        assert!(parse("{}", Protocol::Tcp).unwrap_err().to_string().contains("no sums"));
    }

    #[test]
    fn the_server_sends_in_reverse() {
        let run = Run {
            server: [10, 0, 0, 1].into(),
            protocol: Protocol::Udp,
            sender: Sender::Server,
            flows: 2,
            seconds: 3,
            warm_up_seconds: 10,
        };
        let arguments = run.arguments().join(" ");
        assert!(arguments.contains("-R") && arguments.contains("-u -b 0") && arguments.contains("-O 10"));
    }
}

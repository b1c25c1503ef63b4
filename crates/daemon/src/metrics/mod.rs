//! What is served over HTTP: metrics for Prometheus, whether the gateway lives and serves, and a page for
//! people.
//!
//! * `http`: requests and answers.
//! * `counted`: the metrics; `exposition`: their format; `process`: what every process has.
//! * `page`: the status page, and what it shows.

mod counted;
mod exposition;
mod http;
mod page;
mod process;

use std::sync::Arc;

use crate::health::State;
use crate::listener::{self, Stream};
use crate::running::Running;
use http::Answer;

/// Serves a running gateway's metrics and status.
#[derive(Debug)]
pub struct Metrics(pub Arc<Running>);

impl listener::Service for Metrics {
    fn serve(&self, stream: &mut dyn Stream, crowded: bool) {
        // Whoever went away needs no answer.
        let _ = http::serve(stream, crowded, |path| answer(&self.0, path));
    }
}

fn answer(running: &Running, path: &str) -> Answer {
    match path {
        "/metrics" => {
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            Answer { kind, ..Answer::text("200 OK", counted::render(running)) }
        }
        // Whoever gets this is answered by a process that lives.
        "/healthz" => Answer::text("200 OK", "lives\n"),
        "/readyz" => ready(running),
        "/status.json" => {
            Answer { kind: "application/json", ..Answer::text("200 OK", page::figures(running).to_string()) }
        }
        "/" => Answer { kind: "text/html; charset=utf-8", ..Answer::text("200 OK", page::PAGE) },
        _ => Answer::text("404 Not Found", "there are /, /metrics, /healthz, /readyz and /status.json\n"),
    }
}

/// Whether new connections should come here: not where it has failed, nor while it drains.
fn ready(running: &Running) -> Answer {
    let (health, faults) = running.health.report();
    let is_draining = running.plan.load().times.draining_since.is_some();
    let status = if health == State::Failed || is_draining { "503 Service Unavailable" } else { "200 OK" };
    let draining = if is_draining { "draining\n" } else { "" };
    let faults: String = faults.iter().map(|fault| format!("{fault}\n")).collect();
    Answer::text(status, format!("{}\n{draining}{faults}", health.name()))
}

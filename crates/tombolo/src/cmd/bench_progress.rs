//! The progress of a series: one line that is rewritten on a terminal, one line a measurement elsewhere.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use tombolo_tester::{
    bench::{BenchError, Status},
    forecast::Forecast,
    procedure::Measured,
    series::Progress,
};

use super::bench_summary::in_words;

/// Says on stderr what goes on.
pub(super) struct Live {
    terminal: bool,
    forecast: Option<Forecast>,
    finished: u32,
    started: Instant,
    shown: Instant,
}

impl Live {
    pub(super) fn new() -> Live {
        let now = Instant::now();
        Live { terminal: io::stderr().is_terminal(), forecast: None, finished: 0, started: now, shown: now }
    }

    fn total(&self) -> u32 {
        self.forecast.map_or(0, |forecast| forecast.measurements)
    }

    pub(super) fn clear(&self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    /// Time left, judged by what is done; before that, by the forecast.
    fn left(&self) -> String {
        let passed = self.started.elapsed().as_secs_f64();
        let left = match (self.finished, self.forecast) {
            (0, Some(forecast)) => forecast.seconds - passed,
            (done, _) => passed * f64::from(self.total().saturating_sub(done)) / f64::from(done.max(1)),
        };
        match left {
            ..=0.0 => "longer than forecast".to_owned(),
            left => format!("about {}", duration(left)),
        }
    }
}

impl Progress for Live {
    fn planned(&mut self, forecast: &Forecast) {
        self.forecast = Some(*forecast);
        self.started = Instant::now();
        let _ = writeln!(
            io::stderr(),
            "{} measurements, about {}; the tester takes {} MiB{}",
            forecast.measurements,
            duration(forecast.seconds),
            forecast.memory_bytes >> 20,
            match forecast.gateway_bytes >> 20 {
                0 => String::new(),
                mebibytes => format!(", the gateways' tables up to {mebibytes} MiB"),
            }
        );
    }

    fn status(&mut self, _: u32, _: u32, status: &Status) {
        if !self.terminal || self.shown.elapsed() < Duration::from_millis(100) {
            return;
        }
        self.shown = Instant::now();
        let bounds = status.bounds.map_or_else(String::new, |(low, high)| format!(" in [{low}, {high}]"));
        let percent = status.sent.0 * 100 / status.sent.1.max(1);
        let (done, total, left) = (self.finished, self.total(), self.left());
        let line = format!(
            "[{done}/{total}, {left}] {} {} {} frames/s {percent}%{bounds}",
            status.gateway, status.purpose, status.rate
        );
        let _ = write!(io::stderr(), "\r\x1b[K{line}");
    }

    fn measured(&mut self, gateway: &str, repetition: u32, measured: &[Measured]) {
        self.finished += 1;
        let values: Vec<String> = measured.iter().map(in_words).collect();
        self.clear();
        let _ = writeln!(io::stderr(), "{gateway} {repetition}: {}", values.join(", "));
    }

    fn failed(&mut self, gateway: &str, error: &BenchError) {
        self.clear();
        let _ = writeln!(io::stderr(), "{gateway}: {error}");
    }
}

/// To the second below an hour, to the minute above.
fn duration(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of seconds, not negative")]
    let seconds = seconds.max(0.0).ceil() as u64;
    match seconds {
        0..3600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        _ => format!("{}:{:02} h", seconds / 3600, seconds % 3600 / 60),
    }
}

//! What the process logs, to the standard error: how much, and in what form.

use std::fmt;
use std::io::{IsTerminal as _, stderr};
use std::time::SystemTime;

use serde_json::{Map, Value};
use tombolo_config::{LogFormat, LogLevel};
use tombolo_daemon::events::{self, Event};
use tracing::field::{Field, Visit};
use tracing_subscriber::filter::{EnvFilter, Filtered, LevelFilter};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, reload};

/// The log of the process, once it has begun.
pub(crate) struct Log {
    filter: reload::Handle<EnvFilter, Registry>,
}

impl Log {
    /// Begins it. `RUST_LOG` in the environment wins over `level`.
    pub(crate) fn start(level: LogLevel, format: LogFormat) -> Self {
        let (filter, handle) = reload::Layer::new(filter(level));
        let lines = tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
        let layer: Box<dyn Layer<Registry> + Send + Sync> = match format {
            LogFormat::Text => lines.boxed(),
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
            LogFormat::Journal => lines.with_ansi(false).event_format(Journal::default()).boxed(),
            // The journal says so: systemd.exec(5).
            LogFormat::Auto if std::env::var_os("JOURNAL_STREAM").is_some() => {
                return Self::start(level, LogFormat::Journal);
            }
            LogFormat::Auto => lines.boxed(),
        };
        let kept = Filtered::new(Kept, LevelFilter::INFO);
        tracing_subscriber::registry().with(Filtered::new(layer, filter)).with(kept).init();
        Self { filter: handle }
    }

    /// Has it log at `level` from now on.
    pub(crate) fn set_level(&self, level: LogLevel) {
        // It fails only if the log is gone.
        let _ = self.filter.reload(filter(level));
    }
}

fn filter(level: LogLevel) -> EnvFilter {
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level.name()))
}

/// Keeps the last lines for those who ask the gateway.
struct Kept;

impl<S: tracing::Subscriber> Layer<S> for Kept {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let Some(part) = metadata.target().strip_prefix("tombolo") else { return };
        let part = part.rsplit("::").next().unwrap_or_default().to_owned();
        let level = match *metadata.level() {
            tracing::Level::ERROR => "error",
            tracing::Level::WARN => "warn",
            _ => "info",
        };
        let mut said = Said::default();
        event.record(&mut said);
        let Said { words, details } = said;
        events::note(Event { time: SystemTime::now(), level, part, words, details });
    }
}

/// What an event says.
#[derive(Default)]
struct Said {
    words: String,
    details: Map<String, Value>,
}

impl Said {
    fn add(&mut self, field: &Field, value: Value) {
        self.details.insert(field.name().to_owned(), value);
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" { self.words = text } else { self.add(field, text.into()) }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

/// Lines that begin with their priority (sd-daemon(3)). The journal knows the time, and which unit it was.
#[derive(Debug)]
pub(crate) struct Journal(Format<Full, ()>);

impl Default for Journal {
    fn default() -> Self {
        Self(Format::default().without_time().with_level(false).with_ansi(false))
    }
}

impl<S, N> FormatEvent<S, N> for Journal
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

/// The priority of syslog(3).
fn priority(level: tracing::Level) -> u8 {
    match level {
        tracing::Level::ERROR => 3,
        tracing::Level::WARN => 4,
        tracing::Level::INFO => 6,
        tracing::Level::DEBUG | tracing::Level::TRACE => 7,
    }
}

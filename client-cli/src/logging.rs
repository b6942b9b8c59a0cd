//! Logging, set up once.

use std::io::{self, IsTerminal as _, Write};

use protocol::redaction::keys_in_use;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{EnvFilter, LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, registry};

use crate::error::CliError;

/// Logs to stderr only: stdout belongs to results and to the MCP transport.
///
/// # Errors
/// Returns an error when `filter` is not a valid filter.
pub(crate) fn start(filter: &str) -> Result<(), CliError> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| CliError::cannot_run(format!("PML_LOG is not a log filter: {error}")))?;
    let lines = fmt::layer()
        .with_writer(|| Stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .event_format(Lines(fmt::format().with_target(false)));
    registry().with(filter).with(limits()).with(lines).init();
    // A panic message may contain a key as well, so it is logged through the same redactor.
    std::panic::set_hook(Box::new(|panic| tracing::error!("a thread {panic}")));
    Ok(())
}

/// Standard error with the credentials in use redacted. Each event is a single write.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        io::stderr().lock().write_all(keys_in_use().text(&text).as_bytes())?;
        // The length of the input, not of the redacted text: a smaller number would make the caller
        // write the rest again.
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Warnings and errors have the form of a command's errors; lines requested with `--log` have a timestamp.
struct Lines(fmt::format::Format);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let name = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            _ => return self.0.format_event(context, writer, event),
        };
        write!(writer, "{name}: ")?;
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// Limits the targets and levels that are logged, whatever the filter allows.
///
/// At their lower levels, libraries log whole messages, which contain programs, arguments and results. Their warnings
/// are kept, except those of the MCP library, some of which quote a message.
fn limits() -> Targets {
    let ours = ["client_cli", "pml", "execution", "sandbox", "analysis"]
        .map(|name| (name, LevelFilter::TRACE));
    Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target("rmcp", LevelFilter::ERROR)
        .with_targets(ours)
}

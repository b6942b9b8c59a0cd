//! Sets up logging.

use std::io::{self, IsTerminal as _, Write};

use protocol::redaction::keys_in_use;
use tracing_subscriber::filter::{EnvFilter, LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt, registry};

/// Starts logging to stderr: text on a terminal, JSON lines elsewhere.
///
/// # Errors
/// Returns an error when `filter` is not a valid filter.
pub(crate) fn start(filter: &str) -> anyhow::Result<()> {
    let filter = parse(filter)?;
    let lines = fmt::layer().with_writer(|| Stderr);
    let lines = if std::io::stderr().is_terminal() {
        lines.with_target(false).boxed()
    } else {
        // The only span is the request, so a list of spans would repeat it.
        lines.json().flatten_event(true).with_span_list(false).boxed()
    };
    registry().with(filter).with(limits()).with(lines).init();
    // A panic message may contain a secret, so it is logged like other lines, through the redactor.
    std::panic::set_hook(Box::new(|panic| tracing::error!("A thread {panic}")));
    Ok(())
}

/// Checks a filter without starting anything.
///
/// # Errors
/// Returns an error when it is not a valid filter.
pub(crate) fn check(filter: &str) -> anyhow::Result<()> {
    parse(filter).map(drop)
}

fn parse(filter: &str) -> anyhow::Result<EnvFilter> {
    EnvFilter::try_new(filter)
        .map_err(|error| anyhow::anyhow!("PML_LOG is not a log filter: {error}"))
}

/// Standard error, from which secrets in use are redacted. The library writes each event with a single call.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        io::stderr().lock().write_all(keys_in_use().line(&text).as_bytes())?;
        // Not the length of the redacted line: a smaller number would cause another write.
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Returns the maximum level of each target, whatever the filter of the operator allows.
///
/// At their lower levels, libraries log whole messages, which contain programs, arguments and results. So only their
/// warnings and errors are logged; of the MCP library only errors, because some of its warnings quote a message.
fn limits() -> Targets {
    let ours = ["server", "pml_server", "registry", "execution", "sandbox", "analysis"]
        .map(|name| (name, LevelFilter::TRACE));
    Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target("rmcp", LevelFilter::ERROR)
        .with_targets(ours)
}

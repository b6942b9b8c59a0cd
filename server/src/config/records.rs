//! How long records are kept.

use std::num::NonZeroU16;

use clap::Args;
use registry::Retention;

/// Settings of records. All are at least a week, which the database enforces as well.
#[derive(Debug, Clone, Args)]
pub(crate) struct RecordSettings {
    /// How many days traces are kept. They are removed in whole months, so some are kept up to a month longer.
    #[arg(
        long,
        env = "PML_TRACE_RETENTION_DAYS",
        default_value = "90",
        value_name = "DAYS",
        value_parser = parse_days
    )]
    pub trace_retention_days: NonZeroU16,

    /// How many days the records of executions are kept.
    #[arg(
        long,
        env = "PML_EXECUTION_RETENTION_DAYS",
        default_value = "365",
        value_name = "DAYS",
        value_parser = parse_days
    )]
    pub execution_retention_days: NonZeroU16,

    /// How many days tools of users' own servers are kept after they were sent last.
    #[arg(
        long,
        env = "PML_SYNCED_TOOL_RETENTION_DAYS",
        default_value = "30",
        value_name = "DAYS",
        value_parser = parse_days
    )]
    pub synced_tool_retention_days: NonZeroU16,
}

impl RecordSettings {
    /// Returns how long records are kept.
    pub(crate) fn retention(&self) -> Retention {
        Retention {
            traces: self.trace_retention_days,
            executions: self.execution_retention_days,
            synced_tools: self.synced_tool_retention_days,
        }
    }
}

fn parse_days(text: &str) -> Result<NonZeroU16, String> {
    let days = text.parse::<NonZeroU16>().ok().filter(|days| (7..=36_500).contains(&days.get()));
    days.ok_or_else(|| "write a number of days, 7 to 36500".to_owned())
}

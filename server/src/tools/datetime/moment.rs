//! A point in time as an argument, parsed from a text or a number.

use jiff::civil::Time;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::fmt::temporal::{DateTimeParser, Pieces};
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::tools::ToolFailure;
use crate::tools::limits::check_path;

/// A point in time.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a date and time as text, or milliseconds since 1970 as a number")]
pub(super) enum Moment {
    /// Milliseconds since the start of 1970 in UTC.
    Milliseconds(f64),
    /// RFC 3339, RFC 9557, RFC 2822, or a bare date or date and time.
    Text(String),
}

impl Moment {
    /// Parses the point in time. A text without a zone is in `zone`, or else in UTC.
    pub(super) fn read(&self, field: &str, zone: Option<&TimeZone>) -> Result<Zoned, ToolFailure> {
        match self {
            Self::Milliseconds(number) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "the cast saturates, and the extremes are outside of a timestamp's range"
                )]
                // Rounded down, not towards zero, also for times before 1970.
                let milliseconds = number.floor() as i64;
                Timestamp::from_millisecond(milliseconds)
                    .map(|at| at.to_zoned(TimeZone::UTC))
                    .map_err(|error| invalid(field, &error))
            }
            Self::Text(text) => read_text(field, text, zone),
        }
    }
}

fn invalid(field: &str, reason: &dyn std::fmt::Display) -> ToolFailure {
    ToolFailure::InvalidArguments(format!("`{field}` is not a date or time: {reason}"))
}

/// Parses a date or time in any of the standard forms.
pub(super) fn read_text(
    field: &str,
    text: &str,
    zone: Option<&TimeZone>,
) -> Result<Zoned, ToolFailure> {
    check_path(field, text)?;
    let text = text.trim();
    let pieces = match Pieces::parse(text) {
        Ok(pieces) => pieces,
        // A text that starts with a digit cannot be RFC 2822, so the error of the first parser is more helpful.
        Err(error) => {
            return jiff::fmt::rfc2822::parse(text).map_err(|other| {
                let starts_with_digit = text.starts_with(|c: char| c.is_ascii_digit());
                invalid(field, if starts_with_digit { &error } else { &other })
            });
        }
    };
    // RFC 9557: the annotation, such as `[Europe/Paris]`, must agree with the offset, which this parser checks.
    if pieces.time_zone_annotation().is_some() {
        return text.parse::<Zoned>().map_err(|error| invalid(field, &error));
    }
    let local = pieces.date().to_datetime(pieces.time().unwrap_or(Time::midnight()));
    let zone = match pieces.to_numeric_offset() {
        Some(offset) => fixed(offset),
        None => zone.cloned().unwrap_or(TimeZone::UTC),
    };
    // If daylight saving skips or repeats the local time, this follows RFC 5545.
    local.to_zoned(zone).map_err(|error| invalid(field, &error))
}

/// Parses a date or time in a strftime format.
pub(super) fn read_format(
    field: &str,
    text: &str,
    format: &str,
    zone: Option<&TimeZone>,
) -> Result<Zoned, ToolFailure> {
    check_path(field, text)?;
    check_path("format", format)?;
    let broken = BrokenDownTime::parse(format, text).map_err(|error| {
        ToolFailure::InvalidArguments(format!("`{field}` does not match `format`: {error}"))
    })?;
    if broken.offset().is_some() || broken.iana_time_zone().is_some() {
        return broken.to_zoned().map_err(|error| invalid(field, &error));
    }
    // Succeeds for `%s`, which denotes an instant without any zone.
    if let Ok(timestamp) = broken.to_timestamp() {
        return Ok(timestamp.to_zoned(TimeZone::UTC));
    }
    let local = broken
        .to_datetime()
        .or_else(|error| match broken.to_date() {
            // A format without a time of day means midnight.
            Ok(date) if broken.hour().is_none() => Ok(date.to_datetime(Time::midnight())),
            _ => Err(error),
        })
        .map_err(|error| invalid(field, &error))?;
    local.to_zoned(zone.cloned().unwrap_or(TimeZone::UTC)).map_err(|error| invalid(field, &error))
}

fn fixed(offset: Offset) -> TimeZone {
    if offset == Offset::UTC { TimeZone::UTC } else { TimeZone::fixed(offset) }
}

/// Finds a time zone by its name or offset.
pub(super) fn zone(name: Option<&str>) -> Result<Option<TimeZone>, ToolFailure> {
    let Some(name) = name else {
        return Ok(None);
    };
    check_path("timezone", name)?;
    if name.eq_ignore_ascii_case("z") || name.eq_ignore_ascii_case("utc") {
        return Ok(Some(TimeZone::UTC));
    }
    DateTimeParser::new().parse_time_zone(name).map(Some).map_err(|_error| {
        ToolFailure::InvalidArguments(format!(
            "`timezone` is `{}`; it must be an IANA name such as `Europe/Paris` or an offset such as `+02:00`",
            name.escape_debug()
        ))
    })
}

/// Moves a point in time into a zone, if there is one.
pub(super) fn in_zone(at: Zoned, zone: Option<TimeZone>) -> Zoned {
    match zone {
        Some(zone) => at.with_time_zone(zone),
        None => at,
    }
}

/// Formats a point in time as RFC 3339, with `Z` for UTC.
pub(super) fn rfc3339(at: &Zoned) -> String {
    if *at.time_zone() == TimeZone::UTC {
        at.timestamp().to_string()
    } else {
        // RFC 3339 has no place for the name of a zone, only for its offset.
        at.timestamp().display_with_offset(at.offset()).to_string()
    }
}

/// Returns the name or the offset of a point in time's zone.
pub(super) fn zone_name(at: &Zoned) -> String {
    match at.time_zone().iana_name() {
        Some(name) => name.to_owned(),
        None => at.strftime("%:z").to_string(),
    }
}

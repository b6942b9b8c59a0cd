//! `datetime:*`: the current time, and parsing, formatting and arithmetic of points in time.
//!
//! Time zones come from a compiled-in database; no file is read.

mod moment;

use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp, Unit as JiffUnit, Zoned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use self::moment::{Moment, in_zone, rfc3339, zone, zone_name};
use super::limits::check_path;
use super::number::Real;
use super::{NativeTool, ToolFailure};

/// Returns the tools of this namespace.
pub(super) fn tools() -> Vec<NativeTool> {
    vec![
        NativeTool::new(
            "datetime",
            "now",
            "Returns the current time as an RFC 3339 text, in UTC or the given time zone.",
            now,
        )
        .varies(json!({}))
        .varies(json!({"timezone": "Europe/Paris"})),
        NativeTool::new(
            "datetime",
            "parse",
            "Parses a date or a time (RFC 3339, RFC 9557, RFC 2822, a bare date, or a strftime format) and returns its parts.",
            parse,
        )
        .example(
            json!({"text": "2026-03-01T12:30:00+01:00"}),
            json!({
                "iso": "2026-03-01T12:30:00+01:00", "unix_ms": 1_772_364_600_000_i64,
                "timezone": "+01:00", "year": 2026, "month": 3, "day": 1, "hour": 12,
                "minute": 30, "second": 0, "millisecond": 0, "weekday": "Sunday",
                "day_of_year": 60, "iso_week": 9,
            }),
        ),
        NativeTool::new(
            "datetime",
            "format",
            "Formats a date and time by a strftime format such as `%A, %d %B %Y`, or as rfc3339, rfc2822, date, time, unix or unix_ms.",
            format,
        )
        .example(
            json!({"datetime": "2026-03-01T12:00:00Z", "format": "%d/%m/%Y %H:%M", "timezone": "Asia/Tokyo"}),
            json!("01/03/2026 21:00"),
        )
        .example(json!({"datetime": 0}), json!("1970-01-01T00:00:00Z")),
        NativeTool::new(
            "datetime",
            "add",
            "Adds a duration to a point in time. Days and longer units keep the local time of day across a daylight saving change; the 31st becomes the last day of a shorter month.",
            add,
        )
        .example(
            json!({"datetime": "2024-01-31T10:00:00Z", "months": 1, "hours": -1}),
            json!("2024-02-29T09:00:00Z"),
        ),
        NativeTool::new(
            "datetime",
            "diff",
            "Returns the time from one point to another as a number of the given unit, negative when the end comes first.",
            diff,
        )
        .example(
            json!({"start": "2026-03-01", "end": "2026-03-02T12:00:00Z", "unit": "days"}),
            json!(1.5),
        ),
    ]
}

/// Arguments of `datetime:now`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Now {
    /// An IANA name such as `Europe/Paris` or an offset such as `+02:00`; UTC if omitted.
    #[serde(default)]
    timezone: Option<String>,
}

fn now(input: Now) -> Result<String, ToolFailure> {
    let zone = zone(input.timezone.as_deref())?.unwrap_or(TimeZone::UTC);
    Ok(rfc3339(&Timestamp::now().to_zoned(zone)))
}

/// Arguments of `datetime:parse`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Parse {
    /// The date or time to parse.
    text: String,
    /// The strftime format of the text; detected if omitted.
    #[serde(default)]
    format: Option<String>,
    /// The time zone of a text without one, and the zone of the result.
    #[serde(default)]
    timezone: Option<String>,
}

/// The result of `datetime:parse`.
#[derive(Serialize, JsonSchema)]
struct Parts {
    /// The point in time as an RFC 3339 text.
    iso: String,
    /// Milliseconds since the start of 1970 in UTC.
    unix_ms: i64,
    /// The name or the offset of the time zone.
    timezone: String,
    year: i16,
    month: i8,
    day: i8,
    hour: i8,
    minute: i8,
    second: i8,
    millisecond: i16,
    /// The English name of the day.
    weekday: String,
    day_of_year: i16,
    /// The week by ISO 8601.
    iso_week: i8,
}

fn parse(input: Parse) -> Result<Parts, ToolFailure> {
    let zone = zone(input.timezone.as_deref())?;
    let at = match &input.format {
        Some(format) => moment::read_format("text", &input.text, format, zone.as_ref())?,
        None => moment::read_text("text", &input.text, zone.as_ref())?,
    };
    let at = in_zone(at, zone);
    Ok(Parts {
        iso: rfc3339(&at),
        unix_ms: at.timestamp().as_millisecond(),
        timezone: zone_name(&at),
        year: at.year(),
        month: at.month(),
        day: at.day(),
        hour: at.hour(),
        minute: at.minute(),
        second: at.second(),
        millisecond: at.millisecond(),
        weekday: format!("{:?}", at.weekday()),
        day_of_year: at.day_of_year(),
        iso_week: at.date().iso_week_date().week(),
    })
}

/// Arguments of `datetime:format`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Format {
    /// The point in time: a text, or milliseconds since 1970.
    datetime: Moment,
    /// A strftime format, or `rfc3339` (the default), `rfc2822`, `date`, `time`, `unix`, `unix_ms`.
    #[serde(default)]
    format: Option<String>,
    /// The time zone of the result; that of `datetime` if omitted.
    #[serde(default)]
    timezone: Option<String>,
}

fn format(input: Format) -> Result<String, ToolFailure> {
    let zone = zone(input.timezone.as_deref())?;
    let at = in_zone(input.datetime.read("datetime", zone.as_ref())?, zone);
    let format = input.format.as_deref().unwrap_or("rfc3339");
    // A directive can pad its value to a width of up to three digits, so a long format would expand
    // to a much larger text.
    check_path("format", format)?;
    match format {
        "rfc3339" => Ok(rfc3339(&at)),
        "rfc2822" => jiff::fmt::rfc2822::to_string(&at)
            .map_err(|error| ToolFailure::Failed(format!("`datetime` as RFC 2822: {error}"))),
        "date" => Ok(at.date().to_string()),
        "time" => Ok(at.time().to_string()),
        "unix" => Ok(at.timestamp().as_second().to_string()),
        "unix_ms" => Ok(at.timestamp().as_millisecond().to_string()),
        // A text without directives would be returned as it is, which hides a misspelt name and
        // other syntaxes such as `YYYY`.
        _ if format.contains('%') => strtime::format(format, &at)
            .map_err(|error| ToolFailure::InvalidArguments(format!("`format`: {error}"))),
        other => Err(ToolFailure::InvalidArguments(format!(
            "`format` is `{}`; it must contain `%` directives or be one of rfc3339, rfc2822, date, time, unix, unix_ms",
            other.escape_debug()
        ))),
    }
}

/// Arguments of `datetime:add`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Add {
    /// The point in time: a text, or milliseconds since 1970.
    datetime: Moment,
    /// Calendar years, negative to go back.
    #[serde(default)]
    years: i64,
    /// Calendar months.
    #[serde(default)]
    months: i64,
    /// Weeks of seven days.
    #[serde(default)]
    weeks: i64,
    /// Calendar days.
    #[serde(default)]
    days: i64,
    /// Hours.
    #[serde(default)]
    hours: i64,
    /// Minutes.
    #[serde(default)]
    minutes: i64,
    /// Seconds.
    #[serde(default)]
    seconds: i64,
    /// Milliseconds.
    #[serde(default)]
    milliseconds: i64,
    /// The time zone in which days are counted; that of `datetime` if omitted.
    #[serde(default)]
    timezone: Option<String>,
}

fn add(input: Add) -> Result<String, ToolFailure> {
    let zone = zone(input.timezone.as_deref())?;
    let at = in_zone(input.datetime.read("datetime", zone.as_ref())?, zone);
    let moved = moved(&at, &input).ok_or_else(|| {
        ToolFailure::Failed("the result is not between the years -9999 and 9999".to_owned())
    })?;
    Ok(rfc3339(&moved))
}

/// Adds the longest unit first. Years and months are added together, so that the day is
/// reduced to the length of a shorter month only once.
fn moved(at: &Zoned, by: &Add) -> Option<Zoned> {
    // Arguments are any `i64`, so every step is checked for overflow.
    let months = by.years.checked_mul(12)?.checked_add(by.months)?;
    let days = by.weeks.checked_mul(7)?.checked_add(by.days)?;
    let seconds = by
        .hours
        .checked_mul(3_600)?
        .checked_add(by.minutes.checked_mul(60)?)?
        .checked_add(by.seconds)?;
    // A duration moves the instant; the days of a span move the local time.
    let time = SignedDuration::from_secs(seconds)
        .checked_add(SignedDuration::from_millis(by.milliseconds))?;
    at.checked_add(Span::new().try_months(months).ok()?)
        .ok()?
        .checked_add(Span::new().try_days(days).ok()?)
        .ok()?
        .checked_add(time)
        .ok()
}

/// A unit of time.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Unit {
    Milliseconds,
    #[default]
    Seconds,
    Minutes,
    Hours,
    Days,
    Weeks,
    Months,
    Years,
}

/// Arguments of `datetime:diff`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Diff {
    /// The first point in time: a text, or milliseconds since 1970.
    start: Moment,
    /// The second point in time.
    end: Moment,
    /// The unit of the result. Days and longer units follow the calendar in the zone of `start`.
    #[serde(default)]
    unit: Unit,
    /// The time zone in which days are counted; that of `start` if omitted.
    #[serde(default)]
    timezone: Option<String>,
}

fn diff(input: Diff) -> Result<Real, ToolFailure> {
    let zone = zone(input.timezone.as_deref())?;
    // Both points are in the zone of `start`: the length of a day depends on the zone.
    let start = in_zone(input.start.read("start", zone.as_ref())?, zone.clone());
    let end = in_zone(input.end.read("end", zone.as_ref())?, Some(start.time_zone().clone()));
    let unit = match input.unit {
        Unit::Milliseconds => JiffUnit::Millisecond,
        Unit::Seconds => JiffUnit::Second,
        Unit::Minutes => JiffUnit::Minute,
        Unit::Hours => JiffUnit::Hour,
        Unit::Days => JiffUnit::Day,
        Unit::Weeks => JiffUnit::Week,
        Unit::Months => JiffUnit::Month,
        Unit::Years => JiffUnit::Year,
    };
    let total = start
        .until((unit, &end))
        // Relative to `start`, because months and days differ in length.
        .and_then(|span| span.total((unit, &start)))
        .map_err(|error| ToolFailure::Failed(format!("the time between them: {error}")))?;
    Real::new(total, "the time between them")
}

#[cfg(test)]
mod tests;

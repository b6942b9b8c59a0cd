use serde_json::{Value, json};

use super::super::find;
use super::ToolFailure;

fn call(action: &str, arguments: Value) -> Result<Value, ToolFailure> {
    find("datetime", action).expect("the tool exists").call(arguments)
}

#[test]
fn all_standard_forms_are_parsed() {
    for (text, zone, expected) in [
        ("2026-03-01T12:00:00Z", None, "2026-03-01T12:00:00Z"),
        ("2026-03-01 12:00:00+02:00", None, "2026-03-01T12:00:00+02:00"),
        ("2026-03-01T12:00:00+01:00[Europe/Paris]", None, "2026-03-01T12:00:00+01:00"),
        ("2026-03-01T12:00:00Z", Some("America/New_York"), "2026-03-01T07:00:00-05:00"),
        ("2026-03-01", None, "2026-03-01T00:00:00Z"),
        ("2026-07-01T08:00", Some("Europe/Paris"), "2026-07-01T08:00:00+02:00"),
        ("Sun, 01 Mar 2026 12:00:00 +0100", None, "2026-03-01T12:00:00+01:00"),
        ("2026-03-01T12:00:00.123456Z", None, "2026-03-01T12:00:00.123456Z"),
        ("2026-03-01", Some("+05:30"), "2026-03-01T00:00:00+05:30"),
    ] {
        let mut arguments = json!({"text": text});
        if let Some(zone) = zone {
            arguments["timezone"] = json!(zone);
        }
        let parts = call("parse", arguments).expect(text);
        assert_eq!(parts["iso"], expected, "{text}");
    }
}

#[test]
fn formats_parse_their_own_output() {
    let format = "%d.%m.%Y %H:%M:%S";
    let arguments =
        json!({"text": "01.03.2026 08:05:09", "format": format, "timezone": "Europe/Paris"});
    let parts = call("parse", arguments).expect("it fits");
    assert_eq!(parts["iso"], "2026-03-01T08:05:09+01:00");
    assert_eq!(
        call("format", json!({"datetime": parts["iso"], "format": format})),
        Ok(json!("01.03.2026 08:05:09"))
    );
    for (format, expected) in [
        ("rfc2822", "Thu, 1 Jan 1970 00:00:01 +0000"),
        ("date", "1970-01-01"),
        ("time", "00:00:01"),
        ("unix", "1"),
        ("unix_ms", "1000"),
    ] {
        let written = call("format", json!({"datetime": 1000, "format": format}));
        assert_eq!(written, Ok(json!(expected)));
    }
}

#[test]
fn days_keep_the_local_time_across_daylight_saving() {
    let before = "2026-03-28T12:00:00+01:00[Europe/Paris]";
    assert_eq!(
        call("add", json!({"datetime": before, "days": 1})),
        Ok(json!("2026-03-29T12:00:00+02:00"))
    );
    assert_eq!(
        call("add", json!({"datetime": before, "hours": 24})),
        Ok(json!("2026-03-29T13:00:00+02:00"))
    );
    let arguments = json!({"start": before, "end": "2026-03-29T12:00:00+02:00", "unit": "days"});
    assert_eq!(call("diff", arguments), Ok(json!(1)));
    let arguments = json!({"start": before, "end": "2026-03-29T12:00:00+02:00", "unit": "hours"});
    assert_eq!(call("diff", arguments), Ok(json!(23)));
}

#[test]
fn years_and_months_are_added_together() {
    assert_eq!(
        call("add", json!({"datetime": "2024-02-29T00:00:00Z", "years": 1, "months": 1})),
        Ok(json!("2025-03-29T00:00:00Z"))
    );
    let arguments = json!({"start": "2026-03-01", "end": "2025-03-01", "unit": "years"});
    assert_eq!(call("diff", arguments), Ok(json!(-1)));
}

#[test]
fn hostile_arguments_are_refused() {
    for (action, arguments) in [
        ("now", json!({"timezone": "Mars/Olympus"})),
        ("now", json!({"timezone": "../../etc/passwd"})),
        ("now", json!({"timezone": "A".repeat(900_000)})),
        ("parse", json!({"text": ""})),
        ("parse", json!({"text": "yesterday"})),
        ("parse", json!({"text": "2026-02-30"})),
        ("parse", json!({"text": "9".repeat(900_000)})),
        ("parse", json!({"text": "1", "format": "%"})),
        ("parse", json!({"text": "1", "format": "%Y%Y%Y"})),
        ("parse", json!({"text": "2026", "format": "%Y"})),
        ("format", json!({"datetime": 1e300})),
        ("format", json!({"datetime": "2026-01-01", "format": "%!"})),
        ("format", json!({"datetime": "2026-01-01", "format": "YYYY"})),
        ("format", json!({"datetime": "2026-01-01", "format": "%255Y".repeat(100_000)})),
        ("format", json!({"datetime": "2026-01-01", "format": "%99999999999Y"})),
        ("format", json!({"datetime": null})),
        ("add", json!({"datetime": "2026-01-01", "years": i64::MAX})),
        ("add", json!({"datetime": "2026-01-01", "days": i64::MIN})),
        ("add", json!({"datetime": "9999-12-31", "months": 1})),
        ("add", json!({"datetime": "2026-01-01", "seconds": i64::MAX, "milliseconds": 1000})),
        ("diff", json!({"start": "2026-01-01"})),
        ("diff", json!({"start": "2026-01-01", "end": "2026-01-01", "unit": "fortnights"})),
    ] {
        assert!(call(action, arguments.clone()).is_err(), "{action}");
    }
}

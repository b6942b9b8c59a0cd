use serde_json::{Value, json};

use super::super::find;
use super::ToolFailure;

fn call(action: &str, arguments: Value) -> Result<Value, ToolFailure> {
    find("string", action).expect("the tool exists").call(arguments)
}

#[test]
fn tools_return_the_expected_texts() {
    for (action, arguments, expected) in [
        ("trim", json!({"text": "\u{a0}a\u{2003}"}), json!("a")),
        ("trim", json!({"text": "xyaxy", "characters": "xy"}), json!("a")),
        ("split", json!({"text": "", "separator": ","}), json!([""])),
        ("split", json!({"text": "e\u{301}a", "separator": ""}), json!(["e\u{301}", "a"])),
        ("split", json!({"text": "abc", "separator": "", "limit": 2}), json!(["a", "bc"])),
        (
            "join",
            json!({"parts": ["a", 1, 2.5, true, null], "separator": "-"}),
            json!("a-1-2.5-true-"),
        ),
        ("join", json!({"parts": []}), json!("")),
        ("template", json!({"template": "{{ a }}{{b", "values": {"a": 1}}), json!("1{{b")),
        ("case", json!({"text": "HTTPServer v2", "style": "kebab"}), json!("http-server-v2")),
        ("case", json!({"text": "", "style": "title"}), json!("")),
        ("slugify", json!({"text": "Don't stop", "separator": "_"}), json!("dont_stop")),
        ("slugify", json!({"text": "one two three", "max_length": 8}), json!("one-two")),
        ("slugify", json!({"text": "abcdef", "max_length": 3}), json!("abc")),
        ("pad", json!({"text": "ab", "length": 5, "fill": "xy", "side": "both"}), json!("xabxy")),
        ("pad", json!({"text": "abc", "length": 2}), json!("abc")),
        ("truncate", json!({"text": "abc", "length": 3}), json!("abc")),
        ("truncate", json!({"text": "abcd", "length": 3, "mark": ""}), json!("abc")),
        (
            "replace",
            json!({"text": "aaa", "search": "a", "replacement": "b", "limit": 2}),
            json!("bba"),
        ),
        (
            "replace",
            json!({"text": "5 EUR", "pattern": "(\\d)", "replacement": "$$$1${0}$x"}),
            json!("$55$x EUR"),
        ),
        (
            "replace",
            json!({"text": "aB", "pattern": "b", "ignore_case": true, "replacement": "c"}),
            json!("ac"),
        ),
        ("replace", json!({"text": "ab", "pattern": "", "replacement": "-"}), json!("-a-b-")),
        ("test", json!({"text": "ABC", "pattern": "b", "ignore_case": true}), json!(true)),
    ] {
        assert_eq!(call(action, arguments.clone()), Ok(expected), "{action} {arguments}");
    }
}

#[test]
fn match_positions_are_utf16_units() {
    let found =
        call("match", json!({"text": "👍é x1 x2", "pattern": "x(\\d)(z)?"})).expect("matches");
    assert_eq!(found[0]["index"], 4);
    assert_eq!(found[1]["index"], 7);
    assert_eq!(found[1]["groups"], json!(["2", null]));
}

#[test]
fn invalid_arguments_are_refused() {
    for (action, arguments) in [
        ("split", json!({"text": "a", "separator": ",", "limit": 0})),
        ("join", json!({"parts": [[1]]})),
        ("template", json!({"template": "{{x}}", "values": {}})),
        ("pad", json!({"text": "a", "length": 1_000_000})),
        ("pad", json!({"text": "a", "length": 3, "fill": ""})),
        ("truncate", json!({"text": "abc", "length": 0})),
        ("replace", json!({"text": "a", "replacement": "b"})),
        ("replace", json!({"text": "a", "search": "", "replacement": "b"})),
        ("replace", json!({"text": "a", "search": "a", "pattern": "a", "replacement": "b"})),
        ("match", json!({"text": "a".repeat(900_000), "pattern": "(?:a?){500}a{500}"})),
        ("test", json!({"text": "a".repeat(900_000), "pattern": "[ab]*a[ab]{1000}c"})),
        (
            "replace",
            json!({"text": "a".repeat(900_000), "pattern": "(?:\\w{0,9}\\d{0,9}){9}!", "replacement": ""}),
        ),
        ("match", json!({"text": "a", "pattern": "("})),
        ("match", json!({"text": "a", "pattern": "(?=a)"})),
        ("match", json!({"text": "a", "pattern": "a", "limit": 10_001})),
        ("slugify", json!({"text": "a b", "separator": "-".repeat(9)})),
        ("upper", json!({"text": 1})),
        ("upper", json!({"text": "a", "more": 1})),
    ] {
        assert!(
            matches!(call(action, arguments.clone()), Err(ToolFailure::InvalidArguments(_))),
            "{action} {arguments}"
        );
    }
}

#[test]
fn short_arguments_cannot_produce_large_results() {
    let long = "a".repeat(400_000);
    for (action, arguments) in [
        ("replace", json!({"text": long, "search": "a", "replacement": long})),
        ("replace", json!({"text": long, "pattern": "a", "replacement": long})),
        ("replace", json!({"text": long, "pattern": ".*", "replacement": "$0".repeat(1_000)})),
        ("join", json!({"parts": vec![""; 100_000], "separator": "x".repeat(100_000)})),
        ("template", json!({"template": "{{a}}".repeat(1_000), "values": {"a": long}})),
        (
            "pad",
            json!({"text": "", "length": 100_000, "fill": format!("e{}", "\u{301}".repeat(1_000))}),
        ),
        (
            "match",
            json!({"text": "a".repeat(300_000), "pattern": "((((((((((a.{30}))))))))))", "limit": 10_000}),
        ),
        ("match", json!({"text": long, "pattern": "(".repeat(30) + ".*" + &")".repeat(30)})),
    ] {
        assert!(
            matches!(call(action, arguments), Err(ToolFailure::ResultTooLarge { .. })),
            "{action}"
        );
    }
}

/// Iterating over all matches of these patterns is quadratic in the text.
#[test]
fn quadratic_patterns_are_stopped() {
    // At every position, the first alternative is tried up to the end of the text and fails, and
    // then `a` matches one character.
    let text = format!("{}\n", "a".repeat(1_000_000));
    for pattern in [".*[^a]{2}|a", "(?s).*b|a"] {
        for (action, replacement) in [("match", None), ("replace", Some(""))] {
            let mut arguments = json!({"text": text, "pattern": pattern});
            if let Some(replacement) = replacement {
                arguments["replacement"] = json!(replacement);
            }
            let failure = call(action, arguments).expect_err("too slow or too much");
            assert!(
                failure.to_string().contains("takes too long"),
                "{action} {pattern}: {failure}"
            );
        }
    }
}

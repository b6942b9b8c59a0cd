use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::limits::{MAX_ARGUMENT_BYTES, MAX_DEPTH};
use super::{NativeTool, ToolFailure, all, find};

#[test]
fn ids_are_unique_and_sorted() {
    let ids: Vec<String> = all().iter().map(NativeTool::id).collect();
    let sorted: Vec<String> = ids.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
    assert_eq!(ids, sorted);
    for tool in all() {
        assert!(std::ptr::eq(find(tool.namespace, tool.action).expect("itself"), tool));
        assert!(!tool.description.is_empty() && tool.description.ends_with('.'));
        assert!(tool.read_only);
    }
    assert!(find("json", "nothing").is_none());
    assert!(find("nothing", "parse").is_none());
}

/// Without a row in the analysis's table, a tool counts as one that may do anything.
#[test]
fn all_tools_only_compute() {
    for tool in all() {
        let id = tool.id().parse().expect("an id");
        assert_eq!(analysis::Effect::of(&id), analysis::Effect::Computes, "{}", tool.id());
    }
}

#[test]
fn schemas_are_valid_and_describe_all_fields() {
    for tool in all() {
        for schema in [&tool.input_schema, &tool.output_schema] {
            assert!(jsonschema::draft202012::meta::is_valid(schema), "{}: {schema}", tool.id());
            let text = schema.to_string();
            assert!(!text.contains("\"$ref\"") && !text.contains("\"format\":\""), "{}", tool.id());
        }
        let input = &tool.input_schema;
        assert_eq!(input["type"], "object", "{}", tool.id());
        assert_eq!(input["additionalProperties"], false, "{}", tool.id());
        for (name, property) in input["properties"].as_object().expect("properties") {
            assert!(property["description"].is_string(), "{} `{name}`", tool.id());
        }
    }
}

#[test]
fn examples_are_correct_and_match_both_schemas() {
    for tool in all() {
        assert!(!tool.examples.is_empty(), "{}", tool.id());
        let input = jsonschema::draft202012::new(&tool.input_schema).expect("a schema");
        let output = jsonschema::draft202012::new(&tool.output_schema).expect("a schema");
        for example in &tool.examples {
            assert!(input.is_valid(&example.arguments), "{} {}", tool.id(), example.arguments);
            let value = tool
                .call(example.arguments.clone())
                .unwrap_or_else(|failure| panic!("{}: {failure}", tool.id()));
            if let Some(expected) = &example.value {
                assert_eq!(&value, expected, "{} {}", tool.id(), example.arguments);
            }
            let structured = json!({"value": value});
            assert!(output.is_valid(&structured), "{} {structured}", tool.id());
            assert_eq!(example.value.is_some(), tool.deterministic, "{}", tool.id());
        }
    }
}

#[test]
fn errors_have_the_field_and_the_expected_value() {
    for (id, arguments, expected) in [
        ("json:parse", json!({}), "missing field `data`; `json:parse` takes `data`"),
        ("json:parse", Value::Null, "missing field `data`"),
        ("json:parse", json!({"data": 1}), "`data`: invalid type: integer `1`, expected a string"),
        ("json:parse", json!({"text": ""}), "unknown field `text`, expected `data`"),
        ("json:parse", json!([]), "`json:parse` takes `data`"),
        ("json:parse", json!("x"), "expected struct Parse"),
        (
            "math:round",
            json!({"value": 1, "mode": "sideways"}),
            "`mode`: unknown variant `sideways`, expected one of `half_up`",
        ),
        ("math:stats", json!({"numbers": [1, "2"]}), "`numbers[1]`: invalid type: string \"2\""),
        (
            "math:round",
            json!({"digits": 2}),
            "takes `value`, `digits` (optional), `mode` (optional)",
        ),
    ] {
        let (namespace, action) = id.split_once(':').expect("an id");
        let failure = find(namespace, action).expect(id).call(arguments).expect_err(id);
        assert!(matches!(failure, ToolFailure::InvalidArguments(_)));
        assert!(failure.to_string().contains(expected), "{id}: {failure}");
    }
}

/// Every tool gets arguments of every shape, and returns a value or an error.
#[test]
fn no_tool_panics() {
    let mut deep = json!(1);
    for _ in 0..MAX_DEPTH {
        deep = json!([deep]);
    }
    let shapes = [
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(1e308),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(5e-324),
        json!(""),
        json!("$"),
        json!("a\u{0}\u{202e}\u{10ffff}"),
        json!("%"),
        json!([]),
        json!([[], {}, null, "", 1e308, -1e308]),
        json!({}),
        json!({"": {"a": []}}),
        deep,
    ];
    for tool in all() {
        let fields: Vec<String> = tool.input_schema["properties"]
            .as_object()
            .expect("properties")
            .keys()
            .cloned()
            .collect();
        for example in &tool.examples {
            for field in &fields {
                for shape in &shapes {
                    let mut arguments = example.arguments.clone();
                    arguments[field] = shape.clone();
                    if let Err(ToolFailure::Failed(message)) = tool.call(arguments.clone()) {
                        // `NativeTool::call` turns a panic into this message, so a panic alone
                        // would not fail the test.
                        assert!(!message.contains("internal error"), "{} {arguments}", tool.id());
                    }
                }
            }
        }
        for shape in &shapes {
            let failure = tool.call(shape.clone());
            assert!(
                !matches!(failure, Err(ToolFailure::Failed(m)) if m.contains("internal error"))
            );
        }
    }
}

#[test]
fn large_and_deep_arguments_are_refused() {
    let mut deep = json!(1);
    for _ in 0..MAX_DEPTH {
        deep = json!([deep]);
    }
    for tool in all() {
        // The quotes and the object around the value are what exceeds each limit.
        for arguments in [json!({"data": "x".repeat(MAX_ARGUMENT_BYTES)}), json!({"data": deep})] {
            assert!(
                matches!(tool.call(arguments), Err(ToolFailure::InvalidArguments(_))),
                "{}",
                tool.id()
            );
        }
    }
}

#[test]
fn errors_do_not_contain_rust_types() {
    for (tool, arguments, expected) in [
        ("string:pad", json!({ "text": "x", "length": -5 }), "expected a whole number from 0;"),
        ("string:pad", json!({ "text": "x", "length": 1.5 }), "expected a whole number from 0;"),
        ("json:stringify", json!({ "value": 1, "indent": 300 }), "a whole number from 0 to 255;"),
        ("math:round", json!({ "value": 1, "digits": 1_u64 << 40 }), "a smaller whole number;"),
        ("math:round", json!({ "value": "x" }), "invalid type: string \"x\", expected a number;"),
    ] {
        let (namespace, action) = tool.split_once(':').unwrap();
        let failure = find(namespace, action).unwrap().call(arguments).unwrap_err().to_string();
        assert!(failure.contains(expected), "{tool}: {failure}");
    }
}

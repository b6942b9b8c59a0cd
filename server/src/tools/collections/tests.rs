use serde_json::{Value, json};

use super::super::find;
use super::ToolFailure;

fn call(action: &str, arguments: Value) -> Result<Value, ToolFailure> {
    find("collections", action).expect("the tool exists").call(arguments)
}

#[test]
fn tools_return_the_expected_lists() {
    let people = json!([
        {"name": "b", "age": 2}, {"name": "a", "age": 2}, {"name": "c"}, {"name": "d", "age": 1},
    ]);
    for (action, arguments, expected) in [
        ("sort", json!({"items": ["b", 1, null, "a", true]}), json!([null, true, 1, "a", "b"])),
        (
            "unique",
            json!({"items": [{"a": 1, "b": 2}, {"b": 2, "a": 1.0}]}),
            json!([{"a": 1, "b": 2}]),
        ),
        (
            "unique",
            json!({"items": [{"a": 1, "b": 2}, {"a": 1}, {}], "by": "a"}),
            json!([{"a": 1, "b": 2}, {}]),
        ),
        ("chunk", json!({"items": [], "size": 2}), json!([])),
        ("chunk", json!({"items": [1], "size": u64::MAX}), json!([[1]])),
        ("flatten", json!({"items": [[[1]], 2], "depth": 0}), json!([[[1]], 2])),
        ("flatten", json!({"items": [[[1]], 2], "depth": u64::MAX}), json!([1, 2])),
        ("zip", json!({"lists": []}), json!([])),
        ("zip", json!({"lists": [[1], []]}), json!([])),
        ("range", json!({"start": 5, "end": 5}), json!([])),
        ("range", json!({"start": 5, "end": 1}), json!([])),
        ("range", json!({"start": 0, "end": 0.3, "step": 0.1}), json!([0, 0.1, 0.2])),
        ("intersect", json!({"lists": [[1, 1, 2], [1, 3], [1]]}), json!([1])),
        ("intersect", json!({"lists": []}), json!([])),
        ("difference", json!({"items": [1, 1, 2], "exclude": [2.0]}), json!([1, 1])),
        (
            "group_by",
            json!({"items": [{"a": 1}, {"a": "1"}, 3], "by": "a"}),
            json!({"1": [{"a": 1}, {"a": "1"}], "null": [3]}),
        ),
        ("count_by", json!({"items": [1, 1, null, [1]]}), json!({"1": 2, "null": 1, "[1]": 1})),
        (
            "key_by",
            json!({"items": [{"a": 1, "b": 1}, {"a": 1, "b": 2}], "by": "a"}),
            json!({"1": {"a": 1, "b": 2}}),
        ),
        ("sum_by", json!({"items": []}), json!(0)),
        ("sum_by", json!({"items": [1, null, 2]}), json!(3)),
        ("sum_by", json!({"items": [], "group": "a"}), json!({})),
        ("omit", json!({"data": {}, "keys": []}), json!({})),
    ] {
        assert_eq!(call(action, arguments.clone()), Ok(expected), "{action} {arguments}");
    }
    let sorted = call("sort", json!({"items": people, "by": ["age", "name"]})).expect("sorted");
    let names: Vec<&Value> =
        sorted.as_array().expect("a list").iter().map(|p| &p["name"]).collect();
    assert_eq!(json!(names), json!(["c", "d", "a", "b"]));
}

#[test]
fn filter_applies_each_operator() {
    let items = json!([1, 2, "ab", "b", [1, 2], null, {"a": 1}]);
    for (operator, value, expected) in [
        ("eq", json!(1.0), json!([1])),
        ("eq", json!(null), json!([null])),
        ("ne", json!(1), json!([2, "ab", "b", [1, 2], null, {"a": 1}])),
        ("lt", json!(2), json!([1])),
        ("le", json!(2), json!([1, 2])),
        ("gt", json!("ab"), json!(["b"])),
        ("ge", json!("ab"), json!(["ab", "b"])),
        ("in", json!([1, {"a": 1}]), json!([1, {"a": 1}])),
        ("not_in", json!([1, 2, null, [1, 2], {"a": 1}]), json!(["ab", "b"])),
        ("contains", json!(2), json!([[1, 2]])),
        ("contains", json!("b"), json!(["ab", "b"])),
        ("starts_with", json!("a"), json!(["ab"])),
        ("ends_with", json!("b"), json!(["ab", "b"])),
        ("exists", json!(null), json!([1, 2, "ab", "b", [1, 2], {"a": 1}])),
        ("missing", json!(null), json!([null])),
    ] {
        let arguments = json!({"items": items, "operator": operator, "value": value});
        assert_eq!(call("filter", arguments), Ok(expected), "{operator}");
    }
}

#[test]
fn invalid_arguments_are_refused() {
    for (action, arguments) in [
        ("sort", json!({"items": {}})),
        ("sort", json!({"items": [], "by": ""})),
        ("sort", json!({"items": [], "by": vec!["a"; 9]})),
        ("sort", json!({"items": [], "order": "up"})),
        ("unique", json!({"items": [], "by": "a".repeat(2_000)})),
        ("chunk", json!({"items": [], "size": 0})),
        ("chunk", json!({"items": [], "size": -1})),
        ("range", json!({"end": 1, "step": 0})),
        ("range", json!({"end": 1e308})),
        ("range", json!({"start": -1e308, "end": 1e308, "step": 1e-308})),
        ("range", json!({"end": 1, "step": 1e-300})),
        ("pick", json!({"data": 1, "keys": []})),
        ("pick", json!({"data": [1], "keys": []})),
        ("filter", json!({"items": [], "operator": "in", "value": 1})),
        ("filter", json!({"items": [], "operator": "lt", "value": null})),
        ("filter", json!({"items": [], "operator": "like"})),
    ] {
        assert!(
            matches!(call(action, arguments.clone()), Err(ToolFailure::InvalidArguments(_))),
            "{action} {arguments}"
        );
    }
    assert!(matches!(
        call("sum_by", json!({"items": [{"n": "1"}], "by": "n"})),
        Err(ToolFailure::Failed(message)) if message.contains("items[0]")
    ));
}

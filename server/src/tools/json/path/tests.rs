use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::{MAX_NESTING, MAX_PARSE_WORK, Shape, select, shape};
use crate::tools::ToolFailure;
use crate::tools::limits::MAX_PATH_BYTES;

fn selected(path: &str, data: &Value) -> Result<Value, ToolFailure> {
    select(path, data).map(|values| json!(values))
}

/// The examples of RFC 9535, sections 1.5 and 2.3 to 2.5.
#[test]
fn queries_select_the_values_of_the_standard() {
    let store = json!({"store": {"book": [
        {"category": "reference", "author": "Nigel Rees", "title": "Sayings", "price": 8.95},
        {"category": "fiction", "author": "Evelyn Waugh", "title": "Sword", "price": 12.99},
        {"category": "fiction", "author": "Melville", "title": "Moby Dick", "isbn": "0-553", "price": 8.99},
        {"category": "fiction", "author": "Tolkien", "title": "Lord", "isbn": "0-395", "price": 22.99},
    ], "bicycle": {"color": "red", "price": 399}}});
    let list = json!({"a": [3, 5, 1, 2, 4, 6, {"b": "j"}, {"b": "k"}, {"b": {}}, {"b": "kilo"}],
        "o": {"p": 1, "q": 2, "r": 3, "s": 5, "t": {"u": 6}}, "e": "f"});
    let letters = json!(["a", "b", "c", "d", "e", "f", "g"]);
    for (data, path, expected) in [
        (
            &store,
            "$.store.book[*].author",
            json!(["Nigel Rees", "Evelyn Waugh", "Melville", "Tolkien"]),
        ),
        (&store, "$..price", json!([8.95, 12.99, 8.99, 22.99, 399])),
        (&store, "$..book[2].title", json!(["Moby Dick"])),
        (&store, "$..book[-1].title", json!(["Lord"])),
        (&store, "$..book[0,1].title", json!(["Sayings", "Sword"])),
        (&store, "$..book[:2].title", json!(["Sayings", "Sword"])),
        (&store, "$..book[?@.isbn].title", json!(["Moby Dick", "Lord"])),
        (&store, "$..book[?@.price<10].title", json!(["Sayings", "Moby Dick"])),
        (&store, "$.store['bicycle'][\"color\"]", json!(["red"])),
        (&store, "$.nothing.here", json!([])),
        (&letters, "$[1:3]", json!(["b", "c"])),
        (&letters, "$[5:]", json!(["f", "g"])),
        (&letters, "$[1:5:2]", json!(["b", "d"])),
        (&letters, "$[5:1:-2]", json!(["f", "d"])),
        (&letters, "$[::-1]", json!(["g", "f", "e", "d", "c", "b", "a"])),
        (&letters, "$[0,0]", json!(["a", "a"])),
        (&letters, "$[::0]", json!([])),
        (&letters, "$[-100:100:9007199254740991]", json!(["a"])),
        (&letters, "$[7]", json!([])),
        (&letters, "$[-8]", json!([])),
        (&list, "$.a[?@.b == 'kilo']", json!([{"b": "kilo"}])),
        (&list, "$.a[?(@.b == 'kilo')]", json!([{"b": "kilo"}])),
        (&list, "$.a[?@>3.5]", json!([5, 4, 6])),
        (&list, "$[?@.*]", json!([list["a"], list["o"]])),
        (&list, "$[?@[?@.b]]", json!([list["a"]])),
        (&list, "$.o[?@<3, ?@<3]", json!([1, 2, 1, 2])),
        (&list, "$.a[?@<2 || @.b == \"k\"]", json!([1, {"b": "k"}])),
        (&list, "$.a[?match(@.b, \"[jk]\")]", json!([{"b": "j"}, {"b": "k"}])),
        (&list, "$.a[?search(@.b, \"[jk]\")]", json!([{"b": "j"}, {"b": "k"}, {"b": "kilo"}])),
        (&list, "$.o[?@>1 && @<4]", json!([2, 3])),
        (&list, "$.o[?@.u || @.x]", json!([{"u": 6}])),
        (&list, "$.a[?@.b == $.x]", json!([3, 5, 1, 2, 4, 6])),
        (&list, "$.a[?@ == @]", list["a"].clone()),
        (&list, "$.a[?!@.b]", json!([3, 5, 1, 2, 4, 6])),
        (&list, "$.a[?!(@.b || @ > 2)]", json!([1, 2])),
        (&list, "$[?length(@) == 10]", json!([list["a"]])),
        (&list, "$[?count(@.*) == 5]", json!([list["o"]])),
        (&list, "$.a[?value(@..b) == 'j']", json!([{"b": "j"}])),
        (&list, "$.a[?length(@.b) < 2 && @.b > 'j']", json!([{"b": "k"}])),
        (&list, "$.e[?@ == 'f']", json!([])),
        (&list, "$.a[?match(@.b, '(')]", json!([])),
    ] {
        assert_eq!(selected(path, data), Ok(expected), "{path}");
    }
}

#[test]
fn values_compare_by_value() {
    let data = json!([1, 1.0, "1", true, null, [1], {"a": [1]}, 9_007_199_254_740_993_i64]);
    for (path, expected) in [
        ("$[?@ == 1]", json!([1, 1.0])),
        ("$[?@ == true]", json!([true])),
        ("$[?@ == null]", json!([null])),
        ("$[?@ >= null]", json!([null])),
        ("$[?@ == $[5]]", json!([[1]])),
        ("$[?@ == $[6]]", json!([{"a": [1]}])),
        ("$[?@.a == $[5]]", json!([{"a": [1]}])),
        ("$[?@ > 9007199254740991]", json!([9_007_199_254_740_993_i64])),
    ] {
        assert_eq!(selected(path, &data), Ok(expected), "{path}");
    }
}

#[test]
fn invalid_queries_are_refused() {
    for path in [
        "",
        "a",
        "$.",
        "$[",
        "$[0",
        "$['a",
        "$..",
        "$.a $",
        "$[?]",
        "$[?@.a ==]",
        "$[?foo(@)]",
        "$[?count(1) > 0]",
        "$[?length(@.*) > 0]",
        "$[?length(@)]",
        "$[?in(@.a, [1])]",
        "$[01]",
        // One more than the largest integer that RFC 9535 permits, 2^53 - 1.
        "$[9007199254740992]",
        "$[?match(@.a) == 1]",
        "$[?count(@.*)]",
    ] {
        assert!(
            matches!(selected(path, &json!([{"a": 1}])), Err(ToolFailure::InvalidArguments(_))),
            "{path}"
        );
    }
}

/// An invalid pattern matches nothing, but one that exceeds a limit is an error.
#[test]
fn patterns_beyond_the_limits_are_refused() {
    let data = json!(["a".repeat(MAX_PATH_BYTES + 1)]);
    for path in ["$[?search(@, $[0])]", "$[?match(@, '(?:a{1000}){1000}')]"] {
        let failure = selected(path, &data).expect_err(path);
        assert!(matches!(failure, ToolFailure::InvalidArguments(_)), "{path}: {failure}");
    }
}

#[test]
fn a_syntax_error_has_the_column() {
    let failure = selected("$.a[?@.b ==]", &json!({})).expect_err("not a JSONPath");
    assert!(failure.to_string().contains("column 1"), "{failure}");
    assert!(!failure.to_string().contains('\n'), "{failure}");
}

#[test]
fn expensive_queries_are_stopped() {
    let mut deep = json!([1, 2]);
    for _ in 0..90 {
        deep = json!([deep, 1]);
    }
    let wide = json!((0..100_000).map(|i| json!({"a": i, "b": "x"})).collect::<Vec<_>>());
    let text = json!(vec!["a".repeat(900); 1_000]);
    for (data, path) in [
        (&deep, "$..*..*..*..*..*".to_owned()),
        (&deep, format!("${}", "..*".repeat(200))),
        (&deep, format!("${}", "[0,0]".repeat(80))),
        (&wide, "$[?count($..*) > 1]".to_owned()),
        (&wide, "$[?@.a == 1 || $[?@.a == 2 || $[?@.a == 3]]]".to_owned()),
        (&wide, format!("$[{}*]", "*,".repeat(400))),
        (&wide, "$[?@ == $[?@.a > 5]]".to_owned()),
        (&text, format!("$[?{}search(@, 'b')]", "search(@, '(a+)+(a+)+$b') || ".repeat(30))),
    ] {
        assert!(selected(&path, data).is_err(), "{path}");
    }
}

/// Repeats a piece to a query of the maximum length.
fn filled(start: &str, piece: &str) -> String {
    start.to_owned() + &piece.repeat((MAX_PATH_BYTES - start.len()) / piece.len())
}

#[test]
fn hostile_texts_are_parsed_or_refused_quickly() {
    let data = json!({"a": 1});
    let mut paths = vec![
        format!("${}", "[".repeat(1_000)),
        format!("$[?{}", "(".repeat(1_000)),
        format!("$[?{}@.a{}]", "(".repeat(7), ")".repeat(7)),
        format!("$[?{}@{}", "length(".repeat(7), ")".repeat(7)),
        format!("$[?{}", "length(".repeat(7)),
        format!("$[?{}", "match(length(value(".repeat(2)),
        format!("$[?{}", "!".repeat(1_000)),
        format!("$[?{}", "@[?".repeat(7)),
        format!("$[?@.a == '{}", "\\u0041".repeat(150)),
        "\u{0}".repeat(100),
        filled("$[?", "match(')))',"),
        filled("$[?", "match(\")]\\\")\","),
        filled("$[?", "in (1,"),
        filled("$[?", "in(1,1)==in(1,"),
        filled("$[?", "length(@[?"),
    ];
    // Up to the limit, with the texts for which the parser needs the most time per byte.
    for piece in ["[?@]", "!@&&in(1,1)||"] {
        for function in ["in(1,", "match(')))',", "length(@[?"] {
            let mut path = format!("$[?{}", function.repeat(3));
            while shape(&path).work < MAX_PARSE_WORK - 1_000 {
                path += piece;
            }
            paths.push(path);
        }
    }
    paths.push(format!("$[?{}", "in(1,".repeat(MAX_NESTING - 1)));
    for path in paths {
        let start = clock_gettime(ClockId::ThreadCPUTime);
        // Both outcomes are right.
        let _either = selected(&path, &data);
        let taken = clock_gettime(ClockId::ThreadCPUTime) - start;
        // Milliseconds if the parser is optimised. Without the limits, practically forever.
        assert!(taken.tv_sec < 10, "{path}");
    }
}

#[test]
fn deep_queries_are_refused() {
    for (path, depth, work) in [
        ("$.a", 0, 3),
        ("$[?(@['x'])]", 3, 12),
        // Brackets in strings neither open nor close anything.
        ("$['[(\\'[(', \"[('[(\"]", 1, 20),
        ("$[?(')]' == ", 2, 12),
        // Arguments of functions are read three times, and those of functions in them nine times.
        ("$[?in(1,length (@)", 3, 6 + 10 * 3 + 2 * 9),
        ("$[?in(1)", 2, 6 + 2 * 3),
        (")]$[?in(1)==(2)]", 2, 8 + 2 * 3 + 6),
    ] {
        assert_eq!(shape(path), Shape { depth, work }, "{path}");
    }
    for (path, reason) in [
        (format!("${}", "[?@".repeat(9)), "nests deeper"),
        (filled("$[?", "match(')))',"), "nests deeper"),
        (filled("$[?in(1,in(1,in(1,", "@.a||"), "too long for its nested functions"),
    ] {
        let failure = selected(&path, &json!({"a": 1})).expect_err(&path);
        assert!(failure.to_string().contains(reason), "{failure}");
    }
    // Two nested functions are allowed in a query of any length.
    let (start, end) = ("$[?length(value(@['", "'])) == 1]");
    let name = "a".repeat(MAX_PATH_BYTES - start.len() - end.len());
    let data = json!([{ &name: "x" }]);
    assert_eq!(selected(&format!("{start}{name}{end}"), &data), Ok(data));
}

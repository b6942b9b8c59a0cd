//! The page, the dashboard and the alert rules name exactly the metrics that a gateway exports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::exposition::Exposition;
use super::{SETTINGS, own_listener, scrape};
use crate::support::expect::{failure, success};
use crate::support::http::{HttpMcp, get};
use crate::support::mcp_client::Era;
use crate::support::server::Installation;
use crate::support::tls::Authority;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("`{path}`: {error}"))
}

/// Returns the metrics of a gateway after some traffic, so that every family exists.
fn exported() -> Exposition {
    let authority = Authority::new();
    let issued = authority.issue("gateway");
    // Some exist only with TLS.
    let settings = [&SETTINGS[..], &issued.settings()].concat();
    let server = Installation::new().start_with(&settings);
    let client = HttpMcp::new(&server.tenant(), Era::Stateless);
    success(&client.execute("return await mcp.math.eval({ expression: '1 + 1' })"));
    failure(&client.execute("return ("), "PARSE_ERROR");
    assert_eq!(get(&format!("{}/health", server.url()), &[]).status, 200);
    let exported = scrape(&own_listener(&server));
    assert_eq!(server.stop(), Some(0));
    exported
}

/// Returns the rows of the page's table: the metric, and its labels.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = read("docs/operating.md");
    let (_, section) = page.split_once("\n## Metrics\n").expect("the page has the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut found = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split(" | ").collect();
        let name = cells[0].trim_end_matches('`').to_owned();
        let labels = cells[1].split(", ").filter_map(|it| it.strip_prefix('`')?.strip_suffix('`'));
        let before = found.insert(name, labels.map(str::to_owned).collect());
        assert!(before.is_none(), "two rows: {row}");
    }
    found
}

#[test]
fn the_page_describes_exactly_the_exported_metrics() {
    let exported = exported();
    let names: BTreeSet<&String> = exported.types.keys().collect();
    let documented = documented();
    assert_eq!(documented.keys().collect::<BTreeSet<_>>(), names);
    for (name, labels) in &documented {
        assert_eq!(labels, &exported.labels(name), "the labels of {name}");
    }
    let used: Vec<String> =
        alert_expressions().into_iter().chain(dashboard_expressions()).collect();
    assert!(used.len() > 40, "{}", used.len());
    for expression in &used {
        check_expression(expression, &exported);
    }
    // Every figure is worth a look.
    let all = used.join("\n");
    let unused: Vec<_> = names.iter().filter(|name| !all.contains(name.as_str())).collect();
    assert!(unused.is_empty(), "neither the dashboard nor the alerts show {unused:?}");
}

/// A control: what the check above must refuse.
#[test]
fn an_expression_with_an_unknown_name_is_refused() {
    let exported = Exposition::parse(
        "# HELP pml_refusals_total Requests that were refused.\n# TYPE pml_refusals_total counter\npml_refusals_total{limit=\"key\"} 1\n",
    );
    check_expression(
        "sum by (limit) (rate(pml_refusals_total{job=\"$job\",limit=\"key\"}[5m]))",
        &exported,
    );
    for wrong in [
        "rate(pml_refusal_total[5m])",
        "pml_refusals_total{limits=\"key\"}",
        "pml_refusals_total{limit=\"keys\"}",
        "pml_refusals_total{limit=~\"key|keys\"}",
        "1 + process_open_fds",
    ] {
        let checked = std::panic::catch_unwind(|| check_expression(wrong, &exported));
        assert!(checked.is_err(), "{wrong}");
    }
}

/// Returns the expressions of the alert rules, whose layout it checks.
fn alert_expressions() -> Vec<String> {
    let text = read("deploy/prometheus/alerts.yml");
    let (_, rules) = text.split_once("    rules:\n").expect("the file has rules");
    let mut expressions = Vec::new();
    for rule in rules.split("      - alert: ").skip(1) {
        let mut lines = rule.lines();
        let name = lines.next().expect("a name");
        assert!(
            name.starts_with("Pml") && name.bytes().all(|b| b.is_ascii_alphanumeric()),
            "{name}"
        );
        let mut field = |prefix: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(prefix));
            line.unwrap_or_else(|| panic!("{name} lacks `{}`", prefix.trim())).to_owned()
        };
        expressions.push(field("        expr: "));
        let mut severity = field("        ");
        if severity.starts_with("for: ") {
            severity = field("        ");
        }
        let severities = ["labels: { severity: warning }", "labels: { severity: critical }"];
        assert!(severities.contains(&severity.as_str()), "{name}: {severity}");
        assert_eq!(field("        annotations:"), "");
        field("          summary: ");
        field("          description: ");
        assert_eq!(lines.next(), None, "{name} has more lines");
    }
    assert!(expressions.len() >= 10, "{}", expressions.len());
    expressions
}

/// Returns the expressions of the dashboard's panels and variables.
fn dashboard_expressions() -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match (name.as_str(), value) {
                        ("expr" | "query", Value::String(text)) => found.push(text.clone()),
                        _ => collect(value, found),
                    }
                }
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
            _ => {}
        }
    }
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/pml.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have the same id");
    let mut found = Vec::new();
    collect(&dashboard, &mut found);
    found
}

/// Checks the names of metrics and labels in an expression, and the values of its labels.
#[track_caller]
fn check_expression(expression: &str, exported: &Exposition) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let codes = read("protocol/tests/error_codes.txt");
    let mut rest = expression;
    while let Some(at) = rest.find(is_word) {
        // Quoted texts and names of labels are consumed with the metric before them.
        let end = rest[at..].find(|c| !is_word(c)).map_or(rest.len(), |length| at + length);
        let word = &rest[at..end];
        rest = &rest[end..];
        if !["pml_", "process_", "mcp_"].iter().any(|start| word.starts_with(start)) {
            continue;
        }
        let family = exported.family_of(word).unwrap_or_else(|| panic!("{word}: {expression}"));
        let Some(inside) = rest.strip_prefix('{').and_then(|it| it.split_once('}')) else {
            continue;
        };
        rest = inside.1;
        for matcher in inside.0.split("\",") {
            let at = matcher.find(['=', '!']).expect("a matcher has an operator");
            let (label, value) = matcher.split_at(at);
            // Prometheus adds them.
            if ["job", "instance"].contains(&label) {
                continue;
            }
            assert!(exported.labels(family).contains(label), "{label}: {expression}");
            let values = value.trim_start_matches(['=', '!', '~']).trim_matches('"');
            for value in values.split('|') {
                let is_known = match label {
                    "code" => codes.lines().any(|line| line.ends_with(&format!(" {value}"))),
                    // These occur only after such a request.
                    "status" => ["2xx", "3xx", "4xx", "5xx", "aborted"].contains(&value),
                    "route" => value.starts_with('/'),
                    _ => exported.has(family, label, value),
                };
                assert!(is_known, "{label}={value}: {expression}");
            }
        }
    }
}

//! Plan files: a list of calls in YAML, which becomes a program.
//!
//! So there is one way of running: one analysis, one approval, one record. Each call is on the line of its step, so that
//! the lines of errors are those of the plan file.

use std::collections::BTreeSet;
use std::fmt;

use protocol::{ErrorBody, ErrorCode, ToolId, escape_text};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value, json};
use serde_saphyr::Spanned;

use crate::files::strict_yaml::{self, Fault};

/// The version of the format.
const VERSION: &str = "1.0";
/// The maximum number of steps, which is that of the calls of a run.
const STEPS: usize = 1_000;
/// The length of all results that the program returns, in UTF-16 code units: less than 1 MiB in UTF-8.
const RESULTS: usize = 300_000;
/// The largest integer that a program has exactly.
const LARGEST: u64 = (1 << 53) - 1;

/// Short names of tools.
const SHORT: [(&str, &str); 4] = [
    ("fs.read", "filesystem:read_text_file"),
    ("fs.write", "filesystem:write_file"),
    ("http.get", "web:get"),
    ("shell.run", "shell:exec"),
];

/// A plan file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    version: Option<Spanned<String>>,
    #[serde(rename = "name")]
    _name: Option<String>,
    #[serde(rename = "description")]
    _description: Option<String>,
    steps: Spanned<Vec<Step>>,
}

/// A call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    id: Option<Spanned<String>>,
    #[serde(rename = "name")]
    _name: Option<String>,
    tool: Spanned<String>,
    #[serde(default)]
    args: Arguments,
}

/// The arguments of a call.
#[derive(Default)]
struct Arguments(Map<String, Value>);

/// A value that a program can have exactly.
struct Exact(Value);

/// Returns whether a file is a plan file, by its name.
pub(super) fn is_plan_file(file: &std::path::Path) -> bool {
    file.extension().is_some_and(|ending| ending == "yaml" || ending == "yml")
}

/// Returns the program of a plan file.
///
/// # Errors
/// Returns what is wrong with the file, with its line and column.
pub(super) fn program(text: &str) -> Result<String, ErrorBody> {
    let plan: PlanFile =
        strict_yaml::parse(text).map_err(|Fault { message, place }| fault(&message, place))?;
    if let Some(version) = plan.version.filter(|version| version.value != VERSION) {
        let message = format!(
            "`version` is `{}`; this `pml` reads `\"{VERSION}\"`",
            escape_text(&version.value)
        );
        return Err(at(&message, &version.referenced));
    }
    let steps = plan.steps.value;
    if steps.is_empty() || steps.len() > STEPS {
        let message = format!("`steps` has {} steps; a plan has 1 to {STEPS}", steps.len());
        return Err(at(&message, &plan.steps.referenced));
    }
    write(&steps)
}

/// Writes the program.
fn write(steps: &[Step]) -> Result<String, ErrorBody> {
    let mut out = String::new();
    let mut line = 1;
    let mut ids = BTreeSet::new();
    let mut results = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let tool = tool(&step.tool)?;
        let number = index + 1;
        let id = step.id.as_ref().map_or_else(|| number.to_string(), |id| id.value.clone());
        if !ids.insert(id.clone()) {
            let message = format!("several steps have the id `{}`", escape_text(&id));
            let place = step.id.as_ref().map_or(&step.tool.referenced, |id| &id.referenced);
            return Err(at(&message, place));
        }
        while line < step.tool.referenced.line() {
            out.push('\n');
            line += 1;
        }
        out += &format!("const step{number} = await {}(", tool.call_form());
        literal(&Value::Object(step.args.0.clone()), &mut out);
        out += "); ";
        let (id, tool) = (json!(id), json!(tool.as_str()));
        results.push(format!("{{ id: {id}, tool: {tool}, result: brief(step{number}) }}"));
    }
    let most = RESULTS / steps.len();
    out += "\n// A result that is too long for the answer is in the record of the run.\n";
    out += &format!(
        "const brief = (result: unknown) => {{ const length = JSON.stringify(result)?.length ?? 0; return length > {most} ? {{ omitted: length }} : result; }};\n"
    );
    out += &format!("return [\n  {},\n];\n", results.join(",\n  "));
    Ok(out)
}

/// Returns the tool that a step names.
fn tool(name: &Spanned<String>) -> Result<ToolId, ErrorBody> {
    let known = SHORT.iter().find(|(short, _)| *short == name.value);
    let id = known.map_or(&*name.value, |(_, id)| id);
    id.parse().map_err(|error: protocol::NameError| {
        let short: Vec<String> = SHORT.iter().map(|(short, _)| format!("`{short}`")).collect();
        let message = format!("{error}; short names are {}", short.join(", "));
        at(&message, &name.referenced)
    })
}

/// Writes a value as an expression.
fn literal(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                literal(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (index, (name, value)) in members.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { " " });
                let text = json!(name).to_string();
                // Without brackets, this name would set the prototype.
                match name == "__proto__" {
                    true => out.push_str(&format!("[{text}]: ")),
                    false => out.push_str(&format!("{text}: ")),
                }
                literal(value, out);
            }
            out.push_str(if members.is_empty() { "}" } else { " }" });
        }
        // A JSON text is the same value in a program.
        scalar => out.push_str(&scalar.to_string()),
    }
}

fn at(message: &str, place: &serde_saphyr::Location) -> ErrorBody {
    fault(message, Some((place.line(), place.column())))
}

fn fault(message: &str, place: Option<(u64, u64)>) -> ErrorBody {
    let mut error =
        ErrorBody::new(ErrorCode::ParseError, format!("the plan is invalid: {message}"));
    if let Some((line, column)) = place {
        error.details = json!({ "line": line, "column": column });
    }
    error
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Arguments;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping of names to values")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Arguments, A::Error> {
                object(members).map(Arguments)
            }

            fn visit_unit<E>(self) -> Result<Arguments, E> {
                Ok(Arguments::default())
            }
        }
        // Not as a map: the error for another value would be in the words of the parser.
        deserializer.deserialize_any(Members)
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Exactly)
    }
}

fn object<'de, A: MapAccess<'de>>(mut members: A) -> Result<Map<String, Value>, A::Error> {
    let mut out = Map::new();
    while let Some((name, Exact(value))) = members.next_entry::<String, Exact>()? {
        out.insert(name, value);
    }
    Ok(out)
}

/// Reads a value; refuses what a program would have as another one.
struct Exactly;

impl<'de> Visitor<'de> for Exactly {
    type Value = Exact;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Exact, E> {
        Ok(Exact(Value::Bool(value)))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Exact, E> {
        match value.unsigned_abs() <= LARGEST {
            true => Ok(Exact(value.into())),
            false => Err(inexact(value)),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Exact, E> {
        match value <= LARGEST {
            true => Ok(Exact(value.into())),
            false => Err(inexact(value)),
        }
    }

    fn visit_i128<E: serde::de::Error>(self, value: i128) -> Result<Exact, E> {
        Err(inexact(value))
    }

    fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<Exact, E> {
        Err(inexact(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Exact, E> {
        let number = Number::from_f64(value).ok_or_else(|| inexact(value))?;
        Ok(Exact(Value::Number(number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Exact, E> {
        Ok(Exact(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Exact, E> {
        Ok(Exact(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Exact, E> {
        Ok(Exact(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Exact, D::Error> {
        Exact::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Exact, A::Error> {
        let mut out = Vec::new();
        while let Some(Exact(value)) = items.next_element()? {
            out.push(value);
        }
        Ok(Exact(Value::Array(out)))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Exact, A::Error> {
        object(members).map(|members| Exact(Value::Object(members)))
    }
}

fn inexact<E: serde::de::Error>(value: impl fmt::Display) -> E {
    E::custom(format!("a program cannot have the number {value} exactly; write it as a text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_on_the_line_of_its_step() {
        let text = "version: '1.0'\nsteps:\n  - tool: fs.read\n    args: { path: a.txt }\n\n  - id: copy\n    tool: filesystem:write_file\n    args:\n      path: b.txt\n      content: |\n        one\n        two\n";
        let program = program(text).unwrap();
        let lines: Vec<&str> = program.lines().collect();
        assert_eq!(
            lines[2],
            r#"const step1 = await mcp.filesystem.read_text_file({ "path": "a.txt" }); "#
        );
        assert_eq!(
            lines[6],
            r#"const step2 = await mcp.filesystem.write_file({ "path": "b.txt", "content": "one\ntwo\n" }); "#
        );
        assert!(
            program
                .contains(r#"{ id: "copy", tool: "filesystem:write_file", result: brief(step2) }"#)
        );
    }

    /// AN-10, AN-11: no value becomes code, and each stays what it is.
    #[test]
    fn values_stay_values() {
        let text = r#"steps: [{ tool: "a:b", args: { __proto__: { x: 1 }, "*/": "`${1}`</script>\u2028\n\"", n: [0x10, -1.5, null, true, ~, "no", no] } }]"#;
        let program = program(text).unwrap();
        let call = program.lines().next().unwrap();
        assert_eq!(
            call,
            "const step1 = await mcp.a.b({ [\"__proto__\"]: { \"x\": 1 }, \"*/\": \"`${1}`</script>\u{2028}\\n\\\"\", \"n\": [16, -1.5, null, true, null, \"no\", \"no\"] }); "
        );
    }

    #[test]
    fn faults_have_their_place() {
        for (text, line, column, says) in [
            ("steps:\n  - tool: a:b\n    arg: {}\n", 3, 5, "unknown field `arg`"),
            ("step: []\n", 1, 1, "unknown field `step`"),
            ("steps:\n  - tool: a:b\n    args: [1]\n", 3, 5, "a mapping of names to values"),
            ("steps:\n  - args: {}\n", 2, 5, "missing field `tool`"),
            ("steps: []\n", 1, 8, "a plan has 1 to 1000"),
            ("steps:\n  - tool: nothing\n", 2, 11, "`nothing`"),
            (
                "steps:\n  - { tool: 'a:b', id: x }\n  - { tool: 'a:b', id: x }\n",
                3,
                24,
                "several steps",
            ),
            ("version: '2'\nsteps: [{ tool: 'a:b' }]\n", 1, 10, "this `pml` reads"),
            ("steps:\n  - tool: a:b\n    tool: c:d\n", 3, 5, "`tool` is there twice"),
            ("steps:\n  - tool: a:b\n    args: { n: 9007199254740993 }\n", 3, 16, "exactly"),
            ("steps:\n  - tool: a:b\n    args: { n: .inf }\n", 3, 16, "`.inf`"),
            ("steps:\n  - tool: a:b\n    args: { n: !own x }\n", 3, 21, ""),
            ("x: &a [1]\nsteps: [{ tool: 'a:b', args: { n: *a } }]\n", 1, 1, "unknown field `x`"),
            ("steps: [{ tool: &a 'a:b' }, { tool: *a }]\n", 1, 37, "aliases are not supported"),
            ("steps:\n\t- tool: a:b\n", 2, 2, "tabs"),
            ("steps: [{ tool: 'a:b' }]\n---\nsteps: []\n", 2, 1, "one document"),
            ("", 1, 1, ""),
        ] {
            let error = program(text).expect_err(text);
            let place = (&error.details["line"], &error.details["column"]);
            assert!(error.message.contains(says), "{text:?}: {}", error.message);
            assert_eq!(place, (&json!(line), &json!(column)), "{text:?}: {}", error.message);
        }
    }
}

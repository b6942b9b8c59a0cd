//! Short programs of a single row.

use crate::compose::{Body, Operand, Writer, block, throwing_body, try_catch};
use crate::program::{Part, Program};
use crate::table::{Row, RowKind};

/// Returns the programs of a single row. In the first half, the source is a tool's result; in the second, `args`.
pub(crate) fn programs(row: &Row) -> Vec<Program> {
    let mut programs = forms(row, true);
    // A row without holes calls its source itself.
    if !row.holes().is_empty() {
        programs.extend(forms(row, false));
    }
    programs
}

/// Returns a program for each form in which the effect of the row can be observed.
fn forms(row: &Row, of_tool: bool) -> Vec<Program> {
    let mut programs = Vec::new();
    let mut add = |form: &str, build: &dyn Fn(&mut Writer, &Operand) -> Vec<Part>| {
        let mut writer = Writer::default();
        let mut parts = Vec::new();
        let operand = if of_tool {
            parts.push(Part::text(format!("const r = await {};", writer.source())));
            Operand::Record("r".into())
        } else {
            // Without a tool on the user's machine, the program would run on the server, and nothing would leave.
            parts.push(Part::text(format!("await {};", writer.source())));
            Operand::Record("args".into())
        };
        parts.extend(build(&mut writer, &operand));
        let mut name = row.full_name();
        for suffix in [form, if of_tool { "" } else { "args" }] {
            if !suffix.is_empty() {
                name += &format!(" ({suffix})");
            }
        }
        programs.push(Program { name, parts });
    };
    match row.kind {
        RowKind::Carry | RowKind::Write | RowKind::Choose => add("", &|writer, operand| {
            let (statements, value) = writer.instantiate(row, operand, &Body::default());
            let sink = writer.sink();
            vec![statements, Part::text(format!("await {sink}({{ v: {value} }});"))]
        }),
        RowKind::Decide => {
            add("", &|writer, operand| {
                let body = writer.call_body();
                vec![writer.instantiate(row, operand, &body).0]
            });
            add("set", &|writer, operand| {
                let body = Writer::assignment_body("w");
                let decided = writer.instantiate(row, operand, &body).0;
                let sink = writer.sink();
                vec![
                    Part::text("let w = 0;"),
                    decided,
                    Part::text(format!("await {sink}({{ w }});")),
                ]
            });
        }
        RowKind::Throw => {
            add("", &|writer, operand| {
                let thrown = writer.instantiate(row, operand, &Body::default()).0;
                let sink = writer.sink();
                let then = Part::text(format!("await {sink}({{}});"));
                vec![block("try {", vec![thrown, then], "} catch {}")]
            });
            add("caught", &|writer, operand| {
                let thrown = writer.instantiate(row, operand, &Body::default()).0;
                let mut parts = try_catch("ok", vec![thrown]);
                parts.push(Part::text(format!("await {}({{ ok }});", writer.sink())));
                parts
            });
        }
        RowKind::Observe if row.has_body() => {
            add("", &|writer, operand| {
                vec![writer.instantiate(row, operand, &throwing_body(operand)).0]
            });
            add("parse", &|writer, operand| {
                let parse = Part::text(format!("JSON.parse({});", operand.fill('j')));
                let body = Body { statements: vec![parse], ..Body::default() };
                vec![writer.instantiate(row, operand, &body).0]
            });
        }
        RowKind::Observe => {
            add("", &|writer, operand| vec![writer.instantiate(row, operand, &Body::default()).0])
        }
    }
    programs
}

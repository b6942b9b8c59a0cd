//! Programs in which a row stands alone.

use crate::compose::{Body, Given, Writer, block, caught, thrower};
use crate::program::{Part, Program};
use crate::table::{Kind, Row};

/// Returns the programs in which a row stands alone. `args` is the secret of the second half.
pub(crate) fn alone(row: &Row) -> Vec<Program> {
    let mut programs = forms(row, true);
    // A row without holes has its secret from a tool that it calls itself.
    if !row.holes().is_empty() {
        programs.extend(forms(row, false));
    }
    programs
}

fn forms(row: &Row, of_tool: bool) -> Vec<Program> {
    let mut programs = Vec::new();
    let mut add = |form: &str, build: &dyn Fn(&mut Writer, &Given) -> Vec<Part>| {
        let mut writer = Writer::default();
        let mut parts = Vec::new();
        let given = if of_tool {
            parts.push(Part::text(format!("const r = await {};", writer.source())));
            Given::Record("r".into())
        } else {
            // What runs where the user is.
            parts.push(Part::text(format!("await {};", writer.source())));
            Given::Record("args".into())
        };
        parts.extend(build(&mut writer, &given));
        let mut name = row.full_name();
        for more in [form, if of_tool { "" } else { "args" }] {
            if !more.is_empty() {
                name += &format!(" ({more})");
            }
        }
        programs.push(Program { name, parts });
    };
    match row.kind {
        Kind::Carry | Kind::Write | Kind::Choose => add("", &|writer, given| {
            let (statements, value) = writer.place(row, given, &Body::default());
            let sink = writer.sink();
            vec![statements, Part::text(format!("await {sink}({{ v: {value} }});"))]
        }),
        Kind::Decide => {
            add("", &|writer, given| {
                let body = writer.calling();
                vec![writer.place(row, given, &body).0]
            });
            add("set", &|writer, given| {
                let body = Writer::setting("w");
                let decided = writer.place(row, given, &body).0;
                let sink = writer.sink();
                vec![
                    Part::text("let w = 0;"),
                    decided,
                    Part::text(format!("await {sink}({{ w }});")),
                ]
            });
        }
        Kind::Throw => {
            add("", &|writer, given| {
                let thrown = writer.place(row, given, &Body::default()).0;
                let sink = writer.sink();
                let then = Part::text(format!("await {sink}({{}});"));
                vec![block("try {", vec![thrown, then], "} catch {}")]
            });
            add("caught", &|writer, given| {
                let thrown = writer.place(row, given, &Body::default()).0;
                let mut parts = caught("ok", vec![thrown]);
                parts.push(Part::text(format!("await {}({{ ok }});", writer.sink())));
                parts
            });
        }
        Kind::Observe if row.has_body() => {
            add("", &|writer, given| vec![writer.place(row, given, &thrower(given)).0]);
            add("parse", &|writer, given| {
                let parse = Part::text(format!("JSON.parse({});", given.of('j')));
                let body = Body { statements: vec![parse], ..Body::default() };
                vec![writer.place(row, given, &body).0]
            });
        }
        Kind::Observe => {
            add("", &|writer, given| vec![writer.place(row, given, &Body::default()).0])
        }
    }
    programs
}

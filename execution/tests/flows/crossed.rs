//! Programs in which one row stands within another.

use crate::compose::{Body, Given, Writer, block, bound, caught, thrower};
use crate::program::{Part, Program};
use crate::random::Random;
use crate::table::{Kind, Row};

/// Returns a program in which one row stands within another.
pub(crate) fn crossed(rows: &[Row], seed: u64) -> Program {
    let mut random = Random::new(seed);
    let mut writer = Writer::default();
    let mut parts = vec![Part::text(format!("const r = await {};", writer.source()))];
    let record = Given::Record("r".into());
    let mut row = || {
        // Each kind is as frequent as the others, however many rows it has.
        let kind = *random.one(&Kind::ALL);
        let of_kind: Vec<&Row> = rows.iter().filter(|row| row.kind == kind).collect();
        **random.one(&of_kind)
    };
    loop {
        let (outer, inner, between) = (row(), row(), row());
        let mut name = inner.full_name();
        let built = if inner.kind.is_value() && !outer.holes().is_empty() {
            // Some have a third row between them.
            let is_third = between.kind.is_value() && seed.is_multiple_of(2);
            let chain = if is_third { vec![inner, between] } else { vec![inner] };
            if is_third {
                name += &format!(" in {}", between.full_name());
            }
            Some(within_value(&mut writer, &outer, &chain, &record))
        } else if outer.has_body() {
            within_body(&mut writer, &outer, &inner, &record)
        } else {
            None
        };
        if let Some(more) = built {
            parts.extend(more);
            name += &format!(" in {}", outer.full_name());
            return Program { name, parts };
        }
    }
}

fn within_value(writer: &mut Writer, outer: &Row, chain: &[Row], record: &Given) -> Vec<Part> {
    let holes = outer.holes();
    let only = if let [hole] = holes[..] { Some(hole) } else { None };
    let (mut parts, mut given) = (Vec::new(), record.clone());
    for inner in chain {
        let (more, next) = bound(writer, inner, &given, only);
        parts.extend(more);
        given = next;
    }
    match outer.kind {
        Kind::Carry | Kind::Write | Kind::Choose => {
            let (statements, value) = writer.place(outer, &given, &Body::default());
            parts.push(statements);
            parts.push(Part::text(format!("await {}({{ v: {value} }});", writer.sink())));
        }
        Kind::Decide => {
            let body = writer.calling();
            parts.push(writer.place(outer, &given, &body).0);
        }
        Kind::Throw => {
            let thrown = writer.place(outer, &given, &Body::default()).0;
            parts.extend(caught("ok", vec![thrown]));
            parts.push(Part::text(format!("await {}({{ ok }});", writer.sink())));
        }
        Kind::Observe => {
            let body = thrower(record);
            parts.push(writer.place(outer, &given, &body).0);
        }
    }
    parts
}

fn within_body(writer: &mut Writer, outer: &Row, inner: &Row, record: &Given) -> Option<Vec<Part>> {
    let is_plain = outer.statements.contains("#s");
    if outer.statements.contains("#e") || (is_plain && !inner.is_sync()) {
        return None;
    }
    let second = Given::Record("q".into());
    let mut parts = vec![Part::text(format!("const q = await {};", writer.source()))];
    let sink = writer.sink();
    let call =
        if is_plain { format!("{sink}({{ w }});") } else { format!("await {sink}({{ w }});") };
    let (inside, after) = match inner.kind {
        Kind::Carry | Kind::Write | Kind::Choose => {
            let (statements, value) = writer.place(inner, &second, &Body::default());
            (vec![statements, Part::text(format!("w = {value};"))], true)
        }
        Kind::Decide => {
            let body = Writer::setting("w");
            (vec![writer.place(inner, &second, &body).0], true)
        }
        Kind::Throw if outer.kind == Kind::Observe => {
            (vec![writer.place(inner, &second, &Body::default()).0], false)
        }
        Kind::Throw => {
            let thrown = writer.place(inner, &second, &Body::default()).0;
            let call = Part::text(call.clone());
            (vec![block("try {", vec![thrown, call], "} catch {}")], false)
        }
        Kind::Observe if is_plain => return None,
        Kind::Observe => (vec![writer.place(inner, &second, &thrower(&second)).0], false),
    };
    parts.push(Part::text("let w = 0;"));
    let body = Body { statements: inside.clone(), plain: inside, expression: String::new() };
    parts.push(writer.place(outer, record, &body).0);
    if after {
        parts.push(Part::text(format!("await {sink}({{ w }});")));
    }
    Some(parts)
}

//! Short programs in which one row is nested in another.

use crate::compose::{Body, Operand, Writer, bind, block, throwing_body, try_catch};
use crate::program::{Part, Program};
use crate::random::Random;
use crate::table::{Row, RowKind};

/// Generates a program in which one row is nested in another.
pub(crate) fn program(rows: &[Row], seed: u64) -> Program {
    let mut random = Random::new(seed);
    let mut writer = Writer::default();
    let mut parts = vec![Part::text(format!("const r = await {};", writer.source()))];
    let record = Operand::Record("r".into());
    let mut row = || {
        // All kinds are equally frequent, regardless of their number of rows.
        let kind = *random.pick(&RowKind::ALL);
        let of_kind: Vec<&Row> = rows.iter().filter(|row| row.kind == kind).collect();
        **random.pick(&of_kind)
    };
    // Not every choice fits: the outer row needs a hole for the inner one.
    loop {
        let (outer, inner, between) = (row(), row(), row());
        let mut name = inner.full_name();
        let built = if inner.kind.is_value() && !outer.holes().is_empty() {
            // Every second seed puts a third row between them, if that has a value.
            let has_third = between.kind.is_value() && seed.is_multiple_of(2);
            let chain = if has_third { vec![inner, between] } else { vec![inner] };
            if has_third {
                name += &format!(" in {}", between.full_name());
            }
            Some(nest_in_value_hole(&mut writer, &outer, &chain, &record))
        } else if outer.has_body() {
            nest_in_body(&mut writer, &outer, &inner, &record)
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

/// Fills the value holes of the outer row with the value of a chain of rows.
fn nest_in_value_hole(
    writer: &mut Writer,
    outer: &Row,
    chain: &[Row],
    record: &Operand,
) -> Vec<Part> {
    let holes = outer.holes();
    let only_hole = if let [hole] = holes[..] { Some(hole) } else { None };
    let (mut parts, mut operand) = (Vec::new(), record.clone());
    for inner in chain {
        let (more, next) = bind(writer, inner, &operand, only_hole);
        parts.extend(more);
        operand = next;
    }
    match outer.kind {
        RowKind::Carry | RowKind::Write | RowKind::Choose => {
            let (statements, value) = writer.instantiate(outer, &operand, &Body::default());
            parts.push(statements);
            parts.push(Part::text(format!("await {}({{ v: {value} }});", writer.sink())));
        }
        RowKind::Decide => {
            let body = writer.call_body();
            parts.push(writer.instantiate(outer, &operand, &body).0);
        }
        RowKind::Throw => {
            let thrown = writer.instantiate(outer, &operand, &Body::default()).0;
            parts.extend(try_catch("ok", vec![thrown]));
            parts.push(Part::text(format!("await {}({{ ok }});", writer.sink())));
        }
        RowKind::Observe => {
            let body = throwing_body(record);
            parts.push(writer.instantiate(outer, &operand, &body).0);
        }
    }
    parts
}

/// Fills the statement hole of the outer row with the inner row, which depends on a second source.
fn nest_in_body(
    writer: &mut Writer,
    outer: &Row,
    inner: &Row,
    record: &Operand,
) -> Option<Vec<Part>> {
    let must_be_sync = outer.statements.contains("#s");
    if outer.statements.contains("#e") || (must_be_sync && !inner.is_sync()) {
        return None;
    }
    let second = Operand::Record("q".into());
    let mut parts = vec![Part::text(format!("const q = await {};", writer.source()))];
    let sink = writer.sink();
    let call =
        if must_be_sync { format!("{sink}({{ w }});") } else { format!("await {sink}({{ w }});") };
    let (inside, sends_after) = match inner.kind {
        RowKind::Carry | RowKind::Write | RowKind::Choose => {
            let (statements, value) = writer.instantiate(inner, &second, &Body::default());
            (vec![statements, Part::text(format!("w = {value};"))], true)
        }
        RowKind::Decide => {
            let body = Writer::assignment_body("w");
            (vec![writer.instantiate(inner, &second, &body).0], true)
        }
        RowKind::Throw if outer.kind == RowKind::Observe => {
            (vec![writer.instantiate(inner, &second, &Body::default()).0], false)
        }
        RowKind::Throw => {
            let thrown = writer.instantiate(inner, &second, &Body::default()).0;
            let call = Part::text(call.clone());
            (vec![block("try {", vec![thrown, call], "} catch {}")], false)
        }
        RowKind::Observe if must_be_sync => return None,
        RowKind::Observe => {
            (vec![writer.instantiate(inner, &second, &throwing_body(&second)).0], false)
        }
    };
    parts.push(Part::text("let w = 0;"));
    let body = Body { statements: inside.clone(), sync: inside, expression: String::new() };
    parts.push(writer.instantiate(outer, record, &body).0);
    if sends_after {
        parts.push(Part::text(format!("await {sink}({{ w }});")));
    }
    Some(parts)
}

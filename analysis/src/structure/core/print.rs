//! The core of a program as text, for tests.
#![cfg(test)]

use std::fmt::Write;

use super::{Arg, Block, CallForm, Core, Key, Op, Scalar, WHOLE};

/// Returns the core of a program as text, one instruction a line.
pub(in crate::structure) fn print(core: &Core) -> String {
    let mut out = String::new();
    for (id, function) in core.functions.iter().enumerate() {
        let kind = if function.is_async { "async " } else { "" };
        let star = if function.is_generator { "*" } else { "" };
        let _ = writeln!(out, "{kind}f{id}{star}");
        block(&mut out, &function.body, 1);
    }
    out
}

fn block(out: &mut String, body: &Block, depth: usize) {
    // `Take` has no effect; it only records uses for messages.
    for inst in body.iter().filter(|inst| !matches!(inst.op, Op::Take { .. })) {
        out.extend(std::iter::repeat_n("  ", depth));
        line(out, &inst.op, depth);
    }
}

fn key(key: &Key) -> String {
    match key {
        Key::Name(name) => format!(".{name}"),
        Key::Slot(slot) => format!("[{slot}]"),
    }
}

fn list(slots: &[u32]) -> String {
    slots.iter().map(|slot| format!("${slot}")).collect::<Vec<_>>().join(" ")
}

fn scalar(value: &Scalar) -> String {
    match value {
        Scalar::Undefined => "undefined".into(),
        Scalar::Null => "null".into(),
        Scalar::Bool(value) => value.to_string(),
        Scalar::Number(bits) => f64::from_bits(*bits).to_string(),
        Scalar::Text(text) => format!("{text:?}"),
    }
}

fn nested(out: &mut String, head: &str, bodies: &[(&str, &Block)], depth: usize) {
    let _ = writeln!(out, "{head}");
    for (name, body) in bodies.iter().filter(|(_, body)| !body.is_empty()) {
        if !name.is_empty() {
            out.extend(std::iter::repeat_n("  ", depth));
            let _ = writeln!(out, "{name}");
        }
        block(out, body, depth + 1);
    }
}

fn line(out: &mut String, op: &Op, depth: usize) {
    let text = match op {
        Op::Const { to, value } => format!("${to} = {}", scalar(value)),
        Op::Copy { to, from } => format!("${to} = ${from}"),
        Op::Declare { slot } => format!("declare ${slot}"),
        Op::Outer { to, up, slot } => format!("${to} = outer {up} ${slot}"),
        Op::SetOuter { up, slot, from } => format!("outer {up} ${slot} = ${from}"),
        Op::Global { to, name } => format!("${to} = global {name}"),
        Op::SetGlobal { name, from } => format!("global {name} = ${from}"),
        Op::Param { to, index } => format!("${to} = param {index}"),
        Op::Rest { to, index } => format!("${to} = params from {index}"),
        Op::Get { to, object, key: name, .. } => format!("${to} = ${object}{}", key(name)),
        Op::Above { to, home, key: name, .. } => format!("${to} = above ${home}{}", key(name)),
        Op::Set { object, key: name, from } => format!("${object}{} = ${from}", key(name)),
        Op::Delete { object, key: name } => format!("delete ${object}{}", key(name)),
        Op::New { to, made } => format!("${to} = new {made:?}"),
        Op::Put { object, key: name, from, how } => {
            format!("put {how:?} ${object}{} = ${from}", key(name))
        }
        Op::Spread { object, from, .. } => format!("spread ${from} into ${object}"),
        Op::Push { list, from, spread } => {
            format!("push {}${from} to ${list}", if *spread { "..." } else { "" })
        }
        Op::Item { to, of, index } => format!("${to} = item {index} of ${of}"),
        Op::Items { to, of, from } => format!("${to} = items of ${of} from {from}"),
        Op::Make { to, func } => format!("${to} = function f{func}"),
        Op::Class { class, prototype, parent } => match parent {
            Some(parent) => format!("class ${class} ${prototype} extends ${parent}"),
            None => format!("class ${class} ${prototype}"),
        },
        Op::Compute { to, how, of } => format!("${to} = {how:?} {}", list(of)),
        Op::Call { to, callee, this, args, form, wait, .. } => {
            let arg = |arg: &Arg| format!("{}${}", if arg.spread { "..." } else { "" }, arg.slot);
            let args: Vec<String> = args.iter().map(arg).collect();
            let form = if *form == CallForm::Plain { "call" } else { "construct" };
            let this = this.map_or(String::new(), |this| format!(" on ${this}"));
            format!("${to} = {form} ${callee}{this} ({}) {wait:?}", args.join(" "))
        }
        Op::Await { to, from, .. } => format!("${to} = await ${from}"),
        Op::Yield { to, from, .. } => format!("${to} = yield ${from}"),
        Op::Jump { to: WHOLE } => "return".into(),
        Op::Jump { to } => format!("leave r{to}"),
        Op::Throw { from } => format!("throw ${from}"),
        Op::Unknown { to, of } => format!("${to} = unknown {}", list(of)),
        Op::Take { of, .. } => format!("take ${of}"),
        Op::If { cond, then, other, .. } => {
            return nested(out, &format!("if ${cond}"), &[("", then), ("else", other)], depth);
        }
        Op::Loop { exit, turn, body, after, .. } => {
            return nested(
                out,
                &format!("loop r{exit} r{turn}"),
                &[("", body), ("after", after)],
                depth,
            );
        }
        Op::Each { exit, turn, of, item, body, .. } => {
            let head = format!("each ${item} of ${of} r{exit} r{turn}");
            return nested(out, &head, &[("", body)], depth);
        }
        Op::Block { exit, body, .. } => {
            return nested(out, &format!("block r{exit}"), &[("", body)], depth);
        }
        Op::Doomed { body } => return nested(out, "doomed", &[("", body)], depth),
        Op::Marked { mark, body } => {
            return nested(out, &format!("{mark:?}"), &[("", body)], depth);
        }
        Op::Try { body, handler, finally } => {
            let none = Block::new();
            let caught = handler.as_ref().map_or(&none, |(_, body)| body);
            let ways =
                [("", body), ("catch", caught), ("finally", finally.as_ref().unwrap_or(&none))];
            return nested(out, "try", &ways, depth);
        }
    };
    let _ = writeln!(out, "{text}");
}

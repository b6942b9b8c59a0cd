//! Programs with a single construct.

use super::program::{Part, Program};
use super::random::Random;
use super::writer::Writer;
use super::{Construct, Grade, calls, changes, statements, values};

/// Writes a program for each construct, with nothing else in it.
pub(super) fn write() -> Vec<(Program, bool)> {
    let tables: [(&'static [Construct], &'static str); 7] = [
        (statements::STATEMENTS, ""),
        (changes::CHANGES, ""),
        (calls::CALLS, "@x;"),
        (values::TOOLS, "@t(@o);"),
        (values::NAMESPACES, "@n.@e(@o);@!"),
        (values::MCP, "@m.@s.@e(@o);@!"),
        (values::NAMES, "@n[@k](@o);"),
    ];
    let mut programs = Vec::new();
    for (table, around) in tables {
        for construct in table {
            let yields = construct.text.contains("~yield");
            let around = match around {
                "" => construct.text,
                "@x;" if yields => "for (const v of (function* () {@[g @x; @]})()) v;",
                around => around,
            };
            let mut writer = Writer::new(Random::new(1), true, 0);
            writer.forced = Some(construct.name);
            writer.parts.push(Part { constructs: vec![construct.name], ..Part::default() });
            if construct.name.starts_with("state: ") {
                let _ = writer.expand(changes::STATE);
            }
            let _ = writer.expand(around);
            let part = writer.parts.pop().expect("the part was pushed above");
            let resolvable = construct.grade == Grade::Plain;
            let later = construct.grade == Grade::Later;
            programs.push((Program { seed: 0, resolvable, body: vec![part] }, later));
        }
    }
    programs
}

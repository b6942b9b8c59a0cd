//! Programs of a single construct.

use super::program::{Part, Program};
use super::random::Random;
use super::writer::Writer;
use super::{Construct, Grade, calls, changes, statements, values};

/// Generates a program for each construct, and returns with it whether the construct is a known gap.
pub(super) fn programs() -> Vec<(Program, bool)> {
    let tables: [(&'static [Construct], &'static str); 7] = [
        // Each table with a template that uses its constructs.
        (statements::STATEMENTS, ""),
        (changes::CHANGES, ""),
        (calls::CALLS, "@x;"),
        (values::TOOLS, "@t(@o);"),
        (values::NAMESPACES, "@n.@e(@o);@!"),
        (values::MCP, "@m.@s.@e(@o);@!"),
        (values::NAMES, "@n[@k](@o);"),
    ];
    let mut programs = Vec::new();
    for (table, template) in tables {
        for construct in table {
            let yields = construct.text.contains("~yield");
            let template = match template {
                "" => construct.text,
                "@x;" if yields => "for (const v of (function* () {@[g @x; @]})()) v;",
                template => template,
            };
            let mut writer = Writer::new(Random::new(1), true, 0);
            writer.forced = Some(construct.name);
            writer.parts.push(Part { constructs: vec![construct.name], ..Part::default() });
            if construct.name.starts_with("state: ") {
                let _ = writer.expand(changes::STATE);
            }
            let _ = writer.expand(template);
            let part = writer.parts.pop().expect("the part was pushed above");
            let resolvable = construct.grade == Grade::Plain;
            let is_known_gap = construct.grade == Grade::KnownGap;
            programs.push((Program { seed: 0, resolvable, body: vec![part] }, is_known_gap));
        }
    }
    programs
}

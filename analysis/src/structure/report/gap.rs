//! Messages about code that the analysis cannot follow, and how to rewrite it.

use crate::diagnostic::{Code, Finding, shown};
use crate::structure::domain::{Domain, Ref};
use crate::structure::solve::{About, Gap, How, Solved};

/// How to write calls that the analysis can follow.
const ADVICE: &str = "call tools directly, as in `mcp.filesystem.read_file({ path })`";

/// The maximum number of characters of a name in a message.
const NAMED: usize = 64;

/// Returns a warning for each place that the analysis could not follow.
pub(super) fn findings(solved: &Solved) -> Vec<Finding> {
    if solved.entangled {
        let message = "the data flow of this program is too complex to analyse; call tools directly, from fewer functions";
        return vec![Finding::new(Code::DynamicEscape, 0, message)];
    }
    // If a more specific cause is reported at a place, its consequence there is not.
    let is_alone = |gap: &&Gap| {
        gap.code != Code::DynamicEscape
            || !solved.gaps.iter().any(|other| other.at == gap.at && other.code != gap.code)
    };
    let message = |gap: &Gap| Finding::new(gap.code, gap.at, message(gap, &solved.domain));
    solved.gaps.iter().filter(is_alone).map(message).collect()
}

fn message(gap: &Gap, domain: &Domain) -> String {
    let name = named(gap.about, domain);
    match (gap.code, gap.about) {
        (Code::DynamicName, _) => "the tool called here is only known at run time; write its name out, as in `mcp.filesystem.read_file(…)`, and choose between calls with `if`".into(),
        (Code::DynamicCall, About::Value(Ref::Tool(..), _)) => {
            format!("a tool has no members; call it as `{name}({{ … }})`")
        }
        (Code::DynamicCall, _) => {
            format!("`{name}` is not a tool; call a tool as `mcp.namespace.action({{ … }})`")
        }
        (Code::DynamicWrite, About::Name) => "`mcp` cannot be assigned to; use another variable".into(),
        (Code::DynamicWrite, _) => "`mcp` and its members cannot be assigned to; use another variable".into(),
        (Code::DynamicGlobal, About::Name) => "the global used here is only known at run time; write its name out".into(),
        (Code::DynamicGlobal, About::Change) => "this modifies a built-in object, so built-in functions may do anything; write your own function instead".into(),
        (Code::DynamicGlobal, _) => "the global object reaches code that the analysis cannot follow; name the global that you need, as in `globalThis.JSON`".into(),
        (Code::DynamicScope, _) => "`arguments` does not belong to a function of the program here; the input of the program is `args`".into(),
        (Code::DynamicEval, _) => "this creates code from text; write the code in the program itself".into(),
        (_, About::Value(Ref::Tool(..), how)) => {
            let how = reached(how);
            format!("`{name}` {how}; pass a function instead, as in `(input) => {name}({{ input }})`")
        }
        (_, About::Value(_, how)) => format!("`{name}` {}; {ADVICE}", reached(how)),
        _ => format!("the analysis cannot follow this; {ADVICE}"),
    }
}

/// Describes how a value reaches code that the analysis cannot follow.
fn reached(how: How) -> &'static str {
    match how {
        How::Passed | How::Called => "is passed to code that the analysis cannot follow",
        How::Kept => "is stored where code that the analysis cannot follow can reach it",
        How::Copied => "is copied by `...`",
        How::Iterated => "is iterated",
        How::Awaited => "is awaited",
        How::MadeText => "is converted to a string",
        How::Returned => "is returned from the program",
    }
}

/// Returns `mcp`, a namespace or a tool, as a program writes it.
fn named(about: About, domain: &Domain) -> String {
    let text = |name| shown(&domain.names.text(name), NAMED);
    match about {
        About::Value(Ref::Namespace(namespace), _) => format!("mcp.{}", text(namespace)),
        About::Value(Ref::Tool(namespace, action), _) => {
            format!("mcp.{}.{}", text(namespace), text(action))
        }
        _ => "mcp".into(),
    }
}

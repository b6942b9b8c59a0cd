//! What the analysis cannot follow, and how to write it so that it can.

use crate::diagnostic::{Code, Finding, shown};
use crate::structure::domain::{Domain, Ref};
use crate::structure::solve::{About, Gap, How, Solved};

/// What to write so that a program is understood.
const ADVICE: &str = "call tools directly, as in `mcp.filesystem.read_file({ path })`";

/// The most characters of a name that a message repeats.
const NAMED: usize = 64;

/// Returns what the analysis could not follow.
pub(super) fn findings(solved: &Solved) -> Vec<Finding> {
    if solved.entangled {
        let message = "the values of this program are too entangled to be followed; call tools directly, from fewer functions";
        return vec![Finding::new(Code::DynamicEscape, 0, message)];
    }
    // Where it is said what is wrong, it need not be said what comes of it.
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
        (Code::DynamicName, _) => "which tool is meant is only known when the program runs; write the name out, as in `mcp.filesystem.read_file(…)`, and choose between calls with `if`".into(),
        (Code::DynamicCall, About::Value(Ref::Tool(..), _)) => {
            format!("a tool has no parts to name; a tool is called as `{name}({{ … }})`")
        }
        (Code::DynamicCall, _) => {
            format!("`{name}` is not a tool; a tool is called as `mcp.namespace.action({{ … }})`")
        }
        (Code::DynamicWrite, About::Name) => "`mcp` cannot be assigned to; use a variable of the program".into(),
        (Code::DynamicWrite, _) => "`mcp` and what is in it cannot be written to; use a variable of the program".into(),
        (Code::DynamicGlobal, About::Name) => "which global is meant is only known when the program runs; write its name out".into(),
        (Code::DynamicGlobal, About::Change) => "what the engine offers is changed, so its functions may do anything; write a function of your own".into(),
        (Code::DynamicGlobal, _) => "the global object reaches code that cannot be followed; name what you need of it, as in `globalThis.JSON`".into(),
        (Code::DynamicScope, _) => "`arguments` here is not the program's; the input of the program is `args`".into(),
        (Code::DynamicEval, _) => "this makes code out of text; write the code into the program".into(),
        (_, About::Value(Ref::Tool(..), how)) => {
            let how = reached(how);
            format!("`{name}` {how}; pass a function instead, as in `(input) => {name}({{ input }})`")
        }
        (_, About::Value(_, how)) => format!("`{name}` {}; {ADVICE}", reached(how)),
        _ => format!("this cannot be followed; {ADVICE}"),
    }
}

/// Returns how something gets to where it cannot be followed.
fn reached(how: How) -> &'static str {
    match how {
        How::Passed | How::Called => "is passed to code that cannot be followed",
        How::Kept => "is kept where code that cannot be followed finds it",
        How::Copied => "is copied by `...`",
        How::Iterated => "is iterated",
        How::Awaited => "is awaited",
        How::MadeText => "is turned into text",
        How::Returned => "is returned from the program",
    }
}

/// Returns what leads to tools, as a program names it.
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

//! The ends of calls, by which the `.edges` files number them.

use std::collections::BTreeMap;

use swc_common::BytePos;
use swc_ecma_ast::{CallExpr, EsVersion, OptCall};
use swc_ecma_parser::{Parser, StringInput, Syntax, TsSyntax, lexer::Lexer};
use swc_ecma_visit::{Visit, VisitWith};

/// The end of the innermost call that begins at each offset.
#[derive(Default)]
struct Ends(BTreeMap<u32, u32>);

impl Ends {
    fn add(&mut self, span: swc_common::Span) {
        let end = self.0.entry(span.lo.0).or_insert(span.hi.0);
        *end = span.hi.0.min(*end);
    }
}

impl Visit for Ends {
    fn visit_call_expr(&mut self, call: &CallExpr) {
        self.add(call.span);
        call.visit_children_with(self);
    }

    fn visit_opt_call(&mut self, call: &OptCall) {
        self.add(call.span);
        call.visit_children_with(self);
    }
}

/// Returns the end of each call, by the line and column of its start.
pub(crate) fn call_ends(source: &str) -> BTreeMap<(u32, u32), u32> {
    const PREFIX: &str = "async function program(){";
    let text = format!("{PREFIX}{source}\n}}");
    let input = StringInput::new(&text, BytePos(0), BytePos(text.len() as u32));
    let syntax = Syntax::Typescript(TsSyntax::default());
    let module = Parser::new_from(Lexer::new(syntax, EsVersion::latest(), input, None))
        .parse_module()
        .expect("an agent program parses");
    let mut ends = Ends::default();
    module.visit_with(&mut ends);
    let place = |offset: u32| {
        let before = &source[..offset as usize - PREFIX.len()];
        let line = before.rsplit('\n').next().unwrap_or_default();
        (before.matches('\n').count() as u32 + 1, line.chars().count() as u32 + 1)
    };
    ends.0.into_iter().map(|(begin, end)| (place(begin), end)).collect()
}

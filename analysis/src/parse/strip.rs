//! Type erasure by SWC, which keeps every line and column.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use swc_common::errors::{DiagnosticBuilder, Emitter, HANDLER, Handler};
use swc_common::sync::Lrc;
use swc_common::{GLOBALS, Globals, SourceMap};
use swc_ecma_parser::TsSyntax;
use swc_ts_fast_strip::{Mode, Options, operate};

use crate::diagnostic::{Code, Finding};
use crate::wrapper::{PREFIX, SUFFIX, start, wrap};

/// Collects the errors of the eraser.
struct Collector(Arc<Mutex<Vec<Finding>>>);

impl Emitter for Collector {
    fn emit(&mut self, found: &mut DiagnosticBuilder<'_>) {
        let offset = found.span.primary_span().map_or(0, start);
        let message = found.message();
        let message = if message.starts_with("The angle-bracket") {
            "`<Type>value` is not supported; write `value as Type`".to_owned()
        } else {
            message.replace(" in strip-only mode", "")
        };
        if let Ok(mut findings) = self.0.lock() {
            findings.push(Finding::new(Code::UnsupportedSyntax, offset, message));
        }
    }
}

/// Returns `text` with spaces in place of its types.
pub(super) fn strip(text: &str) -> Result<String, Vec<Finding>> {
    let findings = Arc::new(Mutex::new(Vec::new()));
    let handler = Handler::with_emitter(true, false, Box::new(Collector(findings.clone())));
    let options = Options {
        module: Some(true),
        mode: Mode::StripOnly,
        parser: TsSyntax { decorators: true, ..TsSyntax::default() },
        ..Options::default()
    };
    let source_map: Lrc<SourceMap> = Lrc::default();
    let stripped = catch_unwind(AssertUnwindSafe(|| {
        GLOBALS.set(&Globals::new(), || {
            HANDLER.set(&handler, || operate(&source_map, &handler, wrap(text), options))
        })
    }));
    let Ok(stripped) = stripped else {
        let message = "the types of this program cannot be erased; write it without types";
        return Err(vec![Finding::new(Code::UnsupportedSyntax, 0, message)]);
    };
    let refused = |message: String| {
        let mut collected =
            findings.lock().map(|mut found| std::mem::take(&mut *found)).unwrap_or_default();
        if collected.is_empty() {
            collected.push(Finding::new(Code::UnsupportedSyntax, 0, message));
        }
        collected
    };
    match stripped {
        Err(error) => Err(refused(error.message)),
        Ok(output) => {
            let body = output.code.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
            body.map(str::to_owned)
                .ok_or_else(|| refused("the types of this program cannot be erased".into()))
        }
    }
}

/// Aligns the erased text with the source, counted in characters.
///
/// The eraser keeps UTF-16 columns: it replaces one character beyond U+FFFF by two
/// spaces. `inserted` is the offset in the source before which one character was
/// added.
pub(super) fn by_characters(
    source: &str,
    stripped: Cow<'_, str>,
    inserted: Option<usize>,
) -> String {
    if source.len() == stripped.len() && source.is_ascii() {
        return stripped.into_owned();
    }
    let mut out = String::with_capacity(source.len());
    let mut left = stripped.chars();
    for (at, character) in source.char_indices() {
        if inserted == Some(at) {
            out.extend(left.next());
        }
        let Some(kept) = left.next() else { break };
        out.push(kept);
        if kept.len_utf16() < character.len_utf16() {
            left.next();
        }
    }
    out.extend(left);
    out
}

//! JSONPath (RFC 9535) within limits.
//!
//! The crate `jsonpath-rust` parses the query. It is evaluated here, because a short query such as `$..*..*..*`, or a
//! filter within a filter, can make any evaluator without a step limit run practically forever.

mod filter;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use jsonpath_rust::parser::errors::JsonPathError;
use jsonpath_rust::parser::model::{JpQuery, Segment, Selector};
use jsonpath_rust::parser::parse_json_path;
use serde_json::Value;

use crate::tools::ToolFailure;
use crate::tools::pattern::Pattern;

/// The maximum nesting depth of parentheses and brackets in a query.
const MAX_NESTING: usize = 8;

/// The maximum work of parsing a query, in bytes read, each about a microsecond.
const MAX_PARSE_WORK: usize = 10_000;

/// How often the parser reads the arguments of a function: if they are invalid, it tries them as a test, as the side
/// of a comparison, and as a condition.
const READINGS: usize = 3;

/// The maximum number of steps of one query, each a few dozen nanoseconds.
const MAX_STEPS: usize = 8_000_000;

/// The maximum number of values that one segment of a query selects.
const MAX_NODES: usize = 1_000_000;

/// The cost of compiling one regular expression, in steps.
const COMPILE_STEPS: usize = 400_000;

/// Returns the values of `data` that a query selects, in document order.
pub(super) fn select<'v>(path: &str, data: &'v Value) -> Result<Vec<&'v Value>, ToolFailure> {
    let invalid = |reason: String| {
        ToolFailure::InvalidArguments(format!("`path` is not a JSONPath: {reason}"))
    };
    // Checked on the text, because parsing is what deep nesting slows down.
    let Shape { depth, work } = shape(path);
    if depth > MAX_NESTING {
        return Err(invalid(format!("it nests deeper than {MAX_NESTING} brackets")));
    }
    if work > MAX_PARSE_WORK {
        let reason = "it is too long for its nested functions; shorten it, or nest fewer functions";
        return Err(invalid(reason.to_owned()));
    }
    let query = parse_json_path(path).map_err(|error| invalid(reason(&error)))?;
    let evaluation = Evaluation {
        root: data,
        steps: Cell::new(MAX_STEPS),
        patterns: RefCell::new(HashMap::new()),
    };
    evaluation.absolute(&query)
}

/// Returns the reason and the position of a syntax error, in one line.
fn reason(error: &JsonPathError) -> String {
    let JsonPathError::PestError(syntax) = error else {
        return error.to_string();
    };
    // The parser's message shows the position over several lines; the first is ` --> line:column`.
    let picture = syntax.to_string();
    let column = picture.lines().next().and_then(|line| line.rsplit(':').next());
    format!("column {}: {}", column.unwrap_or("1").trim(), syntax.variant.message())
}

/// What the time for parsing a query depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    /// The maximum nesting depth of brackets.
    depth: usize,
    /// The number of bytes that the parser reads at most.
    work: usize,
}

/// Measures a query. Brackets in strings do not count.
fn shape(path: &str) -> Shape {
    // For each open bracket, how often the parser reads what is within it.
    let mut open: Vec<usize> = Vec::new();
    let mut shape = Shape { depth: 0, work: 0 };
    let (mut quote, mut is_escaped, mut last) = (None, false, b' ');
    for byte in path.bytes() {
        let readings = open.last().copied().unwrap_or(1);
        shape.work = shape.work.saturating_add(readings);
        if quote.is_some() {
            if !is_escaped && quote == Some(byte) {
                quote = None;
            }
            is_escaped = !is_escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'\'' | b'"' => quote = Some(byte),
            // The parser permits white space between the name of a function and its bracket.
            b'(' if last.is_ascii_alphabetic() => open.push(readings.saturating_mul(READINGS)),
            b'(' | b'[' => open.push(readings),
            b')' | b']' => {
                open.pop();
            }
            _ => {}
        }
        shape.depth = shape.depth.max(open.len());
        if !byte.is_ascii_whitespace() {
            last = byte;
        }
    }
    shape
}

struct Evaluation<'v> {
    root: &'v Value,
    steps: Cell<usize>,
    patterns: RefCell<HashMap<String, Option<Pattern>>>,
}

impl<'v> Evaluation<'v> {
    /// Takes steps from the budget of the query.
    fn spend(&self, steps: usize) -> Result<(), ToolFailure> {
        let left = self.steps.get().checked_sub(steps).ok_or_else(|| {
            ToolFailure::Failed(
                "the query takes too many steps on this data; use fewer `..` and filters, or a smaller part of the data"
                    .to_owned(),
            )
        })?;
        self.steps.set(left);
        Ok(())
    }

    fn absolute(&self, query: &JpQuery) -> Result<Vec<&'v Value>, ToolFailure> {
        self.segments(&query.segments, self.root)
    }

    fn segments(
        &self,
        segments: &[Segment],
        from: &'v Value,
    ) -> Result<Vec<&'v Value>, ToolFailure> {
        let mut nodes = vec![from];
        for segment in segments {
            let mut selected = Vec::new();
            for node in nodes {
                self.segment(segment, node, &mut selected)?;
            }
            nodes = selected;
        }
        Ok(nodes)
    }

    fn segment(
        &self,
        segment: &Segment,
        node: &'v Value,
        out: &mut Vec<&'v Value>,
    ) -> Result<(), ToolFailure> {
        match segment {
            Segment::Selector(selector) => self.selector(selector, node, out),
            Segment::Selectors(selectors) => {
                selectors.iter().try_for_each(|selector| self.selector(selector, node, out))
            }
            Segment::Descendant(inner) => {
                // Before the children: a node precedes its descendants (RFC 9535, section 2.5.2.2).
                self.segment(inner, node, out)?;
                for child in children(node) {
                    self.spend(1)?;
                    // Selectors select nothing from scalars. The recursion is as deep as the data,
                    // whose depth `NativeTool::call` limits.
                    if child.is_array() || child.is_object() {
                        self.segment(segment, child, out)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn selector(
        &self,
        selector: &Selector,
        node: &'v Value,
        out: &mut Vec<&'v Value>,
    ) -> Result<(), ToolFailure> {
        self.spend(1)?;
        match selector {
            Selector::Name(name) => {
                if let Some(value) = self.member(node, name)? {
                    self.push(value, out)?;
                }
            }
            Selector::Index(index) => {
                if let Some(value) = element(node, *index) {
                    self.push(value, out)?;
                }
            }
            Selector::Wildcard => {
                for child in children(node) {
                    self.push(child, out)?;
                }
            }
            Selector::Slice(start, end, step) => {
                if let Value::Array(items) = node {
                    for index in slice(items.len(), *start, *end, step.unwrap_or(1)) {
                        self.push(&items[index], out)?;
                    }
                }
            }
            Selector::Filter(filter) => {
                for child in children(node) {
                    if self.filter(filter, child)? {
                        self.push(child, out)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn push(&self, value: &'v Value, out: &mut Vec<&'v Value>) -> Result<(), ToolFailure> {
        self.spend(1)?;
        // The steps limit the time, this limits the memory: the nodes of a segment are all kept
        // until the next segment has used them.
        if out.len() >= MAX_NODES {
            return Err(ToolFailure::Failed(format!(
                "the query selects more than {MAX_NODES} values"
            )));
        }
        out.push(value);
        Ok(())
    }

    fn member(&self, node: &'v Value, name: &str) -> Result<Option<&'v Value>, ToolFailure> {
        // The look-up hashes the name, so long names cost more.
        self.spend(1 + name.len() / 32)?;
        Ok(node.as_object().and_then(|fields| fields.get(name)))
    }
}

fn children(node: &Value) -> impl Iterator<Item = &Value> {
    let items = node.as_array().into_iter().flatten();
    let fields = node.as_object().into_iter().flat_map(|fields| fields.values());
    items.chain(fields)
}

fn element(node: &Value, index: i64) -> Option<&Value> {
    let items = node.as_array()?;
    let from_end = usize::try_from(index.unsigned_abs()).ok()?;
    let index = if index < 0 { items.len().checked_sub(from_end)? } else { from_end };
    items.get(index)
}

/// Returns the indices of a slice, RFC 9535 section 2.3.4.2.2.
fn slice(length: usize, start: Option<i64>, end: Option<i64>, step: i64) -> Vec<usize> {
    let Ok(length) = i64::try_from(length) else {
        return Vec::new();
    };
    let normal = |index: i64| if index < 0 { length.saturating_add(index) } else { index };
    let Ok(stride) = usize::try_from(step.unsigned_abs()) else {
        return Vec::new();
    };
    let indices: Box<dyn Iterator<Item = i64>> = match step {
        0 => return Vec::new(),
        1.. => {
            let lower = normal(start.unwrap_or(0)).clamp(0, length);
            let upper = normal(end.unwrap_or(length)).clamp(0, length);
            Box::new((lower..upper).step_by(stride))
        }
        _ => {
            let upper = start.map_or(length - 1, normal).clamp(-1, length - 1);
            // An omitted end is the position before the first item. It must not pass through
            // `normal`, which would take -1 for the last item.
            let lower = end.map_or(-1, |end| normal(end).clamp(-1, length - 1));
            Box::new((lower + 1..=upper).rev().step_by(stride))
        }
    };
    indices.filter_map(|index| usize::try_from(index).ok()).collect()
}

#[cfg(test)]
mod tests;

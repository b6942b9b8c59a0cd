//! The filter expressions of a JSONPath: tests, comparisons and functions.

use jsonpath_rust::parser::model::{
    Comparable, Comparison, Filter, FilterAtom, FnArg, Literal, Segment, Selector, SingularQuery,
    SingularQuerySegment, Test, TestFunction,
};
use serde_json::{Number, Value};

use super::{COMPILE_STEPS, Evaluation, element};
use crate::tools::ToolFailure;
use crate::tools::pattern::Pattern;

/// A value in a filter: a node of the data, a computed value, or `Nothing` (RFC 9535).
enum Operand<'v> {
    Nothing,
    Node(&'v Value),
    Computed(Value),
}

impl Operand<'_> {
    fn value(&self) -> Option<&Value> {
        match self {
            Operand::Nothing => None,
            Operand::Node(value) => Some(value),
            Operand::Computed(value) => Some(value),
        }
    }
}

impl<'v> Evaluation<'v> {
    /// Returns whether a condition is true for a value.
    pub(super) fn filter(&self, filter: &Filter, node: &'v Value) -> Result<bool, ToolFailure> {
        self.spend(1)?;
        match filter {
            Filter::Or(parts) => {
                for part in parts {
                    if self.filter(part, node)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Filter::And(parts) => {
                for part in parts {
                    if !self.filter(part, node)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Filter::Atom(FilterAtom::Filter { expr, not }) => Ok(self.filter(expr, node)? != *not),
            Filter::Atom(FilterAtom::Test { expr, not }) => Ok(self.test(expr, node)? != *not),
            Filter::Atom(FilterAtom::Comparison(comparison)) => self.comparison(comparison, node),
        }
    }

    fn test(&self, test: &Test, node: &'v Value) -> Result<bool, ToolFailure> {
        match test {
            Test::RelQuery(segments) => Ok(!self.segments(segments, node)?.is_empty()),
            Test::AbsQuery(query) => Ok(!self.absolute(query)?.is_empty()),
            Test::Function(function) => match &**function {
                TestFunction::Match(text, pattern) => self.matches(text, pattern, true, node),
                TestFunction::Search(text, pattern) => self.matches(text, pattern, false, node),
                other => Err(unsupported(&format!("`{other}` is not a test; compare it"))),
            },
        }
    }

    fn comparison(&self, comparison: &Comparison, node: &'v Value) -> Result<bool, ToolFailure> {
        let (left, right) = comparison.vals();
        let (left, right) = (self.comparable(left, node)?, self.comparable(right, node)?);
        let (left, right) = (left.value(), right.value());
        let equal = || match (left, right) {
            // Two sides without a value are equal (RFC 9535, section 2.3.5.2.2).
            (None, None) => Ok(true),
            (Some(left), Some(right)) => self.equal(left, right),
            _ => Ok(false),
        };
        let less = |left: Option<&Value>, right: Option<&Value>| match (left, right) {
            (Some(Value::Number(left)), Some(Value::Number(right))) => {
                Ok(compare_numbers(left, right).is_some_and(|order| order.is_lt()))
            }
            (Some(Value::String(left)), Some(Value::String(right))) => {
                self.spend(left.len().min(right.len()) / 32)?;
                Ok(left < right)
            }
            _ => Ok(false),
        };
        // `<=` is `<` or `==`, so it also holds for equal values that have no order (RFC 9535, section 2.3.5.2.2).
        match comparison {
            Comparison::Eq(..) => equal(),
            Comparison::Ne(..) => Ok(!equal()?),
            Comparison::Lt(..) => less(left, right),
            Comparison::Gt(..) => less(right, left),
            Comparison::Lte(..) => Ok(less(left, right)? || equal()?),
            Comparison::Gte(..) => Ok(less(right, left)? || equal()?),
        }
    }

    fn equal(&self, left: &Value, right: &Value) -> Result<bool, ToolFailure> {
        self.spend(1)?;
        // `==` would distinguish `1` from `1.0`, and would not be charged to the budget.
        match (left, right) {
            (Value::Number(left), Value::Number(right)) => {
                Ok(compare_numbers(left, right).is_some_and(|order| order.is_eq()))
            }
            (Value::String(left), Value::String(right)) => {
                self.spend(left.len().min(right.len()) / 32)?;
                Ok(left == right)
            }
            (Value::Array(left), Value::Array(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                for (left, right) in left.iter().zip(right) {
                    if !self.equal(left, right)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Object(left), Value::Object(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                // The numbers of members are equal, so looking up the names of one side is enough.
                for (name, left) in left {
                    self.spend(1 + name.len() / 32)?;
                    let Some(right) = right.get(name) else {
                        return Ok(false);
                    };
                    if !self.equal(left, right)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (left, right) => Ok(left == right),
        }
    }

    fn comparable(&self, side: &Comparable, node: &'v Value) -> Result<Operand<'v>, ToolFailure> {
        match side {
            Comparable::Literal(literal) => Ok(Operand::Computed(literal_value(literal))),
            Comparable::Function(function) => self.function(function, node),
            Comparable::SingularQuery(SingularQuery::Current(segments)) => {
                self.singular(segments, node)
            }
            Comparable::SingularQuery(SingularQuery::Root(segments)) => {
                self.singular(segments, self.root)
            }
        }
    }

    fn singular(
        &self,
        segments: &[SingularQuerySegment],
        from: &'v Value,
    ) -> Result<Operand<'v>, ToolFailure> {
        let mut node = from;
        for segment in segments {
            let next = match segment {
                SingularQuerySegment::Name(name) => self.member(node, name)?,
                SingularQuerySegment::Index(index) => {
                    self.spend(1)?;
                    element(node, *index)
                }
            };
            match next {
                Some(value) => node = value,
                None => return Ok(Operand::Nothing),
            }
        }
        Ok(Operand::Node(node))
    }

    fn function(
        &self,
        function: &TestFunction,
        node: &'v Value,
    ) -> Result<Operand<'v>, ToolFailure> {
        self.spend(1)?;
        let length = |length: usize| Ok(Operand::Computed(Value::from(length)));
        match function {
            TestFunction::Length(argument) => match self.argument(argument, node)?.value() {
                Some(Value::String(text)) => {
                    // RFC 9535, section 2.4.4: in Unicode scalar values, so the text is read.
                    self.spend(text.len() / 32)?;
                    length(text.chars().count())
                }
                Some(Value::Array(items)) => length(items.len()),
                Some(Value::Object(fields)) => length(fields.len()),
                _ => Ok(Operand::Nothing),
            },
            TestFunction::Count(argument) => length(self.nodes(argument, node)?.len()),
            TestFunction::Value(argument) => Ok(match self.nodes(argument, node)?[..] {
                [only] => Operand::Node(only),
                _ => Operand::Nothing,
            }),
            other => Err(unsupported(&format!("`{other}` gives no value to compare"))),
        }
    }

    /// Evaluates an argument that must be a list of nodes.
    fn nodes(&self, argument: &FnArg, node: &'v Value) -> Result<Vec<&'v Value>, ToolFailure> {
        if let FnArg::Test(test) = argument {
            match &**test {
                Test::RelQuery(segments) => return self.segments(segments, node),
                Test::AbsQuery(query) => return self.absolute(query),
                Test::Function(_) => {}
            }
        }
        Err(unsupported(&format!("`{argument}` is not a query")))
    }

    /// Evaluates an argument that must be one value.
    fn argument(&self, argument: &FnArg, node: &'v Value) -> Result<Operand<'v>, ToolFailure> {
        // The parser accepts every query here. RFC 9535, section 2.4.3, permits only queries that
        // select at most one node.
        let singular = |segments: &[Segment]| {
            segments.iter().all(|segment| {
                matches!(segment, Segment::Selector(Selector::Name(_) | Selector::Index(_)))
            })
        };
        match argument {
            FnArg::Literal(literal) => return Ok(Operand::Computed(literal_value(literal))),
            FnArg::Test(test) => match &**test {
                Test::Function(function) => return self.function(function, node),
                Test::RelQuery(segments) if singular(segments) => {
                    return Ok(first(self.segments(segments, node)?));
                }
                Test::AbsQuery(query) if singular(&query.segments) => {
                    return Ok(first(self.absolute(query)?));
                }
                Test::RelQuery(_) | Test::AbsQuery(_) => {}
            },
            FnArg::Filter(_) => {}
        }
        Err(unsupported(&format!("`{argument}` can be more than one value")))
    }

    fn matches(
        &self,
        text: &FnArg,
        expression: &FnArg,
        whole: bool,
        node: &'v Value,
    ) -> Result<bool, ToolFailure> {
        // Evaluated before the cache is borrowed: an argument may contain a filter that calls
        // `match` itself, and a second borrow would panic.
        let (text, expression) = (self.argument(text, node)?, self.argument(expression, node)?);
        let (Some(Value::String(text)), Some(Value::String(expression))) =
            (text.value(), expression.value())
        else {
            // An argument that is not a text matches nothing (RFC 9535, sections 2.4.6 and 2.4.7).
            return Ok(false);
        };
        self.spend(1 + expression.len() / 32)?;
        // `match` and `search` compile the same expression differently, so the cache distinguishes them by a prefix.
        let key = if whole { format!("^{expression}") } else { format!("~{expression}") };
        let mut patterns = self.patterns.borrow_mut();
        if !patterns.contains_key(&key) {
            self.spend(COMPILE_STEPS)?;
            // An invalid pattern matches nothing (RFC 9535, section 2.4.6); one beyond our limits is an error.
            patterns.insert(key.clone(), Pattern::compile_iregexp(expression, whole)?);
        }
        let Some(Some(pattern)) = patterns.get(&key) else {
            return Ok(false);
        };
        // A step is several times more expensive than a position of the pattern on one byte.
        self.spend(pattern.work(text.len()) / 8)?;
        Ok(pattern.for_text(text.len())?.is_match(text))
    }
}

fn first<'v>(nodes: Vec<&'v Value>) -> Operand<'v> {
    nodes.first().map_or(Operand::Nothing, |node| Operand::Node(node))
}

fn unsupported(reason: &str) -> ToolFailure {
    ToolFailure::InvalidArguments(format!("`path` is not a JSONPath of RFC 9535: {reason}"))
}

fn literal_value(literal: &Literal) -> Value {
    match literal {
        Literal::Int(number) => Value::from(*number),
        Literal::Float(number) => Value::from(*number),
        Literal::String(text) => Value::from(text.as_str()),
        Literal::Bool(truth) => Value::from(*truth),
        Literal::Null => Value::Null,
    }
}

/// Compares numbers by value: `1` equals `1.0`.
fn compare_numbers(left: &Number, right: &Number) -> Option<std::cmp::Ordering> {
    match (left.as_i128(), right.as_i128()) {
        // Exactly, if both are integers: two large ones may round to the same double.
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

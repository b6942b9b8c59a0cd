//! Arithmetic expressions, evaluated while they are parsed.
//!
//! No syntax tree is built, which could be large: a recursive-descent parser reads the text
//! once, with a limit on its recursion. The available crates either evaluate `-2^2` to 4 or
//! have a licence that we cannot use.

use std::collections::BTreeMap;

use super::function::apply;
use crate::tools::ToolFailure;

/// The longest expression in bytes.
const MAX_BYTES: usize = 16 * 1024;

/// The maximum nesting depth of parentheses, powers and arguments.
const MAX_DEPTH: usize = 64;

/// The maximum number of arguments of one function.
const MAX_ARGUMENTS: usize = 1_000;

/// Evaluates an expression with the given variables.
pub(super) fn evaluate(
    expression: &str,
    variables: &BTreeMap<String, f64>,
) -> Result<f64, ToolFailure> {
    if expression.len() > MAX_BYTES {
        return Err(ToolFailure::InvalidArguments(format!(
            "`expression` has {} bytes; at most {MAX_BYTES} are allowed",
            expression.len()
        )));
    }
    let mut reader = Reader { text: expression, at: 0, depth: 0, variables };
    let value = reader.sum()?;
    match reader.peek() {
        None => Ok(value),
        Some(found) => Err(reader.unexpected(found)),
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    variables: &'t BTreeMap<String, f64>,
}

impl<'t> Reader<'t> {
    /// Parses terms joined by `+` and `-`.
    fn sum(&mut self) -> Result<f64, ToolFailure> {
        let mut value = self.product()?;
        loop {
            if self.take("+") {
                value += self.product()?;
            } else if self.take("-") {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    /// Parses factors joined by `*`, `/` and `%`.
    fn product(&mut self) -> Result<f64, ToolFailure> {
        let mut value = self.signed()?;
        loop {
            if self.take("*") {
                value *= self.signed()?;
            } else if self.take("/") {
                value /= self.divisor()?;
            } else if self.take("%") {
                value %= self.divisor()?;
            } else {
                return Ok(value);
            }
        }
    }

    /// Parses a divisor, which must not be zero.
    fn divisor(&mut self) -> Result<f64, ToolFailure> {
        let start = self.at;
        let value = self.signed()?;
        // Refused here, because infinity can disappear again: `min(1 / 0, 2)` would be 2.
        if value == 0.0 {
            return Err(ToolFailure::Failed(format!(
                "`expression`, column {}: division by zero",
                self.column(start)
            )));
        }
        Ok(value)
    }

    /// Parses a factor with its signs.
    fn signed(&mut self) -> Result<f64, ToolFailure> {
        // A loop instead of recursion, so that any number of signs needs no stack.
        let mut negative = false;
        loop {
            if self.take("-") {
                negative = !negative;
            } else if !self.take("+") {
                // A sign binds weaker than a power, so `-2^2` is -4, as in mathematics.
                let value = self.power()?;
                return Ok(if negative { -value } else { value });
            }
        }
    }

    /// Parses a power, which is right-associative: `2^3^2` is `2^9`.
    fn power(&mut self) -> Result<f64, ToolFailure> {
        let start = self.at;
        let base = self.atom()?;
        if self.take("**") || self.take("^") {
            // The exponent is parsed by `signed`, which makes powers right-associative and allows `2^-1`.
            self.deeper()?;
            self.check_defined(start, base)?;
            let start = self.at;
            let exponent = self.signed()?;
            self.check_defined(start, exponent)?;
            self.depth -= 1;
            return Ok(base.powf(exponent));
        }
        Ok(base)
    }

    fn atom(&mut self) -> Result<f64, ToolFailure> {
        match self.peek() {
            Some('(') => {
                self.at += 1;
                self.deeper()?;
                let value = self.sum()?;
                self.depth -= 1;
                self.expect(")")?;
                Ok(value)
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_alphabetic() || c == '_' => self.name(),
            Some(found) => Err(self.unexpected(found)),
            None => Err(self.failure("the expression ends too early")),
        }
    }

    fn number(&mut self) -> Result<f64, ToolFailure> {
        let rest = &self.text.as_bytes()[self.at..];
        let digits = |from: usize| {
            from + rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count()
        };
        let mut end = digits(0);
        if rest.get(end) == Some(&b'.') {
            end = digits(end + 1);
        }
        // Without digits after it, the `e` does not belong to the number.
        if matches!(rest.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
            let exponent_end = digits((end + 1 + sign).min(rest.len()));
            if exponent_end > end + 1 + sign {
                end = exponent_end;
            }
        }
        let text = &self.text[self.at..self.at + end];
        let value = text.parse().map_err(|_| self.failure(&format!("`{text}` is not a number")))?;
        self.at += end;
        Ok(value)
    }

    /// Parses a constant, a variable or a function call.
    fn name(&mut self) -> Result<f64, ToolFailure> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let name: &'t str = &rest[..end];
        // For errors, because parsing the arguments moves `at`.
        let start = self.at;
        self.at += end;
        // A name before a parenthesis is always a function: there is no implicit multiplication, so
        // a variable of that name cannot be meant.
        if self.peek() == Some('(') {
            self.at += 1;
            let arguments = self.arguments()?;
            return apply(name, &arguments).map_err(|reason| invalid(self.column(start), &reason));
        }
        // Variables come before the constants, so that a caller may define its own `e`.
        if let Some(value) = self.variables.get(name) {
            return Ok(*value);
        }
        match name {
            "pi" | "PI" | "π" => Ok(std::f64::consts::PI),
            "tau" | "τ" => Ok(std::f64::consts::TAU),
            "e" | "E" => Ok(std::f64::consts::E),
            _ => Err(invalid(
                self.column(start),
                &format!("`{name}` is unknown; define it in `variables`"),
            )),
        }
    }

    fn arguments(&mut self) -> Result<Vec<f64>, ToolFailure> {
        let mut arguments = Vec::new();
        if self.take(")") {
            return Ok(arguments);
        }
        loop {
            self.deeper()?;
            let start = self.at;
            let argument = self.sum()?;
            self.check_defined(start, argument)?;
            arguments.push(argument);
            self.depth -= 1;
            if arguments.len() > MAX_ARGUMENTS {
                return Err(self.failure(&format!("more than {MAX_ARGUMENTS} arguments")));
            }
            if !self.take(",") {
                self.expect(")")?;
                return Ok(arguments);
            }
        }
    }

    /// Checks an operand of a power or a function.
    fn check_defined(&self, start: usize, value: f64) -> Result<(), ToolFailure> {
        // Refused here, because an undefined value can disappear again: `min(sqrt(-1), 2)` and `sqrt(-1)^0` would be
        // numbers.
        if value.is_nan() {
            return Err(ToolFailure::Failed(format!(
                "`expression`, column {}: the value is undefined",
                self.column(start)
            )));
        }
        Ok(())
    }

    fn deeper(&mut self) -> Result<(), ToolFailure> {
        // Every error ends the evaluation, so the callers need not restore the depth after one.
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.failure(&format!("it nests deeper than {MAX_DEPTH} levels")));
        }
        Ok(())
    }

    /// Skips white space and returns the next character without consuming it.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    fn take(&mut self, symbol: &str) -> bool {
        self.peek();
        let rest = &self.text[self.at..];
        // `**` is one symbol, never two `*`.
        let found = rest.starts_with(symbol) && !(symbol == "*" && rest.starts_with("**"));
        if found {
            self.at += symbol.len();
        }
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), ToolFailure> {
        if self.take(symbol) {
            return Ok(());
        }
        Err(self.failure(&format!("`{symbol}` is missing")))
    }

    /// Returns the column of a byte position, for errors.
    fn column(&self, at: usize) -> usize {
        self.text[..at].chars().count() + 1
    }

    fn unexpected(&mut self, found: char) -> ToolFailure {
        self.failure(&format!("`{}` is unexpected", found.escape_debug()))
    }

    fn failure(&mut self, reason: &str) -> ToolFailure {
        self.peek();
        invalid(self.column(self.at), reason)
    }
}

fn invalid(column: usize, reason: &str) -> ToolFailure {
    ToolFailure::InvalidArguments(format!("`expression`, column {column}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(expression: &str) -> Result<f64, ToolFailure> {
        evaluate(expression, &BTreeMap::from([("x".to_owned(), 3.0), ("rate_1".to_owned(), 0.5)]))
    }

    #[test]
    fn expressions_follow_mathematical_convention() {
        for (expression, expected) in [
            ("1 + 2 * 3", 7.0),
            ("(1 + 2) * 3", 9.0),
            ("-2^2", -4.0),
            ("(-2)^2", 4.0),
            ("2^-1", 0.5),
            ("2^3^2", 512.0),
            ("2 ** 3 ** 2", 512.0),
            ("10 - 3 - 2", 5.0),
            ("100 / 10 / 2", 5.0),
            ("7 % 4 + -7 % 4", 0.0),
            ("mod(-7, 4)", 1.0),
            ("--3", 3.0),
            ("1e3 + 1.5E-1 + .5 + 2.", 1_002.65),
            ("2 * x + rate_1", 6.5),
            // NaN stands for an error: the number ends before the `e`, which is unexpected.
            ("2e", f64::NAN),
            ("e", std::f64::consts::E),
            ("round(sin(pi / 2)) + max(1, 2, 3) - min(4, 5)", 0.0),
            ("log(100) + log(8, 2) + ln(e)", 6.0),
            ("factorial(5) + gcd(12, 18) + lcm(4, 6)", 138.0),
            ("hypot(3, 4) + mean(1, 2, 3) + sum(1, 2)", 10.0),
            ("clamp(15, 0, 10)", 10.0),
            ("\n 1 \t+\u{a0}1", 2.0),
        ] {
            match value(expression) {
                Ok(found) => assert!((found - expected).abs() < 1e-9, "{expression} is {found}"),
                Err(failure) => assert!(expected.is_nan(), "{expression}: {failure}"),
            }
        }
    }

    #[test]
    fn errors_have_the_column() {
        for (expression, expected) in [
            ("", "column 1: the expression ends too early"),
            ("1 +", "column 4: the expression ends too early"),
            ("1 + * 2", "column 5: `*` is unexpected"),
            ("(1 + 2", "column 7: `)` is missing"),
            ("1 2", "column 3: `2` is unexpected"),
            ("3 * y", "column 5: `y` is unknown"),
            ("1 + foo(2)", "column 5: the function `foo` is unknown"),
            ("sqrt(1, 2)", "`sqrt` takes one argument, not 2"),
            ("min()", "at least one argument"),
            ("clamp(1, 3, 2)", "empty"),
            ("1.2.3", "column 4: `.` is unexpected"),
            (".", "`.` is not a number"),
            ("ü + ¤", "column 1: `ü` is unknown"),
            ("1 + \u{202e}", "column 5: `\\u{202e}` is unexpected"),
            ("1 / (2 - 2)", "column 4: division by zero"),
            ("min(2,sqrt(-1))", "column 7: the value is undefined"),
            ("2^sqrt(-1)", "column 3: the value is undefined"),
        ] {
            let failure = value(expression).expect_err("it is wrong");
            let message = failure.to_string();
            assert!(message.contains(expected), "{expression}: {message}");
        }
    }

    #[test]
    fn hostile_expressions_are_evaluated_or_refused_quickly() {
        for expression in [
            "(".repeat(16_000),
            "-".repeat(16_000),
            "2^".repeat(8_000),
            "2^-".repeat(5_000),
            "abs(".repeat(4_000),
            "1+".repeat(8_000),
            format!("sum({}1)", "1,".repeat(5_000)),
            "9".repeat(20_000),
            "\u{0}".repeat(100),
        ] {
            assert!(value(&expression).is_err());
        }
        assert_eq!(value(&format!("{}1", "1+".repeat(8_000))), Ok(8_001.0));
        assert_eq!(value(&format!("{}1", "-".repeat(16_000))), Ok(1.0));
        assert_eq!(value("factorial(171)"), Ok(f64::INFINITY));
        assert_eq!(value(&format!("1e{}", "9".repeat(1_000))), Ok(f64::INFINITY));
    }
}

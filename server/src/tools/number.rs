//! The numbers that native tools return.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::ToolFailure;

/// The largest integer up to which a double represents every integer exactly: 2^53 - 1.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

/// A finite number, serialized as an integer if it has no fraction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Real(f64);

impl Real {
    /// Checks that a number is finite; `what` is its name in the error.
    pub(super) fn new(number: f64, what: &str) -> Result<Self, ToolFailure> {
        if number.is_finite() {
            Ok(Self(number))
        } else if number.is_nan() {
            Err(ToolFailure::Failed(format!("{what} is not a number")))
        } else {
            Err(ToolFailure::Failed(format!("{what} is too large for a number")))
        }
    }
}

impl Serialize for Real {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // As an integer, a larger double would show digits that it does not have.
        if self.0.fract() == 0.0 && self.0.abs() <= MAX_SAFE_INTEGER {
            #[expect(clippy::cast_possible_truncation, reason = "an integer in range")]
            serializer.serialize_i64(self.0 as i64)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

impl JsonSchema for Real {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Number".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_no_fraction() {
        for (number, text) in [
            (1.0, "1"),
            (-0.0, "0"),
            (0.5, "0.5"),
            (9_007_199_254_740_991.0, "9007199254740991"),
            (1e300, "1e+300"),
        ] {
            let real = Real::new(number, "it").expect("finite");
            assert_eq!(serde_json::to_string(&real).expect("JSON"), text);
        }
        assert!(Real::new(f64::NAN, "it").is_err());
        assert!(Real::new(f64::INFINITY, "it").is_err());
    }
}

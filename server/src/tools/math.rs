//! `math:*`: arithmetic, statistics and rounding.

mod expression;
mod function;
mod rounding;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::number::Real;
use super::{NativeTool, ToolFailure};

/// The maximum number of percentiles of one call.
const MAX_PERCENTILES: usize = 100;

/// Returns the tools of this namespace.
pub(super) fn tools() -> Vec<NativeTool> {
    vec![
        NativeTool::new(
            "math",
            "eval",
            "Computes an arithmetic expression: + - * / % (remainder), ^ or ** (power, binds tighter than a preceding minus), parentheses, the constants pi, tau and e, variables, and functions such as sqrt, ln, log10, sin, min, max, sum, mean, round, floor, abs, clamp, hypot, gcd, factorial.",
            eval,
        )
        .example(json!({"expression": "2 * (3 + 4) ^ 2"}), json!(98))
        .example(
            json!({"expression": "sqrt(a^2 + b^2)", "variables": {"a": 3, "b": 4}}),
            json!(5),
        ),
        NativeTool::new(
            "math",
            "stats",
            "Describes a list of numbers: count, sum, mean, median, min, max, variance, standard deviation, percentiles.",
            stats,
        )
        .example(
            json!({"numbers": [4, 1, 3, 2], "percentiles": [25]}),
            json!({
                "count": 4, "sum": 10, "mean": 2.5, "median": 2.5, "min": 1, "max": 4,
                "variance": 1.666_666_666_666_666_7, "stdev": 1.290_994_448_735_805_6,
                "population_variance": 1.25, "population_stdev": 1.118_033_988_749_895,
                "percentiles": {"25": 1.75},
            }),
        ),
        NativeTool::new(
            "math",
            "round",
            "Rounds a number to decimal digits, based on its decimal notation: 1.005 to 2 digits is 1.01.",
            round,
        )
        .example(json!({"value": 1.005, "digits": 2}), json!(1.01))
        .example(json!({"value": 1234.5, "digits": -2}), json!(1200))
        .example(json!({"value": 2.5, "mode": "half_even"}), json!(2)),
    ]
}

/// Arguments of `math:eval`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Eval {
    /// The expression, for example `2 * (x + 1)`.
    expression: String,
    /// The values of the variables in the expression.
    #[serde(default)]
    variables: BTreeMap<String, f64>,
}

fn eval(input: Eval) -> Result<Real, ToolFailure> {
    let number = expression::evaluate(&input.expression, &input.variables)?;
    Real::new(number, "the result")
}

/// Arguments of `math:stats`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Stats {
    /// The numbers, at least one.
    #[schemars(length(min = 1))]
    numbers: Vec<f64>,
    /// The percentiles to compute, each from 0 to 100; 25, 50, 75, 90, 95 and 99 if omitted.
    #[serde(default = "default_percentiles")]
    #[schemars(length(max = 100), inner(range(min = 0, max = 100)))]
    percentiles: Vec<f64>,
}

fn default_percentiles() -> Vec<f64> {
    vec![25.0, 50.0, 75.0, 90.0, 95.0, 99.0]
}

/// The result of `math:stats`.
#[derive(Serialize, JsonSchema)]
struct Summary {
    /// The number of numbers.
    count: usize,
    /// Their sum.
    sum: Real,
    /// Their arithmetic mean.
    mean: Real,
    /// The number in the middle, or the mean of the two in the middle.
    median: Real,
    /// The smallest.
    min: Real,
    /// The largest.
    max: Real,
    /// The sample variance (n - 1); null for a single number.
    variance: Option<Real>,
    /// The sample standard deviation (n - 1); null for a single number.
    stdev: Option<Real>,
    /// The variance of the numbers as a whole population (n).
    population_variance: Real,
    /// The standard deviation of the numbers as a whole population (n).
    population_stdev: Real,
    /// The requested percentiles, each interpolated linearly between its two neighbours.
    percentiles: BTreeMap<String, Real>,
}

fn stats(input: Stats) -> Result<Summary, ToolFailure> {
    let mut numbers = input.numbers;
    if numbers.is_empty() {
        return Err(ToolFailure::InvalidArguments(
            "`numbers` is empty; at least one is required".to_owned(),
        ));
    }
    if input.percentiles.len() > MAX_PERCENTILES {
        return Err(ToolFailure::InvalidArguments(format!(
            "`percentiles` has {} entries; at most {MAX_PERCENTILES} are allowed",
            input.percentiles.len()
        )));
    }
    numbers.sort_by(f64::total_cmp);
    let count = numbers.len();
    #[expect(clippy::cast_precision_loss, reason = "a list holds far fewer than 2^53")]
    let n = count as f64;
    let total = sum(numbers.iter().copied());
    let mean = total / n;
    // The formula for a single pass subtracts two large sums, and so loses digits.
    let squares = sum(numbers.iter().map(|number| (number - mean).powi(2)));
    let sample = (count > 1).then(|| squares / (n - 1.0));
    let mut percentiles = BTreeMap::new();
    for wanted in input.percentiles {
        // Also keeps the index computed by `percentile` within the list.
        if !(0.0..=100.0).contains(&wanted) {
            return Err(ToolFailure::InvalidArguments(format!(
                "`percentiles`: `{wanted}` is not between 0 and 100"
            )));
        }
        let value = Real::new(percentile(&numbers, wanted), "a percentile")?;
        percentiles.insert(wanted.to_string(), value);
    }
    Ok(Summary {
        count,
        sum: Real::new(total, "the sum")?,
        mean: Real::new(mean, "the mean")?,
        median: Real::new(percentile(&numbers, 50.0), "the median")?,
        min: Real::new(numbers[0], "the smallest number")?,
        max: Real::new(numbers[count - 1], "the largest number")?,
        variance: sample.map(|v| Real::new(v, "the variance")).transpose()?,
        stdev: sample.map(|v| Real::new(v.sqrt(), "the standard deviation")).transpose()?,
        population_variance: Real::new(squares / n, "the variance")?,
        population_stdev: Real::new((squares / n).sqrt(), "the standard deviation")?,
        percentiles,
    })
}

/// Adds numbers with Neumaier's compensated summation, so that small numbers are not lost next to large ones.
pub(super) fn sum(numbers: impl Iterator<Item = f64>) -> f64 {
    let (mut total, mut lost) = (0.0_f64, 0.0_f64);
    for number in numbers {
        let next = total + number;
        lost += if total.abs() >= number.abs() {
            (total - next) + number
        } else {
            (number - next) + total
        };
        total = next;
    }
    // After an overflow, the compensation is NaN, and the infinite total is the result.
    if total.is_finite() { total + lost } else { total }
}

/// Returns a percentile of sorted numbers, interpolated linearly.
fn percentile(sorted: &[f64], wanted: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a list holds far fewer than 2^53")]
    let place = (sorted.len() - 1) as f64 * wanted / 100.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the last index"
    )]
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    let share = place.fract();
    // A weighted sum, because the difference of the two neighbours could overflow.
    sorted[below] * (1.0 - share) + sorted[above] * share
}

/// Arguments of `math:round`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Round {
    /// The number.
    value: f64,
    /// Digits after the decimal point; negative ones round to tens, hundreds and so on.
    #[serde(default)]
    #[schemars(range(min = -308, max = 308))]
    digits: i32,
    /// The direction of rounding.
    #[serde(default)]
    mode: rounding::Mode,
}

fn round(input: Round) -> Result<Real, ToolFailure> {
    if !(-308..=308).contains(&input.digits) {
        return Err(ToolFailure::InvalidArguments(
            "`digits` must be between -308 and 308".to_owned(),
        ));
    }
    Real::new(rounding::round(input.value, input.digits, input.mode), "the result")
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;
    use serde_json::Value;

    fn call(action: &str, arguments: Value) -> Result<Value, ToolFailure> {
        find("math", action).expect("the tool exists").call(arguments)
    }

    #[test]
    fn a_single_number_has_no_sample_variance() {
        let summary = call("stats", json!({"numbers": [7]})).expect("one number");
        assert_eq!(summary["variance"], Value::Null);
        assert_eq!(summary["population_variance"], 0);
        assert_eq!(summary["percentiles"]["99"], 7);
    }

    #[test]
    fn sums_do_not_lose_small_numbers() {
        let summary = call("stats", json!({"numbers": [1e16, 1, -1e16, 1]})).expect("numbers");
        assert_eq!(summary["sum"], 2);
    }

    #[test]
    fn invalid_numbers_are_refused() {
        for arguments in [
            json!({"numbers": []}),
            json!({"numbers": [1e308, 1e308]}),
            json!({"numbers": ["1"]}),
            json!({"numbers": [1], "percentiles": [101]}),
            json!({"numbers": [1], "percentiles": vec![1; 101]}),
        ] {
            assert!(call("stats", arguments.clone()).is_err(), "{arguments}");
        }
    }

    #[test]
    fn an_infinite_or_undefined_result_is_an_error() {
        for expression in [
            "1 / 0",
            "0 / 0",
            "10 ^ 400",
            "sqrt(-1)",
            "ln(0)",
            "min(sqrt(-1), 2)",
            "max(2, 1 + sqrt(-1))",
            "min(10^400 - 10^400, 2)",
            "hypot(10^400, sqrt(-1))",
            "lcm(0, sqrt(-1))",
            "clamp(1, sqrt(-1), 2)",
            "pow(sqrt(-1), 0)",
            "sqrt(-1) ^ 0",
            "1 ^ sqrt(-1)",
        ] {
            let failure = call("eval", json!({"expression": expression})).expect_err("no number");
            assert!(matches!(failure, ToolFailure::Failed(_)), "{expression}: {failure}");
        }
    }
}

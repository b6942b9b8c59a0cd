//! The reports of the benches. The cases are measured in turn in each round and compared round by round, so that a
//! disturbance of the machine affects both sides of a ratio.

use std::fmt::Write as _;
use std::time::Duration;

/// The measurements, with one sample of each case per round.
#[derive(Default)]
pub(crate) struct Rounds {
    cases: Vec<Case>,
}

struct Case {
    name: &'static str,
    /// Seconds.
    samples: Vec<f64>,
}

impl Rounds {
    /// Adds the sample of this round.
    pub(crate) fn add(&mut self, name: &'static str, took: Duration) {
        let took = took.as_secs_f64();
        match self.cases.iter_mut().find(|case| case.name == name) {
            Some(case) => case.samples.push(took),
            None => self.cases.push(Case { name, samples: vec![took] }),
        }
    }

    /// Returns a Markdown table; `against` names the baselines of each case.
    pub(crate) fn table(&self, against: &[(&str, &[&str])]) -> String {
        let mut table =
            "| case | rounds | min | median | p99 | median of the rounds' ratios |\n|---|---:|---:|---:|---:|---|\n"
                .to_owned();
        for case in &self.cases {
            let mut ratios = String::new();
            for (_, baselines) in against.iter().filter(|(name, _)| *name == case.name) {
                for baseline in baselines.iter().filter_map(|name| self.case(name)) {
                    let gap = if ratios.is_empty() { "" } else { ", " };
                    let _ = write!(ratios, "{gap}{}", compared(case, baseline));
                }
            }
            let sorted = sorted(&case.samples);
            let _ = writeln!(
                table,
                "| {} | {} | {} | {} | {} | {ratios} |",
                case.name,
                sorted.len(),
                time(sorted[0]),
                time(quantile(&sorted, 0.5)),
                time(quantile(&sorted, 0.99)),
            );
        }
        table
    }

    /// Returns the median of the differences of two cases, round by round, in seconds.
    #[allow(dead_code, reason = "not every bench subtracts")]
    pub(crate) fn difference(&self, name: &str, baseline: &str) -> f64 {
        let (Some(case), Some(baseline)) = (self.case(name), self.case(baseline)) else {
            return f64::NAN;
        };
        median(case.samples.iter().zip(&baseline.samples).map(|(a, b)| a - b))
    }

    fn case(&self, name: &str) -> Option<&Case> {
        self.cases.iter().find(|case| case.name == name)
    }
}

fn compared(case: &Case, baseline: &Case) -> String {
    let ratio = median(case.samples.iter().zip(&baseline.samples).map(|(a, b)| a / b));
    if ratio < 1.0 {
        format!("{:.1}× faster than {}", 1.0 / ratio, baseline.name)
    } else {
        format!("{ratio:.1}× the time of {}", baseline.name)
    }
}

/// Returns the median.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    quantile(&sorted(&values.collect::<Vec<_>>()), 0.5)
}

/// Returns the quantile of sorted values; `part` is between 0 and 1.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * part).round() as usize).copied().unwrap_or(f64::NAN)
}

/// Returns the values in ascending order.
pub(crate) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

/// Formats seconds in a suitable unit.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-4 => format!("{:.1} µs", s * 1e6),
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s => format!("{:.2} ms", s * 1e3),
    }
}

//! The figures of one moment, which nobody counts: they are read from the parts of the gateway.

use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, GaugeVec, Opts, Registry};

use super::registered;

/// Collects figures for one answer.
pub(crate) struct Snapshot(Registry);

impl Snapshot {
    /// Creates an empty collection.
    pub(crate) fn new() -> Self {
        Self(Registry::new())
    }

    /// Adds a state: for each list of label values, its value.
    pub(crate) fn gauge<const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
        values: impl IntoIterator<Item = ([&'static str; N], f64)>,
    ) {
        let family = GaugeVec::new(Opts::new(name, help), &labels);
        let family = registered(&self.0, family.expect("the name and labels are valid"));
        for (words, value) in values {
            family.with_label_values(&words).set(value);
        }
    }

    /// Adds a total that another part counts.
    pub(crate) fn counter<const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
        values: impl IntoIterator<Item = ([&'static str; N], f64)>,
    ) {
        let family = CounterVec::new(Opts::new(name, help), &labels);
        let family = registered(&self.0, family.expect("the name and labels are valid"));
        for (words, value) in values {
            // A total is never negative, which is all that `inc_by` refuses.
            family.with_label_values(&words).inc_by(value.max(0.0));
        }
    }

    /// Returns what was added.
    pub(crate) fn into_families(self) -> Vec<MetricFamily> {
        self.0.gather()
    }
}

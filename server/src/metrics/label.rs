//! Labels with a closed set of values, and the counters of each value.

use std::marker::PhantomData;

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
};

use super::{SECONDS, registered};

/// A label with a closed set of values.
pub(crate) trait Label: Copy + Send + Sync + 'static {
    /// The label's name.
    const NAME: &'static str;
    /// All values.
    const ALL: &'static [Self];

    /// Returns the value's word.
    fn word(self) -> &'static str;

    /// Returns the value's place in [`ALL`](Self::ALL).
    fn index(self) -> usize;
}

/// Declares a label: its values, and their words.
macro_rules! labels {
    ($(#[$doc:meta])* pub(crate) enum $name:ident as $label:literal {
        $($(#[$value_doc:meta])* $value:ident = $word:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$value_doc])* $value,)*
        }

        impl $crate::metrics::Label for $name {
            const NAME: &'static str = $label;
            const ALL: &'static [Self] = &[$(Self::$value),*];

            fn word(self) -> &'static str {
                match self { $(Self::$value => $word,)* }
            }

            fn index(self) -> usize {
                // Declared without numbers, so the values are numbered in order.
                self as usize
            }
        }
    };
}
pub(crate) use labels;

/// A counter for each value of a label.
pub(crate) struct Counters<L>(Vec<IntCounter>, PhantomData<L>);

impl<L: Label> Counters<L> {
    /// Creates the counters.
    pub(super) fn new(registry: &Registry, name: &str, help: &str) -> Self {
        let family = family(registry, name, help, &[L::NAME]);
        let each = L::ALL.iter().map(|label| family.with_label_values(&[label.word()]));
        Self(each.collect(), PhantomData)
    }

    /// Counts one.
    pub(crate) fn add(&self, label: L) {
        self.0[label.index()].inc();
    }
}

/// A counter for each pair of values of two labels.
pub(super) struct PairCounters<A, B>(Vec<IntCounter>, PhantomData<(A, B)>);

impl<A: Label, B: Label> PairCounters<A, B> {
    /// Creates the counters of all pairs that occur.
    pub(super) fn new(registry: &Registry, name: &str, help: &str) -> Self {
        let family = family(registry, name, help, &[A::NAME, B::NAME]);
        let pairs = A::ALL.iter().flat_map(|a| B::ALL.iter().map(move |b| (a, b)));
        let each = pairs.map(|(a, b)| family.with_label_values(&[a.word(), b.word()]));
        Self(each.collect(), PhantomData)
    }

    /// Counts one.
    pub(super) fn add(&self, a: A, b: B) {
        self.0[a.index() * B::ALL.len() + b.index()].inc();
    }
}

/// A histogram of durations for each value of a label.
pub(super) struct Histograms<L>(Vec<Histogram>, PhantomData<L>);

impl<L: Label> Histograms<L> {
    /// Creates the histograms.
    pub(super) fn new(registry: &Registry, name: &str, help: &str) -> Self {
        Self::with(registry, HistogramOpts::new(name, help).buckets(SECONDS.to_vec()))
    }

    /// Creates the histograms, with further options.
    pub(super) fn with(registry: &Registry, options: HistogramOpts) -> Self {
        let family = HistogramVec::new(options, &[L::NAME]).expect("the name and label are valid");
        let family = registered(registry, family);
        let each = L::ALL.iter().map(|label| family.with_label_values(&[label.word()]));
        Self(each.collect(), PhantomData)
    }

    /// Adds a duration in seconds.
    pub(super) fn observe(&self, label: L, seconds: f64) {
        self.0[label.index()].observe(seconds);
    }
}

/// Creates a family of counters.
pub(super) fn family(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> IntCounterVec {
    let family = IntCounterVec::new(Opts::new(name, help), labels);
    registered(registry, family.expect("the name and labels are valid"))
}

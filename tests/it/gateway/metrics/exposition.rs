//! A strict parser of Prometheus' text format, version 0.0.4: what it does not expect fails the test.

use std::collections::{BTreeMap, BTreeSet};

/// The labels of a sample.
pub(crate) type Labels = BTreeMap<String, String>;

/// One answer of `/metrics`.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    /// The type of each family.
    pub(crate) types: BTreeMap<String, String>,
    samples: BTreeMap<(String, Labels), f64>,
}

impl Exposition {
    /// Parses an answer.
    #[track_caller]
    pub(crate) fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line does not end");
        let mut parsed = Self::default();
        let mut family = String::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) =
                    rest.split_once(' ').unwrap_or_else(|| panic!("no help: {line}"));
                assert!(help.ends_with('.') && help.len() > 10, "{line}");
                let typed = lines.next().and_then(|line| line.strip_prefix("# TYPE "));
                let (of, kind) = typed.and_then(|it| it.split_once(' ')).expect("a type follows");
                assert_eq!(of, name);
                check_name(name, kind);
                let before = parsed.types.insert(name.to_owned(), kind.to_owned());
                assert!(before.is_none(), "two families are called {name}");
                family = name.to_owned();
                continue;
            }
            let (name, labels, value) = sample(line);
            let suffixes: &[&str] = match parsed.types[&family].as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            let is_of_family =
                name.strip_prefix(&family).is_some_and(|suffix| suffixes.contains(&suffix));
            assert!(is_of_family, "`{line}` is not of {family}");
            let before = parsed.samples.insert((name, labels), value);
            assert!(before.is_none(), "twice: {line}");
        }
        parsed.check_histograms();
        parsed
    }

    /// Returns a sample's value; 0 if it does not exist (yet).
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.samples.get(&(name.to_owned(), labels.collect())).copied().unwrap_or(0.0)
    }

    /// Returns the number of series.
    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// Returns the label names of a family, without the bounds of a histogram.
    pub(crate) fn labels(&self, family: &str) -> BTreeSet<String> {
        let of = self.samples.keys().filter(|(name, _)| self.family_of(name) == Some(family));
        of.flat_map(|(_, labels)| labels.keys()).filter(|it| *it != "le").cloned().collect()
    }

    /// Returns whether a series of this family has this label.
    pub(crate) fn has(&self, family: &str, label: &str, value: &str) -> bool {
        self.samples.keys().any(|(name, labels)| {
            self.family_of(name) == Some(family) && labels.get(label).is_some_and(|it| it == value)
        })
    }

    /// Returns the family of a sample's name.
    pub(crate) fn family_of<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let cut = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        [Some(name), cut]
            .into_iter()
            .flatten()
            .find_map(|name| self.types.get_key_value(name).map(|(name, _)| name.as_str()))
    }

    /// Returns whether every counter is at least as high as in an earlier answer.
    #[track_caller]
    pub(crate) fn assert_not_below(&self, earlier: &Self) {
        for ((name, labels), before) in &earlier.samples {
            let family = earlier.family_of(name).expect("each sample has a family");
            if earlier.types[family] != "gauge" {
                let now = self.samples.get(&(name.clone(), labels.clone()));
                assert!(
                    now.is_some_and(|now| now >= before),
                    "{name}{labels:?} fell from {before}"
                );
            }
        }
    }

    /// The buckets of a histogram are cumulative, and the last one has all observations.
    fn check_histograms(&self) {
        let is_histogram = |(_, kind): &(&String, &String)| *kind == "histogram";
        for (family, _) in self.types.iter().filter(is_histogram) {
            let mut series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
            for ((name, labels), value) in &self.samples {
                if name.strip_suffix("_bucket") == Some(family) {
                    let mut labels = labels.clone();
                    let bound = labels.remove("le").expect("a bucket has a bound");
                    series.entry(labels).or_default().push((number(&bound), *value));
                }
            }
            for (labels, mut buckets) in series {
                buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
                assert!(buckets.is_sorted_by(|one, other| one.1 <= other.1), "{family}{labels:?}");
                let count = self.samples[&(format!("{family}_count"), labels.clone())];
                assert_eq!(buckets.last(), Some(&(f64::INFINITY, count)), "{family}{labels:?}");
                assert!(self.samples.contains_key(&(format!("{family}_sum"), labels)));
            }
        }
    }
}

/// Prometheus' conventions for names.
fn check_name(name: &str, kind: &str) {
    // Ours, those that every Prometheus client has, and those of the semantic conventions of MCP.
    assert!(["pml_", "process_", "mcp_"].iter().any(|start| name.starts_with(start)), "{name}");
    assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
    assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
    assert!(["counter", "gauge", "histogram"].contains(&kind), "{name} is a {kind}");
    assert!(kind != "histogram" || name.ends_with("_seconds"), "{name} has no unit");
}

fn number(text: &str) -> f64 {
    match text {
        "+Inf" => f64::INFINITY,
        text => text.parse().unwrap_or_else(|_| panic!("`{text}` is not a number")),
    }
}

/// Parses `name{label="value",…} number`.
fn sample(line: &str) -> (String, Labels, f64) {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
    let value = number(value);
    assert!(value >= 0.0, "{line}");
    let (name, inside) = match series.split_once('{') {
        None => (series, ""),
        Some((name, rest)) => {
            (name, rest.strip_suffix('}').unwrap_or_else(|| panic!("no end: {line}")))
        }
    };
    let mut labels = Labels::new();
    for label in inside.split("\",").filter(|label| !label.is_empty()) {
        let (name, value) = label.split_once("=\"").unwrap_or_else(|| panic!("label: {line}"));
        let value = value.strip_suffix('"').unwrap_or(value);
        // The closed sets have nothing that would have to be escaped; `{}` is in templates of routes.
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./{}+".contains(&b);
        // By the semantic conventions, what succeeds has no `error.type`.
        let may_be_empty = name == "error_type";
        assert!(value.bytes().all(is_plain) && (may_be_empty || !value.is_empty()), "{line}");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{line}");
        assert!(labels.insert(name.to_owned(), value.to_owned()).is_none(), "{line}");
    }
    (name.to_owned(), labels, value)
}

//! What is known to be missed: `known.txt` for each row alone, `bounds.txt` for programs of many rows.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::Checked;
use crate::judge::Kind;

/// The word for a program of which the plan says that it is incomplete.
pub(crate) const DYNAMIC: &str = "dynamic";

/// Returns the kinds of misses by the name of the program.
pub(crate) fn rows() -> BTreeMap<String, BTreeSet<String>> {
    let mut known = BTreeMap::new();
    let mut last = "";
    for line in include_str!("known.txt").lines() {
        let (name, kinds) = line.rsplit_once(": ").expect("a name, a colon and kinds of misses");
        assert!(last < name, "known.txt is sorted, each name once: `{name}` after `{last}`");
        last = name;
        known.insert(name.to_owned(), kinds.split(' ').map(str::to_owned).collect());
    }
    known
}

fn line(name: &str, kinds: &BTreeSet<String>) -> String {
    format!("{name}: {}", kinds.iter().cloned().collect::<Vec<_>>().join(" "))
}

/// Writes the list anew.
pub(crate) fn write(found: &BTreeMap<String, BTreeSet<String>>) -> std::io::Result<()> {
    let lines = found.iter().map(|(name, kinds)| line(name, kinds) + "\n");
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/flows/known.txt");
    std::fs::write(path, lines.collect::<String>())
}

/// Returns lines to remove from the list and to add to it; programs that were not tried do not count.
pub(crate) fn difference(
    found: &BTreeMap<String, BTreeSet<String>>,
    was_tried: impl Fn(&str) -> bool,
) -> Vec<String> {
    let known = rows();
    let mut out = Vec::new();
    for name in known.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
        let (before, now) = (known.get(name), found.get(name));
        if before == now || (now.is_none() && !was_tried(name)) {
            continue;
        }
        out.extend(before.map(|kinds| format!("- {}", line(name, kinds))));
        out.extend(now.map(|kinds| format!("+ {}", line(name, kinds))));
    }
    out
}

/// What is allowed to be missed in programs that are made by chance, of a thousand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bounds {
    most: BTreeMap<String, f64>,
    /// The least share of told pairs that is confirmed, in percent.
    pub(crate) confirmed: f64,
}

/// Returns the bounds for one sort of programs.
pub(crate) fn bounds(sort: &str) -> Bounds {
    let mut bounds = Bounds::default();
    for line in include_str!("bounds.txt").lines() {
        let mut words = line.split(' ');
        let (of, what, number) = (words.next(), words.next(), words.next());
        let number: f64 = number.and_then(|text| text.parse().ok()).expect("sort, kind and number");
        match what {
            _ if of != Some(sort) => {}
            Some("confirmed") => bounds.confirmed = number,
            what => {
                bounds.most.insert(what.unwrap_or_default().to_owned(), number);
            }
        }
    }
    bounds
}

/// How many programs were tried, and in how many each kind of miss was found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    pub(crate) programs: usize,
    pub(crate) with_a_miss: usize,
    pub(crate) dynamic: usize,
    pub(crate) refused: usize,
    pub(crate) runs: usize,
    pub(crate) missed: BTreeMap<Kind, usize>,
    pub(crate) told: usize,
    pub(crate) confirmed: usize,
}

impl Counts {
    /// Adds what one program showed.
    pub(crate) fn add(&mut self, checked: &Checked) {
        self.programs += 1;
        self.runs += checked.observed.runs.len();
        let Ok(prepared) = &checked.prepared else {
            self.refused += 1;
            return;
        };
        self.dynamic += usize::from(!prepared.told.complete);
        self.with_a_miss += usize::from(!checked.verdict.misses.is_empty());
        for kind in checked.verdict.kinds() {
            *self.missed.entry(kind).or_insert(0) += 1;
        }
        let told = prepared.told.pairs();
        self.confirmed += told.intersection(&checked.verdict.reached).count();
        self.told += told.len();
    }

    /// Returns the share of told pairs that a run confirmed, in percent.
    pub(crate) fn confirmed_percent(&self) -> f64 {
        100.0 * self.confirmed as f64 / self.told.max(1) as f64
    }

    pub(crate) fn per_thousand(&self, count: usize) -> f64 {
        1000.0 * count as f64 / self.programs.max(1) as f64
    }

    pub(crate) fn summary(&self, sort: &str) -> String {
        let missed = self
            .missed
            .iter()
            .map(|(kind, count)| format!("{} {:.1}", kind.name(), self.per_thousand(*count)));
        format!(
            "{sort}: {} programs, {} runs, {} dynamic, {} refused; of a thousand {:.1} with a miss: {}; \
             {:.1} % of {} told pairs confirmed",
            self.programs,
            self.runs,
            self.dynamic,
            self.refused,
            self.per_thousand(self.with_a_miss),
            missed.collect::<Vec<_>>().join(", "),
            self.confirmed_percent(),
            self.told,
        )
    }

    /// Returns lines to remove from the bounds and to add, where more was missed or much less.
    pub(crate) fn beyond(&self, sort: &str) -> Vec<String> {
        let bounds = bounds(sort);
        let mut out = Vec::new();
        let missed =
            Kind::ALL.map(|kind| (kind.name(), self.missed.get(&kind).copied().unwrap_or(0)));
        // What is incomplete misses nothing, so there are bounds for that, too.
        for (word, count) in missed.into_iter().chain([(DYNAMIC, self.dynamic)]) {
            let rate = self.per_thousand(count);
            let most = bounds.most.get(word).copied().unwrap_or(0.0);
            // A small sample is off by chance: four times its standard deviation, and a little.
            let share = most / 1000.0;
            let chance = 4000.0 * (share * (1.0 - share) / self.programs.max(1) as f64).sqrt();
            if rate > most || (most > 0.0 && rate + chance + 2.0 < most) {
                if most > 0.0 {
                    out.push(format!("- {sort} {word} {most}"));
                }
                if rate > 0.0 {
                    out.push(format!("+ {sort} {word} {}", rate.ceil()));
                }
            }
        }
        if self.confirmed_percent() < bounds.confirmed {
            let found = self.confirmed_percent();
            let least = bounds.confirmed;
            out.push(format!("{sort}: {found:.1} % of told pairs confirmed, less than {least} %"));
        }
        out
    }
}

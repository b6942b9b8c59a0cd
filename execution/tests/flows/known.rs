//! Known misses: `known.txt` lists them for each single row, `bounds.txt` limits them for generated programs.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::Checked;
use crate::miss::MissKind;

/// The word for a program whose plan states that it is incomplete.
pub(crate) const DYNAMIC: &str = "dynamic";

/// Returns the listed kinds of misses by the name of the program.
pub(crate) fn listed() -> BTreeMap<String, BTreeSet<String>> {
    let mut listed = BTreeMap::new();
    let mut last = "";
    for line in include_str!("known.txt").lines() {
        let (name, kinds) = line.rsplit_once(": ").expect("a name, a colon and kinds of misses");
        assert!(last < name, "known.txt is sorted, each name once: `{name}` after `{last}`");
        last = name;
        listed.insert(name.to_owned(), kinds.split(' ').map(str::to_owned).collect());
    }
    listed
}

fn line(name: &str, kinds: &BTreeSet<String>) -> String {
    format!("{name}: {}", kinds.iter().cloned().collect::<Vec<_>>().join(" "))
}

/// Rewrites the list.
pub(crate) fn write(found: &BTreeMap<String, BTreeSet<String>>) -> std::io::Result<()> {
    let lines = found.iter().map(|(name, kinds)| line(name, kinds) + "\n");
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/flows/known.txt");
    std::fs::write(path, lines.collect::<String>())
}

/// Returns the lines to remove from the list and to add to it, without those of programs that were not tested.
pub(crate) fn difference(
    found: &BTreeMap<String, BTreeSet<String>>,
    was_tested: impl Fn(&str) -> bool,
) -> Vec<String> {
    let listed = listed();
    let mut out = Vec::new();
    for name in listed.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
        let (before, now) = (listed.get(name), found.get(name));
        if before == now || (now.is_none() && !was_tested(name)) {
            continue;
        }
        out.extend(before.map(|kinds| format!("- {}", line(name, kinds))));
        out.extend(now.map(|kinds| format!("+ {}", line(name, kinds))));
    }
    out
}

/// The bounds of one suite.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bounds {
    /// The most programs of a thousand that have this kind of miss.
    max_per_thousand: BTreeMap<String, f64>,
    /// The least share of claimed egress that runs confirm.
    pub(crate) min_confirmed_percent: f64,
}

/// Returns the bounds of a suite. A line is `suite kind number`, or `suite confirmed percent`.
pub(crate) fn bounds(suite: &str) -> Bounds {
    let mut bounds = Bounds::default();
    for line in include_str!("bounds.txt").lines() {
        let mut words = line.split(' ');
        let (of, kind, number) = (words.next(), words.next(), words.next());
        let number: f64 =
            number.and_then(|text| text.parse().ok()).expect("suite, kind and number");
        match kind {
            _ if of != Some(suite) => {}
            Some("confirmed") => bounds.min_confirmed_percent = number,
            kind => {
                bounds.max_per_thousand.insert(kind.unwrap_or_default().to_owned(), number);
            }
        }
    }
    bounds
}

/// The number of tested programs, and how many of them have each kind of miss.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    programs: usize,
    with_a_miss: usize,
    dynamic: usize,
    pub(crate) refused: usize,
    runs: usize,
    missed: BTreeMap<MissKind, usize>,
    /// The pairs of tools in the plans' egress.
    claimed: usize,
    /// Those of them that runs confirmed.
    confirmed: usize,
}

impl Counts {
    /// Adds one program.
    pub(crate) fn add(&mut self, checked: &Checked) {
        self.programs += 1;
        self.runs += checked.exploration.runs.len();
        let Ok(prepared) = &checked.prepared else {
            self.refused += 1;
            return;
        };
        self.dynamic += usize::from(!prepared.claims.complete);
        self.with_a_miss += usize::from(!checked.verdict.misses.is_empty());
        for kind in checked.verdict.kinds() {
            *self.missed.entry(kind).or_insert(0) += 1;
        }
        let claimed = prepared.claims.egress_tools();
        self.confirmed += claimed.intersection(&checked.verdict.reached).count();
        self.claimed += claimed.len();
    }

    /// Returns the share of claimed egress that a run confirmed, in percent.
    pub(crate) fn confirmed_percent(&self) -> f64 {
        100.0 * self.confirmed as f64 / self.claimed.max(1) as f64
    }

    fn per_thousand(&self, count: usize) -> f64 {
        1000.0 * count as f64 / self.programs.max(1) as f64
    }

    pub(crate) fn summary(&self, suite: &str) -> String {
        let missed = self
            .missed
            .iter()
            .map(|(kind, count)| format!("{} {:.1}", kind.name(), self.per_thousand(*count)));
        format!(
            "{suite}: {} programs, {} runs, {} dynamic, {} refused; of a thousand {:.1} with a miss: {}; \
             {:.1} % of {} claimed pairs confirmed",
            self.programs,
            self.runs,
            self.dynamic,
            self.refused,
            self.per_thousand(self.with_a_miss),
            missed.collect::<Vec<_>>().join(", "),
            self.confirmed_percent(),
            self.claimed,
        )
    }

    /// Returns the lines to remove from the bounds and to add to them, where more was missed or much less.
    pub(crate) fn violations(&self, suite: &str) -> Vec<String> {
        let bounds = bounds(suite);
        let mut out = Vec::new();
        let missed =
            MissKind::ALL.map(|kind| (kind.name(), self.missed.get(&kind).copied().unwrap_or(0)));
        // An incomplete plan has no misses. Without this bound, an analysis could give up to meet the others.
        for (word, count) in missed.into_iter().chain([(DYNAMIC, self.dynamic)]) {
            let rate = self.per_thousand(count);
            let most = bounds.max_per_thousand.get(word).copied().unwrap_or(0.0);
            // A small sample deviates randomly: allow four standard deviations, and 2 per thousand.
            let share = most / 1000.0;
            let deviation = 4000.0 * (share * (1.0 - share) / self.programs.max(1) as f64).sqrt();
            if rate > most || (most > 0.0 && rate + deviation + 2.0 < most) {
                if most > 0.0 {
                    out.push(format!("- {suite} {word} {most}"));
                }
                if rate > 0.0 {
                    out.push(format!("+ {suite} {word} {}", rate.ceil()));
                }
            }
        }
        let (found, least) = (self.confirmed_percent(), bounds.min_confirmed_percent);
        if found < least {
            out.push(format!(
                "{suite}: {found:.1} % of claimed pairs confirmed, less than {least} %"
            ));
        }
        out
    }
}

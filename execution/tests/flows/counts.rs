//! What the tests of a suite found, and the least that they must find.

use std::collections::BTreeMap;

use crate::check::Checked;
use crate::miss::MissKind;

/// The least share of the claimed egress of a suite that runs confirm, in percent: a plan that claims everything would
/// miss nothing. A thousand programs deviate from one another by a few percent.
const LEAST_CONFIRMED: [(&str, f64); 4] =
    [("rows", 98.0), ("crossed", 82.0), ("odd", 79.0), ("plain", 70.0)];
/// At most one of this many programs may be dynamic, and two more.
const MOST_DYNAMIC: usize = 1_000;

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

    /// Returns why the tests of the suite fail: a miss, too many incomplete plans, or too much egress
    /// that no run confirms.
    pub(crate) fn failures(&self, suite: &str) -> Vec<String> {
        let mut out = Vec::new();
        if self.with_a_miss > 0 {
            out.push(format!("{suite}: {} programs with a miss", self.with_a_miss));
        }
        // An incomplete plan has no misses, so an analysis could give up to have none.
        if self.dynamic > 2 + self.programs / MOST_DYNAMIC {
            out.push(format!("{suite}: {} dynamic programs", self.dynamic));
        }
        let least = LEAST_CONFIRMED.iter().find(|(of, _)| *of == suite).map(|(_, least)| *least);
        let least = least.expect("a suite with a bound");
        let found = self.confirmed_percent();
        if found < least {
            out.push(format!(
                "{suite}: {found:.1} % of claimed pairs confirmed, less than {least} %"
            ));
        }
        out
    }
}

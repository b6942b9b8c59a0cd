//! The ways in which runs contradict a plan.

use crate::inputs::Source;

/// How runs contradict a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum MissKind {
    /// A tool was called for which the plan has no task.
    Undeclared,
    /// A result changed an argument, and the plan claims neither data nor a decision.
    Data,
    /// A result decided on a call or its position, and the plan claims nothing.
    Decision,
    /// A result decided on a call, and the plan claims data only.
    DecisionAsData,
    /// A result left the machine in an argument, and `egress` has it not at all, or only as deciding.
    DataEgress,
    /// A result decided on a call that leaves the machine, and is not in `egress`.
    DecisionEgress,
    /// A part of `args` changed an argument, and the plan claims neither data nor a decision.
    ArgsData,
    /// A part of `args` decided on a call, and the plan claims no decision.
    ArgsDecision,
    /// A part of `args` left the machine in an argument, and `args_egress` has it not at all, or only as deciding.
    ArgsDataEgress,
    /// A part of `args` decided on a call that leaves the machine, and is not in `args_egress`.
    ArgsDecisionEgress,
    /// A run that ended without an error did not make a call that is `will`.
    Will,
    /// A call that is `once` was made again.
    Once,
    /// A tool received an argument other than the one displayed.
    Argument,
    /// A call was made before one of an earlier step.
    Step,
}

impl MissKind {
    /// Returns the name in `PML_TEST_MISS`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Undeclared => "undeclared",
            Self::Data => "data",
            Self::Decision => "decision",
            Self::DecisionAsData => "decision-as-data",
            Self::DataEgress => "data-egress",
            Self::DecisionEgress => "decision-egress",
            Self::ArgsData => "args-data",
            Self::ArgsDecision => "args-decision",
            Self::ArgsDataEgress => "args-data-egress",
            Self::ArgsDecisionEgress => "args-decision-egress",
            Self::Will => "will",
            Self::Once => "once",
            Self::Argument => "argument",
            Self::Step => "step",
        }
    }
}

/// One contradiction between runs and a plan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Miss {
    pub(crate) kind: MissKind,
    /// The source that was changed; none if a single run shows the miss.
    pub(crate) from: Option<Source>,
    /// The tool.
    pub(crate) to: String,
    /// The indices of the runs that show it.
    pub(crate) runs: Vec<usize>,
}

impl Miss {
    /// Whether two misses have the same kind, source and tool.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.from == other.from && self.to == other.to
    }
}

/// The first miss of each kind, source and tool.
#[derive(Debug, Default)]
pub(crate) struct Misses(pub(crate) Vec<Miss>);

impl Misses {
    pub(crate) fn add(
        &mut self,
        kind: MissKind,
        from: Option<&Source>,
        to: &str,
        runs: Vec<usize>,
    ) {
        let miss = Miss { kind, from: from.cloned(), to: to.to_owned(), runs };
        if !self.0.iter().any(|known| known.is_same(&miss)) {
            self.0.push(miss);
        }
    }
}

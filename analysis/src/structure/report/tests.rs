//! Tests of flows that an analysis easily misses or invents.

mod misses;
mod speed;

use protocol::ToolId;

use super::Report;
use crate::Limits;
use crate::structure::lower::lower;
use crate::structure::solve::solve;

/// The result for a program.
struct Analysed {
    dynamic: bool,
    tasks: Vec<Call>,
}

/// A call and the indices of those that it depends on.
struct Call {
    tool: ToolId,
    data: Vec<usize>,
    decided: Vec<usize>,
}

fn analysed(source: &str) -> Option<Analysed> {
    let limits = Limits::default();
    let parsed = crate::parse::parse(source, &limits).ok()?;
    let solved = solve(&lower(parsed.function()?), &limits).ok()?;
    let report = Report::new(&solved, source);
    let call = |task: &crate::structure::solve::FoundTask| Call {
        tool: task.tool.clone(),
        data: report.tasks(task.data),
        decided: report.tasks(task.decides),
    };
    Some(Analysed {
        dynamic: solved.lost || !solved.gaps.is_empty(),
        tasks: solved.tasks.iter().map(call).collect(),
    })
}

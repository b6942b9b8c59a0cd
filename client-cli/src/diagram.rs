//! A plan as a picture, and how its parts are shortened for display.

pub(crate) mod display;
mod graph;
mod mermaid;
mod svg;

use analysis::Plan;

use self::graph::Graph;

/// Draws a plan as a Mermaid flowchart.
pub(crate) fn mermaid(plan: &Plan) -> String {
    mermaid::mermaid(&Graph::of(plan))
}

/// Draws a plan as SVG.
///
/// # Errors
/// Returns the numbers of its calls and edges if they are too many.
pub(crate) fn svg(plan: &Plan) -> Result<String, TooLarge> {
    let graph = Graph::of(plan);
    let too_large = TooLarge { calls: graph.nodes.len(), edges: graph.edges.len() };
    svg::svg(&graph).ok_or(too_large)
}

/// A plan that has too many calls, or edges between them, for a picture.
pub(crate) struct TooLarge {
    pub(crate) calls: usize,
    pub(crate) edges: usize,
}

//! A plan as a Mermaid flowchart.

use std::fmt::Write as _;

use super::graph::{EdgeKind, Graph, Node, NodeKind};

/// Renders a graph as a flowchart.
pub(super) fn mermaid(graph: &Graph) -> String {
    let mut out = String::from("flowchart TD\n");
    if graph.incomplete {
        let text = label(["This program chooses tools as it runs: it may call more than is shown"]);
        let _ = writeln!(out, "  incomplete[/\"{text}\"/]");
    }
    for node in &graph.nodes {
        let (open, close) = match node.kind {
            NodeKind::Client => ("[", "]"),
            NodeKind::Server => ("([", "])"),
            NodeKind::Unknown => ("{{", "}}"),
            NodeKind::Args => ("[/", "/]"),
        };
        let head = format!("{}{}", node.title, traits(node));
        let text = label([head.as_str()].into_iter().chain(node.lines.iter().map(String::as_str)));
        let _ = writeln!(out, "  {}{open}\"{text}\"{close}", node.id);
    }
    let mut marked = Vec::new();
    for (index, edge) in graph.edges.iter().enumerate() {
        let (Some(from), Some(to)) = (graph.nodes.get(edge.from), graph.nodes.get(edge.to)) else {
            continue;
        };
        let arrow = match edge.kind {
            EdgeKind::Data => "-->",
            EdgeKind::Control => "-.->",
            EdgeKind::Order => "-.->|then|",
            EdgeKind::Egress => "==>|leaves|",
            EdgeKind::EgressControl => "-.->|leaves|",
        };
        let _ = writeln!(out, "  {} {arrow} {}", from.id, to.id);
        if matches!(edge.kind, EdgeKind::Egress | EdgeKind::EgressControl) {
            // `linkStyle` refers to an edge by its index.
            marked.push(index.to_string());
        }
    }
    classes(graph, &mut out);
    if !marked.is_empty() {
        let _ = writeln!(out, "  linkStyle {} stroke:#cf222e", marked.join(","));
    }
    out
}

/// Defines the styles: colours by side, and a dashed border for calls that may not happen.
fn classes(graph: &Graph, out: &mut String) {
    out.push_str("  classDef client fill:#ddf4ff,stroke:#0969da,color:#0a3069\n");
    out.push_str("  classDef server fill:#fff8c5,stroke:#9a6700,color:#4d2d00\n");
    out.push_str("  classDef unknown fill:#ffebe9,stroke:#cf222e,color:#82071e\n");
    out.push_str("  classDef input fill:#f6f8fa,stroke:#57606a,color:#24292f\n");
    out.push_str("  classDef may stroke-dasharray:5 4\n");
    let mut class = |name: &str, belongs: &dyn Fn(&Node) -> bool| {
        let ids: Vec<&str> =
            graph.nodes.iter().filter(|node| belongs(node)).map(|node| &*node.id).collect();
        // A `class` line without nodes is a syntax error.
        if !ids.is_empty() {
            let _ = writeln!(out, "  class {} {name}", ids.join(","));
        }
    };
    class("client", &|node| node.kind == NodeKind::Client);
    class("server", &|node| node.kind == NodeKind::Server);
    class("unknown", &|node| node.kind == NodeKind::Unknown);
    class("input", &|node| node.kind == NodeKind::Args);
    class("may", &|node| node.may);
}

/// Returns the annotations after a title.
fn traits(node: &Node) -> String {
    let annotations: Vec<&str> = [
        (&*node.step, !node.step.is_empty()),
        ("may", node.may),
        ("many", node.many),
        ("location unknown", node.kind == NodeKind::Unknown),
    ]
    .into_iter()
    .filter_map(|(word, is)| is.then_some(word))
    .collect();
    if annotations.is_empty() { String::new() } else { format!(" ({})", annotations.join(", ")) }
}

/// Joins lines to the text of a label. Characters that are special in Mermaid, Markdown or HTML become character codes.
fn label<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    lines.into_iter().map(escaped).collect::<Vec<_>>().join("<br/>")
}

fn escaped(line: &str) -> String {
    line.chars()
        .map(|c| match c {
            // An allow-list, because viewers differ in what they treat as special.
            ' ' | ':' | '.' | ',' | '/' | '=' | '_' | '…' => c.to_string(),
            c if c.is_alphanumeric() => c.to_string(),
            c => format!("#{};", u32::from(c)),
        })
        .collect()
}

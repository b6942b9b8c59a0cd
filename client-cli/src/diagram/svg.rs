//! A plan as an SVG diagram. A layout library computes the positions; the shapes are drawn here.

use std::fmt::Write as _;

use analysis::Effect;
use dagre::graph::{Graph as Layered, GraphOptions};
use dagre::{EdgeLabel, LayoutOptions, NodeLabel, Point};

use super::display::{is_hidden, width};
use super::graph::{Edge, EdgeKind, Graph, Node, NodeKind};

/// The maximum number of nodes and edges of a diagram. A larger one would be unreadable and slow to lay out.
const NODES_LIMIT: usize = 150;
const EDGES_LIMIT: usize = 600;
/// The maximum number of layers that all edges together cross. The layout adds a virtual node for each of them.
const CROSSED_LIMIT: usize = 1_000;

/// The width of a character in the fonts below, in pixels.
const TITLE_LETTER: f64 = 7.9;
const LINE_LETTER: f64 = 6.7;
const LINE_HEIGHT: f64 = 16.0;
const PADDING: f64 = 14.0;
const TAG_HEIGHT: f64 = 18.0;
/// The margin around the diagram.
const MARGIN: f64 = 24.0;
/// The space for the legend.
const LEGEND_HEIGHT: f64 = 58.0;

/// Draws a graph; `None` if it is too large.
pub(super) fn svg(graph: &Graph) -> Option<String> {
    if graph.nodes.len() > NODES_LIMIT
        || graph.edges.len() > EDGES_LIMIT
        || crossed_layers(graph) > CROSSED_LIMIT
    {
        return None;
    }
    let layered = lay_out(graph);
    // The legend needs this width, even below a small diagram.
    let mut frame = Frame { left: 0.0, right: 560.0, bottom: 0.0 };
    let mut body = String::new();
    for (index, edge) in graph.edges.iter().enumerate() {
        let name = index.to_string();
        let found = layered.edge(&edge.from.to_string(), &edge.to.to_string(), Some(&name));
        let points: &[Point] = found.map_or(&[], |edge| &edge.points);
        for point in points {
            frame.hold(point.x - 2.0, point.x + 2.0, point.y);
        }
        draw_edge(graph, edge, points, &mut body);
    }
    for (index, node) in graph.nodes.iter().enumerate() {
        let Some(found) = layered.node(&index.to_string()) else { continue };
        let (Some(x), Some(y)) = (found.x, found.y) else { continue };
        let (left, top) = (x - found.width / 2.0, y - found.height / 2.0);
        frame.hold(left, left + found.width, top + found.height);
        // Avoid `-0.0` after rounding.
        draw_node(node, left.max(0.0), top.max(0.0), &mut body);
    }
    let top = if graph.incomplete { 62.0 } else { MARGIN };
    let left = MARGIN - frame.left;
    let (wide, high) = (frame.right + left + MARGIN, top + frame.bottom + MARGIN + LEGEND_HEIGHT);
    let mut out = String::new();
    let _ = writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.0}" height="{high:.0}" viewBox="0 0 {wide:.0} {high:.0}" role="img">"#
    );
    out.push_str("<title>What the program will and may do</title>\n");
    out.push_str(STYLE);
    let _ = writeln!(out, r#"<rect class="paper" width="{wide:.0}" height="{high:.0}" rx="12"/>"#);
    if graph.incomplete {
        let _ = writeln!(
            out,
            r#"<text class="warning" x="{MARGIN}" y="36">Incomplete: the program chooses tools as it runs</text>"#
        );
    }
    let _ = writeln!(out, r#"<g transform="translate({left:.0} {top})">"#);
    out.push_str(&body);
    out.push_str("</g>\n");
    legend(high - LEGEND_HEIGHT + 12.0, &mut out);
    out.push_str("</svg>\n");
    Some(out)
}

const STYLE: &str = r##"<style>
text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:11px;fill:#57606a}
.title{font-size:13px;font-weight:600;fill:#1f2328}
.tag{font-size:10px;font-weight:600;letter-spacing:.5px}
.warning{font-size:14px;font-weight:600;fill:#cf222e}
.legend{font-family:system-ui,"Segoe UI",Helvetica,Arial,sans-serif;font-size:12px}
.paper{fill:#fff}
.client{fill:#ddf4ff;stroke:#0969da;stroke-width:1.5}
.server{fill:#fff8c5;stroke:#9a6700;stroke-width:1.5}
.input{fill:#f6f8fa;stroke:#57606a;stroke-width:1.5}
.nowhere{fill:#ffebe9;stroke:#cf222e;stroke-width:1.5}
.may{stroke-dasharray:6 4}
.edge{fill:none;stroke:#57606a;stroke-width:1.5}
.control{stroke:#8c959f;stroke-dasharray:2 4}
.order{stroke:#d0d7de}
.egress{stroke:#cf222e;stroke-width:2.5}
.loud{fill:#cf222e}
.quiet{fill:#57606a}
</style>
<defs>
<marker id="data" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z" fill="#57606a"/></marker>
<marker id="control" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z" fill="#8c959f"/></marker>
<marker id="egress" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="6" markerHeight="6" orient="auto"><path d="M0 0L10 5L0 10z" fill="#cf222e"/></marker>
</defs>
"##;

/// Returns the number of layers that all edges together cross.
fn crossed_layers(graph: &Graph) -> usize {
    let mut layers = vec![0_usize; graph.nodes.len()];
    let mut forward: Vec<(usize, usize)> = graph
        .edges
        .iter()
        .map(|edge| (edge.from, edge.to))
        .filter(|(from, to)| from < to)
        .collect();
    // In this order, the layer of a node is final before an edge from it is looked at: all edges to
    // it come from lower indexes.
    forward.sort_by_key(|(_, to)| *to);
    let layer = |layers: &[usize], index: usize| layers.get(index).copied().unwrap_or(0);
    for (from, to) in forward {
        let least = layer(&layers, from) + 1;
        if let Some(known) = layers.get_mut(to) {
            *known = least.max(*known);
        }
    }
    let span = |edge: &Edge| layer(&layers, edge.from).abs_diff(layer(&layers, edge.to));
    graph.edges.iter().map(span).sum()
}

/// The bounds of the diagram. Edges around nodes may extend beyond the leftmost node.
struct Frame {
    left: f64,
    right: f64,
    bottom: f64,
}

impl Frame {
    fn hold(&mut self, left: f64, right: f64, bottom: f64) {
        self.left = self.left.min(left);
        self.right = self.right.max(right);
        self.bottom = self.bottom.max(bottom);
    }
}

/// Computes the positions of all nodes and edges.
fn lay_out(graph: &Graph) -> Layered<NodeLabel, EdgeLabel> {
    let mut layered: Layered<NodeLabel, EdgeLabel> =
        // Two calls may have several edges between them, so edges are named by their index.
        Layered::with_options(GraphOptions { directed: true, multigraph: true, compound: false });
    for (index, node) in graph.nodes.iter().enumerate() {
        let (width, height) = size(node);
        let label = NodeLabel { width, height, ..NodeLabel::default() };
        layered.set_node(index.to_string(), Some(label));
    }
    for (index, edge) in graph.edges.iter().enumerate() {
        // A higher weight makes the layout keep data edges short and straight.
        let weight = match edge.kind {
            EdgeKind::Control | EdgeKind::EgressControl | EdgeKind::Order => 1,
            EdgeKind::Data | EdgeKind::Egress => 3,
        };
        let label = EdgeLabel { weight, ..EdgeLabel::default() };
        let (from, to, name) = (edge.from.to_string(), edge.to.to_string(), index.to_string());
        layered.set_edge(from, to, Some(label), Some(&name));
    }
    let options =
        LayoutOptions { nodesep: 36.0, edgesep: 18.0, ranksep: 52.0, ..LayoutOptions::default() };
    dagre::layout(&mut layered, Some(options));
    layered
}

fn size(node: &Node) -> (f64, f64) {
    let letters = |text: &str, letter: f64| width(text) as f64 * letter;
    let lines = node.lines.iter().map(|line| letters(line, LINE_LETTER));
    let tag = letters(&tag(node), LINE_LETTER);
    let wide = lines.fold(letters(&node.title, TITLE_LETTER).max(tag), f64::max);
    let tag_height = if node.effect.is_some() { TAG_HEIGHT } else { 0.0 };
    let high = 2.0 * PADDING - 6.0 + tag_height + LINE_HEIGHT * (1 + node.lines.len()) as f64;
    (wide + 2.0 * PADDING + 8.0, high)
}

/// Returns the line above the title: the effect and the annotations.
fn tag(node: &Node) -> String {
    let mut annotations = vec![node.effect.map_or("", Effect::as_str).to_uppercase()];
    annotations.extend((!node.step.is_empty()).then(|| node.step.to_uppercase()));
    annotations.extend((node.kind == NodeKind::Unknown).then(|| "LOCATION UNKNOWN".to_owned()));
    annotations.extend(node.may.then(|| "MAY".to_owned()));
    annotations.extend(node.many.then(|| "MANY".to_owned()));
    annotations.join(" · ")
}

fn draw_node(node: &Node, x: f64, y: f64, out: &mut String) {
    let (wide, high) = size(node);
    let (class, radius) = match node.kind {
        NodeKind::Client => ("client", 4.0),
        NodeKind::Server => ("server", high.min(44.0) / 2.0),
        NodeKind::Unknown => ("nowhere", 0.0),
        NodeKind::Args => ("input", high / 2.0),
    };
    let may = if node.may { " may" } else { "" };
    let mut card = |x: f64, y: f64| {
        let _ = writeln!(
            out,
            r#"<rect class="{class}{may}" x="{x:.1}" y="{y:.1}" width="{wide:.1}" height="{high:.1}" rx="{radius:.1}"/>"#
        );
    };
    // A repeated call is drawn as a stack of cards.
    if node.many {
        card(x + 5.0, y + 5.0);
    }
    card(x, y);
    let left = x + PADDING + 2.0;
    let mut line = y + PADDING + 4.0;
    if let Some(effect) = node.effect {
        let loud = match effect {
            Effect::Writes | Effect::Runs | Effect::Sends | Effect::Calls => "loud",
            Effect::Reads | Effect::Asks | Effect::Computes => "quiet",
        };
        text(&format!("tag {loud}"), left, line, &tag(node), out);
        line += TAG_HEIGHT;
    }
    line += 2.0;
    text("title", left, line, &node.title, out);
    for shown in &node.lines {
        line += LINE_HEIGHT;
        text("line", left, line, shown, out);
    }
}

fn draw_edge(graph: &Graph, edge: &Edge, points: &[Point], out: &mut String) {
    let (class, marker, what) = match edge.kind {
        EdgeKind::Data => ("edge", "data", "flows into"),
        EdgeKind::Control => ("edge control", "control", "decides on"),
        EdgeKind::Order => ("edge order", "control", "comes before"),
        EdgeKind::Egress => ("edge egress", "egress", "leaves this machine, to"),
        EdgeKind::EgressControl => {
            ("edge control egress", "egress", "leaves this machine by deciding on")
        }
    };
    let title = |index: usize| graph.nodes.get(index).map_or("", |node| &*node.title);
    let _ = writeln!(
        out,
        r#"<path class="{class}" marker-end="url(#{marker})" d="{}"><title>{} {what} {}</title></path>"#,
        curve(points),
        xml(title(edge.from)),
        xml(title(edge.to))
    );
}

/// Returns a smooth path along points: quadratic Bézier curves with the inner points as control points, joined half-way
/// between them.
fn curve(points: &[Point]) -> String {
    let [first, middle @ .., last] = points else { return String::new() };
    let mut out = format!("M{:.1} {:.1}", first.x, first.y);
    for (index, point) in middle.iter().enumerate() {
        let end = match middle.get(index + 1) {
            Some(next) => Point::new((point.x + next.x) / 2.0, (point.y + next.y) / 2.0),
            None => Point::new(last.x, last.y),
        };
        let _ = write!(out, "Q{:.1} {:.1} {:.1} {:.1}", point.x, point.y, end.x, end.y);
    }
    if middle.is_empty() {
        let _ = write!(out, "L{:.1} {:.1}", last.x, last.y);
    }
    out
}

fn legend(top: f64, out: &mut String) {
    let _ = writeln!(out, r#"<g transform="translate({MARGIN} {top:.0})">"#);
    let boxes = [
        (0, "client", "3", "on this machine"),
        (150, "server", "8", "on the server"),
        (290, "input may", "3", "may happen"),
    ];
    for (x, class, radius, meaning) in boxes {
        let _ = writeln!(
            out,
            r#"<rect class="{class}" x="{x}" y="0" width="22" height="16" rx="{radius}"/><text class="legend" x="{}" y="12">{meaning}</text>"#,
            x + 29
        );
    }
    let lines = [
        (0, "edge", "data", "data"),
        (150, "edge control", "control", "decides"),
        (290, "edge egress", "egress", "data of this machine that leaves it"),
    ];
    for (x, class, marker, meaning) in lines {
        let _ = writeln!(
            out,
            r#"<path class="{class}" marker-end="url(#{marker})" d="M{x} 32h22"/><text class="legend" x="{}" y="36">{meaning}</text>"#,
            x + 29
        );
    }
    out.push_str("</g>\n");
}

fn text(class: &str, x: f64, y: f64, text: &str, out: &mut String) {
    let _ = writeln!(out, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{}</text>"#, xml(text));
}

/// Escapes a text for XML content and attributes.
fn xml(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            '\'' => "&#39;".to_owned(),
            // Not allowed in XML. They should have been escaped before.
            c if is_hidden(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => "\u{fffd}".to_owned(),
            c => c.to_string(),
        })
        .collect()
}

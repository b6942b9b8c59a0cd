//! A short text form of an analysis, for snapshots and debug logs.

use std::fmt::Write;

use protocol::RoutingRules;

use crate::{Analysis, Argument, Node, NodeKind, PathStep, Task};

/// Renders an analysis as an indented outline under the shipped routing rules.
pub fn render(analysis: &Analysis) -> String {
    let mut out = String::new();
    let tools: Vec<&str> = analysis.tools.iter().map(|tool| tool.as_str()).collect();
    let routing = analysis.routing(&RoutingRules::shipped());
    let _ = writeln!(out, "tools: {}", if tools.is_empty() { "-".into() } else { tools.join(" ") });
    let dynamic = if analysis.dynamic { ", dynamic" } else { "" };
    let runs = if analysis.can_run() { routing.as_str() } else { "refused" };
    let _ = writeln!(out, "runs: {runs}{dynamic}");
    for node in &analysis.structure.nodes {
        let depth = depth(&analysis.structure.nodes, node);
        let _ = write!(out, "{}", "  ".repeat(depth));
        if let Some(branch) = &node.branch {
            let _ = write!(out, "{branch}: ");
        }
        let _ = match &node.kind {
            NodeKind::Task(task) => writeln!(out, "{}", render_task(analysis, task)),
            NodeKind::Capability(task) => {
                writeln!(out, "capability {}", render_task(analysis, task))
            }
            NodeKind::Decision { test, depends_on } => {
                writeln!(out, "decide `{test}`{}", after(depends_on))
            }
            NodeKind::Loop { over, depends_on } => {
                writeln!(out, "loop `{over}`{}", after(depends_on))
            }
            NodeKind::Fork { how } => writeln!(out, "fork {how}"),
            NodeKind::Join { .. } => writeln!(out, "join"),
        };
    }
    for found in &analysis.diagnostics {
        let _ = writeln!(
            out,
            "{} {} {}:{} {}",
            found.severity.as_str(),
            found.code.as_str(),
            found.line,
            found.column,
            found.message
        );
        let _ = writeln!(out, "{}", found.frame);
    }
    out
}

fn depth(nodes: &[Node], node: &Node) -> usize {
    let mut depth = 0;
    let mut parent = node.parent;
    while let Some(id) = parent {
        depth += 1;
        parent = nodes.get(id as usize).and_then(|node| node.parent);
    }
    depth
}

fn after(depends_on: &[String]) -> String {
    if depends_on.is_empty() { String::new() } else { format!(" <- {}", depends_on.join(" ")) }
}

fn render_task(analysis: &Analysis, task: &Task) -> String {
    let layer = analysis
        .dag
        .tasks
        .iter()
        .find(|other| other.id == task.task)
        .map_or(0, |other| other.layer);
    let mut out = format!("{} {}", task.task, task.tool);
    let arguments: Vec<String> = task
        .arguments
        .iter()
        .map(|(name, argument)| format!("{name}={}", render_argument(argument)))
        .collect();
    let _ = write!(out, "({}) L{layer}", arguments.join(", "));
    if task.conditional {
        out.push_str(" conditional");
    }
    if task.repeats {
        out.push_str(" repeats");
    }
    out.push_str(&after(&task.depends_on));
    out
}

fn render_argument(argument: &Argument) -> String {
    match argument {
        Argument::Literal { value } => value.to_string(),
        Argument::Reference { task, path } => format!("{task}{}", render_path(path)),
        Argument::Parameter { path } => format!("args{}", render_path(path)),
        Argument::Object { fields } => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, field)| format!("{name}: {}", render_argument(field)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        Argument::Array { items } => {
            let items: Vec<String> = items.iter().map(render_argument).collect();
            format!("[{}]", items.join(", "))
        }
        Argument::Expression { source, depends_on, from_args } => {
            let from = from_args.iter().chain(depends_on);
            let from: Vec<&str> = from.map(String::as_str).collect();
            match &from[..] {
                [] => format!("`{source}`"),
                from => format!("`{source}`<{}>", from.join(" ")),
            }
        }
    }
}

fn render_path(path: &[PathStep]) -> String {
    path.iter()
        .map(|step| match step {
            PathStep::Index(index) => format!("[{index}]"),
            PathStep::Field(name) => format!(".{name}"),
        })
        .collect()
}

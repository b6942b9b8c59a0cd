//! Shows where the tools of a plan are, according to which source, and how old that information is.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use protocol::{Side, escape_text};
use serde_json::{Value, json};

use super::style::{Part, Style};
use super::text::Basis;
use crate::files::records::age;
use crate::origin::Origin;
use crate::placement::{Asked, Placed, Placement, Source};

/// Returns what the plan itself shows about the locations.
pub(super) fn basis(placement: &Placement) -> Basis {
    let doubtful = placement.tools.iter().filter(|(_, placed)| {
        matches!(placed.source, Source::Cache | Source::Rules | Source::Shipped)
            && placed.side != Side::Unknown
    });
    let doubtful: std::collections::BTreeSet<_> = doubtful.map(|(id, _)| id.clone()).collect();
    // One local tool makes the program run here, wherever the other tools are.
    let settled = placement.tools.values().any(|placed| {
        matches!(placed.source, Source::Config | Source::Native | Source::Registry)
            && placed.side == Side::Client
    });
    let opening = (!settled && !doubtful.is_empty() && placement.runs_on != Side::Unknown)
        .then(|| "not confirmed by the gateway; see below".to_owned());
    let sends_to = placement.tools.iter();
    let sends_to =
        sends_to.filter_map(|(id, placed)| Some((id.clone(), placed.sends_to.clone()?))).collect();
    let native = placement.tools.iter().filter(|(_, placed)| placed.source == Source::Native);
    let native = native.map(|(id, _)| id.clone()).collect();
    Basis {
        opening,
        doubtful,
        sends_to,
        native,
        text_goes_to: placement.text_goes_to.clone(),
        refusals: placement.refusals.clone(),
    }
}

/// Adds the locations and their sources to the JSON of a plan.
pub(super) fn add_to(report: &mut Value, placement: &Placement) {
    let why_not = match &placement.asked {
        Asked::No(why) => Some(why.as_str()),
        Asked::Now | Asked::NotNeeded => None,
    };
    report["routing"] = json!({
        "gateway": placement.gateway,
        "asked": placement.asked == Asked::Now,
        "why_not": why_not,
    });
    report["text_goes_to"] = json!(placement.text_goes_to);
    report["refusals"] = json!(placement.refusals);
    report["notes"] = json!(placement.notes);
    let tasks = report["tasks"].as_array_mut().into_iter().flatten();
    for task in tasks {
        let tool = task["tool"].as_str().unwrap_or_default();
        let placed = placement.tools.iter().find(|(id, _)| id.as_str() == tool);
        if let Some((_, placed)) = placed {
            task["routing_source"] = json!(placed.source);
            task["routing_age_s"] = json!(placed.age_s);
            if let Some(origin) = &placed.sends_to {
                task["sends_to"] = json!(origin);
            }
            if let Some(registry) = &placed.registry {
                task["registry"] = json!(registry);
            }
        }
    }
    let capabilities = placement.tools.iter().filter_map(|(id, placed)| {
        let reached = placed.capability.as_ref()?;
        Some(json!({
            "id": id,
            "name": reached.name,
            "integrity": reached.integrity,
            "reaches": reached.reaches,
            "sends_within": placed.sends_within(),
        }))
    });
    report["capabilities"] = capabilities.collect();
}

/// Renders the sources of the locations as text; empty if every tool is built into `pml`.
pub(super) fn text(placement: &Placement, style: &Style) -> String {
    let mut out = String::new();
    capabilities(placement, *style, &mut out);
    let mut groups: BTreeMap<(Source, String), Vec<String>> = BTreeMap::new();
    for (id, placed) in &placement.tools {
        if let Some(source_text) = source_text(placement, placed) {
            let tools = groups.entry((placed.source, source_text)).or_default();
            tools.push(escape_text(id.as_str()));
        }
    }
    let why_not = match &placement.asked {
        Asked::No(why) => Some(why),
        Asked::Now | Asked::NotNeeded => None,
    };
    if !groups.is_empty() || !placement.notes.is_empty() {
        let _ = writeln!(out, "\n{}", style.paint(Part::Heading, "Where tools run"));
    }
    for ((source, source_text), tools) in groups {
        let part = if source == Source::None { Part::Warning } else { Part::Dim };
        let _ = writeln!(out, "  {}: {}", tools.join(", "), style.paint(part, &source_text));
    }
    if let Some(why) = why_not {
        let _ = writeln!(out, "  {}", escape_text(why));
    }
    for note in &placement.notes {
        let _ = writeln!(out, "  {}", style.paint(Part::Warning, note));
    }
    out
}

fn source_text(placement: &Placement, placed: &Placed) -> Option<String> {
    let gateway = &placement.gateway;
    Some(match placed.source {
        Source::Native => return None,
        Source::Config => match &placed.sends_to {
            Some(origin) => format!("called from here, at {origin}, according to `.pml.json`"),
            None => "here, according to `.pml.json`".to_owned(),
        },
        Source::Registry => {
            let registry = placed.registry.as_ref().map_or("", Origin::as_str);
            format!("here, according to the registry {registry}, asked just now")
        }
        Source::Gateway if placed.side == Side::Unknown => {
            format!("unknown to the gateway {gateway}, asked just now")
        }
        Source::Gateway => format!("according to the gateway {gateway}, asked just now"),
        Source::Cache => {
            let age = age(placed.age_s.unwrap_or_default());
            format!("according to the gateway {gateway}, {age} ago")
        }
        Source::Kept => "here: it ran here before, and there is no gateway to ask".to_owned(),
        Source::Rules => {
            let age = age(placed.age_s.unwrap_or_default());
            format!("according to the routing rules of the gateway {gateway}, read {age} ago")
        }
        Source::Shipped => {
            "according to the table shipped with `pml`; your gateway may have other rules"
                .to_owned()
        }
        Source::None => {
            "unknown, because no table lists it; counted as leaving this machine".to_owned()
        }
    })
}

fn capabilities(placement: &Placement, style: Style, out: &mut String) {
    let known: Vec<_> = placement
        .tools
        .iter()
        .filter_map(|(id, placed)| Some((id, placed, placed.capability.as_ref()?)))
        .collect();
    if known.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", style.paint(Part::Heading, "Capabilities"));
    for (id, placed, reached) in known {
        let shown = reached.reaches.iter().map(|(id, side)| {
            let id = escape_text(id.as_str());
            match side {
                Side::Client => format!("{id} here"),
                Side::Server => format!("{id} on the server"),
                Side::Unknown => format!("{id} (location unknown)"),
            }
        });
        let shown: Vec<String> = shown.collect();
        let what = if shown.is_empty() { "no tool".to_owned() } else { shown.join(", ") };
        let (id, name) = (escape_text(id.as_str()), escape_text(&reached.name));
        let _ = writeln!(out, "  {id}  is {name} and reaches {what}");
        if placed.sends_within() {
            let note = "may send its arguments and what it reads here to the server";
            let _ = writeln!(out, "  {}", style.paint(Part::Warning, note));
        }
    }
}

//! The text of plans: one snapshot for each program in `plans/` and for some programs that agents wrote.

use std::path::{Path, PathBuf};

use analysis::{Limits, analyze};
use client_cli::testing::{GraphFormat, Style, draw, text, to_json};
use protocol::RoutingRules;

/// Cases of the analysis whose plans have a snapshot.
const AGENT: &[&str] = &[
    "backup_before_edit",
    "branch_cleanup",
    "csv_join_sqlite",
    "git_review_to_slack",
    "link_checker",
    "research_brief",
    "switch_on_kind",
    "todo_report",
];

fn cases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = std::fs::read_dir(root.join("tests/plans")).expect("the folder is readable");
    let mut cases: Vec<PathBuf> = own
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ts"))
        .collect();
    let agent = root.join("../analysis/tests/cases/agent");
    cases.extend(AGENT.iter().map(|name| agent.join(name).with_extension("ts")));
    cases.sort();
    cases
}

fn plan_of(source: &str) -> analysis::Plan {
    analysis::plan(&analyze(source, &Limits::default()), &RoutingRules::shipped())
}

#[test]
fn plans_match_their_snapshots() {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_snapshot_path("plans");
    let cases = cases();
    assert!(cases.len() >= 20, "{} cases", cases.len());
    settings.bind(|| {
        for path in cases {
            let source = std::fs::read_to_string(&path).expect("a case is readable");
            let name = path.file_stem().expect("a case has a name").to_string_lossy().into_owned();
            insta::assert_snapshot!(name, text(&plan_of(&source), &Style::PLAIN));
        }
    });
}

/// Both diagram formats for a program with every kind of node and edge.
#[test]
fn graphs_match_their_snapshots() {
    let source = "const a = await mcp.filesystem.read_text_file({ path: args.path });
        const b = await mcp.json.parse({ data: a });
        if (b.urgent) await mcp.slack.post_message({ channel: args.channel, text: `${b.text}` });
        for (const x of b.list) await mcp.shell.exec({ command: ['make', x] });";
    let plan = plan_of(source);
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_snapshot_path("plans");
    settings.bind(|| {
        insta::assert_snapshot!("graph.mmd", draw(&plan, GraphFormat::Mermaid).unwrap());
        insta::assert_snapshot!("graph.svg", draw(&plan, GraphFormat::Svg).unwrap());
    });
}

/// Data that only decides about a call on the server is drawn as leaving too, but differently from data that is sent.
#[test]
fn decisions_are_drawn_as_leaving() {
    let plan = plan_of(
        "const a = await mcp.filesystem.read_text_file({ path: 'a' });
         if (a) await mcp.slack.post_message({ text: 'x' });
         if (args.more) await mcp.json.parse({});
         if (a) await mcp.shell.exec({ command: ['ls'] });",
    );
    let svg = draw(&plan, GraphFormat::Svg).unwrap();
    for (class, title) in [
        (
            "edge control egress",
            "t1 filesystem:read_text_file leaves this machine by deciding on t2 slack:post_message",
        ),
        ("edge control egress", "args leaves this machine by deciding on t3 json:parse"),
        ("edge control", "t1 filesystem:read_text_file decides on t4 shell:exec"),
    ] {
        let line = svg.lines().find(|line| line.contains(title)).expect(title);
        assert_eq!(attribute(line, "class"), class, "{line}");
    }
    let mermaid = draw(&plan, GraphFormat::Mermaid).unwrap();
    for edge in ["  t1 -.->|leaves| t2\n", "  args -.->|leaves| t3\n", "  t1 -.-> t4\n"] {
        assert!(mermaid.contains(edge), "{mermaid}");
    }
}

/// If a result reaches too many tools to name all, those that receive it as data are named first.
#[test]
fn data_is_named_before_decisions() {
    let mut source =
        String::from("const a = await mcp.filesystem.read_text_file({ path: 'a' });\n");
    for _ in 0..24 {
        source += "if (a) await mcp.json.parse({});\n";
    }
    source += "await mcp.slack.post_message({ text: a });\n";
    let shown = text(&plan_of(&source), &Style::PLAIN);
    let line = shown.lines().find(|line| line.contains('→')).expect("something leaves");
    assert!(line.contains("→ t26 slack:post_message, t2 json:parse (decides), "), "{line}");
    assert!(line.ends_with("t20 json:parse (decides), and 5 more"), "{line}");
}

/// Control and markup characters in a program are escaped in every part of a plan.
#[test]
fn hostile_text_is_escaped() {
    let hidden = "\u{1b}[2J\u{1b}]0;x\u{7}\u{202e}\u{200b}\u{2066}\u{feff}\u{9b}31m";
    let marks = "\"]; end --> x <script>alert(1)</script> ]]> <!-- `#quot; %%{init:{}}%% &amp; \\n";
    let source = format!(
        "const name = {text};
         const x = await mcp.filesystem.read_text_file({{ [{text}]: {text}, path: args[{text}], head: {marks_name} }});
         if (x[{text}] === {text} /* {marks_in_comment} */) {{
           await mcp.slack.post_message({{ text: x + {text}, deep: {{ [{text}]: [x, {text}] }} }});
         }}
         for (const y of [x, {text}]) await mcp.notes.keep({{ y, also: args.a.b }});
         await mcp[x].unknown({{ {marks_name}: 1 }});",
        text = serde_json::to_string(&format!("{hidden}{marks}")).unwrap(),
        marks_in_comment = "<b>\u{202e}",
        marks_name = serde_json::to_string(marks).unwrap(),
    );
    let analysis = analyze(&source, &Limits::default());
    assert!(analysis.can_run(), "{:?}", analysis.diagnostics);
    let plan = analysis::plan(&analysis, &RoutingRules::shipped());
    assert!(!plan.complete && plan.tasks.len() >= 3);

    let texts = [
        text(&plan, &Style::PLAIN),
        draw(&plan, GraphFormat::Mermaid).unwrap(),
        draw(&plan, GraphFormat::Svg).unwrap(),
    ];
    for text in &texts {
        for c in text.chars() {
            let shown = c == '\n' || protocol::escape_text(&c.to_string()) == c.to_string();
            assert!(shown, "{c:?} in {text}");
        }
    }
    let [plain, mermaid, svg] = texts;
    assert!(plain.contains("\\u001b[2J") && plain.contains("\\u{202e}"), "{plain}");
    // The program's text adds no lines to the flowchart: each is a node, an edge or a class.
    for line in mermaid.lines().skip(1) {
        let text = line.split('"').nth(1).unwrap_or_default().replace("<br/>", "");
        let quotes = line.matches('"').count();
        assert!(quotes == 0 || quotes == 2, "{line}");
        assert!(!text.contains(['<', '>', '[', ']', '`', '%', '&', '{', '-', '\\']), "{line}");
    }
    assert!(svg.contains("&lt;script&gt;") || svg.contains("&quot;]; end"), "{svg}");
    assert!(!svg.contains("<script") && !svg.contains("<!--") && !svg.contains("]]>"), "{svg}");
    well_formed(&svg);
    let json = to_json(&plan, &analysis);
    assert_eq!(json["tasks"][0]["tool"], "filesystem:read_text_file");
}

/// Parses tags and text; panics if the document is not a single XML element.
fn well_formed(xml: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = xml.trim();
    let mut roots = 0;
    while !rest.is_empty() {
        let Some(tag) = rest.strip_prefix('<') else {
            let end = rest.find('<').expect("text is within an element");
            assert!(!open.is_empty() || rest[..end].trim().is_empty(), "text outside: {rest:.40}");
            for entity in rest[..end].split('&').skip(1) {
                let name = entity.split(';').next().unwrap_or_default();
                assert!(matches!(name, "amp" | "lt" | "gt" | "quot" | "#39"), "&{entity:.20}");
            }
            rest = &rest[end..];
            continue;
        };
        let end = tag.find('>').expect("a tag ends");
        let inside = &tag[..end];
        if let Some(name) = inside.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{rest:.60}");
        } else if !inside.ends_with('/') {
            roots += usize::from(open.is_empty());
            open.push(inside.split(' ').next().unwrap_or_default());
        }
        assert!(inside.matches('"').count().is_multiple_of(2), "{inside}");
        rest = &tag[end + 1..];
    }
    assert_eq!((roots, open.len()), (1, 0));
}

/// Returns an attribute of a tag.
fn attribute<'a>(tag: &'a str, name: &str) -> &'a str {
    let start = format!(" {name}=\"");
    tag.split_once(&start).expect("it has one").1.split('"').next().unwrap_or_default()
}

/// In diagrams of random programs, every task is drawn once and within the bounds.
#[test]
fn every_task_is_in_the_diagram() {
    let mut seed = 0x2545_f491_u64;
    let mut next = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below.max(1) as u64) as usize
    };
    for round in 0..60 {
        let count = 1 + next(if round % 10 == 0 { 36 } else { 14 });
        let mut source = String::from("let v0 = args.x;\n");
        for task in 1..=count {
            let tool = ["json.parse", "filesystem.read_file", "slack.post_message", "a.b"][next(4)];
            let (one, two) = (next(task), next(task));
            let call = format!("v{task} = await mcp.{tool}({{ a: v{one}, b: `${{v{two}}}` }});\n");
            source += &format!("let v{task};\n");
            source += &match next(5) {
                0 => format!("if (v{one}) {{ {call} }}\n"),
                1 => format!("for (const x of v{two}) {{ {call} v{one} = v{task}; }}\n"),
                _ => call,
            };
        }
        let plan = plan_of(&source);
        assert_eq!(plan.tasks.len(), count, "{source}");
        let svg = draw(&plan, GraphFormat::Svg).unwrap();
        well_formed(&svg);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{source}");
        for task in &plan.tasks {
            let title = format!(">{} {}</text>", task.id, task.tool);
            assert_eq!(svg.matches(&title).count(), 1, "{title} in {source}");
        }
        // Everything is within the bounds of the diagram.
        let first = svg.lines().next().unwrap();
        let wide: f64 = attribute(first, "width").parse().unwrap();
        let moved = svg.lines().find(|line| line.starts_with("<g transform")).unwrap();
        let moved = moved.split(['(', ' ']).nth(2).unwrap().parse::<f64>().unwrap();
        for line in svg.lines() {
            let mut across = Vec::new();
            if line.starts_with("<rect class=\"client") || line.starts_with("<rect class=\"server")
            {
                let left: f64 = attribute(line, "x").parse().unwrap();
                across.extend([left, left + attribute(line, "width").parse::<f64>().unwrap()]);
            } else if line.contains("<title>t") {
                let way = attribute(line, "d").replace(['M', 'L', 'Q'], " ");
                let numbers = way.split_whitespace().map(|number| number.parse::<f64>().unwrap());
                across.extend(numbers.step_by(2));
            } else if line.starts_with("</g>") {
                break;
            }
            for x in across {
                assert!((0.0..=wide).contains(&(x + moved)), "{line} of {wide} in {source}");
            }
        }
    }
}

/// The error for a plan that is too large for SVG names the other formats, which have no limit.
#[test]
fn a_plan_that_is_too_large_for_svg_is_an_error() {
    let source = "await mcp.json.parse({ data: args.x });\n".repeat(400);
    let plan = plan_of(&source);
    assert_eq!(plan.tasks.len(), 400);
    let error = draw(&plan, GraphFormat::Svg).unwrap_err().render();
    assert!(error.contains("400 calls") && error.contains("mermaid"), "{error}");
    assert_eq!(draw(&plan, GraphFormat::Mermaid).unwrap().matches("json:parse").count(), 400);
    assert!(text(&plan, &Style::PLAIN).contains("400 calls"));

    // A chain in which every call also uses the first one: few calls with long edges.
    let mut source = String::from("const v0 = await mcp.json.parse({});\n");
    for task in 1..149 {
        let before = task - 1;
        source += &format!("const v{task} = await mcp.json.merge({{ a: v{before}, b: v0 }});\n");
    }
    let plan = plan_of(&source);
    assert_eq!(plan.tasks.len(), 149);
    draw(&plan, GraphFormat::Svg).unwrap_err();
}

/// The coloured text is the plain text with escape sequences.
#[test]
fn colour_adds_only_escape_sequences() {
    let source = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../analysis/tests/cases/agent/research_brief.ts"),
    )
    .expect("a program is readable");
    let plan = plan_of(&source);
    let (plain, colour) = (text(&plan, &Style::PLAIN), text(&plan, &Style::COLOUR));
    assert!(colour.contains("\u{1b}[1m") && !plain.contains('\u{1b}'));
    let mut bare = String::new();
    for (place, part) in colour.split('\u{1b}').enumerate() {
        bare += if place == 0 { part } else { part.split_once('m').unwrap().1 };
    }
    assert_eq!(bare, plain);
}

/// `docs/plan.svg` is what the command draws.
#[test]
fn the_diagram_in_the_docs_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("a file is readable");
    let plan = plan_of(&read("analysis/tests/cases/agent/git_review_to_slack.ts"));
    let drawn = draw(&plan, GraphFormat::Svg).expect("it is small");
    assert!(
        drawn == read("docs/plan.svg"),
        "docs/plan.svg is not what `pml plan analysis/tests/cases/agent/git_review_to_slack.ts --graph svg` prints"
    );
}

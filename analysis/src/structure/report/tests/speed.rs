//! Measures the analysis, and writes the times to the file that `PML_REPORT` names.

use std::fmt::Write;
use std::time::Instant;

use crate::Limits;
use crate::structure::build;
use crate::structure::lower::lower;
use crate::structure::solve::solve;

/// Twenty lines as agents write them.
const TWENTY: &str = "const repo = args.repo;
const [status, staged] = await Promise.all([
  mcp.git.git_status({ repo_path: repo }),
  mcp.git.git_diff_staged({ repo_path: repo }),
]);
const files = status.split('\\n').filter((line) => line.startsWith('M')).map((line) => line.slice(2));
const notes = [];
for (const path of files) {
  const text = await mcp.filesystem.read_text_file({ path });
  if (text.includes('TODO')) notes.push({ path, count: text.split('TODO').length - 1 });
}
if (notes.length === 0) return { clean: true };
const lines = notes.map(({ path, count }) => `${path}: ${count}`);
const posted = await mcp.slack.post_message({
  channel: args.channel,
  text: `Staged:\\n${staged}\\nTo do:\\n${lines.join('\\n')}`,
});
if (!posted.ok) throw new Error(posted.error);
return { notes };
";

fn programs() -> Vec<(String, String)> {
    let many =
        |count: usize, line: &dyn Fn(usize) -> String| -> String { (0..count).map(line).collect() };
    let mut out = vec![("20 lines".to_owned(), TWENTY.to_owned())];
    for lines in [100, 1_000, 10_000] {
        let text = many(lines, &|n| match n % 10 {
            0 => format!("let v{n} = args.a{};\n", n % 40),
            3 => format!("if (v{} > 3) v{} = {n};\n", n - 3, n - 3),
            7 => format!("const f{n} = (x) => x + v{};\n", n - 7),
            8 => format!("v{} = f{}(v{});\n", n - 8, n - 1, n - 8),
            _ => format!("console.log(v{});\n", n - n % 10),
        });
        out.push((format!("{lines} lines"), text));
    }
    out.push(("900 calls in a chain".into(), {
        let mut text = "let r = 0;\n".to_owned();
        text += &many(900, &|_| "r = await mcp.a.b({ r });\n".into());
        text
    }));
    out.push(("nested loops".into(), {
        let deep = 60;
        format!(
            "let n = 0;{}n += await mcp.a.b({{ n }});{}",
            "for (const x of args.l) { n += x; ".repeat(deep),
            "}".repeat(deep)
        )
    }));
    out.push(("nested tries".into(), {
        let deep = 60;
        format!(
            "{}await mcp.a.b({{}});{}",
            "try { await mcp.a.c({}); ".repeat(deep),
            "} catch { await mcp.a.d({}); } finally { await mcp.a.e({}); }".repeat(deep)
        )
    }));
    out.push(("functions that call functions".into(), {
        let mut text = "const f0 = (x) => mcp.a.b({ x });\n".to_owned();
        text += &many(200, &|n| format!("const f{} = (x) => [f{n}(x), f{n}(x + 1)];\n", n + 1));
        text + "await f200(1);"
    }));
    out.push(("a table of functions".into(), {
        let rows = many(800, &|n| format!("k{n}: () => mcp.a.b{n}({{}}),\n"));
        format!("const t = {{{rows}}};\nawait t[args.k]();\nfor (const k in t) await t[k]();")
    }));
    out.push((
        "else if".into(),
        many(2_000, &|n| format!("if (args.x === {n}) y({n}); else ")) + "{} function y(x) {}",
    ));
    out.push((
        "returns".into(),
        format!(
            "function f(x) {{ let y = 0; {} return y; }} await mcp.a.b({{ x: f(args.x) }});",
            many(1_500, &|n| format!("y = x; if (x === {n}) return y;\n"))
        ),
    ));
    out
}

#[test]
fn writes_the_analysis_times_if_requested() {
    let Ok(path) = std::env::var("PML_REPORT") else { return };
    let limits = Limits { source_bytes: 1 << 20, ..Limits::default() };
    let mut text = String::new();
    for (name, source) in programs() {
        stacker::grow(64 << 20, || {
            let Ok(parsed) = crate::parse::parse(&source, &limits) else {
                let _ = writeln!(text, "{name}: does not parse");
                return;
            };
            let Some(main) = parsed.function() else { return };
            let turns = if source.len() < 4_000 { 200 } else { 1 };
            let began = Instant::now();
            for _ in 1..turns {
                let _ = build(&parsed, &source, &limits);
            }
            let built = build(&parsed, &source, &limits);
            let each = began.elapsed() / turns;
            let began = Instant::now();
            for _ in 0..turns {
                let _ = crate::analyze(&source, &limits);
            }
            let whole = began.elapsed() / turns;
            let rounds = solve(&lower(main), &limits).map_or(0, |solved| solved.rounds);
            let _ = writeln!(
                text,
                "{name}: {each:?}, {rounds} rounds, {} calls, dynamic {}; the whole analysis {whole:?}",
                built.as_ref().map_or(0, |built| built.sites.len()),
                built.as_ref().is_ok_and(|built| built.dynamic)
            );
        });
    }
    std::fs::write(path, text).expect("the report can be written");
}

//! Properties of plans beyond their snapshots: flows, `args`, rules, limits.

use analysis::{Code, Effect, Limits, Plan, analyze, plan};
use protocol::{Routing, RoutingRules, Side};

fn plan_of(source: &str) -> Plan {
    plan(&analyze(source, &Limits::default()), &RoutingRules::shipped())
}

/// Returns the pairs of a plan as `t1>t2`, `t1>t3 via t2` or `t1>t2 decides`.
fn pairs(plan: &Plan) -> Vec<String> {
    plan.egress
        .iter()
        .map(|pair| {
            let via = if pair.via.is_empty() { "" } else { " via " };
            let decides = if pair.decides { " decides" } else { "" };
            format!("{}>{}{via}{}{decides}", pair.from, pair.to, pair.via.join(" "))
        })
        .collect()
}

const READ: &str = "const text = await mcp.filesystem.read_text_file({ path: 'a' });\n";

#[test]
fn results_are_followed_to_the_server() {
    for (rest, expected) in [
        ("await mcp.json.parse({ data: text });", &["t1>t2"][..]),
        ("await mcp.json.parse({ data: `${text.length}` });", &["t1>t2"]),
        ("await mcp.json.parse({ data: '1' }); return text;", &[]),
        // The result stays on this machine.
        ("await mcp.filesystem.write_file({ path: 'b', content: text });", &[]),
        // Through a tool on the client, and through one on the server.
        (
            "const b = await mcp.shell.exec({ command: ['wc', text] });
             await mcp.json.parse({ data: b.stdout });",
            &["t1>t3 via t2", "t2>t3"],
        ),
        (
            "const b = await mcp.json.parse({ data: text });
             await mcp.slack.post_message({ text: b.title });",
            &["t1>t2", "t1>t3 via t2"],
        ),
        // A direct flow takes precedence over an indirect one.
        (
            "const b = await mcp.json.parse({ data: text });
             await mcp.slack.post_message({ text: b.title + text });",
            &["t1>t2", "t1>t3"],
        ),
    ] {
        assert_eq!(pairs(&plan_of(&format!("{READ}{rest}"))), expected, "{rest}");
    }
}

/// A call of a server tool reveals what decided on it.
#[test]
fn decisions_on_server_calls_are_egress() {
    for (rest, expected) in [
        ("if (text) await mcp.json.parse({ data: '1' });", &["t1>t2 decides"][..]),
        ("if (!text) return; await mcp.json.parse({ data: '1' });", &["t1>t2 decides"]),
        ("if (!text) throw new Error('a'); await mcp.json.parse({});", &["t1>t2 decides"]),
        ("for (const line of text.lines) await mcp.json.parse({});", &["t1>t2 decides"]),
        ("await Promise.all(text.map(() => mcp.json.parse({})));", &["t1>t2 decides"]),
        ("try { JSON.parse(text); await mcp.json.parse({}); } catch {}", &["t1>t2 decides"]),
        ("try { JSON.parse(text); } catch { await mcp.json.parse({}); }", &["t1>t2 decides"]),
        ("const f = text ? () => 1 : () => mcp.json.parse({}); await f();", &["t1>t2 decides"]),
        // Data takes precedence over a decision, even if its path is longer.
        ("if (text) await mcp.json.parse({ data: text });", &["t1>t2"]),
        (
            "const b = await mcp.shell.exec({ command: ['wc', text] });
             if (text) await mcp.json.parse({ data: b.stdout });",
            &["t1>t3 via t2", "t2>t3"],
        ),
        // The result only decides on something that stays on this machine.
        ("if (text) await mcp.filesystem.write_file({ path: 'b', content: '' });", &[]),
        ("await mcp.json.parse({}); if (text) return 1;", &[]),
        // A result depends on whether the call was made; a decision depends on the data that flowed into it.
        (
            "let b; if (text) b = await mcp.shell.exec({ command: ['wc'] });
             if (b) await mcp.json.parse({});",
            &["t1>t3 decides", "t2>t3 decides"],
        ),
        (
            "const b = await mcp.shell.exec({ command: ['wc', text] });
             if (b.stdout) await mcp.json.parse({});",
            &["t1>t3 via t2 decides", "t2>t3 decides"],
        ),
        (
            "const found = [];
             await Promise.all(text.map(async () => { found[0] = await mcp.shell.exec({ command: ['wc'] }); }));
             await mcp.json.parse({ data: found[0] });",
            &["t1>t3", "t2>t3"],
        ),
        (
            "if (text) {
               const b = await mcp.shell.exec({ command: ['wc'] });
               const c = await mcp.shell.exec({ command: ['wc', b.stdout] });
               throw await mcp.json.parse({ data: c.stdout });
             }",
            &["t1>t4 decides", "t2>t4 via t3", "t3>t4"],
        ),
        // Through a call on the server.
        (
            "if (text) { const b = await mcp.json.parse({}); await mcp.slack.post_message(b); }",
            &["t1>t2 decides", "t1>t3 decides"],
        ),
    ] {
        assert_eq!(pairs(&plan_of(&format!("{READ}{rest}"))), expected, "{rest}");
    }
    // A later call decides on the next iteration of a loop.
    let plan = plan_of(
        "while (true) {
           await mcp.json.parse({});
           if (await mcp.filesystem.read_text_file({ path: 'a' })) break;
         }",
    );
    assert_eq!(pairs(&plan), ["t2>t1 decides"]);
}

/// An iteration passes its result to an earlier call of the next iteration.
#[test]
fn results_are_followed_across_iterations() {
    let plan = plan_of(
        "let seen = '';
         for (const page of args.pages) {
           await mcp.tavily.search({ query: seen });
           seen = await mcp.filesystem.read_text_file({ path: page });
         }",
    );
    assert_eq!(pairs(&plan), ["t2>t1"]);
}

#[test]
fn args_that_reach_the_server_are_egress() {
    let with_client = |rest: &str| {
        let plan = plan_of(&format!("{READ}{rest}"));
        let [flow] = &plan.args_egress[..] else { panic!("{rest}: {:?}", plan.args_egress) };
        assert!(plan.tasks.iter().any(|task| task.id == flow.to && task.from_args), "{rest}");
        flow.parameters.join(" ")
    };
    for (rest, parameters) in [
        ("await mcp.json.parse({ data: args.a.b[0] });", "args.a.b[0]"),
        ("await mcp.json.parse({ data: { x: [args['odd name']] } });", "args[\"odd name\"]"),
        ("await mcp.json.parse(args);", "args"),
        // In a computation, the field of `args` is listed.
        ("await mcp.json.parse({ data: `<${args.a}>` });", "args.a"),
        ("await mcp.json.parse({ data: args?.a?.b + '!' });", "args.a"),
        ("await mcp.json.parse({ data: args.a.trim(), more: [args.b ?? ''] });", "args.a args.b"),
        ("await mcp.json.parse({ data: Object.keys({ ...args }) });", "args"),
        ("const q = `<${args.a}>`; await mcp.json.parse({ data: q + q });", "args.a"),
        ("const b = args.b; await mcp.json.parse({ data: args.a + b });", "args.b args.a"),
        ("await mcp.json.parse({ data: args.all ? [1, 2] : [1, 3] });", "args.all"),
        ("await mcp.json.parse(args.all ? { data: 1 } : { data: 2 });", "args.all"),
        ("const { a, ...rest } = args; await mcp.json.parse({ data: a + '' });", "args.a"),
        ("const { a, ...rest } = args; await mcp.json.parse({ data: rest });", "args"),
        (
            "const all = args; await mcp.json.parse({ data: [all.a + '', all.b.c] });",
            "args.b.c args.a",
        ),
        ("await mcp.json.parse({ data: args[args.a] });", "args.a args"),
        ("await mcp.json.parse({ data: args[0] + args['b c'] });", "args[0] args[\"b c\"]"),
        ("const f = (of) => of + ''; await mcp.json.parse({ data: f(args.a) });", "args.a"),
        ("const f = (of) => of.a + ''; await mcp.json.parse({ data: f(args) });", "args.a"),
        // A parameter named `args`, and a field that the program assigns, are not the input.
        (
            "const f = (args) => args.a + 1; await mcp.json.parse({ data: f({ a: args.b }) });",
            "args.b",
        ),
        ("args.a = args.b; await mcp.json.parse({ data: args.a + '' });", "args.b args.a"),
    ] {
        assert_eq!(with_client(rest), parameters, "{rest}");
    }
    for rest in [
        "await mcp.json.parse({ data: 'args' });",
        "await mcp.json.parse({ data: text }); return args.a;",
        "await mcp.json.parse({ data: text + 1 });",
        "await mcp.json.parse({ data: text.args + Math.random() });",
        "const copy = (of) => of + ''; copy(args.a); await mcp.json.parse({ data: copy(text) });",
    ] {
        let plan = plan_of(&format!("{READ}{rest}"));
        assert_eq!(plan.args_egress, [], "{rest}");
    }
}

#[test]
fn args_that_decide_server_calls_are_egress() {
    for (rest, parameters, decides) in [
        ("if (args.a) await mcp.json.parse({});", "", "args.a"),
        ("if (args.a.b > 1) await mcp.json.parse({});", "", "args.a"),
        (
            "if (!args.a) throw new Error('no a'); await mcp.json.parse({ data: 'x' });",
            "",
            "args.a",
        ),
        ("if (!args.a) return; await mcp.json.parse({});", "", "args.a"),
        (
            "const a = () => { if (!args.a) throw new Error('no a'); return 1; };
             await mcp.json.parse({ data: a() });",
            "",
            "args.a",
        ),
        ("for (const x of args.list) await mcp.json.parse({});", "", "args.list"),
        ("await Promise.all(args.list.map(() => mcp.json.parse({})));", "", "args.list"),
        ("for (let i = 0; i < args.n; i++) await mcp.json.parse({});", "", "args.n"),
        ("try { JSON.parse(args.x); await mcp.json.parse({}); } catch {}", "", "args.x"),
        ("try { JSON.parse(args.x); } catch { await mcp.json.parse({}); }", "", "args.x"),
        ("const { a, b } = args; if (a && b) await mcp.json.parse({});", "", "args.a args.b"),
        ("switch (args.kind) { case 1: await mcp.json.parse({}); }", "", "args.kind"),
        ("await (args.a ? () => mcp.json.parse({}) : () => 1)();", "", "args.a"),
        ("if (Object.keys(args).length) await mcp.json.parse({});", "", "args"),
        // A part that is passed is not listed again as deciding.
        ("if (args.a) await mcp.json.parse({ data: args.a });", "args.a", ""),
        ("if (args.a) await mcp.json.parse({ data: args.b });", "args.b", "args.a"),
        ("if (args.a) await mcp.json.parse({ data: args.a.b });", "args.a.b", "args.a"),
        ("if (args.a) await mcp.json.parse(args);", "args", ""),
        ("for (const x of args.list) await mcp.json.parse({ data: x });", "args.list", ""),
    ] {
        let plan = plan_of(&format!("{READ}{rest}"));
        let [flow] = &plan.args_egress[..] else { panic!("{rest}: {:?}", plan.args_egress) };
        let found = (flow.parameters.join(" "), flow.decides.join(" "));
        assert_eq!(found, (parameters.to_owned(), decides.to_owned()), "{rest}");
        let task = plan.tasks.iter().find(|task| task.id == flow.to).expect("it is a task");
        let is_listed = |part: &String| task.decided_by_args.contains(part);
        assert!(flow.decides.iter().all(is_listed), "{rest}: {:?}", task.decided_by_args);
    }
    for rest in [
        "await mcp.json.parse({}); if (args.a) return 1;",
        "if (args.a) await mcp.filesystem.write_file({ path: 'b', content: '' });",
        "const b = args.a ? 1 : 2; await mcp.json.parse({}); return b;",
        "if (text.args) await mcp.json.parse({});",
    ] {
        let plan = plan_of(&format!("{READ}{rest}"));
        assert_eq!(plan.args_egress, [], "{rest}");
    }
}

/// The server has the `args` of such a program already, and no tool runs on the client.
#[test]
fn a_program_on_the_server_has_no_egress() {
    let plan = plan_of("return await mcp.json.parse({ data: args.text });");
    assert_eq!(plan.runs_on, Side::Server);
    assert!(plan.complete && plan.egress.is_empty() && plan.args_egress.is_empty());
}

/// The rules decide which tools run on the client and which on the server.
#[test]
fn sides_follow_the_given_rules() {
    let source = "const a = await mcp.notes.read({}); await mcp.board.post({ a });";
    // A tool that no rule covers is unknown, and counts as egress.
    assert_eq!(pairs(&plan_of(source)), ["t1>t2"]);
    let with = |board: Routing| {
        let rules = [("notes:*", Routing::Client), ("board:*", board)];
        let rules = rules.map(|(pattern, side)| (pattern.parse().expect("a pattern"), side));
        plan(&analyze(source, &Limits::default()), &rules.into_iter().collect::<RoutingRules>())
    };
    assert_eq!(pairs(&with(Routing::Client)), [""; 0]);
    let plan = with(Routing::Server);
    assert_eq!(pairs(&plan), ["t1>t2"]);
    assert_eq!(plan.tasks[1].side, Side::Server);
    assert_eq!(plan.tasks[1].effect, Effect::Calls);
}

#[test]
fn a_refused_program_has_an_empty_plan() {
    let plan = plan_of("await mcp.json.parse({}); const = 1;");
    assert!(!plan.can_run && !plan.complete);
    assert!(plan.tasks.is_empty() && plan.groups.is_empty() && plan.gaps.is_empty());
}

/// The wire form is lossless.
#[test]
fn a_plan_round_trips_through_json() {
    let plan = plan_of(
        "const a = await mcp.filesystem.read_text_file({ path: args.p });
         for (const x of a.list) if (x.ok) await mcp.slack.post_message({ text: x, n: [1, args.q] });
         await mcp[args.t].u({});",
    );
    assert!(!plan.gaps.is_empty() && !plan.egress.is_empty() && !plan.args_egress.is_empty());
    let text = serde_json::to_string(&plan).expect("it is JSON");
    assert_eq!(serde_json::from_str::<Plan>(&text).expect("it is a plan"), plan);
}

/// The largest programs are planned in bounded time. Here, every task sends everything
/// that was read before it.
#[test]
fn large_programs_are_planned() {
    let mut source = String::from("let all = '';\n");
    for _ in 0..190 {
        source += "all = await mcp.json.merge({ target: all, patch: await mcp.git.git_log({ repo_path: all }) });\n";
    }
    let plan = plan_of(&source);
    assert!(plan.can_run, "the limits allow it");
    assert_eq!(plan.tasks.len(), 380);
    // Each of the 190 reads reaches its own merge and all that follow.
    assert_eq!(plan.egress.len(), 190 * 191 / 2);

    // A long chain has many pairs with long paths between them.
    let mut source = String::from("let a = 1;\n");
    for _ in 0..490 {
        source += "a = await mcp.git.git_log({ a }); a = await mcp.json.merge({ a });\n";
    }
    let plan = plan_of(&source);
    assert_eq!((plan.tasks.len(), plan.egress.len()), (980, 490 * 491 / 2));
    assert!(plan.egress.iter().all(|pair| pair.via.len() <= 8));
}

/// A gap is a call that the plan may lack. A promise that is not awaited is a warning about the run.
#[test]
fn gaps_are_only_what_the_plan_may_lack() {
    let source = "mcp.a.b({}); await mcp.c[args.name]({});";
    let analysis = analyze(source, &Limits::default());
    let codes = |code| analysis.diagnostics.iter().filter(|found| found.code == code).count();
    assert_eq!((codes(Code::ToolPromiseDropped), codes(Code::DynamicName)), (1, 1));
    let plan = plan(&analysis, &RoutingRules::shipped());
    let gaps: Vec<Code> = plan.gaps.iter().map(|gap| gap.code).collect();
    assert_eq!(gaps, [Code::DynamicName]);
}

#[test]
fn every_line_terminator_begins_a_line() {
    let source = format!("1;\u{2028}2;\r\n3;\r4;\u{2029}5;\n{READ}");
    let plan = plan_of(&source);
    let places: Vec<_> = plan.tasks.iter().map(|task| (task.line, task.column)).collect();
    assert_eq!(places, [(6, 20)], "{source:?}");
}

//! Adversarial input: it is analysed or refused in bounded time, in this process.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "hostile/worst.rs"]
mod worst;

use std::time::Duration;

use analysis::{Analysis, Code, Limits, analyze, decode, job};
use proptest::prelude::*;

/// The most CPU time that one program may use in a debug build.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Returns the CPU time of this thread, which does not depend on what else the machine does.
fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap()
}

fn timed(source: &str) -> Analysis {
    let start = cpu();
    let analysis = analyze(source, &Limits::default());
    let took = cpu() - start;
    let head: String = source.chars().take(40).collect();
    assert!(took < TIME_LIMIT, "{took:?} for {} bytes: {head}", source.len());
    analysis
}

fn refused_as_too_much(analysis: &Analysis) -> bool {
    analysis
        .first_error()
        .is_some_and(|found| matches!(found.code, Code::TooComplex | Code::SourceTooLarge))
}

/// AN-01: each shape nests its head and tail around a core.
const SHAPES: &[(&str, &str, &str)] = &[
    ("(", "0", ")"),
    ("[", "0", "]"),
    ("({a:", "0", "})"),
    ("f(", "0", ")"),
    ("{", ";", "}"),
    ("(function(){", ";", "})"),
    ("`${", "0", "}`"),
    ("x=>(", "0", ")"),
    ("a=>", "0", ""),
    ("!", "0", ""),
    ("x=", "0", ""),
    ("<any>", "0", ""),
    ("a:", ";", ""),
    ("if(1)", ";", ""),
    ("new ", "X", ""),
    ("a?0:", "0", ""),
    ("1**", "1", ""),
    ("(a,(b=", "0", "))"),
    ("for(;;)", ";", ""),
    ("await ", "0", ""),
    ("class extends (", "Object", "){}"),
];

#[test]
fn refuses_nesting_bombs() {
    for (head, core, tail) in SHAPES {
        for count in [300, 1_000, 5_000, 100_000] {
            let source = format!("{}{core}{}", head.repeat(count), tail.repeat(count));
            let analysis = timed(&source);
            // 300 labels may also be refused for another reason.
            assert!(!analysis.can_run(), "{head} x {count}");
            assert!(analysis.program.is_empty());
            if *head != "a:" || count > 300 {
                assert!(
                    refused_as_too_much(&analysis),
                    "{head} x {count}: {:?}",
                    analysis.first_error()
                );
            }
        }
    }
    // Nested types.
    for (head, tail) in [("[", "]"), ("A<", ">"), ("(() => ", ")"), ("keyof ", ""), ("{a:", "}")] {
        for count in [300, 1_000, 5_000] {
            let source = format!("let x: {}A{};", head.repeat(count), tail.repeat(count));
            assert!(!timed(&source).can_run(), "{head} x {count}");
        }
    }
    // Brackets that are never closed, and closing brackets in strings.
    for (head, count) in [("(", 60_000), ("`${", 20_000), ("(\")\",", 12_000), ("a<", 30_000)] {
        assert!(!timed(&head.repeat(count)).can_run(), "{head} x {count}");
    }
}

#[test]
fn accepts_chains_up_to_the_limit() {
    let chain = |link: &str, count: usize| format!("x{}", link.repeat(count));
    for link in ["+1", ".a", "()", "[0]", "!", "|1", "&&1", "?.a", "`t`"] {
        let analysis = timed(&chain(link, 4_990));
        assert!(analysis.can_run(), "{link}: {:?}", analysis.first_error());
        assert!(refused_as_too_much(&timed(&chain(link, 5_200))), "{link}");
    }
    let choice = format!("if(1)b;{}", "else if(1)b;".repeat(4_900));
    assert!(timed(&choice).can_run());
    let too_long = format!("if(1)b;{}", "else if(1)b;".repeat(5_200));
    assert!(refused_as_too_much(&timed(&too_long)));
}

/// The analysis allocates the stack that it needs.
#[test]
fn a_small_stack_is_enough() {
    let run = || {
        for source in [format!("x{}", ".a".repeat(4_990)), format!("x{}", "()".repeat(4_990))] {
            assert!(analyze(&source, &Limits::default()).can_run());
        }
    };
    let thread = std::thread::Builder::new().stack_size(128 * 1024).spawn(run).unwrap();
    thread.join().unwrap();
}

/// AN-03: large flat programs, and programs with a large output.
#[test]
fn large_programs_stay_within_limits() {
    let limit = Limits::default().source_bytes;
    let exact = format!("//{}", "x".repeat(limit - 2));
    assert!(timed(&exact).can_run());
    assert_eq!(timed(&format!("{exact}x")).first_error().unwrap().code, Code::SourceTooLarge);

    let fill = |line: &str| line.repeat(limit / line.len());
    for line in [
        "a;",
        "x=1\n",
        "f({a:1,b:[2]});",
        "`${1}`;",
        "class A{b(){}}",
        "()=>{};",
        "if(a){b}else{c}\n",
    ] {
        let _ = timed(&fill(line));
    }
    // Every change of the object affects all of its names.
    let mut names = String::from("const a = [];\n");
    for at in 0..1_500 {
        names.push_str(&format!("const b{at} = a; a.push(args);\n"));
    }
    assert!(timed(&names).can_run());
    // Each call depends on all calls before it: the number of edges is limited.
    let mut bomb = String::from("let a = 0;\n");
    while bomb.len() < 60_000 {
        bomb.push_str("a = [a, await mcp.a.b({ a })];\n");
    }
    let analysis = timed(&bomb);
    assert!(refused_as_too_much(&analysis));
    // More calls than the limit.
    assert!(refused_as_too_much(&timed(&fill("mcp.a.b();"))));
    // A long string in many calls is not repeated in the output.
    let text = "x".repeat(30_000);
    let many = format!("const s = \"{text}\";\n{}", "mcp.a.b({ s });\n".repeat(900));
    let analysis = timed(&many);
    assert!(analysis.can_run());
    assert!(serde_json::to_vec(&analysis).unwrap().len() < 4 << 20);
    // Doubling values.
    let doubled = format!("let a: any = [1];\n{}return a;", "a = [a, a, { a }];\n".repeat(2_000));
    assert!(timed(&doubled).can_run());
    let text = format!("let s = 'ab';\n{}mcp.x[s]();", "s = s + s;\n".repeat(2_000));
    assert!(timed(&text).dynamic);
}

/// The benchmark measures these in a release build.
#[test]
fn programs_at_each_limit_are_analysed_in_bounded_time() {
    let programs = worst::programs(&Limits::default());
    assert!(programs.len() >= 200, "{}", programs.len());
    for worst::Worst { limit, shape, source } in programs {
        let start = cpu();
        let _ = analyze(&source, &Limits::default());
        let took = cpu() - start;
        assert!(took < TIME_LIMIT * 3, "{limit}: {shape} took {took:?}");
    }
}

/// A value is passed through hundreds of functions.
#[test]
fn long_chains_of_functions_are_analysed_in_bounded_time() {
    let mut chain = String::new();
    for at in 0..700 {
        chain.push_str(&format!("function f{at}(t) {{ return f{}(t); }}\n", at + 1));
    }
    chain.push_str("function f700(t) { return t.b({}); }\nf0(mcp.a);");
    let analysis = timed(&chain);
    assert!(analysis.dynamic || analysis.tools.len() == 1);

    // The same with closures, in an order in which each round of the analysis learns only one step.
    let mut backwards = String::from("let v0 = mcp.a;\nlet v60 = null;\n");
    let mut steps: Vec<String> =
        (0..60).map(|at| format!("() => {{ v{} = v{at}; }}", at + 1)).collect();
    steps.reverse();
    for at in 1..60 {
        backwards.push_str(&format!("let v{at} = null;\n"));
    }
    backwards
        .push_str(&format!("for (const step of [{}]) step();\nv60.b({{}});", steps.join(", ")));
    let analysis = timed(&backwards);
    assert!(analysis.dynamic || analysis.tools.len() == 1);
}

/// Tokens that are each valid on their own.
const PIECES: &[&str] = &[
    "mcp", ".", "fs", "[", "]", "(", ")", "{", "}", "await ", "async ", "=>", "=", ",", ";", "\n",
    "`", "${", "\"", "'", "/", "//", "/*", "*/", "<", ">", "?", "?.", ":", "...", "if", "else ",
    "for", "of ", "in ", "while", "do ", "switch", "case ", "default", "try", "catch", "finally",
    "function", "class ", "extends ", "const ", "let ", "var ", "return ", "throw ", "yield ",
    "args", "this", "super", "new ", "delete ", "typeof ", "a", "b", "0", "1e9", "#p", "\\u0061",
    "é", "\u{202e}", "\u{2028}", "\u{feff}", "\0", "😀", "import ", "export ", "enum ", "as any",
    "!", "+", "**", "&&", "??=", "static ", "get ", "set ", "*", "@", "declare ", "type ",
];

/// AN-01: functions, objects and iterators that lead to themselves, alone and beside unknown code.
#[test]
fn circles_are_analysed_in_bounded_time() {
    let beside =
        "await Promise.allSettled([(async () => { Reflect.ownKeys(args.b ? 1 : {}); })()]);";
    for program in include_str!("hostile/circles.txt").lines() {
        for before in ["", beside, "args.f?.(globalThis[args.k]); const un = eval;"] {
            let analysis = timed(&format!("{before}\n{program}"));
            assert!(analysis.can_run(), "{program}: {:?}", analysis.first_error());
        }
    }
}

fn cases() -> Vec<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    let mut found = Vec::new();
    for folder in std::fs::read_dir(root).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "ts") {
                found.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }
    found.sort();
    found
}

/// Checks properties that hold for the analysis of any text.
fn check(source: &str) {
    let analysis = analyze(source, &Limits::default());
    assert_eq!(analysis.can_run(), analysis.first_error().is_none());
    let lines = source.split(['\n', '\r', '\u{2028}', '\u{2029}']).count() as u32;
    for found in &analysis.diagnostics {
        assert!(found.line >= 1 && found.line <= lines && found.column >= 1, "{found:?}");
        assert!(!found.frame.chars().any(|c| c.is_control() && c != '\n'), "{:?}", found.frame);
    }
    assert!(analysis.tools.is_sorted());
    for task in &analysis.dag.tasks {
        assert!(analysis.tools.contains(&task.tool));
        for before in &task.depends_on {
            let other = analysis.dag.tasks.iter().find(|other| other.id == *before).unwrap();
            assert!(other.layer < task.layer);
        }
    }
    // The wire form is lossless.
    let request = analysis::Request::new(source).encode();
    assert_eq!(decode(&job(&request)).unwrap(), analysis);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_analysed(source in "\\PC{0,200}") {
        check(&source);
    }

    #[test]
    fn any_bytes_are_analysed(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_tokens_are_analysed(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        check(&pieces.concat());
    }

    #[test]
    fn mutated_cases_are_analysed(
        source in prop::sample::select(cases()),
        cut in any::<prop::sample::Index>(),
        length in 0usize..12,
        piece in prop::sample::select(PIECES),
    ) {
        let mut chars: Vec<char> = source.chars().collect();
        let from = cut.index(chars.len() + 1);
        let to = (from + length).min(chars.len());
        chars.splice(from..to, piece.chars());
        check(&chars.into_iter().collect::<String>());
    }
}

//! Properties that hold for the analysis of any text.

use std::io::Write;
use std::time::{Duration, Instant};

use analysis::{Analysis, Limits, analyze};

/// The time limit of one analysis, also in a debug build.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// Replaces the panic hook through which the fuzzer counts every panic: the parser panics for some
/// invalid programs, and the analysis catches that. A panic that it does not catch still counts.
#[allow(dead_code, reason = "the tests have no such hook")]
pub(crate) fn let_parser_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let _ = writeln!(std::io::stderr(), "{panic}");
    }));
}

/// Analyses a text, checks the properties, and returns the analysis.
pub(crate) fn check(source: &str) -> Analysis {
    let limits = Limits::default();
    let begun = Instant::now();
    let analysis = analyze(source, &limits);
    let took = begun.elapsed();
    assert!(took < TIME_LIMIT, "{took:?} for {source:?}");
    // Either the program is refused with a reason, or it can run.
    if analysis.can_run() {
        assert!(analysis.normal_hash.is_some(), "no hash of {source:?}");
        again(source, &analysis, &limits);
    } else {
        assert!(analysis.program.is_empty(), "a refused program has text: {source:?}");
        assert!(analysis.normal_hash.is_none(), "a refused program has a hash: {source:?}");
        let error = analysis.error_body().expect("a refused program has an error");
        assert!(error.error_code.number() >= 1_000 && !error.message.is_empty());
    }
    assert!(analysis.tools.is_sorted(), "{source:?}");
    for task in &analysis.dag.tasks {
        assert!(analysis.tools.contains(&task.tool), "{} in {source:?}", task.tool);
    }
    let lines = source.split(['\n', '\r', '\u{2028}', '\u{2029}']).count() as u32;
    for found in &analysis.diagnostics {
        assert!((1..=lines).contains(&found.line) && found.column >= 1, "{found:?} {source:?}");
    }
    analysis
}

/// The erased program has the lines of the source, and its analysis has the same result.
fn again(source: &str, first: &Analysis, limits: &Limits) {
    let ends = |text: &str| text.chars().filter(|c| "\n\r\u{2028}\u{2029}".contains(*c)).count();
    assert_eq!(ends(&first.program), ends(source), "lines of {source:?}");
    // The erased text may be longer than the source, because of an inserted `;` or `)`.
    if first.program.len() > limits.source_bytes {
        return;
    }
    let second = analyze(&first.program, limits);
    let error = second.first_error().map(|found| &found.message);
    assert!(second.can_run(), "{source:?} became {:?}: {error:?}", first.program);
    assert_eq!(second.normal_hash, first.normal_hash, "{source:?} became {:?}", first.program);
    assert_eq!(second.program, first.program, "{source:?}");
    assert_eq!(second.tools, first.tools, "{source:?}");
    assert_eq!(second.dynamic, first.dynamic, "{source:?}");
}

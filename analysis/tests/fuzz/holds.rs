//! What holds for the analysis of any text.

use std::io::Write;
use std::time::{Duration, Instant};

use analysis::{Analysis, Limits, analyze};

/// The longest that one analysis may take, also in a debug build.
const PATIENCE: Duration = Duration::from_secs(2);

/// Takes away the hook by which the fuzzer counts every panic: the parser panics for some
/// broken programs, which the analysis catches. One that it does not catch still counts.
#[allow(dead_code, reason = "the tests have no such hook")]
pub(crate) fn let_parser_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let _ = writeln!(std::io::stderr(), "{panic}");
    }));
}

/// Analyses a text and checks what must hold; returns the analysis.
pub(crate) fn check(source: &str) -> Analysis {
    let limits = Limits::default();
    let begun = Instant::now();
    let analysis = analyze(source, &limits);
    let took = begun.elapsed();
    assert!(took < PATIENCE, "{took:?} for {source:?}");
    // It is refused with a reason, or there is something to run.
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

/// What runs has the lines of the source, reads as before and does the same.
fn again(source: &str, first: &Analysis, limits: &Limits) {
    let ends = |text: &str| text.chars().filter(|c| "\n\r\u{2028}\u{2029}".contains(*c)).count();
    assert_eq!(ends(&first.program), ends(source), "lines of {source:?}");
    // Without its types the text may be the longer one, for a `;` or a `)`.
    if first.program.len() > limits.source_bytes {
        return;
    }
    let second = analyze(&first.program, limits);
    let told = second.first_error().map(|found| &found.message);
    assert!(second.can_run(), "{source:?} became {:?}: {told:?}", first.program);
    assert_eq!(second.normal_hash, first.normal_hash, "{source:?} became {:?}", first.program);
    assert_eq!(second.program, first.program, "{source:?}");
    assert_eq!(second.tools, first.tools, "{source:?}");
    assert_eq!(second.dynamic, first.dynamic, "{source:?}");
}

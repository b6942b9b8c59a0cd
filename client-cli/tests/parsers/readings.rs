//! Runs the table of programs that two parsers could parse differently.

use std::fmt::Write as _;

use sandbox::FailureKind;
use serde_json::Value;

use crate::row::{Expected, Row};
use crate::rows;
use crate::support::{analysed, run_all, run_analysed};

const TABLE: &[(&str, &[Row])] = &[
    ("HTML-like comments", rows::HTML_COMMENTS),
    ("line ends", rows::LINE_ENDS),
    ("slashes", rows::SLASHES),
    ("words", rows::WORDS),
    ("characters", rows::CHARACTERS),
    ("literals", rows::LITERALS),
    ("operators", rows::OPERATORS),
    ("types", rows::TYPES),
    ("early errors", rows::EARLY),
];

/// Each row behaves in the engine as the analysis determined and as the row expects.
pub(crate) fn all_rows_are_parsed_in_the_same_way() {
    let mut failures = String::new();
    let mut count = 0;
    for (title, rows) in TABLE {
        let analysed: Vec<_> = rows.iter().map(|row| analysed(row.source)).collect();
        // The engine gets the unchanged text of a program that the analysis refuses.
        let texts = rows.iter().zip(&analysed).map(|(row, analysis)| {
            let text = if analysis.can_run() { &analysis.program } else { row.source };
            text.to_owned()
        });
        let ran = run_all(texts.collect());
        for ((row, analysis), ran) in rows.iter().zip(&analysed).zip(&ran) {
            let syntax_error =
                matches!(&ran.result, Err(found) if found.kind == FailureKind::Syntax);
            let declared: Vec<&str> = analysis.tools.iter().map(|tool| tool.as_str()).collect();
            let is_expected = match &row.expected {
                Expected::BothRefuse => !analysis.can_run() && syntax_error,
                Expected::Refused => !analysis.can_run(),
                Expected::EngineRefuses => analysis.can_run() && syntax_error,
                Expected::Runs { value, calls } => {
                    let value: Value = serde_json::from_str(value).unwrap();
                    let calls: Vec<&str> = calls.split_whitespace().collect();
                    analysis.can_run()
                        && ran.result.as_ref().is_ok_and(|result| *result == value)
                        && ran.calls == calls
                        && ran
                            .calls
                            .iter()
                            .all(|call| analysis.dynamic || declared.contains(&&**call))
                }
            };
            count += 1;
            if !is_expected {
                let _ = writeln!(
                    failures,
                    "{title}: {:?}\n  analysis: {:?} {declared:?} dynamic {}\n  engine: {:?} {:?}",
                    row.source,
                    analysis.first_error().map(|found| &found.message),
                    analysis.dynamic,
                    ran.result,
                    ran.calls
                );
            }
        }
    }
    println!("{count} programs are parsed in the same way by the analysis and the engine");
    assert!(failures.is_empty(), "\n{failures}");
}

/// Programs that fail at `Atomics`, which the engine does not have.
const PLACES: &[&str] = &[
    "let a: \"👍\" = 1 as any; Atomics",
    "let a: \"👍👍é漢\" = 1 as any as \"𝒳\"; Atomics",
    "let a: {\n  b: '👍' } = 1 as any; Atomics",
    "const f = async (x: '👍'): Promise<'𝒳'> => Atomics; await f('' as '👍')",
    "let s = '👍'; let a: 'é' = s as any; Atomics",
    "async /* 👍 é 漢 */ () => Atomics",
    "async (): Promise<'👍'> => { Atomics }",
    "async () => /*\u{2028}👍*/ {\r\n'👍'; Atomics }",
    "(async /* 👍 */ () => Atomics /* 👍 */)",
    "let a = 1\ntype B = '👍'; Atomics",
    "class A { a: '👍' = Atomics as '👍' }\nnew A()",
];

/// The engine reports the position of an error in the original text.
pub(crate) fn errors_keep_their_positions() {
    let analysed: Vec<_> = PLACES.iter().map(|source| analysed(source)).collect();
    let ran = run_analysed(&analysed);
    for ((source, analysis), ran) in PLACES.iter().zip(&analysed).zip(&ran) {
        let failure = ran.result.as_ref().expect_err(source);
        let before = &source[..source.find("Atomics").unwrap()].replace("\r\n", "\n");
        let lines: Vec<&str> = before.split(['\n', '\u{2028}']).collect();
        let place = (lines.len(), lines.last().unwrap().chars().count() + 1);
        let reported = (failure.line.unwrap_or(0) as usize, failure.column.unwrap_or(0) as usize);
        assert_eq!(reported, place, "{source}\n{}\n{failure:?}", analysis.program);
    }
    println!("{} errors keep their line and column", PLACES.len());
}

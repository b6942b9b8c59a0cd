//! Programs of several files: each folder of `bundle/` has a `main.ts`, its imports, and a snapshot of the bundle or the
//! errors.

use std::fmt::Write as _;
use std::path::Path;

use analysis::{Bundled, Limits, Sources, analyze, bundle, candidates};
use proptest::prelude::*;

/// Bundles `main.ts`, reading its imports with `read`.
fn bundled(entry: &str, read: impl Fn(&str) -> Option<String>) -> Bundled {
    let mut sources = Sources::new("main.ts", entry);
    loop {
        let needed = match bundle(&sources, &Limits::default()) {
            Bundled::Needs(needed) => needed,
            done => return done,
        };
        for needed in needed {
            let found =
                candidates(&needed.path).into_iter().find_map(|path| Some((read(&path)?, path)));
            match found {
                Some((text, path)) => sources.add(needed.path, path, text),
                None => return Bundled::Refused(vec![needed.import]),
            }
        }
    }
}

fn of_files(entry: &str, files: &[(&str, &str)]) -> Bundled {
    bundled(entry, |path| {
        files.iter().find(|(known, _)| *known == path).map(|(_, text)| (*text).to_owned())
    })
}

#[track_caller]
fn code(entry: &str, files: &[(&str, &str)]) -> String {
    match of_files(entry, files) {
        Bundled::Whole(bundle) => bundle.code,
        other => panic!("{other:#?}"),
    }
}

#[track_caller]
fn refusal(entry: &str, files: &[(&str, &str)]) -> String {
    match of_files(entry, files) {
        Bundled::Refused(faults) => shown(&faults),
        other => panic!("{other:#?}"),
    }
}

fn shown(faults: &[analysis::FileDiagnostic]) -> String {
    let line = |fault: &analysis::FileDiagnostic| {
        let (file, found) = (&fault.file, &fault.diagnostic);
        let (line, column, code) = (found.line, found.column, found.code.as_str());
        format!("{file}:{line}:{column} {code}: {}\n{}\n", found.message, found.frame)
    };
    faults.iter().map(line).collect()
}

#[test]
fn trees() {
    insta::glob!("bundle/*/main.ts", |path| {
        let folder = path.parent().unwrap();
        let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
        let out = match bundled(&std::fs::read_to_string(path).unwrap(), read) {
            Bundled::Whole(bundle) => {
                let analysis = analyze(&bundle.code, &Limits::default());
                let tools: Vec<&str> = analysis.tools.iter().map(|tool| tool.as_str()).collect();
                let mut out = format!("tools: {tools:?}, dynamic: {}\n", analysis.dynamic);
                for found in &analysis.diagnostics {
                    let origin = bundle.origin(found.line, found.column).unwrap();
                    let (file, line, column) = (origin.file, origin.line, origin.column);
                    writeln!(
                        out,
                        "{file}:{line}:{column} {}: {}",
                        found.code.as_str(),
                        found.message
                    )
                    .unwrap();
                }
                out + "---\n" + &bundle.code
            }
            Bundled::Refused(faults) => shown(&faults),
            Bundled::Needs(_) => unreachable!("`bundled` reads all needed files"),
        };
        insta::with_settings!({
            snapshot_path => folder,
            prepend_module_to_snapshot => false,
            snapshot_suffix => "",
            omit_expression => true,
        }, {
            insta::assert_snapshot!("bundle", out);
        });
    });
}

/// The glob above would skip a folder without `main.ts`.
#[test]
fn every_tree_has_an_entry() {
    let trees = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bundle");
    for tree in std::fs::read_dir(trees).unwrap() {
        let tree = tree.unwrap().path();
        assert!(tree.join("main.ts").is_file(), "{}", tree.display());
    }
}

#[test]
fn a_program_without_imports_is_unchanged() {
    for text in [
        "",
        "return 1",
        "\u{feff}return 1\r\n",
        "#!/usr/bin/env pml\nreturn 1",
        "async () => { return 1 }",
        "// import { a } from './a.ts'\nreturn 'import x from y'",
        "return (",
        "await import('./a.ts')",
        "const important = new.target; return important",
        "export const a = 1",
        "import",
        "import.meta",
    ] {
        assert_eq!(code(text, &[]), text);
    }
}

#[test]
fn parse_errors_name_their_file() {
    let error = refusal(
        "import { a } from './a.ts'\nreturn a",
        &[("a.ts", "export const b = 1;\nconst a = ;\n")],
    );
    assert!(error.starts_with("./a.ts:2:11 PARSE_ERROR"), "{error}");
    let error = refusal("import { a } from './a.ts'\nreturn (", &[]);
    assert!(error.starts_with("./main.ts:2"), "{error}");
}

#[test]
fn refuses_a_lone_function_after_an_import() {
    let error = refusal("import './a.ts'\nasync () => { return 1 }", &[]);
    assert!(error.starts_with("./main.ts:2:1 UNSUPPORTED_SYNTAX"), "{error}");
}

#[test]
fn keeps_byte_order_marks_shebangs_and_line_ends_of_each_file() {
    let lib = "\u{feff}#!/usr/bin/env x\r\nexport const a = 1\r\n";
    assert_eq!(
        code("\u{feff}import { a } from './a.ts'\r\nreturn a\r\n", &[("a.ts", lib)]),
        "// ./a.ts\n///usr/bin/env x\r\nconst a = 1;\r\n// ./main.ts\nreturn a\r\n",
    );
    assert_eq!(
        code("#!/usr/bin/env pml\n/** Doc. */\nimport './a.ts'\nreturn 1", &[("a.ts", "f()")]),
        "#!/usr/bin/env pml\n/** Doc. */\n// ./a.ts\nf();\n// ./main.ts\nreturn 1",
    );
    assert_eq!(
        code(
            "import { größe } from './ä/ö.ts'\nreturn größe",
            &[("ä/ö.ts", "export const größe = 1;")]
        ),
        "// ./ä/ö.ts\nconst größe = 1;\n// ./main.ts\nreturn größe",
    );
}

#[test]
fn a_file_imported_twice_is_bundled_once() {
    let text = code(
        "import './a.ts'\nimport './b'\nimport { n } from './sub/../n.js'\nreturn n()",
        &[
            ("a.ts", "import { n } from './n.ts'\nn()"),
            ("b.ts", "import { n as more } from './n'\nmore()"),
            ("n.ts", "let count = 0\nexport const n = () => ++count"),
        ],
    );
    assert_eq!(text.matches("let count").count(), 1, "{text}");
    assert!(text.starts_with("// ./n.ts\n") && text.contains("// ./b.ts\nn();\n"), "{text}");
}

#[test]
fn refuses_bundles_over_the_limits() {
    let many: String = (0..3_000).map(|n| format!("import './f{n}.ts'\n")).collect();
    let error = refusal(&many, &[]);
    assert!(error.contains("TOO_COMPLEX") && error.contains("200 files"), "{error}");
    let same = "import './a.ts'\n".repeat(3_000) + "return 1";
    assert!(code(&same, &[("a.ts", "const a = 1")]).starts_with("// ./a.ts\nconst a = 1;\n"));
    let nested = format!("export const a = {}1{}", "(".repeat(2_000), ")".repeat(2_000));
    assert!(refusal("import { a } from './a.ts'", &[("a.ts", &nested)]).contains("TOO_COMPLEX"));
    let large = format!("export const a = '{}'", "x".repeat(70_000));
    assert!(
        refusal("import { a } from './a.ts'", &[("a.ts", &large)]).contains("SOURCE_TOO_LARGE")
    );
    // Each file is within the limit, but the bundle is not: the analysis reports it.
    let half = format!("export const a = '{}'", "x".repeat(40_000));
    let both = "import { a } from './a.ts'\nimport { a as b } from './b.ts'\nreturn a + b";
    let whole = code(both, &[("a.ts", &half), ("b.ts", &half)]);
    let found = analyze(&whole, &Limits::default());
    assert_eq!(found.first_error().unwrap().code.as_str(), "SOURCE_TOO_LARGE");
}

/// Each `export *` is resolved once, although there are exponentially many paths.
#[test]
fn nested_export_stars_are_resolved_in_bounded_time() {
    let mut files: Vec<(String, String)> = (0..60)
        .map(|n| {
            let text = format!("export * from './l{m}.ts'\nexport * from './r{m}.ts'\n", m = n + 1);
            [(format!("l{n}.ts"), text.clone()), (format!("r{n}.ts"), text)]
        })
        .collect::<Vec<_>>()
        .concat();
    let end = "import { x as y } from './x.ts'\nexport { y as x }\n";
    files.extend([("l60.ts".into(), end.to_owned()), ("r60.ts".into(), end.to_owned())]);
    files.push(("x.ts".into(), "export const x = 1\n".into()));
    let known: Vec<(&str, &str)> = files.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert!(code("import { x } from './l0.ts'\nreturn x", &known).ends_with("return x"));
}

#[test]
fn positions_in_the_bundle_map_to_files() {
    let entry = "/** Adds. */\nimport { a } from './a.ts'\n\nreturn a + oh\n";
    let Bundled::Whole(bundle) = of_files(entry, &[("a.ts", "// first\nexport const a = no\n")])
    else {
        panic!()
    };
    let place = |text: &str| {
        let at = bundle.code.find(text).unwrap();
        let line = bundle.code[..at].matches('\n').count() + 1;
        let column = at - bundle.code[..at].rfind('\n').map_or(0, |end| end + 1) + 1;
        let origin = bundle.origin(line as u32, column as u32).unwrap();
        (origin.file.to_owned(), origin.line, origin.column)
    };
    assert_eq!(place("Adds"), ("./main.ts".into(), 1, 5));
    assert_eq!(place("no"), ("./a.ts".into(), 2, 18));
    assert_eq!(place("oh"), ("./main.ts".into(), 4, 12));
}

fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "import",
        "export",
        "from",
        "'./a.ts'",
        "{",
        "}",
        "a",
        "b",
        "*",
        "as",
        "default",
        "const",
        "=",
        "1",
        ";",
        "\n",
        "function",
        "(",
        ")",
        "=>",
        "return",
        "type",
        "ns",
        ".",
        ",",
        "await",
        "class",
        "`",
        "/*",
        "*/",
        "//",
        "é",
        "\u{feff}",
        "\r\n",
        "mcp.json.parse",
        "args",
        "let",
        "async",
    ])
    .prop_map(str::to_owned)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// A text without the word `import` is unchanged.
    #[test]
    fn any_two_files_have_a_result(
        entry in prop::collection::vec(word(), 0..30),
        lib in prop::collection::vec(word(), 0..30),
    ) {
        let (entry, lib) = (entry.join(" "), lib.join(" "));
        match of_files(&entry, &[("a.ts", &lib)]) {
            Bundled::Whole(bundle) => {
                let found = analyze(&bundle.code, &Limits::default());
                for found in found.diagnostics.iter().filter(|_| bundle.has_imports()) {
                    prop_assert!(bundle.origin(found.line, found.column).is_some());
                }
                if !entry.contains("import") {
                    prop_assert_eq!(bundle.code, entry);
                }
            }
            Bundled::Refused(faults) => prop_assert!(!faults.is_empty()),
            Bundled::Needs(_) => prop_assert!(false),
        }
    }
}

//! Tables of names: the tools called by an unmodified table, and modifications that make a program dynamic.

use analysis::{Limits, analyze};

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[test]
fn unmodified_tables_determine_their_tools() {
    let all: Vec<&str> = lines(include_str!("tables/known.txt")).collect();
    for case in all.chunks(2) {
        let [tools, program] = case else { panic!("{case:?}") };
        let analysis = analyze(program.trim(), &Limits::default());
        let found: Vec<String> = analysis.tools.iter().map(ToString::to_string).collect();
        assert!(analysis.can_run() && !analysis.dynamic, "{program}");
        assert_eq!(found.join(" "), *tools, "{program}");
    }
    println!("{} programs call by tables", all.len() / 2);
}

#[test]
fn modified_tables_make_a_program_dynamic() {
    let all: Vec<&str> = lines(include_str!("tables/changed.txt")).collect();
    for program in &all {
        let analysis = analyze(program, &Limits::default());
        assert!(analysis.can_run(), "{program}: {:?}", analysis.first_error());
        assert!(analysis.dynamic, "{program}: {:?}", analysis.tools);
    }
    println!("{} programs change tables", all.len());
}

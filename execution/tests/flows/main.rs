//! What flows where: a program is run, and run again with the results of one tool changed. Whatever a
//! later call is then given, and whether, how often and in which order calls are made, was told by the plan.
//!
//! `table.rs` has the rows, `compose.rs` puts them together, `explore.rs` runs a program in many
//! worlds and `judge.rs` holds the runs against what was told. `PML_TEST_SCALE` says how many programs are
//! tried, and `PML_TEST_PROGRAM` is a part of the name of a single one to look at.

#![expect(clippy::print_stdout, reason = "what was tested is told")]

mod compose;
mod explore;
mod judge;
mod order;
mod program;
mod random;
mod runner;
mod shown;
mod table;
mod told;
mod world;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    sandbox::child_main_if_requested(&[]);
    let arguments = Arguments::from_args();
    let trials = vec![Trial::test("each_row_alone", each_row_alone)];
    libtest_mimic::run(&arguments, trials).exit();
}

fn each_row_alone() -> Result<(), Failed> {
    let runtime = tokio::runtime::Runtime::new()?;
    let runner = {
        let _inside = runtime.enter();
        runner::Runner::start()?
    };
    let started = std::time::Instant::now();
    let mut runs = 0;
    let mut count = 0;
    let mut by_kind = std::collections::BTreeMap::new();
    for row in table::rows() {
        for program in compose::alone(&row) {
            count += 1;
            let source = program.source();
            match told::by_the_analysis(&source) {
                Err(why) => println!("REFUSED {}: {why}\n{source}", program.name),
                Ok(prepared) => {
                    let observed = runtime.block_on(explore::explore(&runner, &prepared, &program.fields_of_args(), explore::Effort::ROW));
                    runs += observed.runs.len();
                    if let Some(cut) = observed.cut() { println!("CUT {}: {cut}", program.name); }
                    let verdict = judge::judge(&prepared.told, &observed);
                    let base = &observed.runs[0].end;
                    if *base != runner::End::Well { println!("BASE {} {base:?}", program.name); }
                    if verdict.reached.is_empty() && !program.name.contains("(args") { println!("NOTHING {} {source}", program.name); }
                    if !prepared.told.complete { println!("DYNAMIC {}", program.name); }
                    for kind in verdict.kinds() { *by_kind.entry(kind.name()).or_insert(0) += 1; }
                    let kinds: Vec<&str> = verdict.kinds().into_iter().map(judge::Kind::name).collect();
                    if !kinds.is_empty() { println!("MISS {}: {}", program.name, kinds.join(" ")); }
                }
            }
        }
    }
    println!("{count} programs {runs} runs {:?} {by_kind:?}", started.elapsed());
    Ok(())
}

//! Analyses every case of `cases/` and compares the result with the snapshot next to it.

use std::cell::Cell;
use std::io::Write as _;

use analysis::{Limits, analyze, render::render};

#[test]
fn cases() {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let (count, runnable) = (Cell::new(0), Cell::new(0));
    insta::glob!("cases/**/*.ts", |path| {
        let source = std::fs::read_to_string(path).expect("a case is readable");
        let name = path.file_stem().expect("a case has a name").to_string_lossy();
        let mut settings = settings.clone();
        settings.set_snapshot_path(path.parent().expect("a case is in a folder"));
        settings.remove_snapshot_suffix();
        settings.remove_input_file();
        let analysis = analyze(&source, &Limits::default());
        count.set(count.get() + 1);
        runnable.set(runnable.get() + u32::from(analysis.can_run()));
        settings.bind(|| insta::assert_snapshot!(&*name, render(&analysis)));
    });
    let (count, runnable) = (count.get(), runnable.get());
    let _ = writeln!(
        std::io::stderr(),
        "{count} cases match their snapshots: {runnable} can run, {} are refused",
        count - runnable
    );
    assert!(count >= 350, "only {count} cases");
}

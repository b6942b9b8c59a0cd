//! Tables for terminal output, and readable times and counts.

use chrono::{DateTime, Utc};
use protocol::escape_text;

/// Returns a table with a header. Cells are escaped, because tenants may have written their contents.
pub(super) fn table<const N: usize>(names: [&str; N], rows: &[[String; N]]) -> String {
    let shown = rows.iter().map(|row| row.each_ref().map(|cell| escape_text(cell)));
    let lines: Vec<[String; N]> = std::iter::once(names.map(str::to_owned)).chain(shown).collect();
    // In characters, because `format!` pads by characters.
    let widths: Vec<usize> = (0..N)
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let line = |cells: &[String; N]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        // The last column needs no padding.
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

/// Returns a time to the minute, in UTC.
pub(super) fn when(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M UTC").to_string()
}

/// Returns a number with its noun: `1 key`, `2 keys`.
pub(super) fn count(number: impl Into<i64>, noun: &str) -> String {
    match number.into() {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_cells_and_counts_nouns() {
        let rows = [["a".to_owned(), "x\ny".to_owned()]];
        let shown = format!("NAME  B\na     {}\n", escape_text("x\ny"));
        assert_eq!(table(["NAME", "B"], &rows), shown);
        assert_eq!(
            [0, 1, 2].map(|n| count(n, "data key")),
            ["0 data keys", "1 data key", "2 data keys"]
        );
    }
}

//! Converts offsets to lines and columns with an index of line starts.

use crate::diagnostic::line_starts;

/// The offsets at which the lines of a source begin.
#[derive(Default)]
pub(super) struct Lines {
    starts: Vec<usize>,
}

impl Lines {
    /// Returns the line and the column, in code points, of an offset; both from 1.
    pub(super) fn locate(&mut self, source: &str, offset: u32) -> (u32, u32) {
        if self.starts.is_empty() {
            self.starts = line_starts(source).collect();
        }
        let offset = (offset as usize).min(source.len());
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts.get(line.wrapping_sub(1)).copied().unwrap_or(0);
        let column = source.get(start..offset).map_or(0, |text| text.chars().count());
        (line as u32, column as u32 + 1)
    }
}

//! Concatenates the files into one text.

use super::Chunk;
use super::link::{Meaning, Meanings, Names};
use super::unit::{Form, New, Unit};
use crate::diagnostic::position;

/// A text with the origin of its parts.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) code: String,
    pub(super) chunks: Vec<Chunk>,
}

/// A part of a file that is replaced in the bundle.
struct Patch {
    low: u32,
    high: u32,
    text: String,
}

impl Writer {
    /// Writes `units` in `order`: the comments at the entry's head first, the rest of the entry last.
    pub(super) fn write(
        units: &[Unit],
        order: &[usize],
        meanings: &Meanings,
        names: &Names,
    ) -> Self {
        let mut writer = Self::default();
        let entry = &units[0];
        writer.copy(0, entry, 0, entry.body);
        let is_alone = order.len() == 1;
        if entry.body > 0 && !is_alone {
            writer.end_line();
        }
        for &index in order {
            let unit = &units[index];
            if !is_alone {
                let name = super::path::shown_from(&entry.path, &unit.path);
                writer.code += &format!("// {name}\n");
            }
            let from = if index == 0 { unit.body } else { 0 };
            let mut at = from;
            for patch in patches(index, unit, &meanings[index], names) {
                // A patch inside a removed part is skipped.
                if patch.low < at {
                    continue;
                }
                writer.copy(index, unit, at, patch.low);
                writer.code += &patch.text;
                at = patch.high;
            }
            writer.copy(index, unit, at, unit.text.len() as u32);
            if index != 0 {
                writer.end_line();
            }
        }
        if entry.has_shebang && entry.body > 0 {
            writer.code.replace_range(..2, "#!");
        }
        writer
    }

    fn copy(&mut self, file: usize, unit: &Unit, low: u32, high: u32) {
        if low >= high {
            return;
        }
        let (line, column) = position(&unit.text, low as usize);
        let start = self.code.len();
        self.code += &unit.text[low as usize..high as usize];
        self.chunks.push(Chunk { start, end: self.code.len(), file, line, column });
    }

    fn end_line(&mut self) {
        if !self.code.ends_with('\n') {
            self.code.push('\n');
        }
    }
}

fn patches(index: usize, unit: &Unit, meanings: &[Option<Meaning>], names: &Names) -> Vec<Patch> {
    let name_of = |of: usize, key: &str| names.get(&(of, key.to_owned())).cloned();
    let mut patches = Vec::new();
    for edit in &unit.edits {
        let text = match &edit.to {
            New::Text(text) => text.clone(),
            New::Default => {
                let name = name_of(index, super::unit::DEFAULT).unwrap_or_default();
                format!("const {name} = ")
            }
        };
        patches.push(Patch { low: edit.low, high: edit.high, text });
    }
    for (place, meaning) in unit.uses.iter().zip(meanings) {
        let Some(meaning) = meaning else { continue };
        let Some(name) = name_of(meaning.unit, &meaning.key) else { continue };
        let (high, text) = match &place.form {
            Form::Short if name == place.name => continue,
            Form::Short => (place.high, format!("{}: {name}", place.name)),
            Form::Member { high, .. } if meaning.is_member => (*high, name),
            _ if name == place.name => continue,
            _ => (place.high, name),
        };
        patches.push(Patch { low: place.low, high, text });
    }
    // An insertion comes before a replacement at the same offset.
    patches.sort_by_key(|patch| (patch.low, patch.high));
    patches
}

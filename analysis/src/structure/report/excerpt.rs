//! Excerpts of the source for display.

use crate::diagnostic::shown;

/// The maximum length of an excerpt, in characters.
const LENGTH: usize = 120;

/// Returns a part of the source on one line, shortened.
pub(super) fn excerpt(source: &str, (low, high): (u32, u32)) -> String {
    let text = source.get(low as usize..high as usize).unwrap_or_default();
    let mut flat = String::with_capacity(text.len().min(LENGTH * 8));
    for word in text.split_whitespace() {
        if !flat.is_empty() {
            flat.push(' ');
        }
        flat.push_str(word);
        if flat.len() > LENGTH * 4 {
            break;
        }
    }
    shown(&flat, LENGTH)
}

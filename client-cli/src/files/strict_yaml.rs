//! Unambiguous YAML: what is shown to a reader is what is read. No aliases, no merge keys, no tags, no duplicate keys, and
//! only `true` and `false` are booleans.

use protocol::escape_text;
use serde::de::DeserializeOwned;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{DuplicateKeyPolicy, MergeKeyPolicy, Options};

/// The maximum depth of a file, and the maximum number of its values.
const DEPTH: usize = 64;
const NODES: usize = 100_000;

/// What is wrong with a file.
#[derive(Debug)]
pub(crate) struct Fault {
    /// In the words of the file.
    pub(crate) message: String,
    /// The line and the column, from 1, if they are known.
    pub(crate) place: Option<(u64, u64)>,
}

/// Parses a text.
///
/// # Errors
/// Returns what is wrong with it.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let message = message(error.without_snippet());
        let Some(place) = error.location() else { return Fault { message, place: None } };
        let (line, column) = (place.line(), place.column());
        // The place is added to the message where it is shown.
        let message = message.replace(&format!(" at line {line}, column {column}"), "");
        Fault { message, place: Some((line, column)) }
    })
}

/// Returns what is wrong, in the words of the user's file.
fn message(error: &serde_saphyr::Error) -> String {
    match error {
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("`{}` is there twice", escape_text(key))
        }
        serde_saphyr::Error::Budget { breach, .. } => match breach {
            BudgetBreach::Aliases { .. } => {
                "aliases are not supported; write the value again".to_owned()
            }
            BudgetBreach::Documents { .. } => "it has more than one document".to_owned(),
            _ => format!("it has more than {NODES} values, or is nested more than {DEPTH} deep"),
        },
        other => {
            let text = other.to_string();
            match text.contains("alias") {
                // `*` begins an alias, and many a pattern.
                true => format!("{text}; put a text that begins with `*` in quotes"),
                false => text,
            }
        }
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH,
            max_nodes: NODES,
            // What is shown is what is written where it is read.
            max_aliases: 0,
            max_documents: 1,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

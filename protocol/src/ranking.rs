//! The relevance of a tool for an intent: one score for tools of the gateway and of the user's machine.
//!
//! A score from 0 to 1 measures how much of the intent the tool's texts contain. It depends only on the tool and the
//! intent, not on the other tools, so that scores from different sources can be compared.

mod index;

use std::collections::HashSet;

use rust_stemmers::{Algorithm, Stemmer};
use serde_json::Value;

use crate::ToolId;

pub use index::{Hit, ToolIndex};

/// A tool with a lower score does not match.
pub const SCORE_FLOOR: f32 = 0.25;
/// A result below this share of the best score is irrelevant as well.
const SHARE_OF_BEST: f32 = 0.4;
/// The maximum number of scored characters of an intent; the rest is ignored.
const INTENT_LIMIT: usize = 1_000;
/// The maximum number of scored words of an intent.
const WORDS_LIMIT: usize = 24;
/// The maximum number of scored characters of a description.
const DESCRIPTION_LIMIT: usize = 2_000;
/// Words of an intent beyond this number have half the weight, because no tool contains all words of a long intent.
const FULL_WORDS: usize = 3;

/// The weight of a word at this place.
const IN_ACTION: f32 = 1.0;
const IN_NAMESPACE: f32 = 0.9;
const IN_FIRST_SENTENCE: f32 = 0.7;
const IN_PARAMETERS: f32 = 0.5;
const IN_DESCRIPTION: f32 = 0.45;
/// The factor for a word that matches only as a prefix, a misspelling or a synonym.
const PREFIX: f32 = 0.8;
const MISSPELLING: f32 = 0.75;
const SYNONYM: f32 = 0.75;
/// The weight of the share of the tool's own name that the intent contains.
const NAME_SHARE: f32 = 0.2;

/// The factor for a tool whose description says that it is deprecated.
const DEPRECATED: f32 = 0.9;

/// Stop words, which do not describe a tool.
const STOP_WORDS: &str = "a about all am an and any are as at be been but by can could do does for from give had has have how i \
if in into is it its just like may me my need needs no not of on one only or our out please should so some such that the \
their them then there these they this those to tool tools up us use used using via want was we what when where which who \
why will with would you your";

/// Groups of synonyms, as agents and authors of tools use them.
const SYNONYMS: &[&[&str]] = &[
    &["delete", "remove", "erase", "drop"],
    &["create", "make", "new", "add"],
    &["find", "search", "lookup", "locate", "query", "grep"],
    &["get", "fetch", "download", "retrieve", "read", "load"],
    &["run", "execute", "exec", "launch", "command", "shell", "terminal", "bash"],
    &["folder", "directory", "dir"],
    &["write", "save", "store"],
    &["list", "show", "display", "ls"],
    &["change", "edit", "modify", "update", "replace"],
    &["calculate", "compute", "evaluate", "eval", "calculator", "math", "arithmetic"],
    &["url", "website", "webpage", "web", "http", "link"],
    &["picture", "image", "photo"],
    &["rename", "move", "mv"],
    &["repo", "repository"],
    &["remember", "memory", "memorize"],
];

/// The text that a tool publishes about itself.
#[derive(Debug, Clone, Copy)]
pub struct Described<'a> {
    /// Its id.
    pub id: &'a ToolId,
    /// Its description.
    pub description: &'a str,
    /// JSON Schema of its arguments.
    pub input_schema: &'a Value,
}

/// An intent, parsed once and compared with many tools.
pub struct Intent {
    /// The whole text in lower case, to recognize a tool's exact name.
    text: String,
    words: Vec<Word>,
    stemmer: Stemmer,
}

struct Word {
    plain: String,
    stem: String,
    /// Stems of words with the same meaning.
    synonyms: Vec<String>,
}

impl Intent {
    /// Reads an intent.
    pub fn new(text: &str) -> Self {
        let text: String = text.chars().take(INTENT_LIMIT).collect();
        let stemmer = Stemmer::create(Algorithm::English);
        let stop: HashSet<&str> = STOP_WORDS.split_whitespace().collect();
        let mut seen = HashSet::new();
        let plain = words(&text).filter(|word| !stop.contains(word.as_str()));
        let words = plain
            .map(|plain| {
                let stem = stemmer.stem(&plain).into_owned();
                let group = SYNONYMS.iter().find(|group| {
                    group.iter().any(|word| *word == plain || stemmer.stem(word) == stem)
                });
                let synonyms = group.into_iter().flat_map(|group| group.iter());
                let synonyms = synonyms.map(|word| stemmer.stem(word).into_owned());
                let synonyms = synonyms.filter(|other| *other != stem).collect();
                Word { plain, stem, synonyms }
            })
            // A repeated or inflected word counts once: repetition must not raise its weight.
            .filter(|word| seen.insert(word.stem.clone()))
            .take(WORDS_LIMIT)
            .collect();
        Self { text: text.trim().to_lowercase(), words, stemmer }
    }

    /// Returns the words to search for in an index, including synonyms; letters and digits only.
    pub fn terms(&self) -> Vec<&str> {
        let mut terms: Vec<&str> = Vec::new();
        for word in &self.words {
            let all =
                std::iter::once(word.stem.as_str()).chain(word.synonyms.iter().map(String::as_str));
            for term in all {
                if !terms.contains(&term) {
                    terms.push(term);
                }
            }
        }
        terms
    }

    /// Returns the words unstemmed, for comparisons by letters.
    pub fn words(&self) -> Vec<&str> {
        self.words.iter().map(|word| word.plain.as_str()).collect()
    }

    /// Returns the score of a tool, from 0 to 1.
    pub fn score(&self, tool: &Described<'_>) -> f32 {
        // An intent of stop words only would divide by zero in `total`.
        if self.words.is_empty() {
            return 0.0;
        }
        // The exact name wins, even over a tool whose texts have more of its words.
        if self.names(tool.id) {
            return 1.0;
        }
        let stems = |text: &str| -> Vec<(String, String)> {
            words(text).map(|word| (self.stemmer.stem(&word).into_owned(), word)).collect()
        };
        let texts = Texts::of(tool);
        let action = stems(texts.action);
        let fields: [(&[(String, String)], f32); 5] = [
            (&action, IN_ACTION),
            (&stems(texts.namespace), IN_NAMESPACE),
            (&stems(texts.first), IN_FIRST_SENTENCE),
            (
                &texts.parameters.iter().flat_map(|name| stems(name)).collect::<Vec<_>>(),
                IN_PARAMETERS,
            ),
            (&stems(texts.rest), IN_DESCRIPTION),
        ];
        let mut sum = 0.0_f32;
        let mut named = vec![false; action.len()];
        for word in &self.words {
            let mut best = 0.0_f32;
            for (field, weight) in fields {
                for (at, token) in field.iter().enumerate() {
                    let likeness = likeness(word, token, weight);
                    best = best.max(weight * likeness);
                    if weight == IN_ACTION && likeness > 0.0 {
                        named[at] = true;
                    }
                }
            }
            sum += best;
        }
        let named = named.iter().filter(|named| **named).count();
        self.total(sum, named, action.len(), texts.is_outdated())
    }

    /// Returns a tool's score from the sum of its matches' weights and from how many of the words of its name matched.
    fn total(&self, sum: f32, named: usize, parts: usize, is_outdated: bool) -> f32 {
        let count = self.words.len();
        let maximum = count.min(FULL_WORDS) as f32 + count.saturating_sub(FULL_WORDS) as f32 / 2.0;
        // The sum of a long intent can exceed the maximum, which counts its later words by half.
        let coverage = (sum / maximum).min(1.0);
        // A name such as `_` has no words.
        let name = named as f32 / parts.max(1) as f32;
        let score = coverage * (1.0 - NAME_SHARE) + name * NAME_SHARE;
        if is_outdated { score * DEPRECATED } else { score }
    }

    /// Returns whether the intent is the exact name of the tool, in any of its spellings.
    fn names(&self, id: &ToolId) -> bool {
        let text = self.text.as_str();
        [id.to_string(), id.wire_name(), id.call_form(), id.action().to_owned()]
            .iter()
            .any(|name| name.to_lowercase() == text)
    }
}

/// The texts of a tool, by the weight of a word in each.
struct Texts<'a> {
    action: &'a str,
    namespace: &'a str,
    first: &'a str,
    rest: &'a str,
    parameters: Vec<&'a str>,
}

impl<'a> Texts<'a> {
    fn of(tool: &Described<'a>) -> Self {
        let text = tool.description;
        let end = text.char_indices().nth(DESCRIPTION_LIMIT).map_or(text.len(), |(at, _)| at);
        let text = &text[..end];
        let end = text.find(". ").or_else(|| text.find('\n'));
        let (first, rest) = text.split_at(end.unwrap_or(text.len()));
        let parameters = parameter_names(tool.input_schema).collect();
        Self { action: tool.id.action(), namespace: tool.id.namespace(), first, rest, parameters }
    }

    fn is_outdated(&self) -> bool {
        words(self.first).chain(words(self.rest)).any(|word| word == "deprecated")
    }
}

/// Removes irrelevant results and sorts the rest by score, best first, and then by name.
pub fn rank<T>(found: &mut Vec<T>, score: impl Fn(&T) -> f32, name: impl Fn(&T) -> &str) {
    let best = found.iter().map(&score).fold(0.0, f32::max);
    found.retain(|one| score(one) >= SCORE_FLOOR.max(best * SHARE_OF_BEST));
    found.sort_by(|a, b| score(b).total_cmp(&score(a)).then_with(|| name(a).cmp(name(b))));
}

/// Returns the known names most similar to an unknown one, most similar first.
pub fn nearest(name: &str, mut known: Vec<String>, most: usize) -> Vec<String> {
    // The time for a distance grows with the product of both lengths.
    let name: String = name.chars().take(INTENT_LIMIT).collect();
    // Cached, because a sort would otherwise compute each distance many times. The name is part of
    // the key, so equal names become adjacent for `dedup`.
    known.sort_by_cached_key(|known| (strsim::osa_distance(&name, known), known.clone()));
    known.dedup();
    known.truncate(most);
    known
}

/// Rounds a score to two decimals; further digits have no meaning.
pub fn rounded(score: f32) -> f64 {
    f64::from((score * 100.0).round()) / 100.0
}

fn likeness(word: &Word, (stem, plain): &(String, String), weight: f32) -> f32 {
    if word.stem == *stem {
        return 1.0;
    }
    let (short, long) =
        if word.plain.len() < plain.len() { (&word.plain, plain) } else { (plain, &word.plain) };
    // Shorter words are prefixes of too many others.
    if short.chars().count() >= 4 && long.starts_with(short.as_str()) {
        return PREFIX;
    }
    // Synonyms and misspellings are scored only where authors choose their words: in the name and the first sentence.
    if weight >= IN_FIRST_SENTENCE && word.synonyms.contains(stem) {
        return SYNONYM;
    }
    if weight >= IN_NAMESPACE && is_misspelling(&word.plain, plain) {
        return MISSPELLING;
    }
    0.0
}

/// Returns whether `written` is `meant` with one or two typing errors: a letter missing, doubled, wrong or transposed.
fn is_misspelling(written: &str, meant: &str) -> bool {
    let letters = written.chars().count();
    // `ToolIndex` relies on the equal first letters: it compares only words that share them.
    if letters < 4 || written.chars().next() != meant.chars().next() {
        return false;
    }
    let errors = if letters >= 7 { 2 } else { 1 };
    // The lengths come first, because comparing them is far cheaper than the distance.
    meant.chars().count().abs_diff(letters) <= errors
        && strsim::osa_distance(written, meant) <= errors
}

fn parameter_names(schema: &Value) -> impl Iterator<Item = &str> + use<'_> {
    // A hostile schema may have any number of properties.
    const NAMES_LIMIT: usize = 50;
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().take(NAMES_LIMIT).map(|(name, _)| name.as_str())
}

/// Splits a text into words, in lower case: `readTextFile` and `read_text_file` are three.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric()).flat_map(|piece| {
        let mut words = Vec::new();
        let mut word = String::new();
        let mut was_lower = false;
        for c in piece.chars() {
            if c.is_uppercase() && was_lower {
                words.push(std::mem::take(&mut word));
            }
            was_lower = c.is_lowercase() || c.is_numeric();
            word.extend(c.to_lowercase());
        }
        words.push(word);
        words.into_iter().filter(|word| !word.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn score(intent: &str, id: &str, description: &str) -> f32 {
        let schema = json!({ "properties": { "expression": {} } });
        let id = id.parse().unwrap();
        Intent::new(intent).score(&Described { id: &id, description, input_schema: &schema })
    }

    #[test]
    fn a_score_is_0_without_a_match_and_1_for_the_exact_name() {
        for name in ["math:eval", "math__eval", "mcp.math.eval", "eval", " MATH:EVAL "] {
            assert_eq!(score(name, "math:eval", ""), 1.0, "{name}");
        }
        for nothing in ["", "the of and", "xyzzy frobnicate", "!!", "\0", "的"] {
            assert_eq!(score(nothing, "math:eval", "Evaluates."), 0.0, "{nothing}");
        }
        let long = "evaluate expression ".repeat(10_000);
        assert!((0.0..=1.0).contains(&score(&long, "math:eval", &long)));
    }

    #[test]
    fn names_weigh_more_than_descriptions() {
        let file = "Reads a file. It may also delete.";
        let by_name = score("read file", "fs:read_file", "");
        assert!(by_name > score("read file", "fs:x", file));
        assert!(score("read", "fs:x", file) > score("delete", "fs:x", file));
        // Inflections, words within names, typing errors, and synonyms.
        for intent in ["reading files", "readFile", "raed_file", "load a file", "read fille"] {
            assert!(score(intent, "fs:read_file", "") >= 0.6, "{intent}");
        }
    }

    #[test]
    fn equal_scores_are_sorted_by_name() {
        let mut found = vec![("c", 0.5), ("a", 0.5), ("z", 0.9), ("low", 0.3), ("none", 0.0)];
        rank(&mut found, |one| one.1, |one| one.0);
        assert_eq!(found, [("z", 0.9), ("a", 0.5), ("c", 0.5)]);
    }
}

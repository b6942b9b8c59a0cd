//! An index of tools, which finds those that match an intent without scoring every tool.
//!
//! The scores are those of [`Intent::score`]. Only the method differs: the words of an intent are compared with the
//! distinct words of all tools, and only tools that contain a match are scored.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use rust_stemmers::{Algorithm, Stemmer};

use super::{
    Described, IN_ACTION, IN_DESCRIPTION, IN_FIRST_SENTENCE, IN_NAMESPACE, IN_PARAMETERS, Intent,
    MISSPELLING, PREFIX, SCORE_FLOOR, SYNONYM, Texts, Word, is_misspelling, words,
};
use crate::ToolId;

/// The places of a word in a tool's texts, as bits.
const ACTION: u8 = 1;
const NAMESPACE: u8 = 2;
const FIRST_SENTENCE: u8 = 4;
const PARAMETERS: u8 = 8;
const DESCRIPTION: u8 = 16;
const NAME: u8 = ACTION | NAMESPACE;
const ANYWHERE: u8 = NAME | FIRST_SENTENCE | PARAMETERS | DESCRIPTION;
/// The places and their weights, highest first.
const PLACES: [(u8, f32); 5] = [
    (ACTION, IN_ACTION),
    (NAMESPACE, IN_NAMESPACE),
    (FIRST_SENTENCE, IN_FIRST_SENTENCE),
    (PARAMETERS, IN_PARAMETERS),
    (DESCRIPTION, IN_DESCRIPTION),
];
/// The maximum length of a tool's name in any of its spellings, in bytes.
const NAME_LIMIT: usize = 600;

/// A tool that matches an intent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// The id that [`ToolIndex::insert`] returned for it.
    pub tool: u32,
    /// The score, from [`SCORE_FLOOR`] to 1.
    pub score: f32,
    /// Whether it contains a word of the intent, a longer form of one, or a synonym. Otherwise, only its name is
    /// similar.
    pub has_word: bool,
}

/// The index.
pub struct ToolIndex {
    /// By number. A removed tool leaves `None`, so that numbers stay valid.
    tools: Vec<Option<Indexed>>,
    removed: usize,
    tokens: Vec<Token>,
    // Sorted, because all words with a common prefix are then one range.
    by_plain: BTreeMap<Box<str>, u32>,
    by_stem: HashMap<Box<str>, Vec<u32>>,
    /// The tokens that occur in names, by their first character; only these are compared for misspellings.
    in_names: HashMap<char, Vec<u32>>,
    /// By the action in lower case: every spelling of a tool's name ends with it.
    by_action: HashMap<Box<str>, Vec<u32>>,
    stemmer: Stemmer,
}

struct Indexed {
    id: ToolId,
    /// The words of its action, in order.
    action: Box<[u32]>,
    is_outdated: bool,
}

/// A word that occurs in some tools.
struct Token {
    plain: Box<str>,
    /// The tools, and the places of the word in them.
    postings: Vec<(u32, u8)>,
    is_in_name: bool,
}

/// A token that is similar to a word of an intent.
struct Similar {
    token: u32,
    likeness: f32,
    /// The places that are scored.
    places: u8,
    has_word: bool,
}

impl Default for ToolIndex {
    fn default() -> Self {
        Self {
            tools: Vec::new(),
            removed: 0,
            tokens: Vec::new(),
            by_plain: BTreeMap::new(),
            by_stem: HashMap::new(),
            in_names: HashMap::new(),
            by_action: HashMap::new(),
            stemmer: Stemmer::create(Algorithm::English),
        }
    }
}

impl ToolIndex {
    /// Adds a tool and returns its number, which is never reused in this index.
    pub fn insert(&mut self, tool: &Described<'_>) -> u32 {
        let number = number(self.tools.len());
        let texts = Texts::of(tool);
        let action: Box<[u32]> = words(texts.action).map(|word| self.token(word)).collect();
        let mut places: BTreeMap<u32, u8> = BTreeMap::new();
        for token in &action {
            *places.entry(*token).or_default() |= ACTION;
        }
        let others = [
            (texts.namespace, NAMESPACE),
            (texts.first, FIRST_SENTENCE),
            (texts.rest, DESCRIPTION),
        ];
        let parameters = texts.parameters.iter().map(|name| (*name, PARAMETERS));
        for (text, place) in others.into_iter().chain(parameters) {
            for word in words(text) {
                *places.entry(self.token(word)).or_default() |= place;
            }
        }
        for (at, places) in places {
            let token = &mut self.tokens[at as usize];
            token.postings.push((number, places));
            if places & NAME != 0 && !token.is_in_name {
                token.is_in_name = true;
                let first = token.plain.chars().next().unwrap_or_default();
                self.in_names.entry(first).or_default().push(at);
            }
        }
        let name = texts.action.to_lowercase().into_boxed_str();
        self.by_action.entry(name).or_default().push(number);
        let is_outdated = texts.is_outdated();
        self.tools.push(Some(Indexed { id: tool.id.clone(), action, is_outdated }));
        number
    }

    /// Removes a tool.
    pub fn remove(&mut self, tool: u32) {
        // The postings stay, because finding them would take a pass over all words. `search` skips
        // them, and `is_wasteful` tells when to rebuild.
        if self.tools.get_mut(tool as usize).is_some_and(|place| place.take().is_some()) {
            self.removed += 1;
        }
    }

    /// Returns the number of its tools.
    pub fn len(&self) -> usize {
        self.tools.len() - self.removed
    }

    /// Returns whether it has no tools.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether most of its memory belongs to removed tools, so that it should be rebuilt.
    pub fn is_wasteful(&self) -> bool {
        self.removed > 1_000 && self.removed > self.len()
    }

    /// Returns the tools that match an intent, sorted by number.
    pub fn search(&self, intent: &Intent) -> Vec<Hit> {
        let mut sums = vec![Sum::default(); self.tools.len()];
        let mut found = Vec::new();
        let mut is_named = vec![false; self.tokens.len()];
        for word in &intent.words {
            let mut with_word = Vec::new();
            for similar in self.similar(word) {
                is_named[similar.token as usize] = true;
                let weights = weights(similar.places, similar.likeness);
                for (tool, places) in &self.tokens[similar.token as usize].postings {
                    let sum = &mut sums[*tool as usize];
                    let best = weights[usize::from(*places)];
                    if best > sum.best {
                        // Several similar tokens may match one word, but the tool is noted once.
                        if sum.best == 0.0 {
                            with_word.push(*tool);
                        }
                        sum.best = best;
                    }
                    // The name of a parameter raises the score but makes no match by itself: names
                    // such as `verbose` say little about the tool.
                    sum.has_word |= similar.has_word && places & !PARAMETERS != 0;
                    sum.is_like |= places & NAME != 0;
                }
            }
            for tool in with_word {
                let sum = &mut sums[tool as usize];
                if sum.all == 0.0 {
                    found.push(tool);
                }
                sum.all += sum.best;
                sum.best = 0.0;
            }
        }
        for tool in self.named(intent) {
            if sums[tool as usize].all == 0.0 {
                found.push(tool);
            }
            sums[tool as usize].is_meant = true;
        }
        found.sort_unstable();
        let hits = found.into_iter().filter_map(|number| {
            let at = number as usize;
            let (sum, tool) = (sums[at], self.tools[at].as_ref()?);
            let score = if sum.is_meant {
                1.0
            } else {
                let named = tool.action.iter().filter(|token| is_named[**token as usize]).count();
                intent.total(sum.all, named, tool.action.len(), tool.is_outdated)
            };
            let has_word = sum.has_word || sum.is_meant;
            // A word that is merely similar counts only in a name.
            let fits = score >= SCORE_FLOOR && (has_word || sum.is_like);
            fits.then_some(Hit { tool: number, score, has_word })
        });
        hits.collect()
    }

    /// Returns the tokens that are similar to a word of an intent, as defined by [`super::likeness`].
    fn similar(&self, word: &Word) -> Vec<Similar> {
        let mut similar = Vec::new();
        let mut add = |token: u32, likeness: f32, places: u8, has_word: bool| {
            similar.push(Similar { token, likeness, places, has_word });
        };
        let of_stem = |stem: &str| self.by_stem.get(stem).into_iter().flatten();
        for token in of_stem(&word.stem) {
            add(*token, 1.0, ANYWHERE, true);
        }
        let plain = word.plain.as_str();
        if plain.chars().count() >= 4 {
            let from = self.by_plain.range::<str, _>((Bound::Included(plain), Bound::Unbounded));
            for (_, token) in from.take_while(|(longer, _)| longer.starts_with(plain)) {
                add(*token, PREFIX, ANYWHERE, true);
            }
        }
        // From the fifth position on, so that the prefixes have at least four letters, as in
        // `likeness`.
        for (end, _) in plain.char_indices().skip(4) {
            if let Some(token) = self.by_plain.get(&plain[..end]) {
                add(*token, PREFIX, ANYWHERE, false);
            }
        }
        for token in word.synonyms.iter().flat_map(|stem| of_stem(stem)) {
            add(*token, SYNONYM, NAME | FIRST_SENTENCE, true);
        }
        let first = plain.chars().next().unwrap_or_default();
        for token in self.in_names.get(&first).into_iter().flatten() {
            if is_misspelling(plain, &self.tokens[*token as usize].plain) {
                add(*token, MISSPELLING, NAME, false);
            }
        }
        similar
    }

    /// Returns the tools whose exact name the intent is, in any of its spellings.
    fn named(&self, intent: &Intent) -> Vec<u32> {
        let text = intent.text.as_str();
        // Every suffix of the text is looked up below, which takes quadratic time.
        if intent.words.is_empty() || text.len() > NAME_LIMIT {
            return Vec::new();
        }
        // `mcp["a-b"]["c-d"]` ends with the characters that the syntax requires.
        let text_end = text.strip_suffix("\"]").unwrap_or(text);
        let ends = text_end.char_indices().map(|(at, _)| &text_end[at..]);
        let tools = ends.filter_map(|end| self.by_action.get(end)).flatten().copied();
        let is_meant = |tool: &u32| {
            let tool = self.tools[*tool as usize].as_ref();
            tool.is_some_and(|tool| intent.names(&tool.id))
        };
        tools.filter(is_meant).collect()
    }

    /// Returns the number of a word's token, which is created if necessary.
    fn token(&mut self, plain: String) -> u32 {
        if let Some(token) = self.by_plain.get(plain.as_str()) {
            return *token;
        }
        let token = number(self.tokens.len());
        let stem = self.stemmer.stem(&plain).into_owned().into_boxed_str();
        let plain = plain.into_boxed_str();
        self.by_stem.entry(stem).or_default().push(token);
        self.by_plain.insert(plain.clone(), token);
        self.tokens.push(Token { plain, postings: Vec::new(), is_in_name: false });
        token
    }
}

/// The accumulated matches of one tool.
#[derive(Clone, Copy, Default)]
struct Sum {
    /// The weights of all previous words of the intent.
    all: f32,
    /// The best weight of the current word so far.
    best: f32,
    has_word: bool,
    is_like: bool,
    is_meant: bool,
}

/// Converts a list index to 32 bits, which halves the size of the postings.
fn number(place: usize) -> u32 {
    u32::try_from(place).expect("an index has fewer than four billion words and tools")
}

/// Returns the weight of a similar word for each of the 32 sets of places.
fn weights(counts: u8, likeness: f32) -> [f32; 32] {
    let mut weights = [0.0; 32];
    for (places, weights) in (0..).zip(&mut weights) {
        let best = PLACES.iter().find(|(place, _)| places & counts & place != 0);
        *weights = best.map_or(0.0, |(_, weight)| weight * likeness);
    }
    weights
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    type Tool = (ToolId, &'static str, Value);

    fn tools() -> Vec<Tool> {
        let texts = [
            ("fs:read_file", "Reads a file. It may also delete what is deprecated.", "path"),
            ("fs:read_text_file", "Reads the complete contents of a file as text.", "path"),
            (
                "fs:write_file",
                "Creates or overwrites a file.\nUse with care: it saves all.",
                "content",
            ),
            ("fs:list_directory", "Lists what a folder has.", "directoryPath"),
            ("filesystem:search", "Finds files by name", "pattern"),
            ("git:git_status", "Shows the working tree status", "repo_path"),
            ("git:git_commit", "Records changes. Commits them to the repository.", "message"),
            ("math:eval", "Evaluates.", "expression"),
            ("time:convert_time", "Converts a time between zones. Deprecated.", "time_zone"),
            ("weather:getForecast", "Tells tomorrow's wéather for a city", "city"),
            ("a-b:c-d", "", "configuration"),
            ("config:config", "Config of config. Configures the configurations.", "config"),
        ];
        let tools = texts.into_iter().map(|(id, description, parameter)| {
            let schema = json!({ "properties": { parameter: {}, "verbose": {} } });
            (id.parse().unwrap(), description, schema)
        });
        tools.collect()
    }

    fn described((id, description, input_schema): &Tool) -> Described<'_> {
        Described { id, description, input_schema }
    }

    const INTENTS: [&str; 31] = [
        "read the contents of a file",
        "reading files",
        "raed_file",
        "git_stauts",
        "load a document",
        "save text",
        "delete deprecated files",
        "configure",
        "configurations",
        "filesystems",
        "folder",
        "math:eval",
        "MATH__EVAL",
        "mcp.math.eval",
        "mcp[\"a-b\"][\"c-d\"]",
        "c-d",
        "a-b:c-d",
        "eval",
        "what is the weather forecast for the city of tomorrow",
        "getForecast",
        "wéather",
        "time",
        "convert time zone expression path",
        "pattern",
        "verbose",
        "xyzzy frobnicate",
        "",
        "the of",
        "\0",
        "的",
        "commit commit commits committed repository message of the very long intent that names many tools and files",
    ];

    /// The index finds the same tools as scoring each one separately, with bit-identical scores.
    #[test]
    fn scores_equal_those_of_each_tool_alone() {
        let tools = tools();
        let mut index = ToolIndex::default();
        for tool in &tools {
            index.insert(&described(tool));
        }
        let mut some = 0;
        for text in INTENTS {
            let intent = Intent::new(text);
            let hits = index.search(&intent);
            some += hits.len();
            for (number, tool) in (0..).zip(&tools) {
                let score = intent.score(&described(tool));
                match hits.iter().find(|hit| hit.tool == number) {
                    Some(hit) => assert_eq!(hit.score, score, "{text}: {}", tool.0),
                    // Tools that match only by the name of a parameter are not hits.
                    None => assert!(score < 0.45, "{text}: {} {score}", tool.0),
                }
            }
            assert!(hits.is_sorted_by_key(|hit| hit.tool), "{text}");
        }
        assert!(some > 40, "{some}");
    }

    #[test]
    fn distinguishes_matching_words_from_similar_names() {
        let tools = tools();
        let mut index = ToolIndex::default();
        for tool in &tools {
            index.insert(&described(tool));
        }
        let search = |text: &str| -> Vec<(String, bool)> {
            let hits = index.search(&Intent::new(text));
            hits.iter().map(|hit| (tools[hit.tool as usize].0.to_string(), hit.has_word)).collect()
        };
        assert_eq!(search("stauts"), [("git:git_status".to_owned(), false)]);
        assert_eq!(search("status"), [("git:git_status".to_owned(), true)]);
        // Names of parameters alone do not match.
        assert_eq!(search("verbose"), []);
    }

    #[test]
    fn removed_tools_are_not_found() {
        let mut index = ToolIndex::default();
        assert!(index.is_empty() && index.search(&Intent::new("read")).is_empty());
        let tools = tools();
        for _ in 0..200 {
            let numbers: Vec<u32> =
                tools.iter().map(|tool| index.insert(&described(tool))).collect();
            assert_eq!(index.len(), tools.len());
            let hits = index.search(&Intent::new("math:eval"));
            assert_eq!(hits.iter().map(|hit| hit.tool).collect::<Vec<_>>(), [numbers[7]]);
            for number in numbers {
                index.remove(number);
                index.remove(number);
            }
            assert!(index.is_empty() && index.search(&Intent::new("math:eval")).is_empty());
        }
        index.remove(u32::MAX);
        assert!(index.is_wasteful());
    }
}

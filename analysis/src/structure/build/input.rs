//! Which parts of `args` a text of the program names.

/// The parts of `args` in a text.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Named {
    /// `args.x`, `args.y.z`, in the order of the text.
    pub(super) parts: Vec<String>,
    /// Nothing else is named in the text that could hold another part.
    pub(super) all: bool,
}

/// What the text is at some place.
#[derive(PartialEq)]
enum Within {
    Code,
    Template,
}

/// Words that hold nothing, whatever the program declares.
const WORDS: &[&str] = &["true", "false", "null", "typeof", "in", "instanceof", "new"];

/// Reads a piece of code as far as names go. Whatever it is not sure of makes
/// the answer one that is not all.
pub(super) fn named(text: &str) -> Named {
    let mut found = Named { parts: Vec::new(), all: true };
    let mut within = vec![Within::Code];
    let mut rest = text;
    // Whether a name here is a member of what stands before it.
    let mut member = false;
    while let Some(first) = rest.chars().next() {
        if within.last() == Some(&Within::Template) {
            let (skipped, next) = match first {
                '\\' => (2, None),
                '`' => (1, within.pop().map(|_| None)),
                '$' if rest.starts_with("${") => (2, Some(Some(Within::Code))),
                _ => (1, None),
            };
            within.extend(next.flatten());
            rest = after(rest, skipped);
            continue;
        }
        if is_name_part(first) {
            let end = rest.find(|c| !is_name_part(c)).unwrap_or(rest.len());
            let (word, next) = rest.split_at(end);
            rest = next;
            if word == "args" && !member {
                let (part, next) = members(rest);
                found.add(format!("args{part}"));
                rest = next;
            } else if !member && !first.is_ascii_digit() && !WORDS.contains(&word) {
                found.all = false;
            }
            member = false;
            continue;
        }
        match first {
            '"' | '\'' => match string_end(rest) {
                Some(end) => {
                    rest = rest.get(end..).unwrap_or_default();
                    continue;
                }
                None => {
                    found.all = false;
                    break;
                }
            },
            '`' => within.push(Within::Template),
            '{' => within.push(Within::Code),
            '}' => {
                within.pop();
            }
            // A regular expression, a comment, an escape in a name, the end of what is shown.
            '/' | '\\' | '…' => found.all = false,
            _ => {}
        }
        if rest.starts_with("...") {
            rest = after(rest, 3);
            member = false;
        } else {
            member = first == '.' || member && first.is_whitespace();
            rest = after(rest, 1);
        }
    }
    found
}

impl Named {
    fn add(&mut self, part: String) {
        if !self.parts.contains(&part) {
            self.parts.push(part);
        }
    }
}

/// Returns a text without its first characters.
fn after(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).and_then(|(at, _)| text.get(at..)).unwrap_or_default()
}

/// Returns the members that a text begins with, and the rest of it. The last one is
/// left out if it is called: it is a method then.
fn members(text: &str) -> (String, &str) {
    let mut out = String::new();
    let mut rest = text;
    loop {
        let name = rest.strip_prefix("?.").or_else(|| rest.strip_prefix('.')).unwrap_or_default();
        let end = name.find(|c| !is_name_part(c)).unwrap_or(name.len());
        let (name, next) = name.split_at(end);
        if name.is_empty() || next.trim_start_matches("?.").starts_with('(') {
            return (out, rest);
        }
        out.push('.');
        out.push_str(name);
        rest = next;
    }
}

fn string_end(text: &str) -> Option<usize> {
    let mut characters = text.char_indices();
    let (_, quote) = characters.next()?;
    while let Some((at, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if character == quote {
            return Some(at + 1);
        }
    }
    None
}

fn is_name_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '#')
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn parts_are_named() {
        for (text, parts, all) in [
            ("args.a", "args.a", true),
            ("args.a.b?.c ?? \"x\"", "args.a.b.c", true),
            ("`<${args.a}>` + 'args.z'", "args.a", true),
            ("`a ${`b ${args.b} \\` c`} ${ {}, args.a }` + 1", "args.b args.a", true),
            ("{ ...args }", "args", true),
            ("[...args.list, args.one]", "args.list args.one", true),
            ("args.name.trim()", "args.name", true),
            ("args.name?.trim?.()", "args.name", true),
            ("args[\"odd\"] + args[0]", "args", true),
            ("args . a", "args", true),
            ("args.a + name", "args.a", false),
            ("name", "", false),
            ("this.args", "", false),
            ("list.args", "", false),
            ("args[key]", "args", false),
            ("args.items.map((one) => one.id)", "args.items", false),
            ("/'/.test(args.a) + name + /'/", "", false),
            ("args.a + \"", "args.a", false),
            ("args.a + …", "args.a", false),
            ("\\u0061rgs.a", "", false),
            ("margs.a + args_b", "", false),
            ("`${`", "", true),
            ("args.é + args.a", "args.é args.a", true),
        ] {
            let found = named(text);
            assert_eq!((found.parts.join(" ").as_str(), found.all), (parts, all), "{text}");
        }
    }
}

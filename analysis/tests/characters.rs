//! Unicode characters: which are white space, and that all are allowed in strings and comments.

use analysis::{Limits, analyze};

/// White space and line terminators of ECMAScript beyond ASCII.
const SPACES: &[char] = &[
    '\u{a0}', '\u{1680}', '\u{2000}', '\u{2001}', '\u{2002}', '\u{2003}', '\u{2004}', '\u{2005}',
    '\u{2006}', '\u{2007}', '\u{2008}', '\u{2009}', '\u{200a}', '\u{2028}', '\u{2029}', '\u{202f}',
    '\u{205f}', '\u{3000}', '\u{feff}',
];

/// AN-05: a character that only looks like a space is refused.
#[test]
fn only_ecmascript_white_space_is_accepted_between_tokens() {
    let limits = Limits::default();
    let mut wrong = Vec::new();
    // Letters can be part of a name. All other characters of the first plane, and the tag characters.
    let others = ('\u{80}'..'\u{fffe}').filter(|character| {
        !character.is_alphanumeric() && !('\u{e000}'..'\u{f900}').contains(character)
    });
    for character in others.chain('\u{e0000}'..'\u{e01f0}') {
        // After a digit, a non-ASCII character is only valid if it is white space.
        let taken = analyze(&format!("return [0{character},1]"), &limits).can_run();
        if taken != SPACES.contains(&character) {
            wrong.push(format!("U+{:04X}", u32::from(character)));
        }
    }
    assert!(wrong.is_empty(), "{} characters: {}", wrong.len(), wrong.join(" "));
}

/// In a string, a comment and a template.
#[test]
fn every_character_is_allowed_in_text() {
    let limits = Limits::default();
    for begin in (0x80..=0x1_0000).step_by(0x800) {
        let all: String = (begin..begin + 0x800).filter_map(char::from_u32).collect();
        for source in
            [format!("return '{all}'"), format!("return `{all}`"), format!("return 1 /* {all} */")]
        {
            let analysis = analyze(&source, &limits);
            assert!(analysis.can_run(), "U+{begin:04X}: {:?}", analysis.first_error());
            assert_eq!(analysis.program, source);
        }
    }
}

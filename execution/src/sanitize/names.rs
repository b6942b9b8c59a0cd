//! Names of members whose values are secrets.

/// A name that contains one of these words has a secret value.
const WORDS: &[&str] = &[
    "password",
    "passwords",
    "passwd",
    "passphrase",
    "passcode",
    "passwort",
    "pwd",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "authorization",
    "cookie",
    "cookies",
    "jwt",
    "otp",
    "totp",
    "mfa",
    "cvv",
    "cvc",
    "ssn",
    "iban",
    "bearer",
    "apikey",
    "apikeys",
];

/// A name whose last word is one of these has a secret value.
const LAST_WORDS: &[&str] = &["token", "auth", "sid", "pin", "pat"];

/// A name with one of these sequences, whatever separates its words, has a secret value.
const SEQUENCES: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "signingkey",
    "encryptionkey",
    "masterkey",
    "sharedkey",
    "accountkey",
    "clientsecret",
    "accesstoken",
    "authtoken",
    "refreshtoken",
    "sessiontoken",
    "bearertoken",
    "idtoken",
    "sessionid",
    "sessionkey",
    "connectionstring",
    "setcookie",
    "creditcard",
    "cardnumber",
    "socialsecurity",
    "authheader",
    "databaseurl",
    "webhookurl",
];

/// What a reader takes for other letters: digits, and letters of other scripts.
const LOOK_ALIKES: &[(char, char)] = &[
    ('а', 'a'),
    ('е', 'e'),
    ('о', 'o'),
    ('р', 'p'),
    ('с', 'c'),
    ('х', 'x'),
    ('у', 'y'),
    ('ѕ', 's'),
    ('і', 'i'),
    ('ԁ', 'd'),
    ('к', 'k'),
    ('т', 't'),
    ('н', 'h'),
    ('м', 'm'),
    ('ո', 'n'),
    ('ԝ', 'w'),
    ('α', 'a'),
    ('ο', 'o'),
    ('ρ', 'p'),
    ('ε', 'e'),
    ('κ', 'k'),
    ('τ', 't'),
    ('ν', 'v'),
    ('ı', 'i'),
    ('ѡ', 'w'),
    ('А', 'a'),
    ('Е', 'e'),
    ('О', 'o'),
    ('Р', 'p'),
    ('С', 'c'),
    ('К', 'k'),
    ('Т', 't'),
    ('0', 'o'),
    ('1', 'l'),
    ('3', 'e'),
    ('5', 's'),
    ('@', 'a'),
    ('$', 's'),
];

/// Returns whether the value of a member with this name is to be taken for a secret.
pub(super) fn is_secret(name: &str) -> bool {
    // `token2` is a `token`.
    let words: Vec<String> = words(name)
        .into_iter()
        .map(|word| word.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned())
        .filter(|word| !word.is_empty())
        .collect();
    let is_one_of = |word: &String, list: &[&str]| {
        list.contains(&word.as_str()) || list.contains(&fold(word).as_str())
    };
    let joined = words.concat();
    let folded = fold(&joined);
    words.iter().any(|word| is_one_of(word, WORDS))
        || words.last().is_some_and(|word| is_one_of(word, LAST_WORDS))
        || SEQUENCES.iter().any(|part| joined.contains(part) || folded.contains(part))
}

/// Splits a name at separators and at capital letters; in lower case, without invisible characters.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = None::<char>;
    // Names of members are short; what is behind this is not a name.
    let mut rest = name.chars().take(256).flat_map(full_width).peekable();
    while let Some(c) = rest.next() {
        if !c.is_alphanumeric() && !matches!(c, '@' | '$') {
            // An invisible character does not end a word: it hides in one.
            if !is_invisible(c) {
                words.push(String::new());
                before = None;
            }
            continue;
        }
        let starts_word = c.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_uppercase() && rest.peek().is_some_and(|next| next.is_lowercase())
            });
        if starts_word {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase());
        }
        before = Some(c);
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the ASCII form of a full-width letter.
fn full_width(c: char) -> Option<char> {
    match u32::from(c) {
        code @ 0xFF01..=0xFF5E => char::from_u32(code - 0xFEE0),
        _ => Some(c),
    }
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{300}'..='\u{36f}')
}

fn fold(word: &str) -> String {
    let alike =
        |c| LOOK_ALIKES.iter().find(|(other, _)| *other == c).map_or(c, |(_, letter)| *letter);
    word.chars().map(alike).collect()
}

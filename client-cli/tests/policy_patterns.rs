//! The patterns of a policy, compared with their definition on random patterns and paths.
//!
//! `PML_TEST_SCALE` sets the number of patterns; 1 is 100,000, each with ten paths.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use client_cli::testing::place_pattern;

/// Matches by definition, without a compiled form: the reference for [`patterns_match_by_their_definition`].
fn matches(pattern: &[char], path: &[char], at_start: bool) -> bool {
    match pattern {
        [] => path.is_empty(),
        // Any number of folders, or none.
        ['*', '*', '/', rest @ ..] if at_start => {
            matches(rest, path, true)
                || path
                    .iter()
                    .enumerate()
                    .any(|(at, c)| *c == '/' && matches(rest, &path[at + 1..], true))
        }
        ['*', '*'] if at_start => true,
        ['*', rest @ ..] => (0..=path.len())
            .take_while(|taken| !path[..*taken].contains(&'/'))
            .any(|taken| matches(rest, &path[taken..], false)),
        ['?', rest @ ..] => {
            path.first().is_some_and(|c| *c != '/') && matches(rest, &path[1..], false)
        }
        [c, rest @ ..] => path.first() == Some(c) && matches(rest, &path[1..], *c == '/'),
    }
}

/// NP-14: patterns of names, `*`, `?` and `**` match as they are defined.
#[test]
fn patterns_match_by_their_definition() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let scale: f64 =
        std::env::var("PML_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(0.1);
    let (mut covered, rounds) = (0, (scale * 100_000.0) as usize);
    for _ in 0..rounds {
        let parts: Vec<String> = (0..1 + next(4))
            .map(|_| match next(4) {
                0 => "**".to_owned(),
                _ => (0..1 + next(3)).map(|_| ['a', 'b', '*', '?'][next(4)]).collect::<String>(),
            })
            .collect();
        // Next to other characters, `**` is no folder, and is refused or means the same as `*`.
        if parts.iter().any(|part| part != "**" && part.contains("**")) {
            continue;
        }
        let text = parts.join("/");
        let Ok(covers) = place_pattern(&text) else { continue };
        for _ in 0..10 {
            let parts: Vec<String> = (0..1 + next(4))
                .map(|_| (0..1 + next(2)).map(|_| ['a', 'b', 'c'][next(3)]).collect())
                .collect();
            let path = parts.join("/");
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            let folder = text.strip_suffix("/**");
            let expected = matches(&chars(&text), &chars(&path), true)
                || folder.is_some_and(|folder| matches(&chars(folder), &chars(&path), true));
            assert_eq!(covers(Path::new(&path)), expected, "`{text}` on `{path}`");
            covered += usize::from(expected);
        }
    }
    assert!(covered * 20 > rounds, "only {covered} of {rounds} rounds matched");
}

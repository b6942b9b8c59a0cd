//! Compares the output of a program with the output on a page.

/// Matches anything.
const ANY: &str = "…";

/// Compares the lines of a page with the printed ones; the error shows both.
pub(super) fn compare(page: &str, printed: &str) -> Result<(), String> {
    let wanted: Vec<&str> = page.trim_end().lines().map(str::trim_end).collect();
    let got: Vec<&str> = printed.trim_end().lines().map(str::trim_end).collect();
    if lines_match(&wanted, &got) {
        return Ok(());
    }
    Err(format!("expected by the page:\n{}\nprinted:\n{}\n", wanted.join("\n"), got.join("\n")))
}

fn lines_match(wanted: &[&str], got: &[&str]) -> bool {
    match wanted.split_first() {
        None => got.is_empty(),
        Some((first, rest)) if first.trim() == ANY => {
            (0..=got.len()).any(|skipped| lines_match(rest, &got[skipped..]))
        }
        Some((first, rest)) => got
            .split_first()
            .is_some_and(|(line, left)| line_matches(first, line) && lines_match(rest, left)),
    }
}

fn line_matches(wanted: &str, line: &str) -> bool {
    let Some((head, rest)) = wanted.split_once(ANY) else {
        return wanted == line;
    };
    let Some(mut left) = line.strip_prefix(head) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split(ANY).collect();
    let tail = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = left.find(part) else {
            return false;
        };
        left = &left[at + part.len()..];
    }
    left.ends_with(tail)
}

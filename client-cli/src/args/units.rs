//! Ages and sizes with their units.

use std::time::Duration;

/// Parses an age: a number with `d` for days or `h` for hours.
///
/// # Errors
/// Returns what is expected.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let hours = |number: &str, hours: u64| number.parse::<u64>().ok()?.checked_mul(hours);
    let parsed = match (text.strip_suffix('d'), text.strip_suffix('h')) {
        (Some(days), _) => hours(days, 24),
        (_, Some(number)) => hours(number, 1),
        _ => None,
    };
    // A century, so that no later computation overflows.
    let parsed = parsed.filter(|hours| *hours <= 100 * 366 * 24);
    let parsed = parsed.ok_or_else(|| "write an age like `30d` or `12h`".to_owned())?;
    Ok(Duration::from_secs(parsed * 3600))
}

/// Parses a size: a number with `kB`, `MB` or `GB`.
///
/// # Errors
/// Returns what is expected.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let units = [("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000)];
    let parsed = units.into_iter().find_map(|(unit, bytes)| {
        text.strip_suffix(unit)?.trim_end().parse::<u64>().ok()?.checked_mul(bytes)
    });
    parsed.ok_or_else(|| "write a size like `500MB`, with `kB`, `MB` or `GB`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_sizes_have_units() {
        assert_eq!(age("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(age("0h"), Ok(Duration::ZERO));
        assert_eq!(size("500MB"), Ok(500_000_000));
        assert_eq!(size("2 GB"), Ok(2_000_000_000));
        for text in ["", "d", "30", "-1d", "1.5d", "30D", "99999999999999999999d", "200000d"] {
            age(text).expect_err(text);
        }
        for text in
            ["", "MB", "500", "-1MB", "1.5GB", "500mb", "99999999999GB99", "99999999999999GB"]
        {
            size(text).expect_err(text);
        }
    }
}

//! Decimal rounding based on the decimal notation of a number.
//!
//! Multiplying by a power of ten rounds twice, and results in 1 for 1.005 and two digits. So
//! the shortest decimal text that represents the number is rounded, digit by digit.

use schemars::JsonSchema;
use serde::Deserialize;

/// The direction of rounding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    /// To the nearest; halves away from zero.
    #[default]
    HalfUp,
    /// To the nearest; halves to the even neighbour.
    HalfEven,
    /// To the nearest; halves towards zero.
    HalfDown,
    /// Away from zero.
    Up,
    /// Towards zero.
    Down,
    /// Towards plus infinity.
    Ceiling,
    /// Towards minus infinity.
    Floor,
}

/// Rounds to `digits` digits after the decimal point.
pub(super) fn round(value: f64, digits: i32, mode: Mode) -> f64 {
    if !value.is_finite() || value == 0.0 {
        return value;
    }
    let negative = value < 0.0;
    // The shortest text that represents the number, in the form `d.ddde±x`.
    let text = format!("{:e}", value.abs());
    let Some((mantissa, exponent)) = text.split_once('e') else {
        return value;
    };
    let Ok(exponent) = exponent.parse::<i32>() else {
        return value;
    };
    let written: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).map(|d| d - b'0').collect();
    // The number of digits that are kept. If it is negative, the number is less than half of the last kept place.
    let Ok(kept) = usize::try_from(exponent + 1 + digits) else {
        return if goes_up(&[], &written, true, negative, mode) {
            signed(&format!("1e{}", -digits), negative)
        } else {
            0.0
        };
    };
    if kept >= written.len() {
        return value;
    }
    let (stay, dropped) = written.split_at(kept);
    let mut number: String = stay.iter().map(|digit| char::from(b'0' + digit)).collect();
    if goes_up(stay, dropped, false, negative, mode) {
        number = add_one(stay);
    }
    // No digit is kept and none is carried, as for 0.4 without digits.
    if number.is_empty() {
        return 0.0;
    }
    // Parsing gives the double nearest to the decimal text. Dividing would round once more.
    signed(&format!("{number}e{}", -digits), negative)
}

fn signed(text: &str, negative: bool) -> f64 {
    // The text consists of digits and an exponent, so it always parses.
    let number = text.parse().unwrap_or(f64::NAN);
    if negative { -number } else { number }
}

/// Returns whether the kept digits are incremented.
fn goes_up(stay: &[u8], dropped: &[u8], tiny: bool, negative: bool, mode: Mode) -> bool {
    // The number is already rounded, in every mode.
    if dropped.iter().all(|digit| *digit == 0) {
        return false;
    }
    let half = if tiny {
        std::cmp::Ordering::Less
    } else {
        let rest_is_zero = dropped[1..].iter().all(|digit| *digit == 0);
        dropped[0].cmp(&5).then(if rest_is_zero {
            std::cmp::Ordering::Equal
        } else {
            std::cmp::Ordering::Greater
        })
    };
    match mode {
        Mode::HalfUp => half.is_ge(),
        Mode::HalfDown => half.is_gt(),
        Mode::HalfEven => {
            half.is_gt() || (half.is_eq() && stay.last().is_some_and(|digit| digit % 2 == 1))
        }
        Mode::Up => true,
        Mode::Down => false,
        Mode::Ceiling => !negative,
        Mode::Floor => negative,
    }
}

fn add_one(digits: &[u8]) -> String {
    let mut digits = digits.to_vec();
    for digit in digits.iter_mut().rev() {
        if *digit < 9 {
            *digit += 1;
            return digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        }
        *digit = 0;
    }
    // All digits were nines, or there were none: the number gains a digit.
    let zeros: String = digits.iter().map(|_| '0').collect();
    format!("1{zeros}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_rounds_in_its_direction() {
        use Mode::{Ceiling, Down, Floor, HalfDown, HalfEven, HalfUp, Up};
        for (value, digits, mode, expected) in [
            (1.005, 2, HalfUp, 1.01),
            (-1.005, 2, HalfUp, -1.01),
            (2.5, 0, HalfUp, 3.0),
            (2.5, 0, HalfEven, 2.0),
            (3.5, 0, HalfEven, 4.0),
            (0.5, 0, HalfEven, 0.0),
            (2.5, 0, HalfDown, 2.0),
            (2.51, 0, HalfDown, 3.0),
            (-2.1, 0, Up, -3.0),
            (-2.9, 0, Down, -2.0),
            (-2.1, 0, Ceiling, -2.0),
            (-2.1, 0, Floor, -3.0),
            (0.001, 0, Ceiling, 1.0),
            (0.001, 1, Up, 0.1),
            (-0.001, 0, Floor, -1.0),
            (0.001, 0, HalfUp, 0.0),
            (9.99, 1, HalfUp, 10.0),
            (0.96, 1, HalfUp, 1.0),
            (0.5, 0, HalfUp, 1.0),
            (0.05, 0, HalfUp, 0.0),
            (1234.0, -2, HalfUp, 1200.0),
            (1250.0, -2, HalfEven, 1200.0),
            (50.0, -2, HalfUp, 100.0),
            (5.0, -2, HalfUp, 0.0),
            (1e300, 2, HalfUp, 1e300),
            (1.5e-300, 2, Up, 0.01),
            (5e-324, 308, Up, 1e-308),
            (0.0, 2, Up, 0.0),
        ] {
            let rounded = round(value, digits, mode);
            assert_eq!(rounded, expected, "{value} to {digits} {mode:?}");
        }
        assert!(round(1.7e308, -308, Up).is_infinite());
    }
}

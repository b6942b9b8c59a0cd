//! The version of a capability or a server.

use std::fmt;
use std::str::FromStr;

use crate::RegistryError;

/// The largest number in a version.
const MAX_NUMBER: u32 = 999_999_999;

/// The version of a capability or a server: major, minor and patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    /// The default first version.
    pub const FIRST: Self = Self { major: 0, minor: 1, patch: 0 };

    /// Returns the next version with the same major and minor number.
    pub(crate) fn next_patch(self) -> Option<Self> {
        (self.patch < MAX_NUMBER).then(|| Self { patch: self.patch + 1, ..self })
    }
}

impl FromStr for Version {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        // At most nine digits, as in the constraints of the tables, where the numbers are sorted as
        // `int`.
        let number = |part: &str| {
            let plain = part.bytes().all(|byte| byte.is_ascii_digit())
                && (1..=9).contains(&part.len())
                && (part == "0" || !part.starts_with('0'));
            plain.then(|| part.parse().ok()).flatten()
        };
        let parts: Option<Vec<u32>> = text.split('.').map(number).collect();
        match parts.as_deref() {
            Some(&[major, minor, patch]) => Ok(Self { major, minor, patch }),
            _ => Err(RegistryError::Invalid(format!(
                "`{}` is not a version; write three numbers, for example `1.2.0`",
                text.escape_debug()
            ))),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_three_plain_numbers() {
        for text in ["0.1.0", "1.2.3", "999999999.0.10"] {
            assert_eq!(text.parse::<Version>().unwrap().to_string(), text);
        }
        assert!("0.10.0".parse::<Version>().unwrap() > "0.9.9".parse().unwrap());
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "01.2.3",
            "1.2.x",
            "-1.2.3",
            "+1.2.3",
            "1.2.3-rc1",
            "1..2",
            "9999999999.0.0",
        ] {
            text.parse::<Version>().expect_err(text);
        }
    }
}

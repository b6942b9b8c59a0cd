//! The calls of a list that an answer leaves out.

use std::collections::BTreeSet;

use protocol::{Approval, ApprovalType};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The highest number of a call that is accepted. No list is as long.
const NUMBER_LIMIT: u32 = 1_000;

/// The numbers of the calls, from 1, that are not allowed although the others are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct LeftOut(BTreeSet<u32>);

impl LeftOut {
    /// Creates it from numbers.
    pub(crate) fn of(numbers: &[u32]) -> Self {
        Self(numbers.iter().copied().collect())
    }

    /// Reads numbers and ranges, such as `2, 4-6`; `None` if that is something else, or nothing.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = BTreeSet::new();
        let words = text.split([',', ' ']).filter(|word| !word.is_empty());
        for word in words {
            let number = |text: &str| {
                let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                let number = is_number.then(|| text.parse().ok()).flatten()?;
                (1..=NUMBER_LIMIT).contains(&number).then_some(number)
            };
            let (first, last) = match word.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(word)?, number(word)?),
            };
            if first > last {
                return None;
            }
            numbers.extend(first..=last);
        }
        (!numbers.is_empty()).then_some(Self(numbers))
    }

    /// Reads what a person typed to allow the other calls of a list, such as `w 2,4-6`; `None` if it is something else.
    ///
    /// # Errors
    /// Returns why these calls cannot be left out.
    pub(crate) fn of_line(line: &str, approval: &Approval) -> Option<Result<Self, String>> {
        if approval.approval_type != ApprovalType::Plan {
            return None;
        }
        let numbers = line.strip_prefix("without").or_else(|| line.strip_prefix('w'))?;
        let read = Self::parse(numbers)
            .ok_or_else(|| "name calls by their numbers, such as `w 2,4-6`".to_owned());
        Some(read.and_then(|left_out| left_out.check(approval).map(|()| left_out)))
    }

    /// Returns whether it has the call at a place of the list, from 0.
    pub(crate) fn has(&self, place: usize) -> bool {
        u32::try_from(place + 1).is_ok_and(|number| self.0.contains(&number))
    }

    /// Returns the numbers.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.0.iter().copied().collect()
    }

    /// Checks that the answer to a question can leave these calls out.
    ///
    /// # Errors
    /// Returns why it cannot.
    pub(crate) fn check(&self, approval: &Approval) -> Result<(), String> {
        let Some(last) = self.0.last() else { return Ok(()) };
        if approval.approval_type != ApprovalType::Plan {
            return Err("this question is about one call, so none can be left out".to_owned());
        }
        let count = approval.context.get("calls").and_then(Value::as_array).map_or(0, Vec::len);
        if usize::try_from(*last).map_or(true, |last| last > count) {
            return Err(format!("call {last} cannot be left out: the list has {count}"));
        }
        if self.0.len() == count {
            return Err("all calls would be left out: deny the program instead".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges_are_read() {
        for (text, numbers) in [
            ("3", &[3][..]),
            ("2,4", &[2, 4]),
            (" 4 - 6", &[]),
            ("1 4-6, 5", &[1, 4, 5, 6]),
            ("100", &[100]),
        ] {
            let read = LeftOut::parse(text).map(|left_out| left_out.numbers());
            assert_eq!(read.unwrap_or_default(), numbers, "{text}");
        }
        for wrong in
            ["", " , ", "0", "-1", "+1", "1-", "6-4", "x", "1;2", "1001", "1-4294967296", "٣"]
        {
            assert_eq!(LeftOut::parse(wrong), None, "{wrong}");
        }
    }
}

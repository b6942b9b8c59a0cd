//! The hostile programs of `tests/fixtures/attacks.txt`.

use std::error::Error;
use std::fs;

const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/attacks.txt");

/// A hostile program.
pub(crate) struct Attack {
    /// The description.
    #[allow(dead_code, reason = "not every bench names them")]
    pub(crate) what: String,
    /// The requested wall time limit.
    #[allow(dead_code, reason = "not every bench supports it")]
    pub(crate) timeout_ms: Option<u64>,
    /// The program.
    pub(crate) code: String,
}

/// Reads all of them.
pub(crate) fn attacks() -> Result<Vec<Attack>, Box<dyn Error>> {
    let text = fs::read_to_string(LIST)?;
    text.split("\n## ").skip(1).map(Attack::read).collect()
}

impl Attack {
    /// Parses `CODE|CODE: description @timeout MS`, and the program on the lines below.
    fn read(text: &str) -> Result<Attack, Box<dyn Error>> {
        let (head, code) = text.split_once('\n').ok_or("an attack without a program")?;
        let (_, what) = head.split_once(": ").ok_or("an attack without codes")?;
        let (what, timeout_ms) = match what.split_once(" @timeout ") {
            Some((what, ms)) => (what, Some(ms.parse()?)),
            None => (what, None),
        };
        Ok(Attack { what: what.to_owned(), timeout_ms, code: code.to_owned() })
    }
}

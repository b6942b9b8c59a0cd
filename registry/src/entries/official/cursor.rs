//! The cursor of the list of servers.

use serde_json::json;

use crate::RegistryError;
use crate::paging::{hex, unhex};

/// The position of a page: after a version of an own server, or after an approved one. Own servers come first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum After {
    Own([String; 4]),
    Approved([String; 2]),
}

/// Encodes a cursor opaquely, so that clients do not depend on its form.
pub(super) fn write_cursor(after: &After, search: Option<&str>) -> String {
    let value = match after {
        After::Own(at) => json!(["own", at, search]),
        After::Approved(at) => json!(["approved", at, search]),
    };
    hex(&value.to_string())
}

/// Parses the output of [`write_cursor`], for the same search.
pub(super) fn read_cursor(cursor: &str) -> Result<(After, Option<String>), RegistryError> {
    let read = || -> Option<(After, Option<String>)> {
        let text = unhex(cursor)?;
        let (part, at, search): (String, Vec<String>, Option<String>) =
            serde_json::from_str(&text).ok()?;
        // Postgres refuses a NUL in a query.
        if at.iter().any(|text| text.contains('\0')) {
            return None;
        }
        let after = match part.as_str() {
            "own" => After::Own(at.try_into().ok()?),
            "approved" => After::Approved(at.try_into().ok()?),
            _ => return None,
        };
        Some((after, search))
    };
    read().ok_or_else(|| {
        RegistryError::Invalid("the cursor does not belong to this registry".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_with_its_search_and_others_are_refused() {
        let own = After::Own(["acme", "web", "db", "1.0.0"].map(str::to_owned));
        let approved = After::Approved(["io.x/y", "1.0.0"].map(str::to_owned));
        for (after, search) in [(own, None), (approved, Some("é"))] {
            let read = read_cursor(&write_cursor(&after, search)).unwrap();
            assert_eq!(read, (after, search.map(str::to_owned)));
        }
        for cursor in [
            "",
            "zz",
            "00",
            &hex("[]"),
            &hex(r#"["own",["a"],null]"#),
            &hex(r#"["x",["a","b"],null]"#),
        ] {
            read_cursor(cursor).expect_err(cursor);
        }
    }
}

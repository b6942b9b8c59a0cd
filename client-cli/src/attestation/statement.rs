//! The in-toto Statement, version 1: <https://in-toto.io/Statement/v1>.

use protocol::Integrity;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::files::records::name_of_hash;

const TYPE: &str = "https://in-toto.io/Statement/v1";

/// A statement about one subject.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Statement<P> {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    /// What it says about the subject.
    pub(crate) predicate: P,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Subject {
    name: String,
    digest: Digest,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Digest {
    sha256: String,
}

impl<P: Serialize + DeserializeOwned> Statement<P> {
    /// States something about the subject with this name and hash.
    pub(crate) fn new(name: &str, digest: Integrity, predicate_type: &str, predicate: P) -> Self {
        let digest = Digest { sha256: name_of_hash(digest) };
        Self {
            kind: TYPE.to_owned(),
            subject: vec![Subject { name: name.to_owned(), digest }],
            predicate_type: predicate_type.to_owned(),
            predicate,
        }
    }

    /// Returns its JSON text.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("every member has a JSON form")
    }

    /// Parses a statement with this type of predicate, in the form of [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// Returns why it is none, as the rest of a sentence about it.
    pub(crate) fn parse(bytes: &[u8], predicate_type: &str) -> Result<Self, String> {
        let statement: Self =
            serde_json::from_slice(bytes).map_err(|error| format!("cannot be read: {error}"))?;
        if statement.kind != TYPE {
            return Err(format!("has a type that is not `{TYPE}`"));
        }
        if statement.predicate_type != predicate_type {
            return Err(format!("has a predicate that is not `{predicate_type}`"));
        }
        // serde also takes lists for structs, and other spellings of a text.
        if statement.to_bytes() != bytes {
            return Err("is not in the form that `pml` writes".to_owned());
        }
        Ok(statement)
    }

    /// Checks what it is about.
    ///
    /// # Errors
    /// Returns that it is about something else, as the rest of a sentence about it.
    pub(crate) fn check_subject(&self, name: &str, digest: Integrity) -> Result<(), String> {
        match &self.subject[..] {
            [subject] if subject.name == name && subject.digest.sha256 == name_of_hash(digest) => {
                Ok(())
            }
            _ => Err("is about something else than the records in it".to_owned()),
        }
    }
}

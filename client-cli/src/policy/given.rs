//! A policy that a command is given in a file of its own, for one run.
//!
//! It has the grammar of `policy` in `.pml.json`, in YAML. It only restricts: whatever it allows, the policy of the project
//! decides as well. So nobody has to trust it.

use protocol::{Integrity, canonical_json};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Policy;
use super::file::PolicyFile;
use super::source::Source;
use crate::files::strict_yaml::Fault;

/// A policy that a command was given.
#[derive(Debug, Clone)]
pub(crate) struct GivenPolicy {
    name: String,
    hash: Integrity,
    file: PolicyFile,
}

/// As it is recorded with a run.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded<T> {
    /// The name of its file.
    name: String,
    /// The hash of the policy.
    hash: Integrity,
    /// The policy with all its defaults.
    policy: T,
}

impl GivenPolicy {
    /// Parses the text of a file; `name` is its name, for people.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub(crate) fn parse(name: String, text: &str) -> Result<Self, Fault> {
        PolicyFile::of_yaml(text).map(|file| Self::new(name, file))
    }

    fn new(name: String, file: PolicyFile) -> Self {
        let hash = hash_of(file.written());
        Self { name, hash, file }
    }

    /// Returns the policy that a run was begun with, from the rules in its record; `None` for a run without one.
    ///
    /// # Errors
    /// Returns why it is not known.
    pub(crate) fn of_record(rules: &Value) -> Result<Option<Self>, String> {
        let Some(recorded) = rules.get(Self::RECORDED) else { return Ok(None) };
        let read = |error: serde_json::Error| error.to_string();
        let Recorded { name, hash, policy } =
            Recorded::<Value>::deserialize(recorded).map_err(read)?;
        // A secret in it is not in the record, so what is there can be another policy.
        if hash_of(&policy) != hash {
            return Err("it is not in the record as it was".to_owned());
        }
        let file = PolicyFile::deserialize(&policy).map_err(read)?;
        let given = Self::new(name, file);
        match given.hash == hash {
            true => Ok(Some(given)),
            // It has rules that this `pml` reads in another way.
            false => Err("this `pml` would read it differently".to_owned()),
        }
    }

    /// The name of its member in the rules of a record.
    pub(crate) const RECORDED: &str = "policy_file";

    /// Returns it for the record of a run.
    pub(crate) fn record(&self) -> Value {
        let Self { name, hash, file } = self;
        json!(Recorded { name: name.clone(), hash: *hash, policy: file.written() })
    }

    /// Returns the name of its file.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the hash of its normal form, as `pml policy check` shows it.
    pub(crate) fn hash(&self) -> Integrity {
        self.hash
    }

    /// Returns it as if there were no other. `replaced` are the namespaces of inspected tools that servers of the project
    /// replace.
    pub(crate) fn alone(&self, replaced: Vec<String>) -> Policy {
        Policy {
            rules: Some(self.file.clone().into_rules()),
            source: Source::of_file(&self.name),
            is_untrusted: false,
            replaced,
            given: None,
        }
    }
}

/// Returns the hash of a policy with all its defaults.
pub(crate) fn hash_of(written: &Value) -> Integrity {
    Integrity::of(canonical_json(written.clone()).as_bytes())
}

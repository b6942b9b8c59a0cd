//! What a person is shown of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use protocol::escape_text;
use serde_json::{Value, json};

use super::noted::{Noted, Server, State};
use crate::files::records::{age, now};
use crate::workspace::Workspace;

/// Whether a gateway has the tools of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    gateway: String,
    /// Whether `.pml.json` says that it is told them.
    has_word: bool,
    noted: Option<Server>,
}

/// Returns whether a gateway has the tools of a project's servers, by namespace; `told` are those of which it is told.
/// `records` is the folder of the user's own records.
pub(crate) fn statuses(
    told: &BTreeSet<String>,
    workspace: &Workspace,
    records: &Path,
    origin: &str,
) -> BTreeMap<String, Status> {
    let mut noted = Noted::read(records, workspace.root(), origin).servers;
    let names: BTreeSet<String> = told.iter().chain(noted.keys()).cloned().collect();
    let status = |name: &String| Status {
        gateway: origin.to_owned(),
        has_word: told.contains(name),
        noted: noted.remove(name),
    };
    let statuses: Vec<Status> = names.iter().map(status).collect();
    names.into_iter().zip(statuses).collect()
}

impl Status {
    /// Returns whether the gateway has what it should have, as far as is known.
    pub(crate) fn is_settled(&self) -> bool {
        self.word() == "sent"
    }

    fn word(&self) -> &'static str {
        match &self.noted {
            _ if !self.has_word => "removing",
            None => "waiting",
            Some(noted) => match noted.state {
                State::Sending => "sending",
                State::Sent => "sent",
                State::Refused { .. } => "refused",
            },
        }
    }

    /// Describes it in a sentence.
    pub(crate) fn text(&self) -> String {
        let gateway = &self.gateway;
        match &self.noted {
            _ if !self.has_word => {
                format!("{gateway} may still have its tools; the next `pml` removes them there")
            }
            None => format!("its tools are sent to {gateway} when they are known"),
            Some(Server { state: State::Sending, .. }) => {
                format!(
                    "its tools may have been sent to {gateway}; the next `pml` sends them again"
                )
            }
            Some(Server { state: State::Sent, tools, at, .. }) => {
                let age = age(now().saturating_sub(*at));
                format!("{gateway} was told its tools ({tools}) {age} ago")
            }
            Some(Server { state: State::Refused { reason }, .. }) => {
                format!("{gateway} does not take its tools: {}", escape_text(reason))
            }
        }
    }

    /// Returns the same for machines.
    pub(crate) fn json(&self) -> Value {
        let mut value = json!({ "gateway": self.gateway, "state": self.word() });
        if let Some(noted) = &self.noted {
            value["tools"] = json!(noted.tools);
            value["sent_at"] = json!(noted.at);
            if let State::Refused { reason } = &noted.state {
                value["reason"] = json!(reason);
            }
        }
        value
    }
}

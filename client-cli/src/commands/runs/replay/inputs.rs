//! What a program is replayed with, compared with what the run had.

use protocol::{ErrorCode, Integrity, escape_text};
use serde_json::{Value, json};

use crate::config::{self, Config};
use crate::consent::program_lock::{BuiltIn, LockFile};
use crate::consent::trust::TrustStore;
use crate::policy::GivenPolicy;
use crate::run_store::RunStore;
use crate::run_store::reader::{Reader, Run};
use crate::run_store::record::InputChanged;
use crate::workspace::Workspace;

/// The version of this `pml`.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Something that a run depends on and that is not, or may not be, as it was.
pub(super) struct Input {
    /// What it is: `program`, `policy`, `policy_file`, `pml` or `tool`.
    what: &'static str,
    /// For a tool, its id.
    tool: Option<String>,
    /// For a policy file, its name.
    file: Option<String>,
    state: State,
}

enum State {
    /// It is another one.
    Changed { code: Option<ErrorCode>, recorded: String, now: Option<String> },
    /// Whether it is another one is not known, for this reason.
    Unknown(String),
}

/// Compares what a run depended on with the present. What is the same is left out.
pub(super) fn compare(
    workspace: &Workspace,
    reader: &Reader,
    run: &Run,
    program: &str,
) -> Vec<Input> {
    let mut inputs = Vec::new();
    let mut add = |what, tool, state| inputs.push(Input { what, tool, file: None, state });
    let mut hashes = |what, code, recorded: Integrity, now: Integrity| {
        if recorded != now {
            let (recorded, now) = (recorded.to_string(), Some(now.to_string()));
            add(what, None, State::Changed { code: Some(code), recorded, now });
        }
    };
    let now = RunStore::hash(&json!(program));
    hashes("program", ErrorCode::CodeHashMismatch, run.began.code.hash, now);
    let rules = Rules::of(reader, run);
    match policy(workspace) {
        Ok(now) => hashes("policy", ErrorCode::IntegrityMismatch, rules.hash, now),
        Err(reason) => add("policy", None, State::Unknown(reason)),
    }
    if run.began.pml != VERSION {
        let (recorded, now) = (run.began.pml.clone(), Some(VERSION.to_owned()));
        add("pml", None, State::Changed { code: None, recorded, now });
    }
    for (tool, state) in tools(reader, run) {
        add("tool", Some(tool), state);
    }
    if let Some(given) = rules.given {
        inputs.extend(given.compare(workspace));
    }
    inputs
}

/// The rules in the record of a run.
struct Rules {
    /// The hash of those of the project.
    hash: Integrity,
    /// The policy that the command was given, if it was given one.
    given: Option<Given>,
}

/// A policy file, as it is recorded.
struct Given {
    file: String,
    hash: String,
}

impl Rules {
    fn of(reader: &Reader, run: &Run) -> Self {
        let alone = Self { hash: run.began.policy.hash, given: None };
        let rules = reader.content(&run.began.policy);
        let rules = rules.and_then(|rules| serde_json::from_str::<Value>(&rules).ok());
        let Some(mut rules) = rules else { return alone };
        let given = rules.as_object_mut().and_then(|all| all.remove(GivenPolicy::RECORDED));
        let Some(given) = given else { return alone };
        let text = |name: &str| given[name].as_str().unwrap_or_default().to_owned();
        let given = Given { file: text("name"), hash: text("hash") };
        Self { hash: RunStore::hash(&rules), given: Some(given) }
    }
}

impl Given {
    /// Compares it with the file as it is now; `None` if it is the same.
    fn compare(self, workspace: &Workspace) -> Option<Input> {
        let Self { file, hash: recorded } = self;
        let changed = |now| State::Changed {
            code: Some(ErrorCode::IntegrityMismatch),
            recorded: recorded.clone(),
            now,
        };
        let state = match config::given_named(workspace, &file) {
            Ok(now) if now.hash().to_string() == recorded => return None,
            Ok(now) => changed(Some(now.hash().to_string())),
            Err(_) if !workspace.root().join(&file).exists() => changed(None),
            Err(error) => State::Unknown(error.to_string()),
        };
        Some(Input { what: "policy_file", tool: None, file: Some(file), state })
    }
}

/// Returns the hash that the present rules have in a record.
fn policy(workspace: &Workspace) -> Result<Integrity, String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let mut workspace = Workspace::open(workspace.root()).map_err(|error| failed(&error))?;
    let store = TrustStore::of_user().map_err(|error| failed(&error))?;
    let config = Config::open(&mut workspace, &store).map_err(|error| failed(&error))?;
    Ok(RunStore::hash(&json!(config.permissions)))
}

/// Compares the tools that the run called.
fn tools(reader: &Reader, run: &Run) -> Vec<(String, State)> {
    let unknown = |reason: &str| {
        let tools = run.tools().into_iter();
        tools.map(|tool| (tool.to_owned(), State::Unknown(reason.to_owned()))).collect()
    };
    let plan = reader.content(&run.began.plan);
    let plan = plan.and_then(|plan| serde_json::from_str::<Value>(&plan).ok());
    let Some(plan) = plan else { return unknown("the plan of the run cannot be read") };
    let Some(lock) = plan.get("lock") else {
        return unknown("only the record of a locked program has the schemas of its tools");
    };
    let lock = match LockFile::recorded(lock) {
        Ok(lock) => lock.lock,
        Err(reason) => return unknown(&format!("the lock in the record is invalid: {reason}")),
    };
    let compared = lock.compare_built_in().into_iter();
    let states = compared.filter_map(|(tool, compared)| {
        let state = match compared {
            BuiltIn::Same => return None,
            BuiltIn::Other { locked, now } => State::Changed {
                code: Some(ErrorCode::IntegrityMismatch),
                recorded: locked.to_string(),
                now: now.map(|hash| hash.to_string()),
            },
            BuiltIn::Unknown => State::Unknown("its server is not asked in a replay".to_owned()),
        };
        Some((tool, state))
    });
    states.collect()
}

impl Input {
    /// Returns whether it is known to be another one.
    pub(super) fn is_changed(&self) -> bool {
        matches!(self.state, State::Changed { .. })
    }

    /// Returns it for the record of the replay, if it is another one.
    pub(super) fn recorded(&self) -> Option<InputChanged> {
        let State::Changed { code, recorded, now } = &self.state else { return None };
        Some(InputChanged {
            what: self.what.to_owned(),
            tool: self.tool.clone(),
            code: code.map(|code| code.name().to_owned()),
            recorded: recorded.clone(),
            now: now.clone(),
        })
    }

    /// Returns it as JSON.
    pub(super) fn to_json(&self) -> Value {
        let mut shown = json!({ "what": self.what });
        if let Some(tool) = &self.tool {
            shown["tool"] = json!(tool);
        }
        if let Some(file) = &self.file {
            shown["file"] = json!(file);
        }
        match &self.state {
            State::Changed { code, recorded, now } => {
                shown["state"] = json!("changed");
                shown["error_code"] = json!(code.map(ErrorCode::name));
                shown["recorded"] = json!(recorded);
                shown["now"] = json!(now);
            }
            State::Unknown(reason) => {
                shown["state"] = json!("unknown");
                shown["reason"] = json!(reason);
            }
        }
        shown
    }

    /// Returns it as a line.
    pub(super) fn line(&self) -> String {
        let what = match (self.what, &self.tool) {
            ("program", _) => "the program".to_owned(),
            ("policy", _) => "the permission rules".to_owned(),
            ("policy_file", _) => {
                format!(
                    "the policy file `{}`",
                    escape_text(self.file.as_deref().unwrap_or_default())
                )
            }
            ("pml", _) => "the version of `pml`".to_owned(),
            (_, tool) => {
                let tool = escape_text(tool.as_deref().unwrap_or_default());
                format!("the description or schema of `{tool}`")
            }
        };
        match &self.state {
            State::Changed { code, recorded, now } => {
                let now = now.as_deref().unwrap_or("gone");
                let code = code.map(|code| format!(" [{}]", code.name())).unwrap_or_default();
                format!("changed: {what}, {} → {}{code}\n", escape_text(recorded), escape_text(now))
            }
            State::Unknown(reason) => {
                format!("not known: whether {what} changed: {}\n", escape_text(reason))
            }
        }
    }
}

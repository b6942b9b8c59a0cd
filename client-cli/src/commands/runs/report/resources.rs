//! What a run used: files, hosts and programs, as far as its record says; what was denied; and what is not known.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use url::Url;

use crate::policy::GIT_READS;
use crate::run_store::reader::{Call, MadeCall, Reader, Run};
use crate::run_store::record::{Change, Status};

/// The codes with which a run ends before one of its calls was made.
const DENIALS: [&str; 5] = [
    "PERMISSION_DENIED",
    "POLICY_DENIED",
    "APPROVAL_DENIED",
    "APPROVAL_EXPIRED",
    "INTEGRITY_MISMATCH",
];

/// What a run used.
#[derive(Debug, Default)]
pub(super) struct Resources {
    /// By calls that succeeded.
    pub(super) certain: Used,
    /// By calls that failed or have no end on record: they may have used it or not.
    pub(super) possible: Used,
    /// What the record cannot say.
    pub(super) not_known: Vec<NotKnown>,
    /// What was denied.
    pub(super) denials: Vec<Denial>,
}

/// Files, hosts and programs, each once, in alphabetical order.
#[derive(Debug, Default, Serialize)]
pub(super) struct Used {
    /// The files whose contents were read, as the program named them, relative to the workspace.
    pub(super) files_read: BTreeSet<String>,
    /// The places whose names or metadata were read.
    pub(super) places_listed: BTreeSet<String>,
    /// The files and folders that were written, created, removed or moved, with links resolved.
    pub(super) files_written: BTreeSet<String>,
    /// The hosts that were contacted, with the port if it is not that of the scheme.
    pub(super) domains_contacted: BTreeSet<String>,
    /// The programs that were run, as the calls named them.
    pub(super) programs_run: BTreeSet<String>,
}

/// A call whose effects are not on record.
#[derive(Debug, Serialize)]
pub(super) struct NotKnown {
    /// The call; `None` for the run.
    pub(super) call: Option<String>,
    /// The tool.
    pub(super) tool: Option<String>,
    /// What is not known, as a sentence without its full stop.
    pub(super) what: String,
}

/// A call, a connection or a program that was denied.
#[derive(Debug, Serialize)]
pub(super) struct Denial {
    /// The call; `None` for the whole program.
    pub(super) call: Option<String>,
    /// The tool.
    pub(super) tool: Option<String>,
    /// The error code; `None` for a refused connection.
    pub(super) code: Option<String>,
    /// The rule or the reason.
    pub(super) message: String,
}

impl Used {
    /// Returns the lists with their names.
    pub(super) fn lists(&self) -> [(&'static str, &BTreeSet<String>); 5] {
        [
            ("files read", &self.files_read),
            ("places listed", &self.places_listed),
            ("files written", &self.files_written),
            ("hosts contacted", &self.domains_contacted),
            ("programs run", &self.programs_run),
        ]
    }
}

impl Resources {
    /// Collects them from the record of a run; `roots` are the folders to which paths are relative.
    pub(super) fn of(reader: &Reader, run: &Run, roots: &[PathBuf]) -> Self {
        let mut found = Self::default();
        for call in &run.calls {
            match call {
                Call::Made(made) => found.add(reader, run, made, roots),
                // It touched nothing.
                Call::Mocked(_) => {}
                Call::Refused(refused) => found.denials.push(Denial {
                    call: Some(refused.call.clone()),
                    tool: Some(refused.tool.clone()),
                    code: Some(refused.error.code.clone()),
                    message: refused.error.message.clone(),
                }),
            }
        }
        found.add_changes(run);
        let failed = run.ended.as_ref().and_then(|ended| ended.error.as_ref());
        if let Some(error) = failed.filter(|error| DENIALS.contains(&&*error.code))
            && !found.denials.iter().any(|denial| denial.code.as_ref() == Some(&error.code))
        {
            let (code, message) = (Some(error.code.clone()), error.message.clone());
            found.denials.push(Denial { call: None, tool: None, code, message });
        }
        if run.ended.is_none() {
            let what = match run.is_stopped {
                Some(true) => {
                    "`pml` was stopped, so calls of the last milliseconds that only read may be missing"
                }
                Some(false) => "the run is still going on",
                None => "whether the run goes on: its end is not on record",
            };
            found.not_known.push(NotKnown { call: None, tool: None, what: what.to_owned() });
        }
        found
    }

    fn add(&mut self, reader: &Reader, run: &Run, made: &MadeCall, roots: &[PathBuf]) {
        let began = &made.began;
        let succeeded = made.ended.as_ref().is_some_and(|ended| ended.status == Status::Success);
        if let Some(refused) =
            made.ended.as_ref().and_then(|ended| ended.refused_connections.as_ref())
        {
            self.denials.push(Denial {
                call: Some(began.call.clone()),
                tool: Some(began.tool.clone()),
                code: None,
                message: refused.clone(),
            });
        }
        let mut missing = |what: &str| {
            let (call, tool) = (Some(began.call.clone()), Some(began.tool.clone()));
            self.not_known.push(NotKnown { call, tool, what: what.to_owned() });
        };
        if made.ended.is_none() {
            missing("whether the call took effect: it has no end on record");
        }
        if !began.native {
            let inner = format!("{}.", began.call);
            let is_inner = |call: &&Call| super::Named::of(call).call.starts_with(&inner);
            if began.routing == "server" {
                missing("what the tool did: it ran on the gateway, which has a record of its own");
            } else if began.epoch_ms.is_none() && !run.calls.iter().any(|call| is_inner(&call)) {
                missing("what the MCP server read, wrote and contacted");
            }
            return;
        }
        let read = |content| serde_json::from_str::<Value>(&reader.content(content)?).ok();
        let Some(arguments) = read(&began.args) else {
            missing(
                "what the call was about: its arguments are missing from the record, or were erased",
            );
            return;
        };
        let (namespace, action) = began.tool.split_once(':').unwrap_or((&began.tool, ""));
        match namespace {
            "shell" => missing("what the program read, wrote, contacted and started"),
            "git" if GIT_READS.contains(&action) => {
                missing("which files of the repository were read");
            }
            "git" => missing("what `git` read and changed"),
            "pml" if action != "undo" => missing("whether the gateway was asked"),
            _ => {}
        }
        // Only that of `web` says more than the arguments, and others can be large.
        let output = made.ended.as_ref().filter(|_| namespace == "web");
        let output = output.and_then(|ended| ended.output.as_ref()).and_then(read);
        if namespace == "web" && !ends_where_it_began(&arguments, output.as_ref()) {
            missing("which hosts the address redirected through");
        }
        let used = if succeeded { &mut self.certain } else { &mut self.possible };
        used.add(namespace, action, &arguments, output.as_ref(), roots);
    }

    /// Adds the changes of files, which are recorded before they are made.
    fn add_changes(&mut self, run: &Run) {
        for changing in &run.changes {
            let succeeded = run.calls.iter().any(|call| {
                super::Named::of(call).call == changing.call && call.status() == "success"
            });
            if let Change::Erased { .. } = changing.change {
                let (call, what) =
                    (Some(changing.call.clone()), "which place it changed: that was erased");
                self.not_known.push(NotKnown { call, tool: None, what: what.to_owned() });
                continue;
            }
            let used = if succeeded { &mut self.certain } else { &mut self.possible };
            let written = &mut used.files_written;
            match &changing.change {
                Change::Write { path, .. } | Change::Remove { path, .. } => {
                    written.insert(path.clone());
                }
                Change::CreateFolder { path } | Change::RemoveFolder { path, .. } => {
                    written.insert(format!("{path}/"));
                }
                Change::Move { from, to, .. } => {
                    written.extend([from.clone(), to.clone()]);
                }
                Change::Erased { .. } => {}
            }
        }
    }
}

impl Used {
    fn add(
        &mut self,
        namespace: &str,
        action: &str,
        arguments: &Value,
        output: Option<&Value>,
        roots: &[PathBuf],
    ) {
        let path = |name: &str| arguments[name].as_str().map(|path| relative(path, roots));
        match (namespace, action) {
            ("filesystem", "read_multiple_files") => {
                let paths = arguments["paths"].as_array().into_iter().flatten();
                let paths = paths.filter_map(Value::as_str).map(|path| relative(path, roots));
                self.files_read.extend(paths);
            }
            // An edit shows what was there.
            ("filesystem", "read_file" | "read_text_file" | "read_media_file" | "edit_file") => {
                self.files_read.extend(path("path"));
            }
            ("filesystem", "move_file") => self.places_listed.extend(path("source")),
            // What was changed is in the records of changes.
            ("filesystem", "write_file" | "create_directory") => {}
            ("filesystem", _) => self.places_listed.extend(path("path")),
            ("git", _) => {
                self.places_listed.extend(path("repo_path"));
                if !GIT_READS.contains(&action) {
                    self.programs_run.insert("git".to_owned());
                }
            }
            ("shell", _) => {
                let command = &arguments["command"];
                let program = command.as_str().or_else(|| command[0].as_str());
                self.programs_run.extend(program.map(str::to_owned));
            }
            ("web", _) => {
                let urls = [Some(&arguments["url"]), output.map(|output| &output["url"])];
                let urls = urls.into_iter().flatten().filter_map(Value::as_str);
                self.domains_contacted.extend(urls.filter_map(host));
            }
            _ => {}
        }
    }
}

/// Returns whether the answer came from the address that was requested. A call that failed may have been redirected.
fn ends_where_it_began(arguments: &Value, output: Option<&Value>) -> bool {
    let url = |value: &Value| {
        let mut url = Url::parse(value["url"].as_str()?).ok()?;
        url.set_fragment(None);
        Some(url)
    };
    let answered = output.and_then(url);
    answered.is_some() && answered == url(arguments)
}

fn host(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let host = url.host_str()?;
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// Returns a path relative to the first root that has it, without `.`. Links and `..` are left as they are.
fn relative(path: &str, roots: &[PathBuf]) -> String {
    let path = Path::new(path);
    let path = roots.iter().find_map(|root| path.strip_prefix(root).ok()).unwrap_or(path);
    let kept: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    match kept.as_os_str().is_empty() {
        true => ".".to_owned(),
        false => kept.to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_are_relative_to_the_workspace() {
        let roots = [PathBuf::from("/w"), PathBuf::from("/other")];
        for (given, shown) in [
            ("a.txt", "a.txt"),
            ("./a/./b.txt", "a/b.txt"),
            ("/w/a.txt", "a.txt"),
            ("/w", "."),
            (".", "."),
            ("a/../b", "a/../b"),
            ("/elsewhere/a", "/elsewhere/a"),
        ] {
            assert_eq!(relative(given, &roots), shown, "{given}");
        }
    }

    #[test]
    fn a_redirect_leaves_hosts_that_are_not_known() {
        let url = |url: &str| json!({ "url": url });
        let ends =
            |from: &str, to: Option<&str>| ends_where_it_began(&url(from), to.map(url).as_ref());
        assert!(ends("https://a.example", Some("https://a.example/")));
        assert!(ends("https://a.example/#x", Some("https://a.example/")));
        assert!(!ends("https://a.example", Some("https://b.example/")));
        assert!(!ends("https://a.example", None));
        assert_eq!(host("https://a.example:8443/x").as_deref(), Some("a.example:8443"));
        assert_eq!(host("https://a.example:443/x").as_deref(), Some("a.example"));
    }
}

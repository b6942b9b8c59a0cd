//! The grammar of `policy`.

use std::path::PathBuf;

use execution::host_pattern::HostPattern;
use protocol::ToolPattern;
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::example::Example;
use super::glob::PlacePattern;
use super::web::{REDIRECTS_LIMIT, Web};
use super::{Command, CommandAccess, Source};
use crate::files::strict_json::{Strict, UniqueMap};
use crate::files::strict_yaml::{self, Fault};

/// The maximum number of patterns in one list.
const PATTERNS_LIMIT: usize = 1_000;

/// The section as it is parsed.
#[derive(Debug, Clone)]
pub(crate) struct PolicyFile(Rules);

impl PolicyFile {
    pub(super) fn into_rules(self) -> Rules {
        self.0
    }

    /// Returns the section with all its defaults.
    pub(super) fn written(&self) -> &Value {
        &self.0.written
    }

    /// Parses a file that is nothing but the section, in YAML.
    pub(super) fn of_yaml(text: &str) -> Result<Self, Fault> {
        let Strict(raw): Strict<Raw> = strict_yaml::parse(text)?;
        let fault = |message| Fault { message, place: None };
        let written = serde_json::to_value(&raw).map_err(|error| fault(error.to_string()))?;
        raw.rules(written).map(Self).map_err(fault)
    }
}

/// The rules of a policy. What a list does not contain is denied.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) read: Option<Access>,
    pub(super) write: Option<Access>,
    pub(super) shell: Option<Shell>,
    pub(super) web: Option<Web>,
    /// The tools that cannot be inspected and may be called.
    pub(super) tools: Vec<ToolPattern>,
    /// How many calls one run may make, of the tools that each pattern covers.
    pub(super) calls: Vec<(ToolPattern, u64)>,
    /// The time limit of a run, without the time for questions.
    pub(super) total_ms: Option<u64>,
    pub(super) matching: Vec<Example>,
    pub(super) not_matching: Vec<Example>,
    /// The section with all its defaults.
    pub(super) written: Value,
}

/// Access to files.
#[derive(Debug, Clone)]
pub(super) struct Access {
    pub(super) allow: Vec<PlacePattern>,
    pub(super) deny: Vec<PlacePattern>,
    /// Whether `allow` covers hidden files and folders.
    pub(super) hidden: bool,
    pub(super) max_bytes: Option<u64>,
    /// The total of what one run writes.
    pub(super) max_total_bytes: Option<u64>,
}

/// The commands that may run.
#[derive(Debug, Clone)]
pub(super) struct Shell {
    pub(super) programs: Vec<Named>,
    /// Those of them that may use the network.
    pub(super) network: Vec<String>,
    /// Those of them that are not confined.
    pub(super) unconfined: Vec<String>,
    pub(super) deny_tokens: Vec<String>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) max_output_bytes: Option<u64>,
}

/// A program that may run.
#[derive(Debug, Clone)]
pub(super) struct Named {
    /// The name on the `PATH`, or an absolute path.
    pub(super) name: String,
    /// Its file with all links resolved; `None` if there is none on this machine.
    pub(super) file: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filesystem: Option<Strict<RawFilesystem>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shell: Option<Strict<RawShell>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    web: Option<Strict<RawWeb>>,
    #[serde(default)]
    tools: Vec<ToolPattern>,
    #[serde(default)]
    calls: UniqueMap<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    total_ms: Option<u64>,
    #[serde(default, rename = "match")]
    matching: Vec<Strict<Example>>,
    #[serde(default, rename = "no_match")]
    not_matching: Vec<Strict<Example>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFilesystem {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    read: Option<Strict<RawRead>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    write: Option<Strict<RawWrite>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRead {
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
    #[serde(default)]
    hidden: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_bytes: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWrite {
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
    #[serde(default)]
    hidden: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_total_bytes: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawShell {
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    network: Vec<String>,
    #[serde(default)]
    unconfined: Vec<String>,
    #[serde(default)]
    deny_tokens: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_output_bytes: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWeb {
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
    #[serde(default)]
    private: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_redirects: Option<u32>,
}

impl<'de> Deserialize<'de> for PolicyFile {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Strict(raw) = Strict::<Raw>::deserialize(deserializer)?;
        let written = serde_json::to_value(&raw).map_err(D::Error::custom)?;
        raw.rules(written).map(Self).map_err(|error| D::Error::custom(format!("`policy`: {error}")))
    }
}

impl Raw {
    fn rules(self, written: Value) -> Result<Rules, String> {
        let (read, write) = match self.filesystem {
            None => (None, None),
            Some(Strict(RawFilesystem { read, write })) => (read, write),
        };
        let read = read
            .map(|Strict(raw)| Access::new(&raw.allow, &raw.deny, raw.hidden, raw.max_bytes, None));
        let write = write.map(|Strict(raw)| {
            Access::new(&raw.allow, &raw.deny, raw.hidden, raw.max_bytes, raw.max_total_bytes)
        });
        let calls = self.calls.0.into_iter().map(|(pattern, limit)| {
            let pattern = pattern.parse().map_err(|error| format!("in `calls`: {error}"))?;
            Ok((pattern, limit))
        });
        let rules = Rules {
            read: read.transpose()?,
            write: write.transpose()?,
            shell: self.shell.map(|Strict(raw)| Shell::new(raw)).transpose()?,
            web: self.web.map(|Strict(raw)| Web::new(raw)).transpose()?,
            tools: self.tools,
            calls: calls.collect::<Result<_, String>>()?,
            total_ms: self.total_ms,
            matching: self.matching.into_iter().map(|Strict(example)| example).collect(),
            not_matching: self.not_matching.into_iter().map(|Strict(example)| example).collect(),
            written,
        };
        if rules.total_ms == Some(0) {
            return Err("`total_ms` must be at least 1".to_owned());
        }
        for example in rules.matching.iter().chain(&rules.not_matching) {
            example.check()?;
        }
        Ok(rules)
    }
}

impl Access {
    fn new(
        allow: &[String],
        deny: &[String],
        hidden: bool,
        max_bytes: Option<u64>,
        max_total_bytes: Option<u64>,
    ) -> Result<Self, String> {
        let compiled = |texts: &[String], ignore_case| {
            if texts.len() > PATTERNS_LIMIT {
                return Err(format!("a list has more than {PATTERNS_LIMIT} patterns"));
            }
            texts.iter().map(|text| PlacePattern::new(text, ignore_case)).collect()
        };
        Ok(Self {
            allow: compiled(allow, false)?,
            // Some file systems find a file by its name in any case.
            deny: compiled(deny, true)?,
            hidden,
            max_bytes,
            max_total_bytes,
        })
    }
}

impl Shell {
    fn new(raw: RawShell) -> Result<Self, String> {
        for name in &raw.allow {
            let is_path = name.contains('/');
            if name.is_empty() || (is_path && !name.starts_with('/')) {
                return Err(format!(
                    "`shell.allow` has `{}`; name a program on the `PATH`, or give its absolute path",
                    name.escape_debug()
                ));
            }
        }
        for (list, names) in [("network", &raw.network), ("unconfined", &raw.unconfined)] {
            if let Some(name) = names.iter().find(|name| !raw.allow.contains(name)) {
                return Err(format!(
                    "`shell.{list}` has `{}`, which `shell.allow` does not have",
                    name.escape_debug()
                ));
            }
        }
        if raw.deny_tokens.iter().any(String::is_empty) {
            return Err(
                "`shell.deny_tokens` has an empty text, which every argument contains".to_owned()
            );
        }
        if raw.timeout_ms == Some(0) {
            return Err("`shell.timeout_ms` must be at least 1".to_owned());
        }
        Ok(Self {
            programs: raw.allow.into_iter().map(|name| Named { name, file: None }).collect(),
            network: raw.network,
            unconfined: raw.unconfined,
            deny_tokens: raw.deny_tokens,
            timeout_ms: raw.timeout_ms,
            max_output_bytes: raw.max_output_bytes,
        })
    }

    /// Finds the files of the programs on this machine.
    pub(super) fn find_programs(
        &mut self,
        find: impl Fn(&str) -> Option<Command>,
    ) -> Result<(), String> {
        for program in &mut self.programs {
            let Some(found) = find(&program.name) else { continue };
            if found.is_of_workspace {
                return Err(format!(
                    "`shell.allow` has `{}`, which is in the workspace, where programs may change it",
                    program.name.escape_debug()
                ));
            }
            program.file = found.file.canonicalize().ok();
        }
        Ok(())
    }

    /// Checks a command.
    pub(super) fn allows(&self, source: &Source, command: &Command) -> Result<(), String> {
        let name = command.file.file_name();
        // The real file is compared, so that a copy under the same name is another program. The name is compared as
        // well, because some files are several programs and choose by their name.
        let real = command.file.canonicalize().unwrap_or_else(|_| command.file.clone());
        let is_listed = |listed: &&Named| match &listed.file {
            Some(file) => *file == real && std::path::Path::new(&listed.name).file_name() == name,
            // It is not on this machine: only an example can name it.
            None => command.file == std::path::Path::new(&listed.name),
        };
        let mut listed = self.programs.iter().filter(is_listed).peekable();
        let missing = |list: &str| {
            let file = command.file.to_string_lossy();
            format!("{} does not list `{}`", source.named(list), protocol::escape_text(&file))
        };
        if command.is_of_workspace || listed.peek().is_none() {
            return Err(missing("shell.allow"));
        }
        let has_access = |listed: &Named| {
            let is_in = |list: &[String]| list.contains(&listed.name);
            match command.access {
                CommandAccess::Workspace => true,
                CommandAccess::Network => is_in(&self.network) || is_in(&self.unconfined),
                CommandAccess::Unconfined => is_in(&self.unconfined),
            }
        };
        if !listed.any(has_access) {
            return Err(match command.access {
                CommandAccess::Unconfined => missing("shell.unconfined"),
                _ => missing("shell.network"),
            });
        }
        for (place, argument) in command.argv.iter().enumerate().skip(1) {
            if let Some(token) = self.deny_tokens.iter().find(|token| argument.contains(*token)) {
                return Err(format!(
                    "its argument {place} contains `{}`, which {} has",
                    protocol::escape_text(token),
                    source.named("shell.deny_tokens")
                ));
            }
        }
        Ok(())
    }
}

impl Web {
    fn new(raw: RawWeb) -> Result<Self, String> {
        let patterns = |name: &str, texts: &[String]| {
            if texts.len() > PATTERNS_LIMIT {
                return Err(format!("`web.{name}` has more than {PATTERNS_LIMIT} patterns"));
            }
            let pattern = |text: &String| {
                HostPattern::new(text).map_err(|error| format!("in `web.{name}`: {error}"))
            };
            texts.iter().map(pattern).collect::<Result<Vec<_>, _>>()
        };
        let private = patterns("private", &raw.private)?;
        if let Some(pattern) = private.iter().find(|pattern| pattern.one().is_none()) {
            return Err(format!("in `web.private`: `{pattern}` does not name one host"));
        }
        if raw.timeout_ms == Some(0) {
            return Err("`web.timeout_ms` must be at least 1".to_owned());
        }
        if raw.max_redirects.is_some_and(|most| most > REDIRECTS_LIMIT) {
            return Err(format!("`web.max_redirects` must be at most {REDIRECTS_LIMIT}"));
        }
        Ok(Self {
            allow: patterns("allow", &raw.allow)?,
            deny: patterns("deny", &raw.deny)?,
            private,
            max_bytes: raw.max_bytes,
            timeout_ms: raw.timeout_ms,
            max_redirects: raw.max_redirects,
        })
    }
}

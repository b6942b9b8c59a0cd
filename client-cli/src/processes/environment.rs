//! The environment of child processes: an allow-list, never the whole environment.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use execution::processes::programs::Programs;
pub(crate) use execution::processes::variables::EnvironmentError;
pub(crate) use execution::processes::variables::{check_variable, is_passed, is_secret_name};
use execution::processes::variables::{is_base, keep_out_of_records};

use crate::workspace::Workspace;
use crate::workspace::dotenv;

/// The maximum size of `.env` in bytes; the rest is ignored.
const FILE_LIMIT: u64 = 256 * 1024;

/// The user's variables.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    dotenv: BTreeMap<String, String>,
    programs: Programs,
}

/// The source of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Source {
    /// The user's environment.
    #[serde(rename = "environment")]
    Environment,
    /// The workspace's `.env`.
    #[serde(rename = ".env")]
    Dotenv,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Environment => "your environment",
            Self::Dotenv => "the workspace's `.env`",
        })
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment([redacted])")
    }
}

impl Environment {
    /// Reads the process's variables and the workspace's `.env`.
    pub fn load(workspace: &Workspace) -> Self {
        // Not `vars`, which panics if a variable is not UTF-8.
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        // Errors are ignored here: a server that needs a variable of the file reports it as
        // missing.
        let dotenv = workspace
            .open_file(".env")
            .ok()
            .and_then(|opened| {
                let mut text = String::new();
                File::from(opened.fd).take(FILE_LIMIT).read_to_string(&mut text).ok()?;
                Some(dotenv::parse(&text))
            })
            .unwrap_or_default();
        Self::new(variables.collect(), dotenv, &workspace.root_paths())
    }

    /// Creates an environment from variables.
    pub fn of(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        Self::new(variables.into_iter().collect(), BTreeMap::new(), &[])
    }

    fn new(
        variables: BTreeMap<String, String>,
        dotenv: BTreeMap<String, String>,
        roots: &[PathBuf],
    ) -> Self {
        let programs = Programs::new(variables.get("PATH").map(String::as_str), roots);
        Self { variables, dotenv, programs }
    }

    /// Returns the resolver of programs for this environment.
    pub(crate) fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Returns a variable. The process's environment takes precedence over `.env`.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.find(name).map(|(value, _)| value)
    }

    fn find(&self, name: &str) -> Option<(&str, Source)> {
        let own = self.variables.get(name).map(|value| (value, Source::Environment));
        let found = own.or_else(|| self.dotenv.get(name).map(|value| (value, Source::Dotenv)));
        // An empty variable counts as unset, but still hides the one in `.env`.
        found.map(|(value, source)| (value.as_str(), source)).filter(|(value, _)| !value.is_empty())
    }

    /// Removes the values of all secrets among the variables from what is written from now on.
    pub(crate) fn keep_secrets_out(&self) {
        let variables = self.variables.iter().chain(&self.dotenv);
        variables.for_each(|(name, value)| keep_out_of_records(name, value));
    }

    /// Returns the sources of the variables that a server requires.
    ///
    /// # Errors
    /// As [`for_server`](Self::for_server).
    pub(crate) fn sources(
        &self,
        required: &[String],
    ) -> Result<BTreeMap<String, Source>, EnvironmentError> {
        let source = |name: &String| {
            check_variable(name, "")?;
            let missing = || EnvironmentError::Missing { name: name.clone() };
            Ok((name.clone(), self.find(name).ok_or_else(missing)?.1))
        };
        required.iter().map(source).collect()
    }

    /// Returns the variables that every child receives. `PATH` has no folder in the workspace.
    pub(crate) fn base(&self) -> BTreeMap<String, String> {
        let passed = self.variables.iter();
        let passed =
            passed.filter(|(name, _)| is_base(name)).map(|(name, value)| match name.as_str() {
                "PATH" => (name.clone(), self.programs.path()),
                _ => (name.clone(), value.clone()),
            });
        passed.collect()
    }

    /// Returns the variables of one server: the base, the user's variables that it requires, and those that its entry
    /// sets. `${NAME}` in an entry's value expands to the user's variable.
    ///
    /// # Errors
    /// Returns [`EnvironmentError`] for a variable that may not be set, and for a required one that is missing.
    pub(crate) fn for_server(
        &self,
        entry: &BTreeMap<String, String>,
        required: &[String],
    ) -> Result<BTreeMap<String, String>, EnvironmentError> {
        let mut out = self.base();
        for name in required {
            // An entry of the registry may require any name, for example one that loads code.
            check_variable(name, "")?;
            // Set below, by the entry itself.
            if entry.contains_key(name) {
                continue;
            }
            let missing = || EnvironmentError::Missing { name: name.clone() };
            let value = self.get(name).ok_or_else(missing)?;
            keep_out_of_records(name, value);
            out.insert(name.clone(), value.to_owned());
        }
        for (name, value) in entry {
            check_variable(name, value)?;
            let (text, used) = self.expand(value)?;
            used.iter().chain([&text]).for_each(|value| keep_out_of_records(name, value));
            out.insert(name.clone(), text);
        }
        Ok(out)
    }

    /// Replaces `${NAME}` with the user's variables; returns the text and the values in it.
    ///
    /// # Errors
    /// Returns [`EnvironmentError::Missing`] for one that is not set.
    pub(crate) fn expand(&self, text: &str) -> Result<(String, Vec<String>), EnvironmentError> {
        let mut out = String::new();
        let mut used = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, tail)) = after.split_once('}') else { break };
            out.push_str(before);
            // `PML_API_KEY` and other variables of `pml` must not reach a server.
            if name.to_ascii_uppercase().starts_with("PML_") {
                return Err(EnvironmentError::Own { name: name.to_owned() });
            }
            let missing = || EnvironmentError::Missing { name: name.to_owned() };
            let value = self.get(name).ok_or_else(missing)?;
            // Not expanded again: a value in `.env` must not read other variables.
            out.push_str(value);
            used.push(value.to_owned());
            rest = tail;
        }
        out.push_str(rest);
        Ok((out, used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::of(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())))
    }

    fn entry(name: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(name.to_owned(), value.to_owned())])
    }

    /// LM-01: a variable that is not on the list does not reach a child.
    #[test]
    fn only_listed_variables_pass() {
        let environment =
            environment(&[("PATH", "/bin"), ("CANARY", "x"), ("LC_ALL", "C"), ("LD_PRELOAD", "y")]);
        let names: Vec<String> = environment.base().into_keys().collect();
        assert_eq!(names, ["LC_ALL", "PATH"]);
        let needed = environment.for_server(&BTreeMap::new(), &["CANARY".to_owned()]).unwrap();
        assert_eq!(needed["CANARY"], "x");
    }

    /// LM-01: variables that change what code runs are refused, in upper and lower case.
    #[test]
    fn variables_that_load_code_are_refused() {
        let environment = environment(&[("LD_PRELOAD", "y")]);
        for name in [
            "LD_PRELOAD",
            "NODE_OPTIONS",
            "PYTHONPATH",
            "BASH_ENV",
            "GIT_SSH_COMMAND",
            "PATH",
            "npm_config_script_shell",
            "ld_preload",
        ] {
            let refused = EnvironmentError::Refused { name: name.to_owned() };
            assert_eq!(environment.for_server(&entry(name, "x"), &[]), Err(refused.clone()));
            assert_eq!(environment.for_server(&BTreeMap::new(), &[name.to_owned()]), Err(refused));
        }
        for name in ["API_TOKEN", "DATABASE_URL", "NODE_ENV", "MEMORY_FILE_PATH"] {
            environment.for_server(&entry(name, "x"), &[]).expect(name);
        }
        for name in ["", "A=B", "1A", "a b", "A\n"] {
            environment.for_server(&entry(name, "x"), &[]).expect_err(name);
        }
    }

    #[test]
    fn references_are_filled_in_or_named() {
        let environment = environment(&[("KEY", "k")]);
        assert_eq!(environment.for_server(&entry("A", "<${KEY}>"), &[]).unwrap()["A"], "<k>");
        let missing = EnvironmentError::Missing { name: "NONE".to_owned() };
        assert_eq!(environment.for_server(&entry("A", "${NONE}"), &[]), Err(missing.clone()));
        assert_eq!(environment.for_server(&BTreeMap::new(), &["NONE".to_owned()]), Err(missing));
        // NX-07: a server never receives the gateway's API key.
        for name in ["PML_API_KEY", "pml_api_key"] {
            let own = EnvironmentError::Own { name: name.to_owned() };
            assert_eq!(environment.for_server(&entry("A", &format!("${{{name}}}")), &[]), Err(own));
        }
    }
}

//! Reads the command line of `check` and `doctor`, which report every invalid setting instead of the first one.
//!
//! Each setting is parsed by itself. What is valid then forms the settings that are inspected further; an invalid one
//! has its default there.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::ffi::{OsStr, OsString};

use clap::builder::{Resettable, ValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Command as ClapCommand, CommandFactory as _, FromArgMatches as _};

use super::{Cli, Command};

/// The variables of `pml`, which may stand in the same environment.
const OF_CLIENT: [&str; 10] = [
    "PML_ANALYSIS",
    "PML_API_KEY",
    "PML_APPROVALS",
    "PML_BROWSER",
    "PML_CLOUD_URL",
    "PML_KEYRING",
    "PML_LOG",
    "PML_TRACES",
    "PML_TRUST_NONINTERACTIVE",
    "PML_WORKSPACE",
];

/// The least similarity, of 1, at which a name is suggested for another one.
const SIMILAR: f64 = 0.8;

/// Where a value is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The command line.
    Flag,
    /// The environment.
    Variable,
}

/// A setting whose value cannot be used. It never contains the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mistake {
    /// Its variable.
    pub(crate) variable: String,
    /// Its flag.
    pub(crate) flag: String,
    /// Where the value is from.
    pub(crate) place: Place,
    /// What to write instead.
    pub(crate) expected: String,
}

/// Parses a command line of `check` or `doctor`; `None` if it is one of another command, or has unknown arguments.
pub(super) fn read(
    arguments: &[OsString],
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<Result<Cli, clap::Error>> {
    let matches = relaxed(Cli::command()).try_get_matches_from(arguments).ok()?;
    let (name, found) = matches.subcommand()?;
    if !matches!(name, "check" | "doctor") {
        return None;
    }
    let plain = without_variables(Cli::command());
    let mut accepted = vec![OsString::from("pml-server"), OsString::from(name)];
    let mut mistakes = Vec::new();
    for argument in settings_of(name) {
        let (Some(variable_name), Some(flag)) = (argument.get_env(), argument.get_long()) else {
            continue;
        };
        let id = argument.get_id().as_str();
        let is_flag = found.value_source(id) == Some(ValueSource::CommandLine);
        let (place, values): (Place, Vec<OsString>) = if is_flag {
            let values = found.get_raw(id).into_iter().flatten().map(OsStr::to_owned);
            (Place::Flag, values.collect())
        } else {
            let value = variable_name.to_str().and_then(&variable);
            (Place::Variable, value.into_iter().collect())
        };
        for value in values {
            let mut written = OsString::from(format!("--{flag}="));
            written.push(value);
            let alone = [OsString::from("pml-server"), OsString::from(name), written.clone()];
            match plain.clone().try_get_matches_from(alone) {
                Ok(_) => accepted.push(written),
                Err(error) => mistakes.push(Mistake {
                    variable: variable_name.to_string_lossy().into_owned(),
                    flag: format!("--{flag}"),
                    place,
                    expected: expected(&error),
                }),
            }
        }
    }
    if found.get_flag("json") {
        accepted.push("--json".into());
    }
    let read = plain.try_get_matches_from(accepted).and_then(|matches| {
        let mut cli = Cli::from_arg_matches(&matches)?;
        if let Some(Command::Check(inspect) | Command::Doctor(inspect)) = &mut cli.command {
            inspect.mistakes = mistakes;
        }
        Ok(cli)
    });
    Some(read)
}

/// Returns the variables of the environment that begin like the gateway's and are nobody's, each with the gateway's
/// variable that it resembles most.
pub(crate) fn unknown_variables(
    present: impl Iterator<Item = OsString>,
    without_flags: &[&str],
) -> Vec<(String, Option<String>)> {
    let mut known = BTreeSet::new();
    collect_variables(&Cli::command(), &mut known);
    known.extend(without_flags.iter().map(|name| (*name).to_owned()));
    let mut unknown: Vec<_> = present
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.starts_with("PML_") && !known.contains(name))
        .filter(|name| !OF_CLIENT.contains(&name.as_str()) && !is_service_link(name))
        .map(|name| {
            let near = known
                .iter()
                .map(|candidate| {
                    // Without the prefix, which would make all of them similar.
                    let (name, other) = (name.get(4..), candidate.get(4..));
                    let similarity = name.zip(other).map(|(a, b)| strsim::jaro_winkler(a, b));
                    (similarity.unwrap_or_default(), candidate)
                })
                .filter(|(similarity, _)| *similarity >= SIMILAR)
                .max_by(|(a, _), (b, _)| a.total_cmp(b));
            (name, near.map(|(_, candidate)| candidate.clone()))
        })
        .collect();
    unknown.sort();
    unknown
}

/// Returns whether Kubernetes has set a variable for a service whose name begins with `pml`.
fn is_service_link(name: &str) -> bool {
    name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.contains("_PORT_") && (name.contains("_TCP") || name.contains("_UDP"))
}

fn collect_variables(command: &ClapCommand, known: &mut BTreeSet<String>) {
    let variables = command.get_arguments().filter_map(Arg::get_env);
    known.extend(variables.map(|name| name.to_string_lossy().into_owned()));
    for below in command.get_subcommands() {
        collect_variables(below, known);
    }
}

/// Returns the arguments of a subcommand and those of every command.
fn settings_of(name: &str) -> Vec<Arg> {
    let command = Cli::command();
    let below = command.find_subcommand(name).into_iter().flat_map(ClapCommand::get_arguments);
    command.get_arguments().chain(below).cloned().collect()
}

/// Makes a command accept every value of a setting, and ignore the environment.
fn relaxed(command: ClapCommand) -> ClapCommand {
    without_variables(command).mut_subcommands(relax_values).mut_args(relax_value)
}

fn relax_values(command: ClapCommand) -> ClapCommand {
    command.mut_args(relax_value)
}

fn relax_value(argument: Arg) -> Arg {
    match argument.get_action() {
        ArgAction::Set | ArgAction::Append => {
            argument.value_parser(ValueParser::os_string()).value_delimiter(Resettable::Reset)
        }
        _ => argument,
    }
}

fn without_variables(command: ClapCommand) -> ClapCommand {
    command
        .mut_args(|argument| argument.env(Resettable::<clap::builder::OsStr>::Reset))
        .mut_subcommands(without_variables)
}

/// Returns what should have been written, without the value.
fn expected(error: &clap::Error) -> String {
    if let Some(ContextValue::Strings(values)) = error.get(ContextKind::ValidValue)
        && !values.is_empty()
    {
        return format!("write one of `{}`", values.join("`, `"));
    }
    match (error.kind(), error.source()) {
        (ErrorKind::ValueValidation, Some(reason)) => reason.to_string(),
        (ErrorKind::InvalidUtf8, _) => "it is not UTF-8".to_owned(),
        _ => "it is empty".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(arguments: &[&str], variables: &[(&str, &str)]) -> (Cli, Vec<(String, Place)>) {
        let arguments: Vec<OsString> = std::iter::once("pml-server")
            .chain(arguments.iter().copied())
            .map(Into::into)
            .collect();
        let variable = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let mut cli = read(&arguments, variable).expect("it is one of the two").unwrap();
        let Some(Command::Check(inspect) | Command::Doctor(inspect)) = &mut cli.command else {
            panic!("another command");
        };
        let named = inspect.mistakes.iter().map(|it| (it.variable.clone(), it.place)).collect();
        (cli, named)
    }

    #[test]
    fn every_mistake_is_found_and_the_rest_is_read() {
        let (cli, mistakes) = checked(
            &["check", "--rate-per-key", "canary", "--tenant-programs=7", "--data-dir", "/d"],
            &[
                ("PML_LISTEN", "canary"),
                ("PML_ISOLATION", "canary"),
                ("PML_DATABASE_CONNECTIONS", "0"),
                ("PML_TRUSTED_PROXIES", "10.0.0.1,canary"),
                ("PML_ALLOWED_HOSTS", "a.example,b.example"),
                // The flag overrides it.
                ("PML_TENANT_PROGRAMS", "canary"),
            ],
        );
        let (flag, variable) = (Place::Flag, Place::Variable);
        let expected = [
            ("PML_DATABASE_CONNECTIONS", variable),
            ("PML_LISTEN", variable),
            ("PML_ISOLATION", variable),
            ("PML_RATE_PER_KEY", flag),
            ("PML_TRUSTED_PROXIES", variable),
        ];
        assert_eq!(mistakes, expected.map(|(name, place)| (name.to_owned(), place)));
        assert_eq!(cli.settings.data_dir.as_deref(), Some(std::path::Path::new("/d")));
        let Some(Command::Check(inspect)) = cli.command else { panic!("another command") };
        assert_eq!(inspect.serve.tenant_programs, 7);
        assert_eq!(inspect.serve.allowed_hosts, ["a.example", "b.example"]);
        let said: Vec<&str> = inspect.mistakes.iter().map(|it| it.expected.as_str()).collect();
        assert_eq!(said[2], "write one of `shared`, `strict`");
        assert!(said[3].contains("`/min`"), "{said:?}");
        assert!(said.iter().all(|said| !said.contains("canary")), "{said:?}");
    }

    #[test]
    fn correct_settings_have_no_mistakes_and_other_commands_are_left_alone() {
        let (_, mistakes) = checked(&["doctor", "--json"], &[("PML_LISTEN", "localhost:1")]);
        assert!(mistakes.is_empty(), "{mistakes:?}");
        for other in [&["serve"][..], &["check", "--no-such"], &[], &["migrate"]] {
            let arguments: Vec<OsString> =
                std::iter::once(&"pml-server").chain(other).map(Into::into).collect();
            assert!(read(&arguments, |_| None).is_none(), "{other:?}");
        }
    }

    #[test]
    fn unknown_variables_are_named_with_the_nearest_one() {
        let names = [
            "LISTN",
            "ALOWED_HOSTS",
            "LISTEN",
            "MASTER_KEY",
            "API_KEY",
            "GATEWAY_SERVICE_HOST",
            "PORT_3001_TCP_ADDR",
            "XYZ",
        ];
        let names =
            names.map(|name| format!("PML_{name}").into()).into_iter().chain(["PATH".into()]);
        let unknown = unknown_variables(names, &["PML_MASTER_KEY"]);
        let said = unknown.iter().map(|(name, near)| (&name[4..], near.as_deref()));
        assert_eq!(
            said.collect::<Vec<_>>(),
            [
                ("ALOWED_HOSTS", Some("PML_ALLOWED_HOSTS")),
                ("LISTN", Some("PML_LISTEN")),
                ("XYZ", None),
            ]
        );
    }

    /// The list of `pml`'s variables is that of its page.
    #[test]
    fn the_variables_of_the_client_are_known() {
        let page = include_str!("../../../docs/cli.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `PML_")?.split('`').next());
        let documented: BTreeSet<String> = rows.map(|name| format!("PML_{name}")).collect();
        assert_eq!(documented, OF_CLIENT.map(str::to_owned).into());
    }
}

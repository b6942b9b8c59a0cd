//! Reads a command such as `npx -y PACKAGE@VERSION ARGUMENTS`: which package it starts, and with what.

/// Where a package is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ecosystem {
    /// <https://www.npmjs.com>, or the registry in the user's settings of npm.
    Npm,
    /// <https://pypi.org>, or the index in the user's settings of pip.
    PyPi,
}

impl Ecosystem {
    fn of(command: &str) -> Option<Self> {
        match command {
            "npx" | "bunx" => Some(Self::Npm),
            "uvx" => Some(Self::PyPi),
            _ => None,
        }
    }
}

/// A program of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Where the package is published.
    pub ecosystem: Ecosystem,
    /// Its name; for PyPI with its extras.
    pub package: String,
    /// The version, a range or a tag, as the ecosystem writes them; the newest if there is none.
    pub(super) version: Option<String>,
    /// The program of the package; the only one, or the one with the package's name, if there is none.
    pub(super) program: Option<String>,
    /// The arguments of the program.
    pub arguments: Vec<String>,
}

impl Request {
    /// Reads a command; `None` if it does not start a package.
    ///
    /// # Errors
    /// Returns what `pml` cannot read in it, as the rest of a sentence about the entry.
    pub fn of(command: &str, arguments: &[String]) -> Option<Result<Self, String>> {
        let ecosystem = Ecosystem::of(command)?;
        let options = match ecosystem {
            Ecosystem::Npm => &["-p", "--package"][..],
            Ecosystem::PyPi => &["--from"][..],
        };
        Some(Self::read(ecosystem, command, options, arguments))
    }

    /// Returns the names of programs that what the package contains does not find when it is sealed.
    ///
    /// Some packages of PyPI install parts of themselves with npm when they run, if there is one, and fail if they
    /// cannot write into their own folder. Without one, they do without these parts.
    pub fn hidden(&self) -> &'static [&'static str] {
        match self.ecosystem {
            Ecosystem::Npm => &[],
            Ecosystem::PyPi => &["bun", "bunx", "npm", "npx", "pnpm", "yarn"],
        }
    }

    /// Returns whether a command starts a package.
    pub fn names_package(command: &str) -> bool {
        Ecosystem::of(command).is_some()
    }

    fn read(
        ecosystem: Ecosystem,
        command: &str,
        package_options: &[&str],
        arguments: &[String],
    ) -> Result<Self, String> {
        let mut rest = arguments.iter();
        let (mut package, mut first) = (None::<String>, None);
        while let Some(argument) = rest.next() {
            let named = package_options.iter().find_map(|option| {
                argument.strip_prefix(option)?.strip_prefix('=').map(str::to_owned)
            });
            let given = match named {
                Some(named) => Some(named),
                None if package_options.contains(&argument.as_str()) => {
                    let missing = || format!("has no package after `{argument}`");
                    Some(rest.next().ok_or_else(missing)?.clone())
                }
                None => None,
            };
            match given {
                Some(_) if package.is_some() => {
                    return Err("starts more than one package".to_owned());
                }
                Some(given) => package = Some(given),
                // They change nothing about what is started.
                None if matches!(
                    argument.as_str(),
                    "-y" | "--yes" | "-q" | "--quiet" | "--bun" | "--prefer-offline" | "--"
                ) => {}
                None if argument.starts_with('-') => {
                    return Err(format!(
                        "has the option `{}` of `{command}`, which `pml` does not know; give the path of an installed program instead",
                        protocol::escape_text(argument)
                    ));
                }
                None => {
                    first = Some(argument.clone());
                    break;
                }
            }
        }
        let first = first.ok_or_else(|| format!("names no package for `{command}`"))?;
        let (spec, program) = match package {
            Some(package) => (package, Some(first)),
            None => (first, None),
        };
        let parsed = match ecosystem {
            Ecosystem::Npm => npm(&spec),
            Ecosystem::PyPi => pypi(&spec),
        };
        let (package, version) = parsed.ok_or_else(|| {
            format!("names the package `{}`, which is not a name with a version; give the path of an installed program instead", protocol::escape_text(&spec))
        })?;
        if let Some(program) = &program
            && !program.chars().all(is_of_name)
        {
            return Err(format!("names the program `{}`", protocol::escape_text(program)));
        }
        Ok(Self { ecosystem, package, version, program, arguments: rest.cloned().collect() })
    }

    /// Returns the name without extras of PyPI.
    pub(super) fn bare_name(&self) -> &str {
        self.package.split_once('[').map_or(&*self.package, |(name, _)| name)
    }

    /// Returns how a lock names it: the same for every program of the package.
    pub fn locked_name(&self) -> String {
        let of = match self.ecosystem {
            Ecosystem::Npm => "npm",
            Ecosystem::PyPi => "pypi",
        };
        format!("{of}:{}", self.shown())
    }

    /// Returns the package with its version and the place where it is published, for display.
    pub fn shown_with_place(&self) -> String {
        let place = match self.ecosystem {
            Ecosystem::Npm => "npm",
            Ecosystem::PyPi => "PyPI",
        };
        format!("`{}` from {place}", protocol::escape_text(&self.shown()))
    }

    /// Returns the package with its version, for display.
    pub(super) fn shown(&self) -> String {
        match (&self.version, self.ecosystem) {
            (None, _) => self.package.clone(),
            (Some(version), Ecosystem::Npm) => format!("{}@{version}", self.package),
            (Some(version), Ecosystem::PyPi) => format!("{}{version}", self.package),
        }
    }
}

/// Returns whether a character can be in the name of a package or program. No such name is a path or an option.
fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Returns whether this can be the name of a package, or a part of it.
pub(super) fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && name.chars().all(is_of_name)
}

/// Reads `name`, `@scope/name`, `name@version`. Addresses, paths and aliases are not read: they have no hashes in a
/// registry.
fn npm(spec: &str) -> Option<(String, Option<String>)> {
    let after = usize::from(spec.starts_with('@'));
    let (name, version) = match spec[after..].split_once('@') {
        Some((name, version)) => (&spec[..after + name.len()], Some(version)),
        None => (spec, None),
    };
    let is_named = match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').is_some_and(|(s, n)| is_name(s) && is_name(n)),
        None => is_name(name),
    };
    let is_version = |version: &str| {
        let of_version =
            |c: char| is_of_name(c) || matches!(c, '^' | '~' | '*' | '+' | '<' | '>' | '=');
        !version.is_empty() && !version.starts_with('-') && version.chars().all(of_version)
    };
    (is_named && version.is_none_or(is_version))
        .then(|| (name.to_owned(), version.map(str::to_owned)))
}

/// Reads `name`, `name[extra]`, `name==1.2`, `name>=1,<2` (PEP 508 without addresses and markers), and `name@1.2` as `uvx`
/// does.
fn pypi(spec: &str) -> Option<(String, Option<String>)> {
    let at = spec.find(['=', '<', '>', '!', '~', '@']).unwrap_or(spec.len());
    let (package, version) = spec.split_at(at);
    let (name, extras) = match package.split_once('[') {
        Some((name, extras)) => (name, extras.strip_suffix(']')?.split(',').collect()),
        None => (package, Vec::new()),
    };
    if !is_name(name) || !extras.into_iter().all(is_name) {
        return None;
    }
    let version = match version.strip_prefix('@') {
        Some("latest") => String::new(),
        Some(exact) => format!("=={exact}"),
        None => version.to_owned(),
    };
    let of_version =
        |c: char| is_of_name(c) || matches!(c, '=' | '<' | '>' | '!' | '~' | ',' | '*' | '+');
    let ends = version.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '*');
    let is_version = version.is_empty() || (ends && version.chars().all(of_version));
    is_version.then(|| (package.to_owned(), Some(version).filter(|version| !version.is_empty())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<Result<Request, String>> {
        let mut words = line.split(' ').map(str::to_owned);
        let command = words.next().unwrap();
        Request::of(&command, &words.collect::<Vec<_>>())
    }

    #[test]
    fn commands_of_packages_are_read() {
        for (line, package, version, program, arguments) in [
            ("npx -y @a/b@1.2.3 x -y", "@a/b", Some("1.2.3"), None, "x -y"),
            ("npx a", "a", None, None, ""),
            ("npx --yes -- a@latest --flag", "a", Some("latest"), None, "--flag"),
            ("npx -p a@^1 b c", "a", Some("^1"), Some("b"), "c"),
            ("npx --package=@a/b b -p c", "@a/b", None, Some("b"), "-p c"),
            ("bunx a@1", "a", Some("1"), None, ""),
            ("uvx a", "a", None, None, ""),
            ("uvx a@1.2 x", "a", Some("==1.2"), None, "x"),
            ("uvx a@latest", "a", None, None, ""),
            ("uvx a-b.c[x,y]==1.2", "a-b.c[x,y]", Some("==1.2"), None, ""),
            ("uvx --from a>=1,<2 b -v", "a", Some(">=1,<2"), Some("b"), "-v"),
        ] {
            let found = of(line).unwrap().unwrap();
            let expected = (package, version, program, arguments.to_owned());
            let Request { package, version, program, .. } = &found;
            let found =
                (&**package, version.as_deref(), program.as_deref(), found.arguments.join(" "));
            assert_eq!(found, expected, "{line}");
        }
    }

    /// What has no hash in a registry, or what `pml` would start differently, is refused and not guessed.
    #[test]
    fn other_commands_are_refused() {
        for line in [
            "npx",
            "npx -y",
            "npx -p",
            "npx -p a",
            "npx -p a -p b c",
            "npx -c a",
            "npx --call=a",
            "npx --registry=https://evil.test a",
            "npx https://evil.test/a.tgz",
            "npx github:a/b",
            "npx a/b",
            "npx ./a",
            "npx /a",
            "npx ..",
            "npx a@npm:b",
            "npx a@file:b",
            "npx a@-x",
            "npx a@",
            "npx @a",
            "npx @a/b/c",
            "npx -p a ../b",
            "uvx --python 3.12 a",
            "uvx --with b a",
            "uvx --index-url https://evil.test a",
            "uvx --from git+https://evil.test/a a",
            "uvx --from ./a a",
            "uvx a@https://evil.test",
            "uvx a[x",
            "uvx a==1;x",
            "uvx a==",
            "uvx -a",
        ] {
            assert!(of(line).unwrap().is_err(), "{line}");
        }
        for line in ["node a", "/usr/bin/npx a", "./npx a", "python3 -m a"] {
            assert!(of(line).is_none(), "{line}");
        }
    }
}

//! Who installed this program: what a package manager installed, it upgrades.

use std::path::Path;

/// A package manager that owns this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Its name.
    pub(crate) name: &'static str,
    /// The command that upgrades this program.
    pub(crate) command: &'static str,
}

/// Returns who owns a program by its path; `None` if `pml` may replace it.
pub(crate) fn owner_of(program: &Path) -> Option<Owner> {
    owner_on(program, Path::new("/var/lib/dpkg/info"))
}

fn owner_on(program: &Path, debian: &Path) -> Option<Owner> {
    let owner = |name, command| Some(Owner { name, command });
    let has = |part: &str| program.iter().any(|component| component == part);
    if has("node_modules") {
        return owner("npm", "npm install -g @casys/pml@latest");
    }
    // A wheel puts it into the folder of the environment's programs.
    let environment = program.parent().and_then(Path::parent);
    if has("site-packages") || environment.is_some_and(|folder| folder.join("pyvenv.cfg").is_file())
    {
        return owner("pip or uv", "uv tool upgrade pml-cli");
    }
    if has("Cellar") || has("linuxbrew") {
        return owner("Homebrew", "brew upgrade pml");
    }
    if program.starts_with("/nix/store") {
        return owner("Nix", "nix profile upgrade pml");
    }
    // Debian lists the files of each package.
    let listed = std::fs::read_to_string(debian.join("pml.list")).unwrap_or_default();
    if listed.lines().any(|line| Path::new(line) == program) {
        return owner("apt", "apt-get install --only-upgrade pml");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_managers_keep_what_they_installed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("pml.list"), "/.\n/usr/bin\n/usr/bin/pml\n").unwrap();
        let venv = folder.path().join("venv");
        std::fs::create_dir_all(venv.join("bin")).unwrap();
        std::fs::write(venv.join("pyvenv.cfg"), "").unwrap();
        let name = |path: &Path| owner_on(path, folder.path()).map(|owner| owner.name);
        for (path, expected) in [
            ("/usr/lib/node_modules/@casys/pml-linux-x64/pml", Some("npm")),
            ("/usr/bin/pml", Some("apt")),
            ("/usr/local/bin/pml", None),
            ("/home/ada/.local/bin/pml", None),
            ("/home/linuxbrew/.linuxbrew/Cellar/pml/1.0.0/bin/pml", Some("Homebrew")),
            ("/nix/store/abc-pml-1.0.0/bin/pml", Some("Nix")),
        ] {
            assert_eq!(name(Path::new(path)), expected, "{path}");
        }
        assert_eq!(name(&venv.join("bin/pml")), Some("pip or uv"));
    }
}

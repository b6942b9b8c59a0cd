//! What a confined command may reach: its workspace, what the system and its tools are made of, and a folder for
//! temporary files. Not the rest of the user's files, above all not keys.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use sandbox::{Bounds, Confinement, Network};

use super::programs::Program;

/// What every program needs of the system: programs, libraries, settings, and facts about the machine.
const SYSTEM: &[&str] = &[
    "/bin",
    "/etc",
    "/gnu/store",
    "/home/linuxbrew/.linuxbrew",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/opt",
    "/proc",
    "/run/NetworkManager/resolv.conf",
    "/run/current-system",
    "/run/resolvconf",
    "/run/systemd/resolve",
    "/sbin",
    "/snap",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/usr",
    "/var/lib/ca-certificates",
];

/// What a program of a gateway needs of the system. Unlike `/etc` and `/proc` as a whole, it has neither settings of other
/// programs nor other processes, which may belong to another tenant.
const RUNTIME: &[&str] = &[
    "/bin",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    "/gnu/store",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/meminfo",
    // That of the process that is confined, and of no other.
    "/proc/self",
    "/proc/stat",
    "/proc/sys/kernel/random",
    "/proc/sys/vm/overcommit_memory",
    "/proc/version",
    "/sbin",
    "/sys/devices/system/cpu",
    "/usr",
    "/var/lib/ca-certificates",
];

/// Whose program is confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// The user's, on the machine of this user.
    OfUser,
    /// A tenant's, on a gateway.
    Shared,
}

/// The devices that are no device of anybody.
const DEVICES: &[&str] = &["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"];

/// What tools for programmers install in the user's folder. Folders that also hold keys, as `.cargo`, are listed in
/// parts.
const OF_HOME: &[&str] = &[
    ".asdf",
    ".bun/bin",
    ".bun/install",
    ".cargo/bin",
    ".cargo/config",
    ".cargo/config.toml",
    ".cargo/git",
    ".cargo/registry",
    ".deno/bin",
    ".fnm",
    ".linuxbrew",
    ".local/bin",
    ".local/lib",
    ".local/share/fnm",
    ".local/share/mise",
    ".local/share/pipx",
    ".local/share/pnpm",
    ".local/share/uv",
    ".nvm",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".rvm",
    ".sdkman",
    ".volta",
    "go/bin",
    "go/pkg",
];

/// Variables that name files with certificates.
const CERTIFICATES: &[&str] = &[
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
];

/// Variables that name folders to which tools write, and the names of these in the folder for temporary files.
const WRITTEN: &[(&str, &str)] = &[
    ("UV_CACHE_DIR", "uv"),
    ("XDG_CACHE_HOME", "cache"),
    ("XDG_STATE_HOME", "state"),
    ("npm_config_cache", "npm"),
];

/// Returns what every program may reach, without a workspace and the network. `variables` are those that it gets, and
/// change: tools write to `temporary` what they would write to the user's folder.
pub fn confinement(
    program: &Program,
    temporary: &Path,
    variables: &mut BTreeMap<String, String>,
    machine: Machine,
) -> Confinement {
    // Without links, as the folders that are compared with it.
    let home = variables.get("HOME").filter(|home| home.starts_with('/'));
    let home = home.and_then(|home| Path::new(home).canonicalize().ok());
    let system = match machine {
        Machine::OfUser => SYSTEM,
        Machine::Shared => RUNTIME,
    };
    let mut read: Vec<PathBuf> = system.iter().map(PathBuf::from).collect();
    if let (Some(home), Machine::OfUser) = (&home, machine) {
        read.extend(OF_HOME.iter().map(|place| home.join(place)));
        read.extend(settings_of_git(home));
    }
    let certificates = CERTIFICATES.iter().filter_map(|name| variables.get(*name));
    read.extend(certificates.map(PathBuf::from).filter(|path| path.is_absolute()));
    // What a program starts by its name.
    let path = match machine {
        Machine::OfUser => variables.get("PATH").map_or("", String::as_str),
        // It has its interpreters, below.
        Machine::Shared => "",
    };
    for folder in path.split(':').filter(|folder| folder.starts_with('/')) {
        read.extend(of_folder(Path::new(folder), home.as_deref()));
    }
    for file in std::iter::once(&program.file).chain(&program.interpreters) {
        read.extend(installation(file, home.as_deref()));
    }
    let mut write: Vec<PathBuf> = DEVICES.iter().map(PathBuf::from).collect();
    write.push(temporary.to_owned());
    let written = WRITTEN.iter().map(|(variable, name)| (*variable, temporary.join(name)));
    for (variable, folder) in written.chain([("TMPDIR", temporary.to_owned())]) {
        variables.insert(variable.to_owned(), folder.to_string_lossy().into_owned());
    }
    Confinement { read, write, ..Confinement::default() }
}

/// Returns the user's settings of Git, which can be in several files. Git fails if it cannot read one of them.
fn settings_of_git(home: &Path) -> impl Iterator<Item = PathBuf> {
    let files = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_setting =
        |name: &[u8]| name.starts_with(b".gitconfig") || name.starts_with(b".gitignore");
    let in_home =
        files(home.to_owned()).filter(move |file| is_setting(file.file_name().as_bytes()));
    // The one that is none has passwords.
    let in_folder =
        files(home.join(".config/git")).filter(|file| file.file_name() != "credentials");
    in_home.chain(in_folder).map(|file| file.path())
}

/// Returns the file of a program, and the folder in which it is installed, if that is clear.
fn installation(file: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let Ok(real) = file.canonicalize() else { return Vec::new() };
    let folder = real.parent().and_then(|folder| prefix(folder, home)).map(Path::to_owned);
    [file.to_owned(), real].into_iter().chain(folder).collect()
}

/// Returns a folder of the `PATH`, and the folder in which its programs are installed, if that is clear.
fn of_folder(folder: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    // The folder of the user has more than programs.
    let Ok(real) = folder.canonicalize() else { return Vec::new() };
    if home.is_none_or(|home| home.starts_with(&real)) {
        return Vec::new();
    }
    let installed = prefix(&real, home).map(Path::to_owned);
    [folder.to_owned(), real].into_iter().chain(installed).collect()
}

/// Returns the folder in which the programs of a folder are installed.
fn prefix<'a>(folder: &'a Path, home: Option<&Path>) -> Option<&'a Path> {
    let home = home?;
    let name = folder.file_name()?;
    let prefix =
        folder.parent().filter(|_| ["bin", "sbin", "shims"].iter().any(|bin| name == *bin))?;
    // Neither the user's folder and what is above it, nor the data of a program of the user, as `.local`.
    let is_of_user = prefix.parent() == Some(home)
        && prefix.file_name().is_some_and(|name| name.as_bytes().starts_with(b"."));
    // Another folder with programs in it may have anything beside them.
    let is_installed = ["lib", "lib64", "libexec"].iter().any(|name| prefix.join(name).is_dir());
    (is_installed && !home.starts_with(prefix) && !is_of_user).then_some(prefix)
}

/// Ends the list of arguments that describe a confinement.
const END: &str = "--";

/// The first of those arguments, for a program that is confined and one that is not.
const CONFINED: &str = "confined";
const FREE: &str = "free";

/// Returns the arguments that describe a confinement to the process that applies it.
pub(super) fn arguments(confinement: Option<&Confinement>) -> Vec<OsString> {
    let Some(Confinement { read, write, network, bounds }) = confinement else {
        return vec![FREE.into()];
    };
    let place = |kind: &str, path: &PathBuf| {
        let mut text = OsString::from(kind);
        text.push(path);
        text
    };
    let mut out = vec![CONFINED.into()];
    out.extend(read.iter().map(|path| place("r", path)));
    out.extend(write.iter().map(|path| place("w", path)));
    match network {
        Network::None => {}
        Network::Proxied(handover) => out.push(place("p", handover)),
        Network::All => out.push("n".into()),
    }
    if let Some(Bounds { memory, cpu_seconds, file, folder, descriptors, processes }) = bounds {
        out.push(
            format!("b{memory} {cpu_seconds} {file} {folder} {descriptors} {processes}").into(),
        );
    }
    out.push(END.into());
    out
}

/// Reads those arguments; returns `None` for arguments that do not describe one completely.
pub(super) fn parse(arguments: &mut impl Iterator<Item = OsString>) -> Option<Option<Confinement>> {
    let first = arguments.next()?;
    if first == FREE {
        return Some(None);
    }
    if first != CONFINED {
        return None;
    }
    let mut confinement = Confinement::default();
    loop {
        let argument = arguments.next()?;
        if argument == END {
            return Some(Some(confinement));
        }
        let (kind, path) = argument.as_bytes().split_first()?;
        let path = PathBuf::from(OsString::from_vec(path.to_vec()));
        match kind {
            b'r' => confinement.read.push(path),
            b'w' => confinement.write.push(path),
            b'n' => confinement.network = Network::All,
            b'p' => confinement.network = Network::Proxied(path),
            b'b' => confinement.bounds = Some(bounds(path.to_str()?)?),
            _ => return None,
        }
    }
}

fn bounds(text: &str) -> Option<Bounds> {
    let numbers: Option<Vec<u64>> = text.split(' ').map(|number| number.parse().ok()).collect();
    let [memory, cpu_seconds, file, folder, descriptors, processes] = numbers?.try_into().ok()?;
    let processes = processes.try_into().ok()?;
    Some(Bounds { memory, cpu_seconds, file, folder, descriptors, processes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confinement_survives_its_way_to_the_process() {
        let odd = PathBuf::from(OsString::from_vec(b"/\xff--\n".to_vec()));
        let confined = Confinement {
            read: vec!["/usr".into(), odd.clone()],
            write: vec![odd, "--".into()],
            network: Network::All,
            bounds: None,
        };
        let bounds =
            Bounds { memory: 1, cpu_seconds: 2, file: 3, folder: 4, descriptors: 5, processes: 6 };
        let bounded = Confinement { bounds: Some(bounds), ..confined.clone() };
        let closed = Confinement { network: Network::None, ..confined.clone() };
        let proxied = Confinement { network: Network::Proxied("/n\n".into()), ..confined.clone() };
        for case in [
            None,
            Some(bounded),
            Some(confined),
            Some(closed),
            Some(proxied),
            Some(Confinement::default()),
        ] {
            let mut given = arguments(case.as_ref());
            given.extend(["/bin/ls".into(), "ls".into()]);
            let mut given = given.into_iter();
            assert_eq!(parse(&mut given), Some(case));
            assert_eq!(given.collect::<Vec<_>>(), ["/bin/ls", "ls"]);
        }
        for broken in [
            &[][..],
            &["other"],
            &["confined", "r/usr"],
            &["confined", "x", "--"],
            &["confined", "b1 2 3 4", "--"],
        ] {
            assert_eq!(parse(&mut broken.iter().map(OsString::from)), None, "{broken:?}");
        }
    }

    #[test]
    fn the_folder_of_an_installation_is_never_that_of_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap().join("home");
        let file = |path: &str| {
            let file = home.join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            if !path.starts_with("other") {
                std::fs::create_dir_all(file.parent().unwrap().with_file_name("lib")).unwrap();
            }
            std::fs::write(&file, "").unwrap();
            file
        };
        for (path, expected) in [
            ("tools/node-22/bin/node", Some("tools/node-22")),
            (".nvm/versions/node/v22/bin/node", Some(".nvm/versions/node/v22")),
            ("bin/tool", None),
            (".local/bin/tool", None),
            ("tools/tool", None),
            ("other/bin/tool", None),
        ] {
            let file = file(path);
            let mut all = vec![file.clone(), file.clone()];
            all.extend(expected.map(|folder| home.join(folder)));
            assert_eq!(installation(&file, Some(&home)), all, "{path}");
        }
        // Without a known folder of the user, anything could be it.
        assert_eq!(installation(&file("tools/x/bin/y"), None).len(), 2);
    }
}

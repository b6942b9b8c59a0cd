//! `deploy/install.sh`.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::support::{Keys, OTHER_PROGRAM, Options, Release, version};
use crate::skipped::skipped;
use crate::support::cli::text;
use crate::support::guard;

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/install.sh")
}

/// The programs that the script may find, next to one that verifies signatures.
const TOOLS: &[&str] = &[
    "sh",
    "uname",
    "sha256sum",
    "gzip",
    "mktemp",
    "sed",
    "cut",
    "base64",
    "cp",
    "cat",
    "head",
    "tail",
    "wc",
    "tr",
    "expr",
    "date",
    "mkdir",
    "chmod",
    "mv",
    "rm",
    "printf",
];

/// A home folder without anything, and a search path with few programs.
pub(super) struct Machine {
    pub(super) home: PathBuf,
    path: PathBuf,
}

impl Machine {
    pub(super) fn new(verifier: &str) -> Self {
        let folder = guard::folder("machine");
        let (home, path) = (folder.join("home"), folder.join("bin"));
        std::fs::create_dir(&home).unwrap();
        std::fs::create_dir(&path).unwrap();
        let verifier = TOOLS.iter().all(|tool| *tool != verifier).then_some(&verifier);
        for tool in TOOLS.iter().chain(verifier) {
            symlink(found(tool).unwrap(), path.join(tool)).unwrap();
        }
        Self { home, path }
    }

    /// Adds a program of this machine.
    pub(super) fn with(self, tool: &str) -> Self {
        symlink(found(tool).unwrap(), self.path.join(tool)).unwrap();
        self
    }

    fn install(&self, release: &Release, script: &Path) -> Output {
        let mut command = self.command(script);
        command.env("PML_RELEASE_URL", release.place());
        command.env("PML_RELEASE_KEY", release.keys.public());
        command.output().unwrap()
    }

    /// Returns the command that runs a script, which has to know where releases are.
    pub(super) fn command(&self, script: &Path) -> Command {
        let mut command = Command::new(self.path.join("sh"));
        command.arg(script).env_clear().env("HOME", &self.home).env("PATH", &self.path);
        command.env("TMPDIR", &self.home);
        command
    }

    pub(super) fn program(&self) -> PathBuf {
        self.home.join(".local/bin/pml")
    }

    /// Asserts that the release is refused, and that nothing is left.
    #[track_caller]
    fn refuses(&self, release: &Release, words: &str) {
        let output = self.install(release, &script());
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{said}");
        assert!(!self.program().exists(), "{said}");
        self.is_clean();
    }

    #[track_caller]
    fn is_clean(&self) {
        let mut open = vec![self.home.clone()];
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                match entry.file_type().unwrap().is_dir()
                    && [".local", "bin"].iter().any(|name| entry.file_name() == *name)
                {
                    true => open.push(entry.path()),
                    false => assert_eq!(entry.path(), self.program()),
                }
            }
        }
    }
}

fn found(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(tool)).find(|file| file.is_file())
}

/// Installs, and installs again over it, with what a small machine has.
#[test]
fn the_script_installs_the_newest_release() {
    for is_hashed in [false, true] {
        let (machine, mut release) =
            (Machine::new("openssl"), Release::new(&Options { is_hashed, ..Options::default() }));
        let output = machine.install(&release, &script());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("pml init"), "{}", text(&output.stderr));
        assert_eq!(std::fs::read(machine.program()).unwrap(), release.program);
        release.write(&Options { version: Some("9.1.0"), is_hashed, ..Options::default() });
        assert!(machine.install(&release, &script()).status.success());
        assert_eq!(version(&machine.program()).as_deref(), Some("pml 9.1.0"));
        machine.is_clean();
    }
}

/// The same with minisign, where it is installed.
#[test]
fn minisign_verifies_a_release_too() {
    if found("minisign").is_none() {
        skipped!("minisign is not installed");
    }
    let (machine, release) = (
        Machine::new("minisign"),
        Release::new(&Options { is_hashed: true, ..Options::default() }),
    );
    let output = machine.install(&release, &script());
    assert!(output.status.success(), "{}", text(&output.stderr));
    Keys::new().sign(&release.manifest(), true);
    Machine::new("minisign").refuses(&release, "is not valid for a trusted key");
}

/// Whatever was changed in a release, nothing is installed.
#[test]
fn a_release_that_is_not_as_signed_is_not_installed() {
    for is_hashed in [false, true] {
        let machine = Machine::new("openssl");
        let release = Release::new(&Options { is_hashed, ..Options::default() });
        let manifest = std::fs::read_to_string(release.manifest()).unwrap();
        std::fs::write(release.manifest(), manifest.replace("9.0.0", "9.0.1")).unwrap();
        machine.refuses(&release, "is not valid for a trusted key");
        std::fs::write(release.manifest(), &manifest).unwrap();
        let signature = release.folder.join("latest.txt.minisig");
        let signed = std::fs::read(&signature).unwrap();
        for changed in [&b""[..], b"untrusted comment: x\nRWQ\n", &signed[..60]] {
            std::fs::write(&signature, changed).unwrap();
            machine.refuses(&release, "is not valid for a trusted key");
        }
        Keys::new().sign(&release.manifest(), is_hashed);
        machine.refuses(&release, "is not valid for a trusted key");
        std::fs::write(&signature, &signed).unwrap();
        let packed = std::fs::read(release.packed()).unwrap();
        for changed in [packed[..packed.len() - 1].to_vec(), [&packed[..], b"x"].concat()] {
            std::fs::write(release.packed(), changed).unwrap();
            machine.refuses(&release, "does not have the signed size");
        }
        let flipped: Vec<u8> = packed.iter().rev().copied().collect();
        std::fs::write(release.packed(), flipped).unwrap();
        machine.refuses(&release, "the signed one is");
    }
    let expired = Options { expires: Some("2026-01-01T00:00:00Z"), ..Options::default() };
    Machine::new("openssl").refuses(&Release::new(&expired), "expired on 2026-01-01");
    let broken = Options { says: Some("pml 1.0.0"), ..Options::default() };
    Machine::new("openssl").refuses(&Release::new(&broken), "does not work here");
    for file in ["pml-riscv64-linux.gz", OTHER_PROGRAM] {
        let other = Options { file: Some(file), ..Options::default() };
        Machine::new("openssl").refuses(&Release::new(&other), "has no pml-");
    }
    let mislabelled = Options { is_for_other: true, ..Options::default() };
    Machine::new("openssl").refuses(&Release::new(&mislabelled), "does not work here");
    // Nothing that verifies.
    Machine::new("wc").refuses(&Release::new(&Options::default()), "cannot be verified");
}

/// The script takes the program of the machine, by each name of it.
#[test]
fn the_script_takes_the_program_of_the_machine() {
    for (says, expected) in [
        ("x86_64", "pml-x86_64-linux.gz"),
        ("amd64", "pml-x86_64-linux.gz"),
        ("aarch64", "pml-aarch64-linux.gz"),
        ("arm64", "pml-aarch64-linux.gz"),
    ] {
        let machine = Machine::new("openssl");
        let uname = machine.path.join("uname");
        std::fs::remove_file(&uname).unwrap();
        let lines = format!("#!/bin/sh\n[ \"$1\" = -s ] && echo Linux || echo {says}\n");
        std::fs::write(&uname, lines).unwrap();
        std::fs::set_permissions(&uname, std::fs::Permissions::from_mode(0o755)).unwrap();
        let has = Options { file: Some(expected), ..Options::default() };
        let output = machine.install(&Release::new(&has), &script());
        assert!(output.status.success(), "{says}: {}", text(&output.stderr));
        let lacks = Options { file: Some("pml-riscv64-linux.gz"), ..Options::default() };
        let output = machine.install(&Release::new(&lacks), &script());
        let words = format!("has no {expected}");
        assert!(text(&output.stderr).contains(&words), "{says}: {}", text(&output.stderr));
    }
}

/// UP-05: cut off anywhere, the script does nothing.
#[test]
fn a_part_of_the_script_does_nothing() {
    let release = Release::new(&Options::default());
    let machine = Machine::new("openssl");
    parts_do_nothing(&machine, &std::fs::read(script()).unwrap(), |part| {
        machine.install(&release, part)
    });
    assert!(machine.install(&release, &script()).status.success());
}

/// Runs each part of a script on a machine with an empty home folder.
#[track_caller]
pub(super) fn parts_do_nothing(machine: &Machine, whole: &[u8], run: impl Fn(&Path) -> Output) {
    let part = machine.home.with_file_name("part.sh");
    // The last bytes one by one: only the line end behind the brace may be missing.
    let near_end = whole.len() - 20..whole.len() - 1;
    let mut cuts = 0;
    for length in (0..whole.len() - 1).step_by(100).chain(near_end) {
        std::fs::write(&part, &whole[..length]).unwrap();
        let output = run(&part);
        assert!(std::fs::read_dir(&machine.home).unwrap().next().is_none(), "{length}");
        assert!(output.stdout.is_empty(), "{length}: {}", text(&output.stdout));
        cuts += 1;
    }
    assert!(cuts > 60, "{cuts}");
}

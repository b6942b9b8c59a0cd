//! `deploy/install.sh`.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::support::{Keys, Options, Release, version};
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
struct Machine {
    home: PathBuf,
    path: PathBuf,
}

impl Machine {
    fn new(verifier: &str) -> Self {
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

    fn install(&self, release: &Release, script: &Path) -> Output {
        let mut command = Command::new(self.path.join("sh"));
        command.arg(script).env_clear().env("HOME", &self.home).env("PATH", &self.path);
        command.env("TMPDIR", &self.home);
        command
            .env("PML_RELEASE_URL", release.place())
            .env("PML_RELEASE_KEY", release.keys.public());
        command.output().unwrap()
    }

    fn program(&self) -> PathBuf {
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
    let other = Options { file: Some("pml-riscv64-linux.gz"), ..Options::default() };
    Machine::new("openssl").refuses(&Release::new(&other), "has no pml-");
    // Nothing that verifies.
    Machine::new("wc").refuses(&Release::new(&Options::default()), "cannot be verified");
}

/// UP-05: cut off anywhere, the script does nothing.
#[test]
fn a_part_of_the_script_does_nothing() {
    let release = Release::new(&Options::default());
    let machine = Machine::new("openssl");
    let whole = std::fs::read(script()).unwrap();
    let part = machine.home.with_file_name("part.sh");
    // The last bytes one by one: only the line end behind the brace may be missing.
    let near_end = whole.len() - 20..whole.len() - 1;
    let mut cuts = 0;
    for length in (0..whole.len() - 1).step_by(100).chain(near_end) {
        std::fs::write(&part, &whole[..length]).unwrap();
        let output = machine.install(&release, &part);
        assert!(std::fs::read_dir(&machine.home).unwrap().next().is_none(), "{length}");
        assert!(output.stdout.is_empty(), "{length}: {}", text(&output.stdout));
        cuts += 1;
    }
    assert!(cuts > 60, "{cuts}");
    assert!(machine.install(&release, &script()).status.success());
}

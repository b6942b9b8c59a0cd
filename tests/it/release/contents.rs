//! What `deploy/release.sh` puts into a release, with small programs: their machines, their dependencies, and signatures.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::support::{OTHER_MACHINE, as_of};
use crate::skipped::skipped;
use crate::support::cli::{finish, text};
use crate::support::guard;

pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
const MACHINE: &str = std::env::consts::ARCH;

/// The release script, and a folder with programs for two machines.
pub(super) struct Small {
    programs: PathBuf,
    pub(super) folder: PathBuf,
}

impl Small {
    pub(super) fn new() -> Self {
        let programs = guard::folder("programs");
        let program = std::fs::read("/bin/true").unwrap();
        for machine in ["x86_64", "aarch64"] {
            std::fs::create_dir(programs.join(machine)).unwrap();
            for name in ["pml", "pml-server"] {
                let program = as_of(machine, program.clone());
                std::fs::write(programs.join(machine).join(name), program).unwrap();
            }
        }
        Self { programs, folder: guard::folder("small") }
    }

    pub(super) fn build(&self, machines: &str, settings: &[(&str, &str)]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/release.sh");
        let mut command = Command::new("bash");
        command.arg(script).arg(&self.folder);
        command.env("PML_RELEASE_PROGRAMS", &self.programs).env("PML_RELEASE_MACHINES", machines);
        command.env("SOURCE_DATE_EPOCH", "1790000000").envs(settings.iter().copied());
        finish(command, b"")
    }

    #[track_caller]
    pub(super) fn built(&self, machines: &str, settings: &[(&str, &str)]) {
        let output = self.build(machines, settings);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(VERSION).join(name)
    }

    fn names(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.folder.join(VERSION)).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// Returns what a command prints.
#[track_caller]
pub(super) fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{said}");
    said
}

/// A release for both machines has a program and a package of each kind for each of them.
#[test]
fn a_release_has_both_machines() {
    let small = Small::new();
    small.built("x86_64 aarch64", &[("PML_RELEASE_URL", "https://releases.acme.example/pml")]);
    let names = small.names();
    for (machine, debian, npm) in [("x86_64", "amd64", "x64"), ("aarch64", "arm64", "arm64")] {
        for name in [
            format!("pml-{machine}-linux.gz"),
            format!("pml-server-{machine}-linux.gz"),
            format!("pml_{VERSION}_{debian}.deb"),
            format!("pml-server_{VERSION}_{debian}.deb"),
            format!("casys-pml-linux-{npm}-{VERSION}.tgz"),
            format!("pml-{VERSION}-linux-{machine}.mcpb"),
        ] {
            assert!(names.contains(&name), "no {name} in {names:?}");
        }
        let wheel = |name: &&String| name.ends_with(&format!("_{machine}.whl"));
        assert_eq!(names.iter().filter(wheel).count(), 1, "{names:?}");
        let package = small.file(&format!("pml_{VERSION}_{debian}.deb"));
        let field = ok(Command::new("dpkg-deb").arg("-f").arg(package).arg("Architecture"));
        assert_eq!(field.trim(), debian);
        let mut tar = Command::new("tar");
        tar.arg("-xzOf").arg(small.file(&format!("casys-pml-linux-{npm}-{VERSION}.tgz")));
        let manifest: Value = serde_json::from_str(&ok(tar.arg("package/package.json"))).unwrap();
        assert_eq!(manifest["cpu"], serde_json::json!([npm]));
    }
    let statement = std::fs::read_to_string(small.folder.join("latest.txt")).unwrap();
    assert_eq!(
        statement.lines().filter(|line| line.starts_with("file ")).count(),
        4,
        "{statement}"
    );
    let formula = std::fs::read_to_string(small.file("pml.rb")).unwrap();
    assert!(formula.contains("on_intel do") && formula.contains("on_arm do"), "{formula}");
    assert!(!formula.contains("depends_on arch:"), "{formula}");
}

/// A program of another machine, or one that needs a newer glibc than is promised, is not released.
#[test]
fn a_program_of_another_machine_is_not_released() {
    let small = Small::new();
    let program = small.programs.join(MACHINE).join("pml-server");
    let right = std::fs::read(&program).unwrap();
    std::fs::write(&program, as_of(OTHER_MACHINE, right.clone())).unwrap();
    let output = small.build(OTHER_MACHINE, &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // `strip` reads only the sections, which are the same.
    let output = small.build(MACHINE, &[]);
    assert!(!output.status.success());
    let refusals = [format!("pml-server is not a program for {MACHINE}"), "strip".to_owned()];
    let said = text(&output.stderr);
    assert!(refusals.iter().any(|words| said.contains(words.as_str())), "{said}");
    std::fs::write(&program, right).unwrap();
    small.built(MACHINE, &[]);
    let output = small.build("riscv64", &[]);
    assert!(text(&output.stderr).contains("no releases for riscv64"), "{}", text(&output.stderr));

    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/packages.py");
    let pack = |glibc: &str| {
        let mut command = Command::new("python3");
        command.arg(&packages).args([
            "--version",
            VERSION,
            "--machines",
            MACHINE,
            "--glibc",
            glibc,
        ]);
        command.arg("--root").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        command.arg("--bin").arg(&small.programs).arg("--out").arg(guard::folder("packed"));
        command.env("SOURCE_DATE_EPOCH", "1790000000").output().unwrap()
    };
    // `true` of this machine needs 2.34 or newer.
    let refused = pack("2.17");
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("a release promises 2.17"), "{said}");
    let accepted = pack("2.99");
    assert!(accepted.status.success(), "{}", text(&accepted.stderr));
}

/// Values that would end a string of the install script are refused before anything is written.
#[test]
fn a_release_has_a_plain_address() {
    let small = Small::new();
    for (name, value) in [
        ("PML_RELEASE_URL", "https://a.example/';id;'"),
        ("PML_RELEASE_URL", "https://a.example/|id"),
        ("PML_RELEASE_KEYS", "RWQ'"),
    ] {
        let output = small.build(MACHINE, &[(name, value)]);
        assert!(!output.status.success() && text(&output.stderr).contains(name), "{name}={value}");
        assert_eq!(std::fs::read_dir(&small.folder).unwrap().count(), 0);
    }
    small.built(MACHINE, &[("PML_RELEASE_URL", "https://a.example/a_b-c/~d/%20")]);
}

/// One signature covers every file of the version, the chart and the packages included; another one what is newest.
#[test]
fn every_file_of_a_release_is_signed() {
    if Command::new("minisign").arg("-v").output().is_err() {
        skipped!("minisign is not installed");
    }
    let small = Small::new();
    let keys = guard::folder("keys");
    let (public, secret) = (keys.join("pml.pub"), keys.join("pml.key"));
    ok(Command::new("minisign").args(["-G", "-W", "-p"]).arg(&public).arg("-s").arg(&secret));
    small.built(MACHINE, &[("PML_RELEASE_SECRET_KEY", secret.to_str().unwrap())]);
    let verify = |file: PathBuf| {
        let mut command = Command::new("minisign");
        command.arg("-VQ").arg("-p").arg(&public).arg("-m").arg(file).output().unwrap()
    };
    // The trusted comments name what was signed, so that one cannot stand for the other.
    for (file, comment) in [
        (small.folder.join("latest.txt"), format!("pml stable {VERSION}\n")),
        (small.file("SHA256SUMS"), format!("pml {VERSION}\n")),
    ] {
        let verified = verify(file);
        assert!(verified.status.success());
        assert_eq!(text(&verified.stdout), comment);
    }
    let sums = std::fs::read_to_string(small.file("SHA256SUMS")).unwrap();
    for name in small.names().iter().filter(|name| !name.starts_with("SHA256SUMS")) {
        assert!(sums.lines().any(|line| line.ends_with(&format!("  {name}"))), "{name} in\n{sums}");
    }
    let check = |folder: &Path| {
        Command::new("sha256sum")
            .args(["--check", "--quiet", "SHA256SUMS"])
            .current_dir(folder)
            .output()
    };
    let folder = small.folder.join(VERSION);
    assert!(check(&folder).unwrap().status.success());
    for name in [format!("pml-server-{VERSION}.tgz"), "install.sh".to_owned()] {
        let right = std::fs::read(small.file(&name)).unwrap();
        std::fs::write(small.file(&name), [&right[..], b"x"].concat()).unwrap();
        assert!(!check(&folder).unwrap().status.success(), "{name} was changed");
        std::fs::write(small.file(&name), right).unwrap();
    }
    std::fs::write(small.file("SHA256SUMS"), sums.replacen('0', "1", 1)).unwrap();
    assert!(!verify(small.file("SHA256SUMS")).status.success());
}

/// The programs carry the list of what they are built of, in the form that scanners read.
#[test]
fn programs_list_their_dependencies() {
    let small = Small::new();
    small.built("x86_64 aarch64", &[]);
    for (program, package, has, lacks) in
        [("pml", "client-cli", "rusqlite", "axum"), ("pml-server", "server", "axum", "rusqlite")]
    {
        for machine in ["x86_64", "aarch64"] {
            let listed = dependencies(&small.file(&format!("{program}-{machine}-linux.gz")));
            let packages = listed["packages"].as_array().unwrap();
            let named = |name: &str| packages.iter().find(|package| package["name"] == name);
            let roots: Vec<&Value> = packages.iter().filter(|it| it["root"] == true).collect();
            assert_eq!((roots.len(), &roots[0]["name"]), (1, &package.into()));
            assert_eq!(roots[0]["source"], "local");
            assert!(packages.len() > 100, "{}", packages.len());
            assert_eq!(named(has).unwrap()["source"], "crates.io");
            // What only builds it is marked.
            assert_eq!(named("cc").unwrap()["kind"], "build");
            for name in [lacks, "insta", "proptest"] {
                assert!(named(name).is_none(), "{program} has {name}");
            }
            // Each is reached from the root, over valid indexes.
            let mut reached = vec![false; packages.len()];
            let mut open = vec![packages.iter().position(|it| it["root"] == true).unwrap()];
            while let Some(index) = open.pop() {
                if !std::mem::replace(&mut reached[index], true) {
                    let next = packages[index]["dependencies"].as_array();
                    open.extend(next.into_iter().flatten().map(|it| it.as_u64().unwrap() as usize));
                }
            }
            assert!(reached.iter().all(|it| *it), "{program} for {machine}");
        }
    }
}

/// Reads the section `.dep-v0` of a packed program.
fn dependencies(packed: &Path) -> Value {
    let folder = guard::folder("section");
    let (program, section) = (folder.join("program"), folder.join("section"));
    let plain = Command::new("gzip").arg("-dc").arg(packed).output().unwrap().stdout;
    std::fs::write(&program, plain).unwrap();
    // Of all tools, `readelf` reads programs of other machines too.
    let shown = ok(Command::new("readelf").args(["--wide", "--section-headers"]).arg(&program));
    let line =
        shown.lines().find(|line| line.contains(" .dep-v0 ")).unwrap_or_else(|| panic!("{shown}"));
    let words: Vec<&str> = line.split(']').nth(1).unwrap().split_whitespace().collect();
    let number = |word: &str| usize::from_str_radix(word, 16).unwrap();
    let (offset, size) = (number(words[3]), number(words[4]));
    let content = std::fs::read(&program).unwrap();
    std::fs::write(&section, &content[offset..offset + size]).unwrap();
    let inflate = "import sys, zlib; sys.stdout.buffer.write(zlib.decompress(open(sys.argv[1], 'rb').read()))";
    serde_json::from_str(&ok(Command::new("python3").args(["-c", inflate]).arg(&section))).unwrap()
}

//! `deploy/release.sh`, with the programs of this build: what package managers install.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::support::{Keys, version};
use crate::skipped::skipped;
use crate::support::binaries::built;
use crate::support::cli::{Project, finish, text};
use crate::support::guard;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// From the start of an installation to the result of the first program.
const FIRST_RESULT: Duration = Duration::from_secs(30);

/// Builds the release once, without a signature.
fn release() -> &'static Path {
    static RELEASE: OnceLock<PathBuf> = OnceLock::new();
    RELEASE.get_or_init(|| {
        let folder = guard::folder("built");
        build(&folder);
        folder
    })
}

fn build(folder: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/release.sh");
    let mut command = Command::new("bash");
    command.arg(script).arg(folder);
    // Packing well takes minutes with programs of the size of this build's.
    command.env("PML_RELEASE_LEVEL", "1");
    command.env("PML_RELEASE_PROGRAMS", built("pml").parent().unwrap());
    command.env("SOURCE_DATE_EPOCH", "1790000000");
    let output = finish(command, b"");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("nothing is signed"), "{}", text(&output.stderr));
}

/// Returns the bill of materials of a program.
pub(super) fn bill(program: &str) -> PathBuf {
    of_version(&format!("{program}.cdx.json"))
}

/// Returns the packed Helm chart.
pub(super) fn chart() -> PathBuf {
    of_version(&format!("pml-server-{VERSION}.tgz"))
}

/// Returns a folder with both programs, without symbols.
pub(super) fn stripped() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let folder = guard::folder("stripped");
        for program in ["pml", "pml-server"] {
            ok(Command::new("strip").arg("-o").arg(folder.join(program)).arg(built(program)));
        }
        folder
    })
}

pub(super) fn of_version(name: &str) -> PathBuf {
    release().join(VERSION).join(name)
}

/// Returns the only file of the version with this end.
fn with_end(end: &str) -> PathBuf {
    let files = std::fs::read_dir(release().join(VERSION)).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    files.find(|file| file.to_string_lossy().ends_with(end)).unwrap()
}

/// A machine of a new user, without Rust, on which `pml` is about to be installed.
struct NewUser {
    project: Project,
    /// The folder of a project without anything.
    folder: PathBuf,
    began: Instant,
}

impl NewUser {
    fn begin() -> Self {
        // Nothing of the machine that builds: neither its tools nor its settings.
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let project = Project::offline().set("PATH", path);
        Self { project, folder: guard::folder("new-project"), began: Instant::now() }
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
        let mut command = self.project.wrap(Command::new(program), arguments);
        command.env_remove("PML_WORKSPACE").current_dir(&self.folder);
        command
    }

    /// Asserts that an installed program sets up a project and runs a program in time.
    #[track_caller]
    fn runs(&self, program: &Path) {
        assert_eq!(version(program).unwrap(), format!("pml {VERSION}"));
        let run = |arguments: &[&str], input: &[u8]| {
            let output = finish(self.command(program, arguments), input);
            assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
            text(&output.stdout)
        };
        run(&["init", "--yes"], b"");
        assert!(self.folder.join(".pml.json").is_file());
        assert_eq!(run(&["exec", "-"], b"return 6 * 7;"), "42\n");
        let took = self.began.elapsed();
        assert!(took < FIRST_RESULT, "it took {took:?}");
    }
}

/// The script installs a built release, from a folder.
#[test]
fn the_script_installs_it() {
    // With the key of this test: the release itself is not signed.
    let (keys, signed) = (Keys::new(), guard::folder("signed"));
    std::fs::copy(release().join("latest.txt"), signed.join("latest.txt")).unwrap();
    keys.sign(&signed.join("latest.txt"), true);
    std::os::unix::fs::symlink(release().join(VERSION), signed.join(VERSION)).unwrap();
    let user = NewUser::begin();
    let script = release().join("install.sh");
    let mut command = user.command("sh", &[script.to_str().unwrap()]);
    command.env("PML_RELEASE_URL", &signed).env("PML_RELEASE_KEY", keys.public());
    let output = finish(command, b"");
    assert!(output.status.success(), "{}", text(&output.stderr));
    user.runs(&user.project.home().join(".local/bin/pml"));
}

#[track_caller]
fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}\n{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The packages of npm install without the network and without scripts, and start the program.
#[test]
fn npm_installs_it() {
    let folder = guard::folder("npm");
    let user = NewUser::begin();
    let arch = if cfg!(target_arch = "x86_64") { "x64" } else { "arm64" };
    let platform = of_version(&format!("casys-pml-linux-{arch}-{VERSION}.tgz"));
    let mut install = Command::new("npm");
    install
        .args(["install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"])
        .arg(&folder);
    install.arg(platform).arg(of_version(&format!("casys-pml-{VERSION}.tgz")));
    install.env("npm_config_cache", folder.join("cache")).current_dir(&folder);
    ok(&mut install);
    user.runs(&folder.join("node_modules/.bin/pml"));
    // What it is asked to do, and how that ended, goes through.
    let project = Project::offline();
    let shim = Command::new(folder.join("node_modules/.bin/pml"));
    let output = finish(project.wrap(shim, &["exec", "-"]), b"return (;");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

/// The wheel installs with pip, without an index.
#[test]
fn pip_installs_it() {
    let folder = guard::folder("venv");
    ok(Command::new("python3").args(["-m", "venv"]).arg(&folder));
    let user = NewUser::begin();
    let mut install = Command::new(folder.join("bin/pip"));
    install
        .args(["install", "--quiet", "--no-index", "--disable-pip-version-check"])
        .arg(with_end(".whl"));
    ok(&mut install);
    user.runs(&folder.join("bin/pml"));
    let mut upgrade = Command::new(folder.join("bin/pml"));
    upgrade.args(["upgrade", "--from", "/nowhere", "--key", "RWQx"]);
    assert!(!upgrade.output().unwrap().status.success());
}

/// The packages of Debian are valid and have the programs, and the gateway's has its unit.
#[test]
fn debian_packages_have_the_programs() {
    let folder = guard::folder("deb");
    for program in ["pml", "pml-server"] {
        let package = release().join(VERSION);
        let package = std::fs::read_dir(package).unwrap().map(|file| file.unwrap().path());
        let start = format!("{program}_");
        let named = |file: &PathBuf| {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with(&start) && name.ends_with(".deb")
        };
        let package = package.into_iter().find(named).unwrap();
        assert_eq!(
            ok(Command::new("dpkg-deb").arg("-f").arg(&package).arg("Package")).trim(),
            program
        );
        assert_eq!(
            ok(Command::new("dpkg-deb").arg("-f").arg(&package).arg("Version")).trim(),
            VERSION
        );
        ok(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&folder));
    }
    let server = folder.join("usr/bin/pml-server");
    assert_eq!(version(&server).unwrap(), format!("pml-server {VERSION}"));
    let unit =
        std::fs::read_to_string(folder.join("usr/lib/systemd/system/pml-server.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/pml-server"), "{unit}");
}

/// `dpkg` installs the package, into a root of its own.
#[test]
fn dpkg_installs_it() {
    if !rustix::process::geteuid().is_root() {
        skipped!("only root can install packages");
    }
    let root = guard::folder("dpkg");
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    std::fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let cpu = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let user = NewUser::begin();
    let mut install = Command::new("dpkg");
    // The root has no packages, so not the one of glibc either.
    install.arg(format!("--root={}", root.display())).args(["--force-depends", "--install"]);
    ok(install.arg(of_version(&format!("pml_{VERSION}_{cpu}.deb"))));
    let listed =
        ok(Command::new("dpkg").arg(format!("--root={}", root.display())).args(["-L", "pml"]));
    assert!(listed.lines().any(|line| line == "/usr/bin/pml"), "{listed}");
    user.runs(&root.join("usr/bin/pml"));
}

/// The bill of materials lists what the program is built of, and nothing that only tests use.
#[test]
fn the_bill_of_materials_lists_the_crates() {
    for (program, has, lacks) in [("pml", "rusqlite", "axum"), ("pml-server", "axum", "rusqlite")] {
        let bill = std::fs::read(of_version(&format!("{program}.cdx.json"))).unwrap();
        let bill: Value = serde_json::from_slice(&bill).unwrap();
        assert_eq!(
            (&bill["bomFormat"], &bill["specVersion"]),
            (&"CycloneDX".into(), &"1.6".into())
        );
        let components = bill["components"].as_array().unwrap();
        let named = |name: &str| components.iter().find(|component| component["name"] == name);
        assert!(components.len() > 100, "{}", components.len());
        let known = named(has).unwrap();
        assert_eq!(known["hashes"][0]["content"].as_str().unwrap().len(), 64, "{known:#}");
        assert!(known["purl"].as_str().unwrap().starts_with(&format!("pkg:cargo/{has}@")));
        for name in [lacks, "insta", "proptest"] {
            assert!(named(name).is_none(), "{program} has {name}");
        }
    }
}

/// The same programs give the same bytes, and SHA256SUMS covers every file.
#[test]
fn a_release_can_be_built_again() {
    let again = guard::folder("again");
    build(&again);
    let sums = std::fs::read_to_string(of_version("SHA256SUMS")).unwrap();
    assert_eq!(sums, std::fs::read_to_string(again.join(VERSION).join("SHA256SUMS")).unwrap());
    let files = std::fs::read_dir(release().join(VERSION)).unwrap().count();
    assert_eq!(sums.lines().count() + 1, files, "{sums}");
    let installer = std::fs::read_to_string(release().join("install.sh")).unwrap();
    assert!(
        !installer.contains("@URL@") && !installer.contains("@KEYS@"),
        "the places were not filled in"
    );
}

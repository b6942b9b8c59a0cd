//! `pml upgrade`.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use super::support::{Keys, OTHER_PROGRAM, Options, Release, version};
use crate::support::binaries::built;
use crate::support::cli::{Project, text};
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::{guard, scaled};

/// The version of the built program.
const OWN: &str = concat!("pml ", env!("CARGO_PKG_VERSION"));

/// A `pml` of its own, in a folder that it may write.
struct Installed {
    project: Project,
    program: PathBuf,
}

impl Installed {
    fn new() -> Self {
        let folder = guard::folder("installed");
        let program = folder.join("pml");
        // Another name of the same file is enough, because it is replaced and never written.
        if std::fs::hard_link(built("pml"), &program).is_err() {
            std::fs::copy(built("pml"), &program).unwrap();
        }
        Self { project: Project::offline(), program }
    }

    fn command(&self, release: &Release, more: &[&str]) -> Command {
        let (place, key) = (release.place(), release.keys.public());
        let mut arguments = vec!["upgrade", "--from", &place, "--key", &key];
        arguments.extend(more);
        self.project.wrap(Command::new(&self.program), &arguments)
    }

    fn upgrade(&self, release: &Release, more: &[&str]) -> Output {
        self.command(release, more).stdin(Stdio::null()).output().unwrap()
    }

    /// Asserts that the release is refused with these words, and that the program is as it was.
    #[track_caller]
    fn refuses(&self, release: &Release, code: i32, words: &str) {
        let output = self.upgrade(release, &[]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{said}");
        assert_eq!(version(&self.program).as_deref(), Some(OWN));
    }
}

/// A release is installed in one step; the file is the one that was signed, with the permissions of the old one.
#[test]
fn the_newest_release_is_installed() {
    for is_hashed in [false, true] {
        let (installed, release) =
            (Installed::new(), Release::new(&Options { is_hashed, ..Options::default() }));
        let check = installed.upgrade(&release, &["--check"]);
        assert_eq!(check.status.code(), Some(1), "{}", text(&check.stderr));
        assert!(text(&check.stdout).contains("pml 9.0.0 is available"), "{}", text(&check.stdout));
        let json = installed.upgrade(&release, &["--check", "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!((&json["to"], &json["newer"]), (&"9.0.0".into(), &true.into()), "{json}");
        assert_eq!(version(&installed.program).as_deref(), Some(OWN));

        let done = installed.upgrade(&release, &[]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        assert!(text(&done.stdout).contains("to 9.0.0"), "{}", text(&done.stdout));
        assert_eq!(std::fs::read(&installed.program).unwrap(), release.program);
        assert_eq!(version(&installed.program).as_deref(), Some("pml 9.0.0"));
        let left: Vec<_> =
            std::fs::read_dir(installed.program.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}

/// The same over HTTP; and what is up to date stays.
#[test]
fn releases_are_read_over_http() {
    let installed = Installed::new();
    let mut release = Release::new(&Options::default());
    let folder = release.folder.clone();
    let web = GatewayStub::start_with_head(move |head, _| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let path = path.strip_prefix("/releases/").unwrap_or_default();
        match std::fs::read(folder.join(path)) {
            Ok(content) if !path.contains("..") => Answer::Raw(200, "text/plain", content),
            _ => Answer::Raw(404, "text/plain", Vec::new()),
        }
    });
    let place = format!("{}/releases", web.url);
    let key = release.keys.public();
    let run = |more: &[&str]| {
        let mut arguments = vec!["upgrade", "--from", &place, "--key", &key];
        arguments.extend(more);
        let command = installed.project.wrap(Command::new(&installed.program), &arguments);
        crate::support::cli::finish(command, b"")
    };
    release.write(&Options { version: Some(env!("CARGO_PKG_VERSION")), ..Options::default() });
    let same = run(&[]);
    assert!(same.status.success() && text(&same.stdout).contains("up to date"), "{same:?}");
    release.write(&Options::default());
    let done = run(&[]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(version(&installed.program).as_deref(), Some("pml 9.0.0"));
    let plain = ["upgrade", "--from", "http://releases.test/", "--key", &key];
    let refused = installed.project.run(&plain);
    assert!(text(&refused.stderr).contains("not `https`"), "{}", text(&refused.stderr));
}

/// UP-01: whatever was changed in a release, the old program stays and runs.
#[test]
fn a_release_that_is_not_as_signed_is_refused() {
    let installed = Installed::new();
    let release = Release::new(&Options::default());
    let manifest = std::fs::read_to_string(release.manifest()).unwrap();
    let signature = release.folder.join("latest.txt.minisig");
    let signed = std::fs::read_to_string(&signature).unwrap();
    for changed in [
        manifest.replace("version 9.0.0", "version 9.0.1"),
        manifest.replace("2099", "2098"),
        format!("{manifest}\n"),
        String::new(),
    ] {
        std::fs::write(release.manifest(), changed).unwrap();
        installed.refuses(&release, 2, "is not valid for a trusted key");
    }
    std::fs::write(release.manifest(), &manifest).unwrap();
    for changed in [
        String::new(),
        signed.replacen("pml stable", "pml nightly", 1),
        signed[..signed.len() / 2].to_owned(),
    ] {
        std::fs::write(&signature, changed).unwrap();
        installed.refuses(&release, 2, "is not valid for a trusted key");
    }
    // By somebody else's key.
    Keys::new().sign(&release.manifest(), false);
    installed.refuses(&release, 2, "is not valid for a trusted key");
    std::fs::remove_file(&signature).unwrap();
    installed.refuses(&release, 4, "latest.txt.minisig");
    std::fs::write(&signature, signed).unwrap();

    let packed = std::fs::read(release.packed()).unwrap();
    let middle = packed.len() / 2;
    let flipped: Vec<u8> =
        packed.iter().enumerate().map(|(place, byte)| byte ^ u8::from(place == middle)).collect();
    for (content, words) in [
        (flipped, "SHA-256"),
        (packed[..middle].to_vec(), "SHA-256"),
        ([&packed[..], b"x"].concat(), "larger than"),
        (Vec::new(), "SHA-256"),
    ] {
        std::fs::write(release.packed(), content).unwrap();
        let output = installed.upgrade(&release, &[]);
        assert!(
            !output.status.success() && text(&output.stderr).contains(words),
            "{}",
            text(&output.stderr)
        );
        assert_eq!(version(&installed.program).as_deref(), Some(OWN));
    }
    std::fs::write(release.packed(), packed).unwrap();
    assert!(installed.upgrade(&release, &[]).status.success());
}

/// What was signed and does not work is not installed either.
#[test]
fn a_program_that_does_not_say_its_version_is_not_installed() {
    let installed = Installed::new();
    installed.refuses(
        &Release::new(&Options { says: Some("pml 8.0.0"), ..Options::default() }),
        1,
        "it says `pml 8.0.0`",
    );
    installed.refuses(
        &Release::new(&Options { says: Some(""), ..Options::default() }),
        1,
        "it says ``",
    );
    assert!(installed.upgrade(&Release::new(&Options::default()), &[]).status.success());
}

/// UP-03: an older release, an expired one, one of another channel or machine.
#[test]
fn a_release_that_is_not_the_newest_is_refused() {
    let installed = Installed::new();
    for (options, words) in [
        (
            Options { expires: Some("2026-01-01T00:00:00Z"), ..Options::default() },
            "expired on 2026-01-01",
        ),
        (Options { channel: Some("nightly"), ..Options::default() }, "of the channel `nightly`"),
        (
            Options { file: Some("pml-riscv64-linux.gz"), ..Options::default() },
            "not for this machine",
        ),
        (
            Options { file: Some("pml-x86_64-windows.gz"), ..Options::default() },
            "not for this machine",
        ),
        (Options { file: Some(OTHER_PROGRAM), ..Options::default() }, "not for this machine"),
        (Options { version: Some("9.0"), ..Options::default() }, "is not a version"),
    ] {
        installed.refuses(&Release::new(&options), 2, words);
    }
    // A program of another machine under the name of this one.
    let mislabelled = Options { is_for_other: true, ..Options::default() };
    installed.refuses(&Release::new(&mislabelled), 1, "does not work here");
    // An older version than this program: nothing to do.
    let older = Release::new(&Options { version: Some("0.0.1"), ..Options::default() });
    let output = installed.upgrade(&older, &[]);
    assert!(output.status.success() && text(&output.stdout).contains("up to date"), "{output:?}");
    // An older one than was seen before.
    let mut release = Release::new(&Options::default());
    assert_eq!(installed.upgrade(&release, &["--check"]).status.code(), Some(1));
    release.write(&Options { version: Some("8.0.0"), ..Options::default() });
    installed.refuses(&release, 2, "9.0.0 was seen before");
    release.write(&Options { version: Some("9.0.1"), ..Options::default() });
    assert!(installed.upgrade(&release, &[]).status.success());
}

/// UP-02: killed at any instant, the old or the new program is there, and the next upgrade works.
#[test]
fn an_upgrade_can_be_killed_at_any_instant() {
    let release = Release::new(&Options { padding: 4 << 20, ..Options::default() });
    let installed = Installed::new();
    let began = std::time::Instant::now();
    assert!(installed.upgrade(&release, &[]).status.success());
    let whole = began.elapsed();
    let (count, mut was_new) = (scaled(50), 0);
    for round in 0..count {
        let installed = Installed::new();
        let mut child = installed
            .command(&release, &[])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Spread over the time that one takes.
        let delay = whole.mul_f64((round as f64 + 0.5) / count as f64);
        std::thread::sleep(delay.min(Duration::from_secs(10)));
        let _ = child.kill();
        child.wait().unwrap();
        let now = version(&installed.program);
        assert!(matches!(now.as_deref(), Some(OWN | "pml 9.0.0")), "after {delay:?}: {now:?}");
        was_new += usize::from(now.as_deref() != Some(OWN));
        if now.as_deref() == Some(OWN) {
            assert!(installed.upgrade(&release, &[]).status.success());
            assert_eq!(version(&installed.program).as_deref(), Some("pml 9.0.0"));
        }
    }
    println!("killed {count} upgrades: {was_new} times the new program was there already");
}

/// Two at once: one installs, and the program is there afterwards in any case.
#[test]
fn upgrades_at_the_same_time_do_not_harm_each_other() {
    let release = Release::new(&Options { padding: 1 << 20, ..Options::default() });
    let installed = Installed::new();
    let start = || {
        installed
            .command(&release, &[])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..6).map(|_| start()).collect();
    let done: Vec<bool> =
        children.into_iter().map(|mut child| child.wait().unwrap().success()).collect();
    assert!(done.contains(&true), "{done:?}");
    assert_eq!(std::fs::read(&installed.program).unwrap(), release.program);
}

/// A `pml` that was built from source, or that a package manager installed, says how it is upgraded.
#[test]
fn others_are_told_how_to_upgrade() {
    let project = Project::offline();
    let output = project.run(&["upgrade"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("was not built as a release"),
        "{}",
        text(&output.stderr)
    );
    let output = project.run(&["upgrade", "--from", "/nowhere", "--key", "RWQx"]);
    assert!(text(&output.stderr).contains("is not a public key"), "{}", text(&output.stderr));

    let release = Release::new(&Options::default());
    let mut installed = Installed::new();
    let folder = installed.program.parent().unwrap().join("node_modules/@casys/pml-linux-x64");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::rename(&installed.program, folder.join("pml")).unwrap();
    installed.program = folder.join("pml");
    let output = installed.upgrade(&release, &[]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("installed by npm") && said.contains("npm install -g"), "{said}");
    let check = installed.upgrade(&release, &["--check"]);
    assert!(text(&check.stdout).contains("npm install -g"), "{}", text(&check.stdout));
}

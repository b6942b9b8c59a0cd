use serde_json::{Value, json};

use super::*;

fn sha512(letter: &str) -> String {
    format!("sha512-{}w==", letter.repeat(85))
}

fn sha256(letter: &str) -> String {
    format!("sha256:{}", letter.repeat(64))
}

fn read(value: Value) -> Result<LockedPackages, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn npm(places: &[(&str, &str)]) -> Result<LockedPackages, String> {
    let places: BTreeMap<&str, &str> = places.iter().copied().collect();
    read(json!({ "request": "npm:a@1.0.0", "npm": places }))
}

fn pypi(name: &str, wheel: &str) -> Result<LockedPackages, String> {
    read(json!({ "request": "pypi:a==1.0", "pypi": { "cpython-311-linux": { name: wheel } } }))
}

fn request(command: &str, package: &str) -> Request {
    Request::of(command, &[package.to_owned()]).unwrap().unwrap()
}

/// LK-02, LK-03: a lock from anywhere can name exact versions with hashes, and nothing else.
#[test]
fn only_exact_packages_with_hashes_are_read() {
    let good = format!("1.0.0 {}", sha512("x"));
    for text in [
        good.clone(),
        format!("npm:@s/b@1.0.0-rc.1 {} optional os=linux,!win32 cpu=x64 libc=glibc", sha512("x")),
    ] {
        let read = npm(&[
            ("node_modules/a", &text),
            ("node_modules/@s/b/node_modules/c", &good),
            ("node_modules/@s/b", &good),
        ]);
        let written = serde_json::to_value(read.unwrap()).unwrap();
        assert_eq!(written["npm"]["node_modules/a"], text);
    }
    for place in [
        "",
        "a",
        "node_modules/",
        "node_modules/..",
        "node_modules/../a",
        "node_modules/a/../../b",
        "node_modules/a/b",
        "/node_modules/a",
        "node_modules/@a",
        "node_modules/@a/../b",
        "node_modules/.bin",
        "node_modules/a/",
        "node_modules/b/node_modules/c",
        "node_modules/node_modules",
        "x/node_modules/a",
        "node_modules/a\\b",
        "node_modules/a:b",
    ] {
        assert!(npm(&[(place, &good)]).is_err(), "{place}");
    }
    let hash = sha512("x");
    for text in [
        String::new(),
        "1.0.0".to_owned(),
        "1.0.0 ".to_owned(),
        format!("^1.0.0 {hash}"),
        format!("latest {hash}"),
        format!("1.0 {hash}"),
        format!("https://evil.test/a.tgz {hash}"),
        format!("npm:https://evil.test/a@1.0.0 {hash}"),
        format!("npm:../a@1.0.0 {hash}"),
        format!("file:../a {hash}"),
        format!("1.0.0 {hash} {hash}"),
        format!("1.0.0  {hash}"),
        format!("1.0.0 {hash} link"),
        format!("1.0.0 {hash} inBundle"),
        format!("1.0.0 {hash} cpu=x64 os=linux"),
        format!("1.0.0 {hash} os="),
        format!("1.0.0 {hash} os=a/b"),
        format!("1.0.0 {}", hash.to_uppercase()),
        format!("1.0.0 {}", hash.replace("w==", "x==")),
        format!("1.0.0 {}", hash.replace("==", "")),
        format!("1.0.0 {}", hash.replace("sha512", "sha256")),
        "1.0.0 sha1-AAAAAAAAAAAAAAAAAAAAAAAAAAA=".to_owned(),
        "1.0.0 md5-AAAAAAAAAAAAAAAAAAAAAA==".to_owned(),
        "1.0.0 sha512-".to_owned(),
    ] {
        assert!(npm(&[("node_modules/a", &text)]).is_err(), "{text}");
    }
    for member in ["resolved", "link", "registry"] {
        let mut value = json!({ "request": "npm:a", "npm": { "node_modules/a": good } });
        value[member] = json!("x");
        read(value).unwrap_err();
    }
    read(json!({ "request": "npm:a", "npm": { "node_modules/a": { "version": "1.0.0", "integrity": hash } } })).unwrap_err();
    read(json!({ "request": "npm:a" })).unwrap_err();

    pypi("a-b", &format!("1!2.0.post1+local {}", sha256("a"))).unwrap();
    for (name, wheel) in [
        ("a_b", format!("1.0 {}", sha256("a"))),
        ("A", format!("1.0 {}", sha256("a"))),
        ("a @ https://evil.test", format!("1.0 {}", sha256("a"))),
        ("", format!("1.0 {}", sha256("a"))),
        ("-r", format!("1.0 {}", sha256("a"))),
        ("a", format!(">=1.0 {}", sha256("a"))),
        ("a", format!("1.0\n--index-url {}", sha256("a"))),
        ("a", format!("1.0;x {}", sha256("a"))),
        ("a", format!("1.0 {} {}", sha256("a"), sha256("b"))),
        ("a", format!("1.0 {}", sha256("A"))),
        ("a", format!("1.0 {}", sha256("g"))),
        ("a", "1.0 sha256:".to_owned()),
        ("a", format!("1.0 md5:{}", "a".repeat(32))),
        ("a", "1.0".to_owned()),
    ] {
        assert!(pypi(name, &wheel).is_err(), "{name} {wheel}");
    }
}

/// LK-04: a set counts only for the package and the version that are requested.
#[test]
fn another_package_or_version_does_not_fit() {
    let good = format!("1.0.0 {}", sha512("x"));
    let asked = request("npx", "a@1.0.0");
    let set = npm(&[("node_modules/a", &good)]).unwrap();
    set.check_fits(&asked).unwrap();
    assert_eq!((set.version(), set.count()), (Some("1.0.0"), 1));
    set.check_fits(&request("npx", "a@2.0.0")).unwrap_err();
    set.check_fits(&request("uvx", "a==1.0.0")).unwrap_err();
    for (place, text) in [
        ("node_modules/b", good.clone()),
        ("node_modules/a", good.replace("1.0.0", "1.0.1")),
        ("node_modules/a", format!("npm:evil@{good}")),
    ] {
        npm(&[(place, &text)]).unwrap().check_fits(&asked).unwrap_err();
    }
    let set = pypi("a", &format!("1.0.0 {}", sha256("a"))).unwrap();
    set.check_fits(&request("uvx", "a==1.0")).unwrap();
    assert_eq!(set.version(), Some("1.0.0"));
    pypi("a", &format!("1.1 {}", sha256("a")))
        .unwrap()
        .check_fits(&request("uvx", "a==1.0"))
        .unwrap_err();
    pypi("b", &format!("1.0 {}", sha256("a")))
        .unwrap()
        .check_fits(&request("uvx", "a==1.0"))
        .unwrap_err();
}

#[test]
fn changes_name_the_packages() {
    let one = format!("1.0.0 {}", sha512("x"));
    let two = format!("2.0.0 {}", sha512("y"));
    let before = npm(&[
        ("node_modules/a", &one),
        ("node_modules/b", &one),
        ("node_modules/c", &one),
        ("node_modules/d", &one),
    ])
    .unwrap();
    assert_eq!(before.changes_since(&before), None);
    let other = format!("1.0.0 {}", sha512("y"));
    let now = npm(&[
        ("node_modules/a", &one),
        ("node_modules/b", &two),
        ("node_modules/c", &other),
        ("node_modules/e", &two),
    ])
    .unwrap();
    assert_eq!(
        now.changes_since(&before).unwrap(),
        "`b`: was 1.0.0, now 2.0.0; `c` 1.0.0: other hash; new: `e` 2.0.0; no longer: `d`"
    );
    assert_ne!(now.hash(), before.hash());
}

/// What is replaced under its version is told from another package, and from one that is only needed differently.
#[test]
fn a_replaced_version_is_told_from_other_changes() {
    let one = format!("1.0.0 {}", sha512("x"));
    let before = npm(&[("node_modules/a", &one)]).unwrap();
    for (now, kind) in [
        (format!("1.0.0 {}", sha512("y")), ChangeKind::Hash),
        (format!("npm:b@1.0.0 {}", sha512("y")), ChangeKind::Version),
        (format!("1.0.0 {} optional os=linux", sha512("x")), ChangeKind::Conditions),
    ] {
        let now = npm(&[("node_modules/a", &now)]).unwrap();
        let kinds: Vec<ChangeKind> = now.changes(&before).iter().map(|one| one.change).collect();
        assert_eq!(kinds, [kind]);
    }
}

/// An update keeps the hashes of other platforms while they have the same versions.
#[test]
fn other_platforms_stay_while_their_versions_are_the_same() {
    let of = |platforms: Value| read(json!({ "request": "pypi:a", "pypi": platforms })).unwrap();
    let wheel = |version: &str, letter: &str| format!("{version} {}", sha256(letter));
    let here = |version: &str, letter: &str| of(json!({ "here": { "a": wheel(version, letter) } }));
    let both = |letter: &str| {
        of(json!({ "here": { "a": wheel("1.0", letter) }, "there": { "a": wheel("1.0", "b") } }))
    };
    assert_eq!(here("1.0", "a").succeeding(&both("a")), both("a"));
    let there = of(json!({ "there": { "a": wheel("1.0", "b") } }));
    assert_eq!(here("1.0", "a").succeeding(&there), both("a"));
    assert_eq!(here("1.1", "c").succeeding(&both("a")), here("1.1", "c"));
    // The other hash is not hidden.
    let replaced = here("1.0", "d").succeeding(&both("a"));
    let kinds: Vec<ChangeKind> =
        replaced.changes(&both("a")).iter().map(|one| one.change).collect();
    assert_eq!((replaced, kinds), (both("d"), vec![ChangeKind::Hash]));
}

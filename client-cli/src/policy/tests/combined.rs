//! Two policies: that of the project, and one that a command is given.

use super::*;

/// Returns the policy of a section under a policy file with another one.
fn under(own: Option<Value>, given: &Value) -> Policy {
    let mut policy = match own {
        Some(section) => self::policy(&section),
        None => Policy::default(),
    };
    let given = GivenPolicy::parse("p.yaml".to_owned(), &given.to_string()).unwrap();
    policy.prepare(|_| None).unwrap();
    policy.restrict(&given, |policy| policy.prepare(|_| None)).unwrap();
    policy
}

fn reason(judged: Judged) -> String {
    match judged {
        Judged::Denied(reason) => reason,
        Judged::Beyond(reason) => format!("asks: {reason}"),
        Judged::Within => "within".to_owned(),
    }
}

/// Each pair of verdicts, for each thing that is judged: the stricter one counts, and the reason names its file.
#[test]
fn the_stricter_verdict_counts() {
    let url = |policy: &Policy| policy.url(&"https://a.test/".parse().unwrap());
    let place = |policy: &Policy| policy.place(Path::new(".a"), Operation::Read);
    let run = |policy: &Policy| policy.command(&command("git", &["git"]));
    let other = |policy: &Policy| policy.tool(&"json:parse".parse().unwrap());
    type Judge<'a> = (&'static str, &'a dyn Fn(&Policy) -> Judged, Value, Value);
    let judged: [Judge<'_>; 4] = [
        (
            "filesystem.read.deny",
            &place,
            json!({ "filesystem": { "read": { "allow": ["**"], "hidden": true } } }),
            json!({ "filesystem": { "read": { "allow": ["**"], "hidden": true, "deny": [".a"] } } }),
        ),
        (
            "shell.allow",
            &run,
            json!({ "shell": { "allow": ["git"] } }),
            json!({ "shell": { "allow": ["ls"] } }),
        ),
        (
            "web.deny",
            &url,
            json!({ "web": { "allow": ["a.test"] } }),
            json!({ "web": { "allow": ["*"], "deny": ["a.test"] } }),
        ),
        ("tools", &other, json!({ "tools": ["json:*"] }), json!({ "tools": ["a:b"] })),
    ];
    for (part, judge, allows, denies) in &judged {
        let letters = |own: Option<&Value>| {
            let verdict = |given: &Value| letter(&judge(&under(own.cloned(), given)));
            [allows, denies].map(verdict).iter().collect::<String>()
        };
        assert_eq!(letters(Some(allows)), "w-", "{part}");
        assert_eq!(letters(Some(denies)), "--", "{part}");
        // Without a policy of the project, the built-in one asks about all but tools that it cannot inspect.
        let built_in = if *part == "tools" { "w-" } else { "b-" };
        assert_eq!(letters(None), built_in, "{part}");
        for (own, given, file) in [
            (allows, denies, format!("`{part}` in `p.yaml`")),
            (denies, allows, format!("`policy.{part}` in `.pml.json`")),
            (denies, denies, format!("`policy.{part}` in `.pml.json`")),
        ] {
            let reason = reason(judge(&under(Some(own.clone()), given)));
            assert!(reason.contains(&file), "{part}: {reason}");
        }
    }
}

/// A section that either of them lacks is denied, and so is what only one of them lists.
#[test]
fn what_either_omits_is_denied() {
    let all = json!({ "filesystem": { "read": { "allow": ["**"] }, "write": { "allow": ["**"] } },
        "shell": { "allow": ["git"], "network": ["git"] }, "web": { "allow": ["*"] }, "tools": ["*"] });
    for id in ["filesystem:read_file", "filesystem:write_file", "shell:exec", "web:get", "a:b"] {
        assert_eq!(tool(&under(Some(all.clone()), &all), id), 'w', "{id}");
        assert_eq!(tool(&under(Some(all.clone()), &json!({})), id), '-', "{id}");
        assert_eq!(tool(&under(Some(json!({})), &all), id), '-', "{id}");
    }
    let narrow = json!({ "filesystem": { "read": { "allow": ["src/**"] } } });
    let wide = json!({ "filesystem": { "read": { "allow": ["**"], "deny": ["src/x"] } } });
    for policy in [under(Some(narrow.clone()), &wide), under(Some(wide.clone()), &narrow)] {
        for (path, expected) in [("src/a", "ww--"), ("src/x", "----"), ("b", "----")] {
            assert_eq!(place(&policy, path), expected, "{path}");
        }
    }
    // More access than one of them grants.
    let quiet = json!({ "shell": { "allow": ["git"] } });
    let far = Command { access: CommandAccess::Network, ..command("git", &["git"]) };
    for (own, given, expected) in [(&all, &all, 'w'), (&all, &quiet, '-'), (&quiet, &all, '-')] {
        let policy = under(Some(own.clone()), given);
        assert_eq!(letter(&policy.command(&far)), expected);
    }
}

/// A file that is not trusted asks, whatever the given policy allows.
#[test]
fn a_given_policy_trusts_nothing() {
    let section = json!({ "web": { "allow": ["a.test"], "private": ["localhost:80"] }, "shell": { "allow": ["git"] } });
    let mut untrusted = Policy::new(Some(parse(&section).unwrap()), false, Vec::new());
    untrusted.prepare(|_| None).unwrap();
    let given = GivenPolicy::parse("p.yaml".to_owned(), &section.to_string()).unwrap();
    untrusted.restrict(&given, |policy| policy.prepare(|_| None)).unwrap();
    assert_eq!(letter(&untrusted.command(&command("git", &["git"]))), 'b');
    assert_eq!(letter(&untrusted.url(&"https://a.test/".parse().unwrap())), 'b');
    assert!(!untrusted.allows_private(&"http://localhost/".parse().unwrap()));
}

/// A private address has to be listed by both.
#[test]
fn a_private_address_needs_both() {
    let private = json!({ "web": { "private": ["localhost:8080"] } });
    let public = json!({ "web": { "allow": ["*", "localhost:8080"] } });
    let url = "http://localhost:8080/".parse().unwrap();
    for (own, given, expected) in [
        (Some(private.clone()), &private, Ok(())),
        (Some(private.clone()), &public, Err("`web.private` in `p.yaml`")),
        (Some(public.clone()), &private, Err("`policy.web.private` in `.pml.json`")),
        (None, &private, Err("`policy.web.private` in `.pml.json`")),
    ] {
        let policy = under(own, given);
        assert_eq!(policy.allows_private(&url), expected.is_ok());
        if let Err(list) = expected {
            assert_eq!(policy.private_list(&url), list);
        }
    }
}

/// The lower limit counts, whichever policy has it; a policy without one does not raise that of the other.
#[test]
fn the_lower_limit_counts() {
    type Limited<'a> = (&'static str, &'a dyn Fn(u64) -> Value, &'a dyn Fn(&Policy) -> Option<u64>);
    let web = |name: &'static str| move |n: u64| json!({ "web": { name: n } });
    let shell = |name: &'static str| move |n: u64| json!({ "shell": { name: n } });
    let files = |name: &'static str, part: &'static str| move |n: u64| json!({ "filesystem": { name: { part: n } } });
    let limits: [Limited<'_>; 8] = [
        ("total_ms", &|n| json!({ "total_ms": n }), &Policy::total_ms),
        ("web.max_bytes", &web("max_bytes"), &Policy::web_bytes),
        ("web.timeout_ms", &web("timeout_ms"), &Policy::web_ms),
        ("shell.timeout_ms", &shell("timeout_ms"), &Policy::command_ms),
        ("shell.max_output_bytes", &shell("max_output_bytes"), &Policy::command_output),
        ("read.max_bytes", &files("read", "max_bytes"), &|p| Some(p.read_limit()?.value)),
        ("write.max_bytes", &files("write", "max_bytes"), &|p| Some(p.write_limit()?.value)),
        ("max_total_bytes", &files("write", "max_total_bytes"), &|p| {
            Some(p.write_total_limit()?.value)
        }),
    ];
    for (name, section, limit) in limits {
        for (own, given, expected) in [
            (Some(section(5)), section(3), Some(3)),
            (Some(section(3)), section(5), Some(3)),
            (Some(section(3)), json!({}), Some(3)),
            (Some(json!({})), section(5), Some(5)),
            (None, section(5), Some(5)),
            (Some(json!({})), json!({}), None),
        ] {
            let policy = under(own.clone(), &given);
            assert_eq!(limit(&policy), expected, "{name}: {own:?} {given}");
        }
    }
    // Without a number, there is a default, which the other policy cannot raise.
    for (own, given, expected) in [
        (None, json!({ "web": { "max_redirects": 10 } }), 5),
        (Some(json!({ "web": {} })), json!({ "web": { "max_redirects": 10 } }), 5),
        (Some(json!({ "web": { "max_redirects": 10 } })), json!({ "web": {} }), 5),
        (
            Some(json!({ "web": { "max_redirects": 10 } })),
            json!({ "web": { "max_redirects": 8 } }),
            8,
        ),
        (
            Some(json!({ "web": { "max_redirects": 2 } })),
            json!({ "web": { "max_redirects": 8 } }),
            2,
        ),
    ] {
        assert_eq!(under(own, &given).web_redirects(), expected, "{given}");
    }
    let named = |own: u64, given: u64| {
        let section = |n: u64| json!({ "filesystem": { "read": { "max_bytes": n } } });
        under(Some(section(own)), &section(given)).read_limit().unwrap().named
    };
    assert_eq!(named(5, 3), "`filesystem.read.max_bytes` in `p.yaml`");
    assert_eq!(named(3, 5), "`policy.filesystem.read.max_bytes` in `.pml.json`");
    assert_eq!(named(3, 3), "`policy.filesystem.read.max_bytes` in `.pml.json`");
}

/// A run counts against the limits of both, and a call that one of them refuses counts towards none.
#[test]
fn a_run_counts_against_both() {
    let calls = |limits: Value| json!({ "tools": ["*"], "calls": limits });
    let policy = under(Some(calls(json!({ "*": 3 }))), &calls(json!({ "a:*": 1, "b:c": 2 })));
    assert!(policy.counts_calls());
    let run = PolicyOfRun::new(Arc::new(policy));
    let count = |id: &str| run.count_call(&id.parse().unwrap());
    count("a:b").unwrap();
    for _ in 0..3 {
        let refused = count("a:c").unwrap_err();
        assert_eq!(refused, "`calls` in `p.yaml` allows 1 calls of `a:*` in a run");
    }
    count("b:c").unwrap();
    count("b:c").unwrap();
    assert!(count("d:e").unwrap_err().contains("`policy.calls` in `.pml.json` allows 3 calls"));
    assert!(!under(None, &json!({})).counts_calls());

    let write = |total: u64| json!({ "filesystem": { "write": { "max_total_bytes": total } } });
    for (own, given, file) in [(10, 4, "p.yaml"), (4, 10, ".pml.json")] {
        let run = PolicyOfRun::new(Arc::new(under(Some(write(own)), &write(given))));
        run.reserve_bytes(4).unwrap().keep();
        let refused = run.reserve_bytes(1).unwrap_err();
        assert!(refused.contains(&format!("in `{file}` is 4")), "{refused}");
    }
}

/// What is wrong with a file is told with its place. Its examples are about the file alone.
#[test]
fn a_policy_file_is_strict() {
    for (text, place, says) in [
        ("filesystem:\n  red: {}\n", Some((2, 3)), "unknown field `red`"),
        ("policy: {}\n", Some((1, 1)), "unknown field `policy`"),
        ("shell:\n  allow: [git]\n  timeout: 3\n", Some((3, 3)), "unknown field `timeout`"),
        ("shell: {}\nshell: {}\n", Some((2, 1)), "`shell` is there twice"),
        ("calls:\n  'a:*': 1\n  'a:*': 2\n", Some((3, 3)), "`a:*` is there twice"),
        ("tools: [a]\n", Some((1, 9)), "`a`"),
        ("tools: a:b\n", Some((1, 8)), ""),
        ("total_ms: soon\n", Some((1, 11)), ""),
        ("filesystem:\n  read: { hidden: yes }\n", Some((2, 19)), ""),
        ("tools: [*]\n", Some((1, 9)), ""),
        ("[]\n", Some((1, 1)), ""),
        ("total_ms: 0\n", None, "`total_ms` must be at least 1"),
        ("web: { private: ['*'] }\n", None, "does not name one host"),
        ("shell: { allow: [./x] }\n", None, "absolute path"),
    ] {
        let fault = GivenPolicy::parse("p.yaml".to_owned(), text).expect_err(text);
        assert!(fault.message.contains(says), "{text:?}: {}", fault.message);
        if place.is_some() {
            assert_eq!(fault.place, place, "{text:?}: {}", fault.message);
        }
    }
    let text =
        "tools: [\"json:*\"]\nmatch: [{ tool: 'json:parse' }]\nno_match: [{ read: a.txt }]\n";
    let given = GivenPolicy::parse("p.yaml".to_owned(), text).unwrap();
    given.alone(Vec::new()).prepare(|_| None).unwrap();
    // It holds for the file, although the project's policy denies the tool.
    policy(&json!({})).restrict(&given, |policy| policy.prepare(|_| None)).unwrap();
    let wrong = text.replace("json:parse", "xml:parse");
    let given = GivenPolicy::parse("p.yaml".to_owned(), &wrong).unwrap();
    let error = given.alone(Vec::new()).prepare(|_| None).unwrap_err();
    assert_eq!(
        error,
        "the example `{\"tool\": \"xml:parse\"}` in `match` is denied: `tools` in `p.yaml` does not list it"
    );
}

/// The record has the policy in full. What is not as it was is refused.
#[test]
fn a_recorded_policy_is_read_back() {
    let text = "filesystem: { read: { allow: ['**'], deny: [private] } }\ncalls: { 'a:*': 3 }\n";
    let given = GivenPolicy::parse("p.yaml".to_owned(), text).unwrap();
    let rules = json!({ "policy_file": given.record() });
    let read = GivenPolicy::of_record(&rules).unwrap().unwrap();
    assert_eq!((read.name(), read.hash(), read.record()), ("p.yaml", given.hash(), given.record()));
    assert!(GivenPolicy::of_record(&json!({ "source": "x" })).unwrap().is_none());
    for (pointer, value) in [
        ("/policy_file/policy/filesystem/read/deny", json!([])),
        ("/policy_file/policy/filesystem/read/deny/0", json!("[redacted]")),
        ("/policy_file/hash", json!(Integrity::of(b"x"))),
        ("/policy_file/hash", json!("x")),
        ("/policy_file/policy", json!(null)),
        ("/policy_file", json!(null)),
    ] {
        let mut changed = rules.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        GivenPolicy::of_record(&changed).expect_err(pointer);
    }
}

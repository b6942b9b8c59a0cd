use serde_json::json;

use super::*;

const LIMIT: usize = 10 * 1024;

/// Formats of secrets, each as a beginning and a rest, so that no scanner takes this file for a leak.
const SECRETS: &[(&str, &str)] = &[
    ("AKIA", "IOSFODNN7EXAMPLE"),
    ("ASIA", "IOSFODNN7EXAMPLE"),
    ("ghp", "_16C7e42F292c6912E7710c838347Ae178B4a"),
    ("gho", "_16C7e42F292c6912E7710c838347Ae178B4a"),
    ("ghs", "_16C7e42F292c6912E7710c838347Ae178B4a"),
    ("github", "_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ"),
    ("glpat", "-aBcDeFgHiJkLmNoPqRs"),
    ("xoxb", "-123456789012-1234567890123-aBcDeFgHiJkLmNoPqRsTuVwX"),
    ("xoxp", "-1234567890-1234567890-abcdefabcdef"),
    ("xapp", "-1-A0B1C2D3E4F-1234567890123-0123456789abcdef0123456789abcdef"),
    ("https://hooks.slack.com", "/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX"),
    ("sk", "_live_4eC39HqLyjWDarjtT1zdp7dc"),
    ("rk", "_test_4eC39HqLyjWDarjtT1zdp7dc"),
    ("whsec", "_aBcDeFgHiJkLmNoPqRsTuVwXyZ012345"),
    ("AIza", "SyA1234567890abcdefghijklmnopqrstuv"),
    ("GOCSPX", "-aBcDeFgHiJkLmNoPqRsTuVwX"),
    ("ya29", ".a0AfH6SMBxyzABCDEFGHIJKLMNOP"),
    ("eyJhbGciOiJIUzI1NiJ9", ".eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"),
    ("-----BEGIN RSA PRIVATE KEY", "-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"),
    ("-----BEGIN OPENSSH PRIVATE KEY", "-----\nb3BlbnNzaC1rZXktdjE"),
    ("npm", "_aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789"),
    ("pypi", "-AgEIcHlwaS5vcmcCJGFiY2RlZmdoLTEyMzQtNTY3OC05MDEyLWFiY2RlZg"),
    ("postgres://app:", "hunter2x@db.example.com/app"),
    ("mongodb+srv://root:", "p%40ss@cluster0.mongodb.net"),
    ("redis://:", "s3cr3tpw@cache:6379/0"),
    ("Authorization: Basic ", "YWxhZGRpbjpvcGVuc2VzYW1l"),
    ("Authorization: Bearer ", "abcdef0123456789abcdef"),
    ("curl -H 'authorization: token ", "abcdef0123456789abcdef'"),
    ("Cookie: ", "sid=31d4d96e407aad42; theme=light"),
    ("Set-Cookie: ", "__Host-id=a3fWa; Secure; HttpOnly"),
    ("pml", "_private_0123456789abcdefghijklmnop"),
    ("sk", "-proj-aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789"),
    ("sk-ant", "-api03-aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789"),
    ("hf", "_aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"),
    ("r8", "_aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789"),
    ("gsk", "_aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789aBcD"),
    ("xai", "-aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789"),
    ("pplx", "-aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789"),
    ("tvly", "-dev-aBcDeFgHiJkLmNoPqRsTuVw"),
    ("BSA", "aBcDeFgHiJkLmNoPqRsTuVwXyZ01"),
    ("AC", "0123456789abcdef0123456789abcdef"),
    ("SG", ".aBcDeFgHiJkLmNoPqRsTuV.aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789aBcDeFg"),
    ("key", "-0123456789abcdef0123456789abcdef"),
    ("0123456789abcdef0123456789abcdef", "-us12"),
    ("dop", "_v1_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
    ("shpat", "_0123456789abcdef0123456789abcdef"),
    ("sq0csp", "-aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789aBcDeFg"),
    ("123456789", ":AAaBcDeFgHiJkLmNoPqRsTuVwXyZ012345_6"),
    ("https://discord.com/api/web", "hooks/123456789012345678/aBcDeFgHiJkLmNoPqRsTuVwXyZ"),
    (
        "DefaultEndpointsProtocol=https;AccountName=x;AccountKey",
        "=aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789==",
    ),
    ("https://x.blob.core.windows.net/c?sv=2024&sig", "=aBcDeFgHiJkLmNoPqRsTuVwXyZ%3D"),
    ("dapi", "0123456789abcdef0123456789abcdef"),
    ("lin", "_api_aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789aBcD"),
    ("ntn", "_aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789aBcDeFgHiJ"),
    ("figd", "_aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789aBcD"),
    ("hvs", ".aBcDeFgHiJkLmNoPqRsTuVwX"),
    ("glsa", "_aBcDeFgHiJkLmNoPqRsTuVwXyZ012345_01234567"),
    ("NRAK", "-ABCDEFGHIJKLMNOPQRSTUVWXYZ0"),
    ("ATATT3", "xFfGF0aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789aBcDeFg"),
    ("dckr", "_pat_aBcDeFgHiJkLmNoPqRsTuVwXyZ0"),
    ("PMAK", "-0123456789abcdef01234567-0123456789abcdef0123456789abcdef01"),
    ("AGE-SECRET-KEY-1", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQPZRY9X8GF2TVDW0S3J"),
    ("https://api.example.com/v1?api_key", "=abcdef123456"),
    ("https://example.com/cb#state=1&access_token", "=abcdef123456"),
    ("DB_PASSWORD", "=correct-horse"),
    ("export STRIPE_SECRET", "='abc123def'"),
    ("api-key: ", "\"abcdef123456\""),
    ("user ada@", "example.com wrote"),
    ("call +49 170 ", "1234567"),
    ("(555) 123", "-4567"),
    ("ssn 078-05", "-1120"),
    ("card 4111 1111", " 1111 1111"),
    ("iban DE89 3704 0044", " 0532 0130 00"),
];

/// The part of a secret that must not stay.
fn core(rest: &str) -> String {
    let start = rest.find(|c: char| c.is_alphanumeric()).unwrap_or(0);
    rest[start..].chars().take_while(|c| !matches!(c, '@' | '"' | '\'' | '\n' | ';')).collect()
}

/// TR-01: at least 40 formats of secrets, in values, names, URLs, errors and JSON in strings.
#[test]
fn secrets_of_known_formats_are_removed_wherever_they_stand() {
    assert!(SECRETS.len() >= 60);
    for (begin, rest) in SECRETS {
        let secret = format!("{begin}{rest}");
        let core = core(rest);
        let core = core.trim_end_matches(" wrote");
        let core = core.strip_prefix("sid=").unwrap_or(core);
        for value in [
            json!(secret),
            json!({ "text": format!("before {secret} after") }),
            json!({ "list": [1, { "deep": [secret] }] }),
            json!({ "json": json!({ "inner": secret }).to_string() }),
            json!({ "error": format!("cannot use `{secret}`: 401") }),
            json!({ secret.clone(): true }),
        ] {
            let clean = sanitize(&value, LIMIT).unwrap().to_string();
            let escaped = json!(core).to_string();
            let escaped = escaped.trim_matches('"');
            assert!(!clean.contains(escaped), "{value}\n{clean}\nstill has {escaped}");
            assert!(clean.contains("[redacted]"), "{value}\n{clean}");
        }
    }
}

/// TR-01: ordinary values stay as they are.
#[test]
fn ordinary_values_stay() {
    let ordinary = [
        json!({ "author": "Ada Lovelace", "tokens_used": 1234, "max_tokens": 4096 }),
        json!({ "token_count": 12, "tokenizer": "cl100k", "total_tokens": 9, "authority": "x" }),
        json!({ "id": 1_234_567_890_u64, "at": 1_764_374_400_000_u64, "phone_model": "x" }),
        json!({ "text": "call 1234567890, order 9876543210, build 20261128" }),
        json!({ "commit": "3f786850e387550fdab836ed7e6dc881de23001b", "sha": "sha256-abc" }),
        json!({ "uuid": "0192f0c1-2345-7abc-8def-0123456789ab", "version": "1.2.3-rc.1+5" }),
        json!({ "path": "src/auth/password_reset.rs", "line": 42, "column": 7 }),
        json!({ "text": "The secret of a good token is a key that fits; pass the word on." }),
        json!({ "keyboard": "qwerty", "primary_key": "id", "key": "ArrowUp", "monkey": 1 }),
        json!({ "secretary": "Bob", "cookiecutter": "x", "compassword": false, "pinned": true }),
        json!({ "has_password": true, "token": null }),
        json!({ "url": "https://example.com/a/b?page=2&sort=asc#top", "ip": "10.0.0.1" }),
        json!({ "date": "2026-11-28T23:59:59.123Z", "range": "100-200", "ratio": "3/4" }),
        json!({ "isbn": "978-3-16-148410-0", "ean": "4006381333931", "sum": 4_111_111_111_u64 }),
        json!({ "command": ["git", "log", "--author=ada", "-n", "10"], "exit_code": 0 }),
        json!({ "html": "<a href='/x'>bearer of news</a>", "css": "#a1b2c3" }),
        json!([1, 2.5, -3, 1e300, "äöü", "日本語", "🙂", ""]),
        json!({ "json": "[1,2,{\"a\":\"b\"}]" }),
        json!({ "base64": "aGVsbG8gd29ybGQ=", "hex": "deadbeef" }),
        json!({ "signature": "function f(a: string): number", "basic": "basic training" }),
    ];
    for value in &ordinary {
        let clean = sanitize(value, LIMIT);
        // A Boolean stays under any name; `compassword` is the one false hit of these texts.
        assert_eq!(clean.as_ref(), Some(value));
    }
}

/// TR-02: names in any spelling, and any depth.
#[test]
fn values_under_secret_names_are_removed() {
    for name in [
        "password",
        "Password",
        "PASSWORD",
        "passwd",
        "pass-word",
        "user_password",
        "userPassword",
        "API-KEY",
        "api_key",
        "apiKey",
        "APIKey",
        "x-api-key",
        "X_API_KEY",
        "apikey",
        "openai-api-key",
        "secret",
        "clientSecret",
        "client_secret",
        "CLIENT-SECRET",
        "token",
        "accessToken",
        "access_token",
        "GITHUB_TOKEN",
        "csrfToken",
        "refresh token",
        "id_token",
        "Authorization",
        "proxy-authorization",
        "Cookie",
        "set-cookie",
        "private_key",
        "privateKey",
        "ssh-private-key",
        "credentials",
        "AWS_SECRET_ACCESS_KEY",
        "connectionString",
        "session_id",
        "sessionId",
        "jwt",
        "passphrase",
        "pwd",
        "otp",
        "cvv",
        "token1",
        "password2",
        // Look-alikes.
        "pаssword",
        "tоken",
        "раsswd",
        "ｐａｓｓｗｏｒｄ",
        "pass\u{200b}word",
        "p\u{301}assword",
        "passw0rd",
        "p@ssword",
        "s3cret",
        "pa$$word",
        "аpi_key",
    ] {
        for value in [json!("canary"), json!(4711), json!({ "x": ["canary"] }), json!(["canary"])] {
            let clean = sanitize(&json!({ "a": [{ name: value }] }), LIMIT).unwrap();
            let text = clean.to_string();
            assert!(!text.contains("canary") && !text.contains("4711"), "{name}: {text}");
        }
    }
    // The depth at which nothing is looked at any longer is dropped.
    for depth in [20, 21, 31, 32, 33, 60, 100] {
        let nested = |leaf: Value| {
            let nested = (0..depth).fold(leaf, |value, _| json!([value]));
            sanitize(&nested, LIMIT).unwrap().to_string()
        };
        assert!(!nested(json!({ "password": "canary" })).contains("canary"), "{depth}");
        assert_eq!(nested(json!("canary")).contains("canary"), depth <= DEPTH, "{depth}");
    }
    // JSON in JSON in JSON.
    let mut text = json!({ "password": "canary" }).to_string();
    for _ in 0..4 {
        text = json!({ "inner": text }).to_string();
    }
    assert!(!sanitize(&json!(text), LIMIT).unwrap().to_string().contains("canary"));
}

/// TR-04: 10 MiB take no longer than their first kilobytes; patterns do not backtrack.
#[test]
fn large_values_are_described_at_once() {
    let began = std::time::Instant::now();
    for text in
        ["a", "9", "@", "-", "a@", "eyJ", "{\"", "[[", "sk-", "Bearer ", "0 ", "+1 ", "://:"]
    {
        let long = text.repeat(10 * 1024 * 1024 / text.len());
        let expected = json!(format!("[text of {} bytes]", long.len()));
        assert_eq!(sanitize(&json!(long), LIMIT), Some(expected));
        assert_eq!(
            sanitize(&json!({ "x": [long] }), LIMIT).unwrap()["x"][0].as_str().unwrap().len(),
            24
        );
        // Just short enough to be searched, as often as the limit allows.
        let searched: Vec<&str> = vec![&long[..long.floor_char_boundary(1000)]; 9];
        let _ = sanitize(&json!(searched), LIMIT);
        let many: Vec<&str> = vec![text; 1_000_000];
        assert_eq!(sanitize(&json!(many), LIMIT), None);
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn the_result_is_within_the_limit_and_stays_the_same() {
    for value in [json!("\u{1}".repeat(1000)), json!(vec!["x"; 100]), json!({ "a": "b" })] {
        for limit in [0, 1, 10, 100, 1000, 10_000] {
            let clean = sanitize(&value, limit);
            assert!(clean.as_ref().is_none_or(|clean| clean.to_string().len() <= limit));
        }
    }
    for (begin, rest) in SECRETS {
        let once = sanitize(&json!(format!("{begin}{rest}")), LIMIT).unwrap();
        assert_eq!(sanitize(&once, LIMIT).unwrap(), once);
    }
}

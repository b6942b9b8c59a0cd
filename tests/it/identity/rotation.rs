//! API keys and the keys of an issuer are replaced while they are in use.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::json;

use super::keys::call;
use crate::support::http::get;
use crate::support::issuer::{Issuer, Signer, header};
use crate::support::server::{Installation, Server};
use crate::support::{PATIENCE, poll, scaled};

/// Sends requests with the current credential from four threads while `rotate` replaces it; returns how many were
/// accepted. A request holds the credential, so none is in flight with one that is no longer current.
fn while_in_use(
    current: &RwLock<String>,
    status: impl Fn(&str) -> u16 + Sync,
    rotate: impl FnOnce(&AtomicUsize),
) -> usize {
    let (accepted, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let credential = current.read().unwrap();
                    assert_eq!(
                        status(&credential),
                        200,
                        "a credential that is current was refused"
                    );
                    accepted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        rotate(&accepted);
        is_over.store(true, Ordering::Relaxed);
    });
    accepted.into_inner()
}

/// Waits until some more requests were accepted.
fn use_it(accepted: &AtomicUsize) {
    let enough = accepted.load(Ordering::Relaxed) + 8;
    poll("the credential to be used", PATIENCE, || {
        (accepted.load(Ordering::Relaxed) >= enough).then_some(())
    });
}

/// An API key is replaced again and again: the current one is always accepted, within its grace the previous one too,
/// and after it no gateway accepts it.
#[test]
fn api_keys_are_rotated_while_they_are_in_use() {
    let installation = Installation::new();
    let [here, there] = [installation.start(), installation.replica().start()];
    let admin = installation.first_key();
    let url = format!("{}/api/v1/keys", here.url());
    let first =
        call(&admin, "POST", &url, Some(&json!({ "name": "agent", "can": ["read"] }))).json();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let current = RwLock::new(text(&first["key"]));
    let status = |server: &Server, key: &str| {
        call(key, "GET", &format!("{}/api/v1/keys/self", server.url()), None).status
    };
    let (mut id, mut former) = (text(&first["id"]), Vec::new());
    while_in_use(
        &current,
        |key| status(&here, key),
        |accepted| {
            for round in 0..scaled(100).max(4) {
                use_it(accepted);
                // Every other time the previous key stays valid for a while.
                let grace = if round % 2 == 0 { 600 } else { 0 };
                let body = json!({ "grace_seconds": grace });
                let mut holder = current.write().unwrap();
                let made = call(&admin, "POST", &format!("{url}/{id}/rotate"), Some(&body));
                assert_eq!(made.status, 201, "{}", made.json());
                let old = std::mem::replace(&mut *holder, text(&made.json()["key"]));
                drop(holder);
                if grace > 0 {
                    assert_eq!(status(&here, &old), 200, "within its grace");
                    let ended = call(&admin, "DELETE", &format!("{url}/{id}"), None);
                    assert_eq!(ended.status, 204, "{}", ended.json());
                }
                assert_eq!(status(&here, &old), 401, "after its end");
                id = text(&made.json()["id"]);
                former.push(old);
            }
        },
    );
    assert_eq!(status(&there, &current.read().unwrap()), 200);
    for old in former {
        assert_eq!(status(&here, &old), 401);
        poll("the other gateway to refuse it", PATIENCE, || {
            (status(&there, &old) == 401).then_some(())
        });
    }
}

/// The issuer publishes its next key beside the current one, signs with it, and withdraws the old one: no valid token
/// is refused meanwhile, and afterwards none of the old key is accepted.
#[test]
fn keys_of_the_issuer_are_rotated_while_tokens_are_in_use() {
    let (old, new) = (Signer::p256(), Signer::ed25519());
    let issuer = Issuer::start(&[("1", &old)]);
    let server = issuer.gateway(&[]);
    let status = |token: &str| {
        let authorization = format!("Bearer {token}");
        let headers = [("authorization", authorization.as_str())];
        get(&format!("{}/api/v1/routing", server.url()), &headers).status
    };
    // Each token is another one, so that no answer is from the cache of tokens.
    let number = AtomicUsize::new(0);
    let token = |signer: &Signer, alg: &str, kid: &str| {
        let mut claims = issuer.claims();
        claims["jti"] = json!(number.fetch_add(1, Ordering::Relaxed).to_string());
        signer.token(&header(alg, kid), &claims)
    };
    let before = token(&old, "ES256", "1");
    let is_new = AtomicBool::new(false);
    let nothing = RwLock::new(String::new());
    let sign_and_ask = |_: &str| match is_new.load(Ordering::Relaxed) {
        true => status(&token(&new, "EdDSA", "2")),
        false => status(&token(&old, "ES256", "1")),
    };
    let accepted = while_in_use(&nothing, sign_and_ask, |accepted| {
        use_it(accepted);
        issuer.serve(&[("1", &old), ("2", &new)]);
        use_it(accepted);
        {
            // No request is in flight while the issuer changes what it signs with and then what it publishes.
            let _none = nothing.write().unwrap();
            is_new.store(true, Ordering::Relaxed);
            assert_eq!(status(&token(&new, "EdDSA", "2")), 200);
            issuer.serve(&[("2", &new)]);
        }
        use_it(accepted);
    });
    assert!(accepted >= 24, "{accepted}");
    assert!(issuer.fetches() <= 3, "the keys were fetched {} times", issuer.fetches());
    // The gateway looks for withdrawn keys every five minutes, or when it meets one that it does not know.
    assert_eq!(status(&before), 200);
    let restarted = issuer.gateway(&[]);
    let authorization = format!("Bearer {before}");
    let refused = get(
        &format!("{}/api/v1/routing", restarted.url()),
        &[("authorization", authorization.as_str())],
    );
    assert_eq!(refused.status, 401);
}

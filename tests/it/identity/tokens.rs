//! Access tokens: only valid ones of the configured issuer for this gateway are accepted.

use data_encoding::BASE64URL_NOPAD;
use ring::hmac;
use serde_json::{Value, json};

use crate::support::expect::success;
use crate::support::http::{HttpMcp, Reply, get};
use crate::support::issuer::{AUDIENCE, Issuer, Signer, header, signed_part};
use crate::support::mcp_client::{Era, envelope};
use crate::support::server::{Server, Tenant};
use crate::support::{PATIENCE, poll};

fn ask(server: &Server, token: &str) -> Reply {
    let authorization = format!("Bearer {token}");
    get(&format!("{}/api/v1/routing", server.url()), &[("authorization", &authorization)])
}

/// Returns the claims with changes; `null` removes a claim.
fn with(claims: &Value, changes: Value) -> Value {
    let mut claims = claims.clone();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims
}

/// A token of each supported algorithm can run a program.
#[test]
fn valid_tokens_of_each_algorithm_are_accepted() {
    let (rsa, p256, ed) = (Signer::rsa(0), Signer::p256(), Signer::ed25519());
    let issuer = Issuer::start(&[("r", &rsa), ("p", &p256), ("e", &ed)]);
    let server = issuer.gateway(&[]);
    for (signer, alg, kid) in
        [(&rsa, "RS256", "r"), (&rsa, "PS256", "r"), (&p256, "ES256", "p"), (&ed, "EdDSA", "e")]
    {
        let token = signer.token(&header(alg, kid), &issuer.claims());
        let reply = ask(&server, &token);
        assert_eq!(reply.status, 200, "{alg}: {}", String::from_utf8_lossy(&reply.body));
        let tenant = Tenant { key: token, url: server.url().to_owned() };
        let ran = HttpMcp::new(&tenant, Era::Stateless)
            .execute("return await mcp.json.parse({ data: '7' })");
        assert_eq!(success(&ran), 7, "{alg}");
    }
    assert_eq!(issuer.fetches(), 1, "the issuer's keys were not cached");
    // Neither the token nor its claims are logged.
    let log = server.installation().log();
    assert!(!log.contains("eyJ") && !log.contains("alice@"), "{log}");
    // API keys still work, and an invalid one is refused.
    assert_eq!(ask(&server, "pml_key_x").status, 401);
    assert_eq!(ask(&server, &server.installation().first_key()).status, 200);
    // The header for API keys does not accept a token.
    let token = rsa.token(&header("RS256", "r"), &issuer.claims());
    let url = format!("{}/api/v1/routing", server.url());
    assert_eq!(get(&url, &[("x-api-key", &token)]).status, 401);
    for query in ["access_token", "token"] {
        assert_eq!(get(&format!("{url}?{query}={token}"), &[]).status, 401, "GW-07: {query}");
    }
}

/// GW-03: a token needs a signature by a key of the issuer with an allowed algorithm.
#[test]
fn tokens_with_another_signature_are_refused() {
    let (rsa, ed, stranger) = (Signer::rsa(0), Signer::ed25519(), Signer::rsa(1));
    let issuer = Issuer::start(&[("r", &rsa), ("e", &ed)]);
    let server = issuer.gateway(&[]);
    let claims = issuer.claims();
    let good = rsa.token(&header("RS256", "r"), &claims);
    assert_eq!(ask(&server, &good).status, 200, "positive control");
    let (signed, _) = good.rsplit_once('.').unwrap();

    let mut tokens = Vec::new();
    for alg in ["none", "NONE", "None", "nOnE"] {
        let signed = signed_part(&header(alg, "r"), &claims);
        tokens.push((format!("`{alg}`, stripped"), format!("{signed}.")));
        tokens.push((format!("`{alg}`, two parts"), signed.clone()));
        tokens.push((format!("`{alg}`, signed"), rsa.token(&header(alg, "r"), &claims)));
    }
    // Algorithm confusion: the public key must not be accepted as an HMAC secret.
    for (kid, signer) in [("r", &rsa), ("e", &ed), ("shared", &rsa)] {
        let pem = data_encoding::BASE64.encode(&signer.public());
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{pem}\n-----END PUBLIC KEY-----\n");
        for secret in [signer.public(), pem.into_bytes(), b"secret".to_vec(), Vec::new()] {
            let signed = signed_part(&header("HS256", kid), &claims);
            let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
            let tag = BASE64URL_NOPAD.encode(hmac::sign(&key, signed.as_bytes()).as_ref());
            tokens.push((format!("HS256 with the key `{kid}`"), format!("{signed}.{tag}")));
        }
    }
    tokens.push(("an empty signature".to_owned(), format!("{signed}.")));
    tokens.push(("no signature".to_owned(), signed.to_owned()));
    tokens.push((
        "a signature of zeroes".to_owned(),
        format!("{signed}.{}", BASE64URL_NOPAD.encode(&[0; 256])),
    ));
    tokens.push(("a stranger's key".to_owned(), stranger.token(&header("RS256", "r"), &claims)));
    tokens.push((
        "another algorithm's signature".to_owned(),
        rsa.token(&header("RS256", "r"), &claims)
            .replace(signed, &signed_part(&header("PS256", "r"), &claims)),
    ));
    tokens.push(("a key of another kind".to_owned(), rsa.token(&header("RS256", "e"), &claims)));
    tokens.push(("an unknown key".to_owned(), rsa.token(&header("RS256", "x"), &claims)));
    let other = signed_part(&header("RS256", "r"), &with(&claims, json!({ "sub": "eve" })));
    tokens.push(("other claims".to_owned(), good.replace(signed, &other)));
    tokens.push(("padding".to_owned(), format!("{good}=")));
    tokens.push(("five parts, as of a JWE".to_owned(), format!("{good}.x.y")));
    let jwe = json!({ "alg": "RSA-OAEP", "enc": "A256GCM", "typ": "at+jwt", "kid": "r" });
    tokens.push(("a JWE".to_owned(), format!("{}.a.b.c", signed_part(&jwe, &claims))));
    for (name, value) in [
        ("crit", json!(["exp"])),
        ("crit", json!(["unknown"])),
        ("crit", Value::Null),
        ("b64", json!(false)),
        ("zip", json!("DEF")),
        ("enc", json!("A256GCM")),
    ] {
        let mut odd = header("RS256", "r");
        odd[name] = value.clone();
        tokens.push((format!("`{name}`: {value}"), rsa.token(&odd, &claims)));
    }
    // `jku` and `x5u` are ignored: the token does not choose its keys.
    let evil = Issuer::start(&[("r", &stranger)]);
    let jwk = evil.claims()["iss"].as_str().unwrap().to_owned();
    for name in ["jku", "x5u"] {
        let mut pointing = header("RS256", "r");
        pointing[name] = json!(format!("{jwk}/keys"));
        tokens.push((format!("`{name}`"), stranger.token(&pointing, &claims)));
        assert_eq!(
            ask(&server, &rsa.token(&pointing, &claims)).status,
            200,
            "`{name}` must be ignored"
        );
    }
    for (what, token) in tokens {
        let refused = ask(&server, &token);
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (401, &json!("UNAUTHORIZED")),
            "{what}"
        );
        assert_eq!(refused.json()["detail"], "the token is not valid", "{what}");
    }
    assert_eq!(evil.fetches(), 0, "keys were fetched from an address in the token");
    assert!(issuer.fetches() <= 2, "{} fetches", issuer.fetches());
}

/// GW-05: tokens with another audience, issuer, type or validity period are refused.
#[test]
fn tokens_with_another_audience_issuer_type_or_period_are_refused() {
    let key = Signer::p256();
    let issuer = Issuer::start(&[("k", &key)]);
    let server = issuer.gateway(&[]);
    let good = issuer.claims();
    let now = good["iat"].as_u64().unwrap();
    let status = |claims: &Value| ask(&server, &key.token(&header("ES256", "k"), claims)).status;
    for accepted in [json!({}), json!({ "aud": [AUDIENCE] }), json!({ "nbf": null, "iat": null })] {
        assert_eq!(status(&with(&good, accepted.clone())), 200, "control: {accepted}");
    }
    for refused in [
        json!({ "aud": null }),
        json!({ "aud": "https://other.example/mcp" }),
        json!({ "aud": "https://gw.example" }),
        json!({ "aud": "https://gw.example/mcp/" }),
        json!({ "aud": "HTTPS://GW.EXAMPLE/mcp" }),
        json!({ "aud": [AUDIENCE, "https://other.example"] }),
        json!({ "aud": [AUDIENCE, AUDIENCE] }),
        json!({ "aud": [] }),
        json!({ "aud": { "a": AUDIENCE } }),
        json!({ "iss": null }),
        json!({ "iss": "https://other.example" }),
        json!({ "iss": format!("{}/", good["iss"].as_str().unwrap()) }),
        json!({ "iss": [good["iss"]] }),
        json!({ "sub": null }),
        json!({ "sub": "" }),
        json!({ "sub": 7 }),
        json!({ "exp": null }),
        json!({ "exp": now - 3_600 }),
        json!({ "exp": (now + 600).to_string() }),
        json!({ "exp": now as f64 + 60.5 }),
        json!({ "exp": (now + 600) as f64 }),
        json!({ "exp": -1 }),
        json!({ "nbf": now as f64 - 0.5 }),
        json!({ "nbf": -1 }),
        json!({ "iat": now as f64 - 0.5 }),
        json!({ "iat": -1 }),
        json!({ "nbf": now + 3_600 }),
        json!({ "nbf": "tomorrow" }),
        json!({ "iat": now + 3_600 }),
    ] {
        assert_eq!(status(&with(&good, refused.clone())), 401, "{refused}");
    }
    // Another type: ID tokens and session tokens are signed by the same issuer.
    for (typ, expected) in [
        (json!("at+jwt"), 200),
        (json!("AT+JWT"), 200),
        (json!("application/at+jwt"), 200),
        (json!("JWT"), 401),
        (json!("session+jwt"), 401),
        (json!("application/jwt"), 401),
        (json!(""), 401),
        (Value::Null, 401),
    ] {
        let mut kind = header("ES256", "k");
        kind["typ"] = typ.clone();
        assert_eq!(ask(&server, &key.token(&kind, &good)).status, expected, "{typ}");
    }
    // Another environment, whose issuer has other keys and another name.
    let other_key = Signer::p256();
    let other = Issuer::start(&[("k", &other_key)]);
    let other_server = other.gateway(&[]);
    let theirs = other_key.token(&header("ES256", "k"), &other.claims());
    assert_eq!((ask(&other_server, &theirs).status, ask(&server, &theirs).status), (200, 401));
    let forged = other_key.token(&header("ES256", "k"), &good);
    assert_eq!(ask(&server, &forged).status, 401);
}

/// A token acts in the scope of its claims, which must exist, with the rights of its claims.
#[test]
fn a_token_has_the_scope_and_rights_of_its_claims() {
    let key = Signer::ed25519();
    let issuer = Issuer::start(&[("k", &key)]);
    let server = issuer.gateway(&[]);
    let good = issuer.claims();
    let token = |changes: Value| key.token(&header("EdDSA", "k"), &with(&good, changes));
    let scopes = |_: ()| server.installation().run_ok(&["scope", "create", "acme.other"]);
    for unknown in [
        json!({ "pml_scope": null }),
        json!({ "pml_scope": "acme.web" }),
        json!({ "pml_scope": "pml.mcp" }),
        json!({ "pml_scope": "local" }),
        json!({ "pml_scope": ["local.default"] }),
        json!({ "pml_scope": "local.default'; drop table orgs" }),
    ] {
        let refused = ask(&server, &token(unknown.clone()));
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (403, &json!("FORBIDDEN")),
            "{unknown}"
        );
    }
    assert_eq!(
        scopes(()),
        "Scope `acme.other` now exists. Next: pml-server keys create --scope acme.other\n"
    );
    assert_eq!(ask(&server, &token(json!({ "pml_scope": "acme.other" }))).status, 200);

    let catalog = |changes: Value| {
        let authorization = format!("Bearer {}", token(changes));
        get(&format!("{}/mcp", server.url()), &[("authorization", &authorization)])
    };
    assert_eq!(catalog(json!({})).status, 200);
    assert_eq!(catalog(json!({ "scope": ["pml:read"] })).status, 200);
    for lacking in [
        json!({ "scope": null }),
        json!({ "scope": "read admin" }),
        json!({ "scope": "pml:execute pml:root" }),
        json!({ "scope": 7 }),
    ] {
        let refused = catalog(lacking.clone());
        assert_eq!(refused.status, 403, "{lacking}");
        let challenge = refused.header("www-authenticate").to_owned();
        assert!(
            challenge.contains("error=\"insufficient_scope\"")
                && challenge.contains("scope=\"pml:read\""),
            "{challenge}"
        );
    }
    // A token is not an API key, and cannot act as the principal of one.
    let admin = json!({ "scope": "pml:admin", "sub": "key:00000000-0000-7000-8000-000000000000" });
    let authorization = format!("Bearer {}", token(admin));
    let headers = [("authorization", authorization.as_str())];
    assert_eq!(get(&format!("{}/api/v1/keys/self", server.url()), &headers).status, 404);
    assert_eq!(get(&format!("{}/api/v1/keys", server.url()), &headers).status, 200);
    let made = crate::identity::keys::call(
        authorization.trim_start_matches("Bearer "),
        "POST",
        &format!("{}/api/v1/keys", server.url()),
        Some(&json!({ "name": "n", "can": ["admin"] })),
    );
    assert_eq!(made.status, 201);
    let log = get(&format!("{}/api/v1/audit?limit=1", server.url()), &headers).json();
    let principal = log["events"][0]["principal"].as_str().unwrap();
    assert!(principal.starts_with("sub:") && principal.len() == 68, "{principal}");
}

/// GW-31: the challenge of a refusal names where to get a token and the missing right.
#[test]
fn refusals_have_a_challenge_with_metadata_and_scope() {
    let key = Signer::ed25519();
    let issuer = Issuer::start(&[("k", &key)]);
    let server = issuer.gateway(&[("PML_OAUTH_CLI_CLIENT_ID", "pml cli")]);
    let place = "https://gw.example/.well-known/oauth-protected-resource/mcp";
    for path in ["", "/mcp"] {
        let metadata =
            get(&format!("{}/.well-known/oauth-protected-resource{path}", server.url()), &[]);
        assert_eq!((metadata.status, metadata.header("access-control-allow-origin")), (200, "*"));
        let metadata = metadata.json();
        assert_eq!(metadata["resource"], AUDIENCE);
        assert_eq!(metadata["authorization_servers"], json!([issuer.claims()["iss"]]));
        assert_eq!(metadata["pml_cli_client_id"], "pml cli");
        assert_eq!(metadata["bearer_methods_supported"], json!(["header"]));
        assert_eq!(
            metadata["scopes_supported"],
            json!(["pml:execute", "pml:read", "pml:publish", "pml:admin"])
        );
    }
    let none = get(&format!("{}/api/v1/routing", server.url()), &[]);
    assert_eq!(none.status, 401);
    assert_eq!(
        none.header("www-authenticate"),
        format!(
            "Bearer realm=\"pml\", resource_metadata=\"{place}\", scope=\"pml:execute pml:read\""
        )
    );
    let wrong = ask(&server, "wrong").header("www-authenticate").to_owned();
    assert!(wrong.contains("error=\"invalid_token\"") && wrong.contains(place), "{wrong}");

    // The same over MCP: status 403, with a JSON-RPC answer as the body.
    let claims = with(&issuer.claims(), json!({ "scope": "pml:read" }));
    let tenant =
        Tenant { key: key.token(&header("EdDSA", "k"), &claims), url: server.url().to_owned() };
    let client = HttpMcp::new(&tenant, Era::Stateless);
    let params = json!({ "name": "pml_execute", "arguments": { "code": "return 1" } });
    let body = Era::Stateless.request(1, "tools/call", params).to_string();
    let refused = client.post(body.as_bytes(), "tools/call", Some("pml_execute"));
    assert_eq!(refused.status, 403);
    let challenge = refused.header("www-authenticate");
    assert!(
        challenge.contains("error=\"insufficient_scope\"")
            && challenge.contains("scope=\"pml:execute\""),
        "{challenge}"
    );
    assert_eq!(envelope(&refused.json()["result"])["error_code"], "FORBIDDEN");
}

/// The gateway follows changes of the issuer's keys. Known keys are valid for a time while the issuer is down, and
/// tokens with unknown key ids cannot cause repeated requests.
#[test]
fn issuer_keys_are_refreshed_cached_and_rate_limited() {
    let (first, second) = (Signer::ed25519(), Signer::ed25519());
    let issuer = Issuer::start(&[("1", &first)]);
    let server = issuer.gateway(&[]);
    let old = first.token(&header("EdDSA", "1"), &issuer.claims());
    let new = second.token(&header("EdDSA", "2"), &issuer.claims());
    assert_eq!(ask(&server, &old).status, 200);
    issuer.serve(&[("2", &second)]);
    assert_eq!(ask(&server, &new).status, 200, "the keys were not fetched for an unknown id");
    assert_eq!(ask(&server, &old).status, 401, "a removed key is still accepted");
    assert_eq!(issuer.fetches(), 2);
    for number in 0..20 {
        let unknown = second.token(&header("EdDSA", &format!("x{number}")), &issuer.claims());
        assert_eq!(ask(&server, &unknown).status, 401);
    }
    assert_eq!(issuer.fetches(), 2, "fetched more than once a minute");
    issuer.set_up(false);
    assert_eq!(ask(&server, &new).status, 200, "the cached key was not used");

    // Cached keys expire if the issuer stays unreachable.
    issuer.set_up(true);
    let short = issuer.gateway(&[("PML_OAUTH_KEYS_MAX_AGE", "2")]);
    assert_eq!(ask(&short, &new).status, 200);
    issuer.set_up(false);
    let refused = poll("the cached keys to expire", PATIENCE, || {
        let reply = ask(&short, &new);
        (reply.status != 200).then_some(reply)
    });
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("IDENTITY_UNAVAILABLE")));
    assert_eq!(ask(&short, &short.installation().first_key()).status, 200, "an API key");
    issuer.set_up(true);
    poll("the keys to be fetched again", PATIENCE, || {
        (ask(&short, &new).status == 200).then_some(())
    });
}

/// A token expires even if its signature check is cached.
#[test]
fn a_cached_token_expires() {
    let key = Signer::rsa(0);
    let issuer = Issuer::start(&[("k", &key)]);
    let server = issuer.gateway(&[]);
    let good = issuer.claims();
    // 30 seconds of clock skew are tolerated, so this token is accepted for ten more seconds.
    let ending = with(&good, json!({ "exp": good["iat"].as_u64().unwrap() - 20 }));
    let token = key.token(&header("RS256", "k"), &ending);
    assert_eq!(ask(&server, &token).status, 200);
    let refused = poll("the token to end", PATIENCE, || {
        let reply = ask(&server, &token);
        (reply.status != 200).then_some(reply)
    });
    assert_eq!((refused.status, &refused.json()["code"]), (401, &json!("UNAUTHORIZED")));
}

/// An incomplete configuration, or an issuer without TLS, prevents the start.
#[test]
fn an_incomplete_or_insecure_oauth_configuration_is_refused() {
    let operator = Server::shared().installation();
    for settings in [
        vec![("PML_OAUTH_ISSUER", "https://id.test")],
        vec![
            ("PML_OAUTH_ISSUER", "https://id.test"),
            ("PML_OAUTH_AUDIENCE", AUDIENCE),
            ("PML_OAUTH_JWKS_URL", "http://id.test/keys"),
        ],
    ] {
        let output = operator.command(&["serve"]).envs(settings).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("PML_OAUTH_JWKS_URL"), "{stderr}");
    }
}

//! A small identity provider that serves its public keys over HTTP and signs tokens.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::BASE64URL_NOPAD;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair};
use serde_json::{Value, json};

use super::gateway_stub::{Answer, GatewayStub};
use super::server::{Installation, Server};

/// The audience of tokens for the gateway under test.
pub(crate) const AUDIENCE: &str = "https://gw.example/mcp";

/// RSA keys for tests only, because `ring` cannot generate RSA keys.
const RSA: [&[u8]; 2] = [
    include_bytes!("../../fixtures/issuer/rsa-1.der"),
    include_bytes!("../../fixtures/issuer/rsa-2.der"),
];

/// A signing key.
pub(crate) enum Signer {
    Rsa(RsaKeyPair),
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Signer {
    /// Returns one of the two RSA keys.
    pub(crate) fn rsa(number: usize) -> Self {
        Self::Rsa(RsaKeyPair::from_der(RSA[number]).expect("the fixture is a key"))
    }

    /// Generates a P-256 key.
    pub(crate) fn p256() -> Self {
        let (random, form) = (SystemRandom::new(), &signature::ECDSA_P256_SHA256_FIXED_SIGNING);
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(form, &random).expect("a key is made");
        Self::P256(EcdsaKeyPair::from_pkcs8(form, pkcs8.as_ref(), &random).expect("it is a key"))
    }

    /// Generates an Ed25519 key.
    pub(crate) fn ed25519() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key is made");
        Self::Ed25519(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).expect("it is a key"))
    }

    /// Returns the public key, which an attacker knows.
    pub(crate) fn public(&self) -> Vec<u8> {
        match self {
            Self::Rsa(pair) => pair.public().as_ref().to_vec(),
            Self::P256(pair) => pair.public_key().as_ref().to_vec(),
            Self::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    fn jwk(&self, kid: &str) -> Value {
        let text = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
        match self {
            Self::Rsa(pair) => {
                let public = PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({ "kty": "RSA", "kid": kid, "use": "sig", "n": text(&public.n), "e": text(&public.e) })
            }
            Self::P256(pair) => {
                let point = pair.public_key().as_ref();
                json!({ "kty": "EC", "crv": "P-256", "kid": kid, "alg": "ES256",
                    "x": text(&point[1..33]), "y": text(&point[33..]) })
            }
            Self::Ed25519(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": text(pair.public_key().as_ref()) })
            }
        }
    }

    fn sign(&self, alg: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(pair) => {
                let form: &dyn signature::RsaEncoding = if alg == "PS256" {
                    &signature::RSA_PSS_SHA256
                } else {
                    &signature::RSA_PKCS1_SHA256
                };
                let mut signed = vec![0; pair.public().modulus_len()];
                pair.sign(form, &random, message, &mut signed).expect("it signs");
                signed
            }
            Self::P256(pair) => pair.sign(&random, message).expect("it signs").as_ref().to_vec(),
            Self::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// Signs a token with the given header and claims.
    pub(crate) fn token(&self, header: &Value, claims: &Value) -> String {
        let signed = signed_part(header, claims);
        let alg = header["alg"].as_str().unwrap_or_default();
        let signature = self.sign(alg, signed.as_bytes());
        format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature))
    }
}

/// Returns the first two parts of a token, which are signed.
pub(crate) fn signed_part(header: &Value, claims: &Value) -> String {
    let text = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    format!("{}.{}", text(header), text(claims))
}

/// The identity provider.
pub(crate) struct Issuer {
    stub: GatewayStub,
    keys: Arc<Mutex<Vec<Value>>>,
    is_up: Arc<AtomicBool>,
}

impl Issuer {
    /// Starts it with these keys and their ids.
    pub(crate) fn start(keys: &[(&str, &Signer)]) -> Self {
        let served = Arc::new(Mutex::new(Vec::new()));
        let is_up = Arc::new(AtomicBool::new(true));
        let (all, up) = (Arc::clone(&served), Arc::clone(&is_up));
        let stub = GatewayStub::start(move |_| {
            if up.load(Ordering::SeqCst) {
                Answer::Json(json!({ "keys": *all.lock().unwrap() }))
            } else {
                Answer::Close
            }
        });
        let issuer = Self { stub, keys: served, is_up };
        issuer.serve(keys);
        issuer
    }

    /// Replaces the served keys. In addition it serves keys that the gateway must ignore.
    pub(crate) fn serve(&self, keys: &[(&str, &Signer)]) {
        let mut all = vec![
            json!({ "kty": "oct", "kid": "shared", "k": "c2VjcmV0" }),
            json!({ "kty": "RSA", "kid": "odd", "n": 7 }),
        ];
        all.extend(keys.iter().map(|(kid, key)| key.jwk(kid)));
        *self.keys.lock().unwrap() = all;
    }

    /// Turns the issuer on or off; when it is off, it closes connections.
    pub(crate) fn set_up(&self, up: bool) {
        self.is_up.store(up, Ordering::SeqCst);
    }

    /// Returns how often its keys were fetched.
    pub(crate) fn fetches(&self) -> usize {
        self.stub.requests()
    }

    /// Starts a gateway that accepts its tokens.
    pub(crate) fn gateway(&self, more: &[(&str, &str)]) -> Server {
        let jwks = format!("{}/keys", self.stub.url);
        let mut settings = vec![
            ("PML_OAUTH_ISSUER", self.stub.url.as_str()),
            ("PML_OAUTH_AUDIENCE", AUDIENCE),
            ("PML_OAUTH_JWKS_URL", &jwks),
        ];
        settings.extend(more);
        Installation::new().start_with(&settings)
    }

    /// Returns the claims of a valid token for the gateway's first scope.
    pub(crate) fn claims(&self) -> Value {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_secs();
        json!({
            "iss": self.stub.url, "aud": AUDIENCE, "sub": "alice@acme.example", "client_id": "agent",
            "iat": now, "nbf": now, "exp": now + 600, "jti": "1",
            "scope": "openid pml:execute pml:read", "pml_scope": "local.default",
        })
    }
}

/// Returns the header of a valid token.
pub(crate) fn header(alg: &str, kid: &str) -> Value {
    json!({ "alg": alg, "typ": "at+jwt", "kid": kid })
}

//! What a reader of an envelope refuses.

use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
use protocol::Integrity;
use serde_json::{Value, json};

use super::*;

const PREDICATE: &str = "https://example.com/x/v1";

fn key() -> (SigningKey, tempfile::TempDir) {
    let records = tempfile::tempdir().unwrap();
    let key = SigningKey::of_user(records.path()).unwrap();
    (key, records)
}

/// Returns the payload of a statement, whose Base64 text contains each of `+`, `/` and `=`.
fn payload() -> Vec<u8> {
    let of_length = |length| {
        let predicate = json!({ "text": "?????>>>>>".to_owned() + &"y".repeat(length) });
        Statement::new("x", Integrity::of(b"x"), PREDICATE, predicate).to_bytes()
    };
    let mut payloads = (0..3).map(of_length);
    let has_all = |bytes: &Vec<u8>| {
        let text = STANDARD.encode(bytes);
        ['+', '/', '='].iter().all(|character| text.contains(*character))
    };
    payloads.find(has_all).expect("one of three lengths has padding")
}

#[test]
fn what_was_signed_is_opened() {
    let (key, _records) = key();
    let payload = payload();
    let file = seal(&payload, &key);
    let (other, _other_records) = self::key();
    let opened = open(file.as_bytes(), &[other.public(), key.public()]).unwrap();
    assert_eq!((opened.payload.as_slice(), opened.key), (payload.as_slice(), key.public()));
    let statement = Statement::<Value>::parse(&opened.payload, PREDICATE).unwrap();
    statement.check_subject("x", Integrity::of(b"x")).unwrap();
    statement.check_subject("y", Integrity::of(b"x")).unwrap_err();
    statement.check_subject("x", Integrity::of(b"y")).unwrap_err();
    Statement::<Value>::parse(&opened.payload, "https://example.com/x/v2").unwrap_err();
    let error = open(file.as_bytes(), &[other.public()]).unwrap_err();
    assert_eq!(error, Refused::NotTrusted(key.public().id()));
    assert!(error.to_string().contains(&key.public().id()));
}

/// No byte of a file can be changed, removed or added, and no other spelling of it is accepted.
#[test]
fn every_edit_of_a_file_is_refused() {
    let (key, _records) = key();
    let trusted = [key.public()];
    let file = seal(&payload(), &key);
    let bytes = file.as_bytes();
    open(bytes, &trusted).unwrap();
    let mut edits = 0;
    let mut refuse = |edited: &[u8], what: &str| {
        assert_ne!(edited, bytes, "{what}");
        let error = open(edited, &trusted).err().unwrap_or_else(|| panic!("accepted: {what}"));
        assert!(!error.to_string().is_empty());
        edits += 1;
        error
    };
    for place in 0..bytes.len() {
        let mut edited = bytes.to_vec();
        edited[place] ^= 1;
        refuse(&edited, &format!("byte {place} changed"));
        let mut edited = bytes.to_vec();
        edited.remove(place);
        refuse(&edited, &format!("byte {place} removed"));
        let mut edited = bytes.to_vec();
        edited.insert(place, b' ');
        refuse(&edited, &format!("a space before byte {place}"));
        refuse(&bytes[..place], &format!("cut at {place}"));
    }
    let envelope: Value = serde_json::from_str(&file).unwrap();
    let edit = |member: &str, value: Value| {
        let mut envelope = envelope.clone();
        envelope[member] = value;
        envelope.to_string() + "\n"
    };
    let signature = envelope["signatures"][0].clone();
    let with = |member: &str, value: &str| {
        let mut signature = signature.clone();
        signature[member] = json!(value);
        edit("signatures", json!([signature]))
    };
    let encoded = |member: &Value| STANDARD.decode(member.as_str().unwrap()).unwrap();
    let (payload, sig) = (encoded(&envelope["payload"]), encoded(&signature["sig"]));
    // The order of the group is added to the scalar: the same signature, unless that is compared.
    let order: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let mut malleable = sig.clone();
    let mut carry = 0;
    for (byte, more) in malleable[32..].iter_mut().zip(order) {
        let sum = u16::from(*byte) + u16::from(more) + carry;
        (*byte, carry) = (sum as u8, sum >> 8);
    }
    let (other, _other_records) = self::key();
    let mut resealed: Value = serde_json::from_str(&seal(&payload, &other)).unwrap();
    resealed["signatures"][0]["keyid"] = json!(key.public().id());
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (edited, expected) in [
        (
            edit("payloadType", json!("application/json")),
            "its payload has the type `application/json`",
        ),
        (edit("payloadType", json!("x".repeat(100_000))), "its payload has the type `xxx"),
        (edit("payloadType", json!(1)), "invalid type"),
        (edit("payload", json!(URL_SAFE.encode(&payload))), "its payload is not Base64"),
        (edit("payload", json!(STANDARD_NO_PAD.encode(&payload))), ""),
        (edit("payload", json!({})), "invalid type"),
        (edit("signatures", json!([])), "it has 0 signatures, not one"),
        (edit("signatures", json!([signature, signature])), "it has 2 signatures, not one"),
        (edit("signatures", json!([[signature["keyid"], signature["sig"]]])), "expected an object"),
        (edit("signatures", json!({})), "invalid type"),
        (edit("extra", json!(1)), "unknown field `extra`"),
        (with("keyid", ""), "names the key "),
        (with("keyid", &other.public().id()), "which is not trusted"),
        (with("keyid", &key.public().id().to_uppercase()), "which is not trusted"),
        (with("keyid", &"k".repeat(100_000)), "…, which is not trusted"),
        (with("sig", ""), "the signature is not that of the key"),
        (with("sig", &STANDARD.encode(malleable)), "the signature is not that of the key"),
        (with("sig", &STANDARD.encode([0; 64])), "the signature is not that of the key"),
        (
            with("sig", &STANDARD.encode([&sig[..], &[0]].concat())),
            "the signature is not that of the key",
        ),
        (resealed.to_string() + "\n", "the signature is not that of the key"),
        (file.replacen('{', "{\"payload\":\"\",", 1), "duplicate field `payload`"),
        (
            json!([envelope["payloadType"], envelope["payload"], envelope["signatures"]])
                .to_string(),
            "expected an object",
        ),
        (format!("{:#}\n", envelope), "it is written in another way"),
        (file.replacen("payloadType", "payload\\u0054ype", 1), "it is written in another way"),
        (format!("{file}{file}"), "trailing characters"),
        (deep, ""),
        ("null".to_owned(), "expected an object"),
        (String::new(), "EOF"),
    ] {
        let error = refuse(edited.as_bytes(), expected).to_string();
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(error.len() < 400, "{error}");
    }
    assert!(edits >= 200, "{edits}");
}

/// The payload is refused as well unless it has exactly one form.
#[test]
fn a_statement_has_one_form() {
    let text = String::from_utf8(payload()).unwrap();
    Statement::<Value>::parse(text.as_bytes(), PREDICATE).unwrap();
    let statement: Value = serde_json::from_str(&text).unwrap();
    let listed = json!([
        statement["_type"],
        statement["subject"],
        statement["predicateType"],
        statement["predicate"]
    ]);
    for edited in [
        text.replace("Statement/v1", "Statement/v0.1"),
        text.replace(PREDICATE, "https://example.com/x/v2"),
        text.replacen('{', "{ ", 1),
        text.replacen('{', "{\"_type\":\"x\",", 1),
        text.replacen('{', "{\"extra\":1,", 1),
        listed.to_string(),
        text.replace("\"name\"", "\"n\\u0061me\""),
    ] {
        Statement::<Value>::parse(edited.as_bytes(), PREDICATE).expect_err(&edited);
    }
}

#[test]
fn a_key_is_made_once_and_is_private() {
    let records = tempfile::tempdir().unwrap();
    assert!(SigningKey::find(records.path()).unwrap().is_none());
    let folder = records.path().join("pml");
    let keys: Vec<PublicKey> = std::thread::scope(|threads| {
        let make = || threads.spawn(|| SigningKey::of_user(&folder).unwrap().public());
        let threads: Vec<_> = (0..8).map(|_| make()).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(keys.iter().all(|key| *key == keys[0]));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "a temporary file is left");
    let path = folder.join("signing-key");
    let mode =
        |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    mode(0o640);
    let error = SigningKey::of_user(&folder).err().unwrap().to_string();
    assert!(error.contains("can be read by others"), "{error}");
    mode(0o600);
    SigningKey::of_user(&folder).unwrap();
    std::fs::write(&path, "x").unwrap();
    let error = SigningKey::of_user(&folder).err().unwrap().to_string();
    assert!(error.contains("is not an Ed25519 key"), "{error}");
}

#[test]
fn trusted_keys_are_those_of_the_folder() {
    let settings = tempfile::tempdir().unwrap();
    let trusted = TrustedKeys::of_user(settings.path());
    assert_eq!(trusted.all().unwrap(), []);
    let (key, _records) = key();
    let public = key.public();
    trusted.add(public).unwrap();
    trusted.add(public).unwrap();
    assert_eq!(trusted.all().unwrap(), [public]);
    let file = settings.path().join("trusted-keys").join(format!("{}.pem", public.id()));
    assert_eq!(PublicKey::read(&file).unwrap(), public);
    // A file with another name, or that is no key, is an error: it is never skipped.
    let other = file.with_file_name("ana.pem");
    std::fs::copy(&file, &other).unwrap();
    assert!(trusted.all().unwrap_err().to_string().contains("is not named after the id"));
    for text in
        ["", "x", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", &"y".repeat(9000)]
    {
        std::fs::write(&other, text).unwrap();
        trusted.all().expect_err(text);
    }
    std::fs::remove_file(&other).unwrap();
    std::fs::write(file.with_file_name("note.txt"), "not a key").unwrap();
    assert_eq!(trusted.all().unwrap(), [public]);
}

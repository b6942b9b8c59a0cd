//! The DSSE envelope: <https://github.com/secure-systems-lab/dsse>.
//!
//! Only the form that `pml` writes is read: one signature, the standard Base64, the members in their order, no white
//! space. So no two files say the same, and no change of a file goes unnoticed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::{PublicKey, SigningKey};
use crate::files::strict_json::Strict;

/// The type of the payload.
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
/// The maximum size of a file in bytes.
pub(crate) const FILE_LIMIT: u64 = 256 * 1024 * 1024;
/// The maximum length of a text that a message quotes, in characters.
const QUOTED: usize = 80;

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    #[serde(rename = "payloadType")]
    payload_type: String,
    payload: String,
    signatures: Vec<Strict<Signature>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signature {
    keyid: String,
    sig: String,
}

/// A payload whose signature was verified.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The payload.
    pub(crate) payload: Vec<u8>,
    /// The trusted key that signed it.
    pub(crate) key: PublicKey,
}

/// Why an envelope is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// It does not have the form that `pml` writes.
    #[error("the file is not an export that `pml` wrote: {0}")]
    Form(String),
    /// No trusted key has the id that it names.
    #[error("the file names the key {0}, which is not trusted")]
    NotTrusted(String),
    /// The key that it names is trusted and did not sign it.
    #[error(
        "the signature is not that of the key {0}: the file was changed, or somebody else signed it"
    )]
    Signature(String),
}

/// Signs a payload, and returns the text of the file.
pub(crate) fn seal(payload: &[u8], key: &SigningKey) -> String {
    let signature = Signature {
        keyid: key.public().id(),
        sig: STANDARD.encode(key.sign(&to_sign(PAYLOAD_TYPE, payload))),
    };
    let envelope = Envelope {
        payload_type: PAYLOAD_TYPE.to_owned(),
        payload: STANDARD.encode(payload),
        signatures: vec![Strict(signature)],
    };
    text(&envelope)
}

/// Verifies the text of a file against the keys that its reader trusts.
///
/// # Errors
/// Returns why it is refused.
pub(crate) fn open(bytes: &[u8], trusted: &[PublicKey]) -> Result<Opened, Refused> {
    let form = |reason: &str| Refused::Form(reason.to_owned());
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(form(&format!("it is larger than {} MiB", FILE_LIMIT >> 20)));
    }
    let Strict(envelope) = serde_json::from_slice::<Strict<Envelope>>(bytes)
        .map_err(|error| Refused::Form(shortened(&error.to_string())))?;
    if envelope.payload_type != PAYLOAD_TYPE {
        let found = shortened(&envelope.payload_type);
        return Err(Refused::Form(format!(
            "its payload has the type `{found}`, not `{PAYLOAD_TYPE}`"
        )));
    }
    let [Strict(signature)] = &envelope.signatures[..] else {
        let count = envelope.signatures.len();
        return Err(Refused::Form(format!("it has {count} signatures, not one")));
    };
    let payload = STANDARD
        .decode(&envelope.payload)
        .map_err(|error| Refused::Form(format!("its payload is not Base64: {error}")))?;
    let sig = STANDARD
        .decode(&signature.sig)
        .map_err(|error| Refused::Form(format!("its signature is not Base64: {error}")))?;
    // The id is not signed: it only selects a key that the reader trusts.
    let key = trusted.iter().find(|key| key.id() == signature.keyid).copied();
    let key = key.ok_or_else(|| Refused::NotTrusted(shortened(&signature.keyid)))?;
    if !key.verifies(&to_sign(&envelope.payload_type, &payload), &sig) {
        return Err(Refused::Signature(key.id()));
    }
    if text(&envelope).as_bytes() != bytes {
        return Err(form("it is written in another way"));
    }
    Ok(Opened { payload, key })
}

/// Returns what is signed: the pre-authentication encoding of DSSE, version 1.
fn to_sign(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

fn text(envelope: &Envelope) -> String {
    let mut text = serde_json::to_string(envelope).expect("texts have a JSON form");
    text.push('\n');
    text
}

/// Returns the beginning of a text of a file that may have been made by anybody.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

//! `crypto:*`: digests, message authentication, encodings and random values.

use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use hmac::{Hmac, KeyInit, Mac};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256, Sha384, Sha512};

use super::{NativeTool, ToolFailure};

/// The maximum number of random bytes of one call.
const MAX_RANDOM_BYTES: usize = 4096;

/// Returns the tools of this namespace.
pub(super) fn tools() -> Vec<NativeTool> {
    vec![
        NativeTool::new(
            "crypto",
            "hash",
            "Computes the digest of a text or of bytes. MD5 and SHA-1 are for old checksums only.",
            hash,
        )
        .example(
            json!({"data": "abc"}),
            json!("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        )
        .example(
            json!({"data": "abc", "algorithm": "md5", "encoding": "base64"}),
            json!("kAFQmDzST7DWlj99KOF/cg=="),
        ),
        NativeTool::new(
            "crypto",
            "hmac",
            "Computes the HMAC (RFC 2104) of a text or of bytes with a key.",
            hmac,
        )
        .example(
            json!({"data": "what do ya want for nothing?", "key": "Jefe"}),
            json!("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
        ),
        NativeTool::new(
            "crypto",
            "encode",
            "Converts bytes from one encoding to another: text, hexadecimal, Base64, Base64 for URLs.",
            encode,
        )
        .example(json!({"data": "héllo", "to": "base64"}), json!("aMOpbGxv"))
        .example(
            json!({"data": "aMOpbGxv", "from": "base64", "to": "utf8"}),
            json!("héllo"),
        ),
        NativeTool::new(
            "crypto",
            "uuid",
            "Generates a UUID: version 4 is random, version 7 sorts by the time of its creation.",
            uuid,
        )
        .varies(json!({}))
        .varies(json!({"version": 7})),
        NativeTool::new(
            "crypto",
            "random_bytes",
            "Generates random bytes that are suitable for keys and tokens.",
            random_bytes,
        )
        .varies(json!({"length": 16})),
    ]
}

/// An encoding of bytes as text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    /// Hexadecimal, written in lower case.
    #[default]
    Hex,
    /// Base64 with padding (RFC 4648, section 4).
    Base64,
    /// Base64 for URLs without padding (RFC 4648, section 5).
    Base64url,
}

/// The encoding of a text argument.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum TextEncoding {
    /// The text itself, as UTF-8.
    #[default]
    Utf8,
    /// Hexadecimal, in upper or lower case.
    Hex,
    /// Base64 with padding (RFC 4648, section 4).
    Base64,
    /// Base64 for URLs without padding (RFC 4648, section 5).
    Base64url,
}

fn write(bytes: &[u8], encoding: Encoding) -> String {
    match encoding {
        Encoding::Hex => HEXLOWER.encode(bytes),
        Encoding::Base64 => BASE64.encode(bytes),
        Encoding::Base64url => BASE64URL_NOPAD.encode(bytes),
    }
}

fn read(field: &str, text: String, encoding: TextEncoding) -> Result<Vec<u8>, ToolFailure> {
    let decoded = match encoding {
        TextEncoding::Utf8 => return Ok(text.into_bytes()),
        TextEncoding::Hex => HEXLOWER_PERMISSIVE.decode(text.as_bytes()),
        // Strict, also about padding and unused trailing bits: each value has only one text.
        TextEncoding::Base64 => BASE64.decode(text.as_bytes()),
        TextEncoding::Base64url => BASE64URL_NOPAD.decode(text.as_bytes()),
    };
    decoded.map_err(|error| {
        ToolFailure::InvalidArguments(format!(
            "`{field}` is not {}: {error}",
            format!("{encoding:?}").to_lowercase()
        ))
    })
}

/// A digest algorithm.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Algorithm {
    #[default]
    Sha256,
    Sha384,
    Sha512,
    Blake3,
    Sha1,
    Md5,
}

/// Arguments of `crypto:hash`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Hash {
    /// The text, or bytes in `data_encoding`.
    data: String,
    /// The digest algorithm.
    #[serde(default)]
    algorithm: Algorithm,
    /// The encoding of the digest.
    #[serde(default)]
    encoding: Encoding,
    /// The encoding of `data`.
    #[serde(default)]
    data_encoding: TextEncoding,
}

fn hash(input: Hash) -> Result<String, ToolFailure> {
    let data = read("data", input.data, input.data_encoding)?;
    let digest = match input.algorithm {
        Algorithm::Sha256 => Sha256::digest(data).to_vec(),
        Algorithm::Sha384 => Sha384::digest(data).to_vec(),
        Algorithm::Sha512 => Sha512::digest(data).to_vec(),
        Algorithm::Blake3 => blake3::hash(&data).as_bytes().to_vec(),
        Algorithm::Sha1 => sha1::Sha1::digest(data).to_vec(),
        Algorithm::Md5 => md5::Md5::digest(data).to_vec(),
    };
    Ok(write(&digest, input.encoding))
}

/// A digest algorithm for an HMAC.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum HmacAlgorithm {
    #[default]
    Sha256,
    Sha384,
    Sha512,
    Sha1,
}

/// Arguments of `crypto:hmac`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HmacInput {
    /// The text, or bytes in `data_encoding`.
    data: String,
    /// The key: a text, or bytes in `key_encoding`.
    key: String,
    /// The digest algorithm.
    #[serde(default)]
    algorithm: HmacAlgorithm,
    /// The encoding of the code.
    #[serde(default)]
    encoding: Encoding,
    /// The encoding of `data`.
    #[serde(default)]
    data_encoding: TextEncoding,
    /// The encoding of `key`.
    #[serde(default)]
    key_encoding: TextEncoding,
}

fn hmac(input: HmacInput) -> Result<String, ToolFailure> {
    let data = read("data", input.data, input.data_encoding)?;
    let key = read("key", input.key, input.key_encoding)?;
    let code = match input.algorithm {
        HmacAlgorithm::Sha256 => authenticate::<Hmac<Sha256>>(&key, &data),
        HmacAlgorithm::Sha384 => authenticate::<Hmac<Sha384>>(&key, &data),
        HmacAlgorithm::Sha512 => authenticate::<Hmac<Sha512>>(&key, &data),
        HmacAlgorithm::Sha1 => authenticate::<Hmac<sha1::Sha1>>(&key, &data),
    }?;
    Ok(write(&code, input.encoding))
}

fn authenticate<M: Mac + KeyInit>(key: &[u8], data: &[u8]) -> Result<Vec<u8>, ToolFailure> {
    // HMAC takes keys of any length (RFC 2104, section 3), so this fails for none.
    let mut mac = <M as KeyInit>::new_from_slice(key)
        .map_err(|error| ToolFailure::InvalidArguments(format!("`key`: {error}")))?;
    mac.update(data);
    Ok(mac.finalize().into_bytes().to_vec())
}

/// Arguments of `crypto:encode`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Encode {
    /// The text, or bytes in the encoding `from`.
    data: String,
    /// The encoding of `data`.
    #[serde(default)]
    from: TextEncoding,
    /// The encoding of the result.
    to: TextEncoding,
}

fn encode(input: Encode) -> Result<String, ToolFailure> {
    let bytes = read("data", input.data, input.from)?;
    match input.to {
        TextEncoding::Hex => Ok(write(&bytes, Encoding::Hex)),
        TextEncoding::Base64 => Ok(write(&bytes, Encoding::Base64)),
        TextEncoding::Base64url => Ok(write(&bytes, Encoding::Base64url)),
        TextEncoding::Utf8 => String::from_utf8(bytes).map_err(|error| {
            ToolFailure::Failed(format!("the bytes are not UTF-8 text: {}", error.utf8_error()))
        }),
    }
}

/// Arguments of `crypto:uuid`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Uuid {
    /// The version, 4 or 7; 4 if omitted.
    #[serde(default = "random_version")]
    #[schemars(extend("enum" = [4, 7]))]
    version: u8,
}

fn random_version() -> u8 {
    4
}

fn uuid(input: Uuid) -> Result<String, ToolFailure> {
    match input.version {
        4 => Ok(uuid::Uuid::new_v4().to_string()),
        7 => Ok(uuid::Uuid::now_v7().to_string()),
        other => {
            Err(ToolFailure::InvalidArguments(format!("`version` is `{other}`; it must be 4 or 7")))
        }
    }
}

/// Arguments of `crypto:random_bytes`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RandomBytes {
    /// The number of bytes.
    #[schemars(range(min = 1, max = 4096))]
    length: usize,
    /// The encoding of the bytes.
    #[serde(default)]
    encoding: Encoding,
}

fn random_bytes(input: RandomBytes) -> Result<String, ToolFailure> {
    if !(1..=MAX_RANDOM_BYTES).contains(&input.length) {
        return Err(ToolFailure::InvalidArguments(format!(
            "`length` must be between 1 and {MAX_RANDOM_BYTES}"
        )));
    }
    let mut bytes = vec![0; input.length];
    // From the kernel, without a generator in between, because the bytes may become keys.
    getrandom::fill(&mut bytes)
        .map_err(|error| ToolFailure::Failed(format!("could not get random bytes: {error}")))?;
    Ok(write(&bytes, input.encoding))
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;
    use serde_json::Value;

    fn call(action: &str, arguments: Value) -> Result<Value, ToolFailure> {
        find("crypto", action).expect("the tool exists").call(arguments)
    }

    #[test]
    fn digests_match_the_standards() {
        for (algorithm, expected) in [
            ("md5", "900150983cd24fb0d6963f7d28e17f72"),
            ("sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            ("sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            ("blake3", "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
        ] {
            let arguments =
                json!({"data": "616263", "data_encoding": "hex", "algorithm": algorithm});
            assert_eq!(call("hash", arguments), Ok(json!(expected)));
        }
        let sha512 = call("hash", json!({"data": "abc", "algorithm": "sha512"})).expect("a digest");
        assert!(sha512.as_str().is_some_and(|text| text.starts_with("ddaf35a193617aba")));
    }

    #[test]
    fn an_hmac_takes_keys_of_any_length() {
        // RFC 4231, test case 6.
        let arguments = json!({
            "data": "Test Using Larger Than Block-Size Key - Hash Key First",
            "key": "aa".repeat(131), "key_encoding": "hex",
        });
        assert_eq!(
            call("hmac", arguments),
            Ok(json!("60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"))
        );
        assert!(call("hmac", json!({"data": "", "key": ""})).is_ok());
    }

    #[test]
    fn errors_report_the_wrong_encoding() {
        for (arguments, expected) in [
            (json!({"data": "abc", "from": "hex", "to": "utf8"}), "`data` is not hex"),
            (json!({"data": "a===", "from": "base64", "to": "hex"}), "`data` is not base64"),
            (json!({"data": "ff", "from": "hex", "to": "utf8"}), "not UTF-8"),
            (json!({"data": "ff", "to": "utf16"}), "unknown variant `utf16`"),
        ] {
            let failure = call("encode", arguments).expect_err("wrong");
            assert!(failure.to_string().contains(expected), "{failure}");
        }
    }

    #[test]
    fn random_values_differ() {
        for (action, arguments) in [
            ("uuid", json!({})),
            ("uuid", json!({"version": 7})),
            ("random_bytes", json!({"length": 32})),
        ] {
            assert_ne!(call(action, arguments.clone()), call(action, arguments));
        }
        let version = call("uuid", json!({"version": 7})).expect("a UUID");
        assert_eq!(version.as_str().and_then(|text| text.chars().nth(14)), Some('7'));
        assert!(call("uuid", json!({"version": 1})).is_err());
        assert!(call("random_bytes", json!({"length": 0})).is_err());
        assert!(call("random_bytes", json!({"length": 1_000_000_000_000_u64})).is_err());
        assert!(call("random_bytes", json!({"length": -1})).is_err());
    }
}

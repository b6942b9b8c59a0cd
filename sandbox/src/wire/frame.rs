//! The frames between the host and a child: a `u32` in little-endian order as the length, then UTF-8 JSON with a `type`
//! tag. The host treats the frames of a child as sent by an attacker.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::layer::LayerReport;
use crate::limits::Limits;
use crate::repeatable::Seed;
use crate::wire::inbox::HEADER;

/// The version of the protocol, sent with `execute` and `ready`.
pub(crate) const VERSION: u32 = 1;
/// A message from the host.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ToChild<'a> {
    Execute {
        version: u32,
        program: &'a str,
        args: &'a Value,
        limits: ChildLimits,
        epoch_ms: Option<i64>,
        seed: Option<Seed>,
        implicit_returns: Option<&'a [u32]>,
    },
    /// Instead of a program: the probe of a self-test.
    Probe { id: u64 },
    /// On a repeatable clock: timers that are due until this time may fire. It is also the time of the next answer.
    Time { at_ms: u64 },
    RpcResult {
        id: u64,
        ok: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<ThrownError>,
    },
}

/// The limits that the child enforces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChildLimits {
    pub(crate) cpu_ms: u64,
    pub(crate) heap: usize,
    pub(crate) stack: usize,
    pub(crate) argument_bytes: usize,
    pub(crate) result_bytes: usize,
    pub(crate) console_bytes: usize,
}

impl From<&Limits> for ChildLimits {
    fn from(limits: &Limits) -> ChildLimits {
        ChildLimits {
            cpu_ms: u64::try_from(limits.cpu.as_millis()).unwrap_or(u64::MAX),
            heap: limits.heap,
            stack: limits.stack,
            argument_bytes: limits.argument_bytes,
            result_bytes: limits.result_bytes,
            console_bytes: limits.console_bytes,
        }
    }
}

/// An error that a call throws in the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ThrownError {
    pub(crate) name: String,
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) code: Option<String>,
}

/// A message from the child.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ToHost<'a> {
    /// The seal holds; the child is ready for a program.
    Ready {
        version: u32,
        layers: &'a [LayerReport],
    },
    /// A mandatory layer does not hold; the child accepts no program.
    Unavailable {
        message: &'a str,
    },
    RpcCall {
        id: u64,
        namespace: &'a str,
        action: &'a str,
        args: &'a RawValue,
    },
    Console {
        level: &'a str,
        text: &'a str,
    },
    /// On a repeatable clock: the program waits, and its next timer is due at this time.
    Timer {
        at_ms: u64,
    },
    ExecutionComplete {
        ok: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a ChildFailure>,
    },
}

/// Why a program failed, as reported by its child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChildFailure {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) code: Option<String>,
    #[serde(default)]
    pub(crate) line: Option<u32>,
    #[serde(default)]
    pub(crate) column: Option<u32>,
    #[serde(default)]
    pub(crate) stack: Option<String>,
    #[serde(default)]
    pub(crate) call: Option<u64>,
}

/// A frame from the host, read by the child.
#[derive(Debug)]
pub(crate) enum FromHost<'a> {
    Execute(Box<Execute<'a>>),
    Probe(u64),
    Time(u64),
    RpcResult { id: u64, result: Result<&'a RawValue, ThrownError> },
}

/// The first frame of a run.
#[derive(Debug)]
pub(crate) struct Execute<'a> {
    pub(crate) program: Cow<'a, str>,
    pub(crate) args: &'a RawValue,
    pub(crate) limits: ChildLimits,
    pub(crate) epoch_ms: Option<i64>,
    pub(crate) seed: Option<Seed>,
    pub(crate) implicit_returns: Option<Vec<u32>>,
}

/// A frame from the child, read by the host.
#[derive(Debug)]
pub(crate) enum FromChild<'a> {
    Ready {
        layers: Vec<LayerReport>,
    },
    Unavailable {
        message: String,
    },
    RpcCall {
        id: u64,
        namespace: String,
        action: String,
        args: &'a RawValue,
    },
    Console {
        level: Cow<'a, str>,
        text: Cow<'a, str>,
    },
    Timer {
        at_ms: u64,
    },
    /// The result. A missing value is `undefined`.
    Complete(Result<Option<&'a RawValue>, ChildFailure>),
}

/// Every field that any frame may have. serde cannot borrow raw JSON through a tagged enum.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    version: Option<u32>,
    #[serde(borrow)]
    program: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    args: Option<&'a RawValue>,
    limits: Option<ChildLimits>,
    epoch_ms: Option<i64>,
    seed: Option<Seed>,
    implicit_returns: Option<Vec<u32>>,
    at_ms: Option<u64>,
    id: Option<u64>,
    namespace: Option<String>,
    action: Option<String>,
    ok: Option<bool>,
    #[serde(borrow, default, deserialize_with = "present")]
    value: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    level: Option<Cow<'a, str>>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    layers: Option<Vec<LayerReport>>,
    message: Option<String>,
}

/// Distinguishes a `null` value from a missing field.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Reads one frame's body as the host.
pub(crate) fn read_from_child(body: &[u8]) -> Result<FromChild<'_>, String> {
    let fields: Fields<'_> =
        serde_json::from_slice(body).map_err(|e| format!("not a frame: {e}"))?;
    let Fields {
        kind,
        version,
        id,
        namespace,
        action,
        args,
        ok,
        value,
        error,
        level,
        text,
        layers,
        message,
        at_ms,
        ..
    } = fields;
    match (&*kind, id, ok) {
        ("ready", None, None) => match (version, layers) {
            (Some(VERSION), Some(layers)) => Ok(FromChild::Ready { layers }),
            _ => Err("a `ready` frame of another version".to_owned()),
        },
        ("unavailable", None, None) => match message {
            Some(message) => Ok(FromChild::Unavailable { message }),
            None => Err("an `unavailable` frame without a message".to_owned()),
        },
        ("rpc_call", Some(id), None) => match (namespace, action, args) {
            (Some(namespace), Some(action), Some(args)) => {
                Ok(FromChild::RpcCall { id, namespace, action, args })
            }
            _ => Err("an `rpc_call` frame with a field missing".to_owned()),
        },
        ("console", None, None) => match (level, text) {
            (Some(level), Some(text)) => Ok(FromChild::Console { level, text }),
            _ => Err("a `console` frame with a field missing".to_owned()),
        },
        ("timer", None, None) => at_ms
            .map(|at_ms| FromChild::Timer { at_ms })
            .ok_or_else(|| "a `timer` frame without a time".to_owned()),
        ("execution_complete", None, Some(true)) => match (value, error) {
            (value, None) => Ok(FromChild::Complete(Ok(value))),
            _ => Err("an `execution_complete` frame with a value and an error".to_owned()),
        },
        ("execution_complete", None, Some(false)) => match (value, error) {
            (None, Some(error)) => serde_json::from_str(error.get())
                .map(|failure| FromChild::Complete(Err(failure)))
                .map_err(|e| format!("an `execution_complete` frame with a bad error: {e}")),
            _ => Err("an `execution_complete` frame without exactly one error".to_owned()),
        },
        _ => Err("a frame of an unknown type or with fields of another".to_owned()),
    }
}

/// Reads one frame's body as the child.
pub(crate) fn read_from_host(body: &[u8]) -> Result<FromHost<'_>, String> {
    let fields: Fields<'_> =
        serde_json::from_slice(body).map_err(|e| format!("not a frame: {e}"))?;
    let Fields {
        kind,
        version,
        program,
        args,
        limits,
        epoch_ms,
        seed,
        implicit_returns,
        at_ms,
        id,
        ok,
        value,
        error,
        ..
    } = fields;
    match (&*kind, id, ok) {
        ("execute", None, None) => match (version, program, args, limits) {
            (Some(VERSION), Some(program), Some(args), Some(limits)) => {
                Ok(FromHost::Execute(Box::new(Execute {
                    program,
                    args,
                    limits,
                    epoch_ms,
                    seed,
                    implicit_returns,
                })))
            }
            _ => Err("an `execute` frame of another version or with a field missing".to_owned()),
        },
        ("probe", Some(id), None) => Ok(FromHost::Probe(id)),
        ("time", None, None) => {
            at_ms.map(FromHost::Time).ok_or_else(|| "a `time` frame without a time".to_owned())
        }
        ("rpc_result", Some(id), Some(true)) => value
            .map(|value| FromHost::RpcResult { id, result: Ok(value) })
            .ok_or_else(|| "an `rpc_result` frame without a value".to_owned()),
        ("rpc_result", Some(id), Some(false)) => {
            let error = error.ok_or_else(|| "an `rpc_result` frame without an error".to_owned())?;
            serde_json::from_str(error.get())
                .map(|thrown| FromHost::RpcResult { id, result: Err(thrown) })
                .map_err(|e| format!("an `rpc_result` frame with a bad error: {e}"))
        }
        _ => Err("a frame of an unknown type".to_owned()),
    }
}

/// Appends one frame to `out`.
pub(crate) fn write(out: &mut Vec<u8>, message: &impl Serialize) {
    let start = out.len();
    // A place for the length, which is known only afterwards. A separate buffer for the body would
    // cost a copy.
    out.extend_from_slice(&[0; HEADER]);
    serde_json::to_writer(&mut *out, message)
        .expect("frames have string keys and a Vec does not fail");
    let length =
        u32::try_from(out.len() - start - HEADER).expect("payloads are capped far below 4 GiB");
    out[start..start + HEADER].copy_from_slice(&length.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::inbox::Inbox;

    #[test]
    fn a_frame_comes_back_whole_and_in_pieces() {
        let mut out = Vec::new();
        write(&mut out, &ToHost::Console { level: "log", text: "é" });
        write(&mut out, &ToHost::Unavailable { message: "no" });
        let mut inbox = Inbox::default();
        let mut seen = Vec::new();
        for byte in out {
            inbox.tail().push(byte);
            while let Some(body) = inbox.next(1024).unwrap() {
                seen.push(String::from_utf8(body.to_vec()).unwrap());
            }
        }
        assert_eq!(
            seen,
            [
                r#"{"type":"console","level":"log","text":"é"}"#,
                r#"{"type":"unavailable","message":"no"}"#
            ]
        );
    }

    #[test]
    fn frames_with_wrong_fields_are_refused() {
        for body in [
            "",
            "{}",
            "[]",
            "\u{0}",
            r#"{"type":"execute"}"#,
            r#"{"type":"rpc_call","id":1,"namespace":"a","action":"b"}"#,
            r#"{"type":"rpc_call","id":-1,"namespace":"a","action":"b","args":{}}"#,
            r#"{"type":"rpc_call","id":1,"id":2,"namespace":"a","action":"b","args":{}}"#,
            r#"{"type":"rpc_call","id":1,"namespace":"a","action":"b","args":{},"extra":1}"#,
            r#"{"type":"rpc_call","id":1,"namespace":7,"action":"b","args":{}}"#,
            r#"{"type":"console","level":"log"}"#,
            r#"{"type":"console","level":"log","text":"x"} {}"#,
            r#"{"type":"execution_complete","ok":true,"value":1,"error":{}}"#,
            r#"{"type":"execution_complete","ok":false,"value":1}"#,
            r#"{"type":"execution_complete","ok":false,"error":{"kind":"x"}}"#,
            r#"{"type":"execution_complete","value":1}"#,
            r#"{"type":"timer"}"#,
            r#"{"type":"timer","at_ms":-1}"#,
            r#"{"type":"timer","at_ms":1,"id":1}"#,
            r#"{"type":"time","at_ms":1}"#,
        ] {
            assert!(read_from_child(body.as_bytes()).is_err(), "accepted {body:?}");
        }
        assert!(
            read_from_child(b"{\"type\":\"console\",\"level\":\"log\",\"text\":\"\xff\"}").is_err()
        );
    }

    #[test]
    fn null_is_a_value() {
        let frame =
            read_from_child(br#"{"type":"execution_complete","ok":true,"value":null}"#).unwrap();
        assert!(matches!(frame, FromChild::Complete(Ok(Some(value))) if value.get() == "null"));
        let frame = read_from_child(br#"{"type":"execution_complete","ok":true}"#).unwrap();
        assert!(matches!(frame, FromChild::Complete(Ok(None))));
    }
}

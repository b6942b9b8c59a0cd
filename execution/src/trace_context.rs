//! The W3C trace context of a request, which the calls that it causes carry on.
//!
//! A client that traces puts `traceparent` and `tracestate` into `_meta` (SEP-414) or into HTTP headers. Both come from
//! outside, so this is the only place that reads them, strictly: what is invalid or too long is ignored, and never fails a
//! request. `baggage` is not read, and so never forwarded: it may contain anything, and the next server may be anyone's.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use serde_json::{Map, Value};

/// The names in `_meta` and of the headers (W3C Trace Context, sections 3.2 and 3.3).
const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

/// The longest `tracestate` that is forwarded, in bytes: what section 3.3.1.5 asks everybody to forward.
const STATE_LIMIT: usize = 512;
/// The most members of a `tracestate` (section 3.3.1.1).
const MEMBERS_LIMIT: usize = 32;

tokio::task_local! {
    /// The context of the request that the code of this task works for.
    static CURRENT: Option<Arc<TraceContext>>;
}

/// The place of a request in its client's trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    parent: String,
    state: Option<String>,
}

impl TraceContext {
    /// Reads the context of a request: from its `_meta`, else from the headers that carried it.
    pub fn of_request(
        meta: &Map<String, Value>,
        headers: Option<&HeaderMap>,
    ) -> Option<Arc<TraceContext>> {
        let text = |name| meta.get(name).and_then(Value::as_str);
        // What `_meta` has is about this message, so headers do not replace an invalid value.
        if meta.contains_key(PARENT) {
            return Self::parse(text(PARENT)?, text(STATE)).map(Arc::new);
        }
        Self::of_headers(headers?)
    }

    /// Reads the context in the headers of a request.
    pub fn of_headers(headers: &HeaderMap) -> Option<Arc<TraceContext>> {
        // Two headers contradict each other.
        let header = |name| {
            let mut values = headers.get_all(name).iter();
            let value = values.next().filter(|_| values.next().is_none());
            value.and_then(|value| value.to_str().ok())
        };
        Self::parse(header(PARENT)?, header(STATE)).map(Arc::new)
    }

    /// Parses a context; an invalid `tracestate` is dropped alone.
    pub(crate) fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let parent = canonical_parent(parent)?;
        let state = state.filter(|state| is_state(state)).map(str::to_owned);
        Some(Self { parent, state })
    }

    /// Returns the ids of the trace and of the span in it, and whether the trace is sampled.
    pub(crate) fn ids(&self) -> Option<(&str, &str, bool)> {
        let mut fields = self.parent.split('-').skip(1);
        Some((fields.next()?, fields.next()?, fields.next()? == "01"))
    }

    /// Returns the state of vendors.
    pub(crate) fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Returns the names and values that a message carries.
    fn fields(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let state = self.state.as_deref().map(|state| (STATE, state));
        std::iter::once((PARENT, self.parent.as_str())).chain(state)
    }

    /// Adds the context to the `_meta` of a message.
    pub fn add_to(&self, meta: &mut Map<String, Value>) {
        for (name, value) in self.fields() {
            meta.insert(name.to_owned(), value.into());
        }
    }

    /// Sets the headers of a request.
    pub fn add_to_headers(&self, headers: &mut HeaderMap) {
        for (name, value) in self.fields() {
            // Never an error: both consist of printable characters.
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        }
    }
}

/// Returns the context of the request that the code of this task works for.
pub fn current() -> Option<Arc<TraceContext>> {
    CURRENT.try_with(Clone::clone).ok().flatten()
}

/// Runs a future for the request with this context. A task that it spawns does not inherit the context.
pub fn within<F: Future>(
    context: Option<Arc<TraceContext>>,
    work: F,
) -> impl Future<Output = F::Output> {
    // Not an `async fn`, whose future would hold `work` twice.
    CURRENT.scope(context, work)
}

/// Returns a `traceparent` in the form of version 00; `None` if it is invalid.
///
/// A later version may have more fields, which are not forwarded (section 4.3).
fn canonical_parent(text: &str) -> Option<String> {
    let (version, rest) = (text.get(..2)?, text.get(2..55)?);
    let mut fields = rest.strip_prefix('-')?.split('-');
    let (trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?);
    let is_hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |text, length| is_hex(text, length) && text.bytes().any(|byte| byte != b'0');
    let is_complete = match (version, &text[55..]) {
        ("00", rest) => rest.is_empty(),
        (_, rest) => rest.is_empty() || rest.starts_with('-') && text.len() <= STATE_LIMIT,
    };
    let is_valid = is_hex(version, 2)
        && version != "ff"
        && is_id(trace, 32)
        && is_id(span, 16)
        && is_hex(flags, 2)
        && fields.next().is_none()
        && is_complete;
    // Of the flags, only "sampled" has a meaning in all versions.
    let sampled = u8::from_str_radix(flags, 16).ok()? & 1;
    is_valid.then(|| format!("00-{trace}-{span}-{sampled:02x}"))
}

/// Returns whether a `tracestate` is valid and short enough to be forwarded.
fn is_state(text: &str) -> bool {
    let members = || text.split(',').map(|member| member.trim_matches([' ', '\t']));
    let is_member = |member: &str| {
        let Some((key, value)) = member.split_once('=') else { return false };
        let is_key_byte =
            |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
        let is_key = (1..=256).contains(&key.len())
            && key.bytes().all(is_key_byte)
            && key.as_bytes()[0].is_ascii_alphanumeric();
        // `,` separates members, so it is not in a value here.
        let is_value = (1..=256).contains(&value.len())
            && value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=');
        is_key && is_value
    };
    !text.is_empty()
        && text.len() <= STATE_LIMIT
        && members().count() <= MEMBERS_LIMIT
        // An empty member is allowed (section 3.3.1.1).
        && members().all(|member| member.is_empty() || is_member(member))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn read(meta: Value) -> Option<Vec<(&'static str, String)>> {
        let context = TraceContext::of_request(meta.as_object().unwrap(), None)?;
        Some(context.fields().map(|(name, value)| (name, value.to_owned())).collect())
    }

    /// TR-09.
    #[test]
    fn an_invalid_parent_is_ignored() {
        let parent = |text: &str| read(json!({ "traceparent": text })).map(|it| it[0].1.clone());
        assert_eq!(parent(VALID).as_deref(), Some(VALID));
        // A later version is read as version 00, and its unknown flags and fields are dropped.
        let later = VALID.replacen("00", "cc", 1);
        assert_eq!(parent(&later).as_deref(), Some(VALID));
        assert_eq!(parent(&format!("{later}-more")).as_deref(), Some(VALID));
        let unsampled = VALID.replace("-01", "-fe");
        assert_eq!(parent(&unsampled), Some(VALID.replace("-01", "-00")));
        for invalid in [
            String::new(),
            "00".to_owned(),
            VALID.to_uppercase(),
            VALID.replacen("00", "ff", 1),
            VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            VALID.replace("00f067aa0ba902b7", &"0".repeat(16)),
            VALID.replace("-01", "-0g"),
            VALID.replace('4', "é"),
            format!("{VALID}-more"),
            format!(" {VALID}"),
            format!("{VALID} "),
            format!("{later}more"),
            format!("{later}-{}", "a".repeat(600)),
            VALID[..54].to_owned(),
            "-".repeat(55),
            "a".repeat(1 << 20),
        ] {
            assert_eq!(parent(&invalid), None, "{invalid:.80}");
        }
        for value in [json!(1), json!(null), json!([VALID]), json!({})] {
            assert_eq!(read(json!({ "traceparent": value })), None);
        }
    }

    /// TR-09: a vendor's state is forwarded within the limits of the specification; baggage never.
    #[test]
    fn an_invalid_state_is_dropped_alone_and_baggage_always() {
        let state = |text: &str| {
            let meta = json!({ "traceparent": VALID, "tracestate": text, "baggage": "user=ann" });
            let fields = read(meta).unwrap();
            assert_eq!(fields[0].1, VALID);
            fields.get(1).map(|(_, value)| value.clone())
        };
        let full = (0..32).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
        for valid in ["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "a@b=1, c=d e", "a=1,,b=2", &full]
        {
            assert_eq!(state(valid).as_deref(), Some(valid));
        }
        let long = format!("a={}", "v".repeat(257));
        let many = format!("{full},x=y");
        let large = ["a", "b", "c"].map(|key| format!("{key}={}", "v".repeat(200))).join(",");
        for invalid in ["", "a", "=1", "a=", "A=1", "a=b=c", "a=\n", "a=é", &long, &many, &large] {
            assert_eq!(state(invalid), None, "{invalid}");
        }
        assert_eq!(read(json!({ "tracestate": "a=1", "baggage": "user=ann" })), None);
    }

    #[test]
    fn headers_count_where_the_message_has_no_context() {
        let mut headers = HeaderMap::new();
        headers.insert(PARENT, VALID.parse().unwrap());
        let read = |meta: Value, headers: &HeaderMap| {
            TraceContext::of_request(meta.as_object().unwrap(), Some(headers))
        };
        assert!(read(json!({}), &headers).is_some());
        assert_eq!(read(json!({ "traceparent": "invalid" }), &headers), None);
        headers.append(PARENT, VALID.parse().unwrap());
        assert_eq!(read(json!({}), &headers), None, "two contradict each other");
    }
}

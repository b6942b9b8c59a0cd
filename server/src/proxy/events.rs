//! Removes a secret from a stream, message by message: from server-sent events, or from JSON texts.

use protocol::redaction::Redactor;

/// The error for a message over the limit, or one that cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InvalidStream;

/// Removes a secret from a stream.
pub(super) enum StreamRedactor {
    /// Server-sent events.
    Events(Events),
    /// JSON texts.
    JsonTexts(JsonTexts),
}

impl StreamRedactor {
    /// Returns the size of the incomplete message that is buffered.
    pub(super) fn buffered(&self) -> usize {
        match self {
            Self::Events(events) => events.rest.len(),
            Self::JsonTexts(texts) => texts.rest.len(),
        }
    }

    /// Adds arrived bytes, and returns the messages that are now complete, redacted.
    ///
    /// # Errors
    /// Returns [`InvalidStream`] for a message over the limit, or one that cannot be parsed.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<u8>, InvalidStream> {
        match self {
            Self::Events(events) => events.push(bytes),
            Self::JsonTexts(texts) => texts.push(bytes),
        }
    }
}

/// A stream of concatenated JSON texts. It buffers the incomplete one.
pub(super) struct JsonTexts {
    redactor: Redactor,
    limit: usize,
    rest: Vec<u8>,
    /// Up to this position, `rest` has been scanned.
    seen: usize,
    /// The nesting depth at that position.
    depth: usize,
    /// Whether that position is within a string, and whether it follows a backslash there.
    in_string: bool,
    is_escaped: bool,
}

impl JsonTexts {
    /// Starts a stream of texts of at most `limit` bytes.
    pub(super) fn new(redactor: Redactor, limit: usize) -> Self {
        Self {
            redactor,
            limit,
            rest: Vec::new(),
            seen: 0,
            depth: 0,
            in_string: false,
            is_escaped: false,
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<Vec<u8>, InvalidStream> {
        self.rest.extend_from_slice(bytes);
        let (mut out, mut start) = (Vec::new(), 0);
        // The scan resumes at `seen`, so each byte is scanned once, however small the pieces are.
        for at in self.seen..self.rest.len() {
            let byte = self.rest[at];
            if self.in_string {
                // Bytes suffice for the scan: in UTF-8, no byte of a longer character equals a
                // quote, a bracket or a backslash.
                self.in_string = self.is_escaped || byte != b'"';
                self.is_escaped = !self.is_escaped && byte == b'\\';
                continue;
            }
            match byte {
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        let text = String::from_utf8_lossy(&self.rest[start..=at]);
                        out.extend_from_slice(self.redactor.json(&text).as_bytes());
                        start = at + 1;
                    }
                }
                b'"' if self.depth > 0 => self.in_string = true,
                // White space between texts is forwarded at once: a client may wait for the end of a line.
                byte if self.depth == 0 && byte.is_ascii_whitespace() => {
                    out.push(byte);
                    start = at + 1;
                }
                _ if self.depth > 0 => {}
                _ => return Err(InvalidStream),
            }
        }
        self.rest.drain(..start);
        self.seen = self.rest.len();
        // Only the incomplete text is limited: complete ones have already left the buffer.
        if self.rest.len() > self.limit { Err(InvalidStream) } else { Ok(out) }
    }
}

/// A stream of server-sent events. It buffers the incomplete one.
pub(super) struct Events {
    redactor: Redactor,
    limit: usize,
    rest: Vec<u8>,
    /// Up to this position, `rest` contains no end of an event.
    seen: usize,
}

impl Events {
    /// Starts a stream of events of at most `limit` bytes.
    pub(super) fn new(redactor: Redactor, limit: usize) -> Self {
        Self { redactor, limit, rest: Vec::new(), seen: 0 }
    }

    /// Adds arrived bytes, and returns the events that are now complete, redacted.
    ///
    /// An incomplete event at the end of the stream is not forwarded: clients discard it anyway.
    ///
    /// # Errors
    /// Returns [`InvalidStream`] for an event over the limit.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<u8>, InvalidStream> {
        self.rest.extend_from_slice(bytes);
        let (mut out, mut start) = (Vec::new(), 0);
        loop {
            // Forwarded at once: further empty lines, and the LF of a CRLF whose CR has ended an event.
            let between = &self.rest[start..];
            let is_line_end = |byte: &&u8| matches!(byte, b'\r' | b'\n');
            let between = &between[..between.iter().take_while(is_line_end).count()];
            out.extend_from_slice(between);
            start += between.len();
            let Some(end) = end_of_event(&self.rest, self.seen.max(start)) else { break };
            out.extend(self.redact(&self.rest[start..end]));
            start = end;
        }
        self.rest.drain(..start);
        // The end of an event has two bytes and may be split between two chunks.
        self.seen = self.rest.len().saturating_sub(1);
        if self.rest.len() > self.limit { Err(InvalidStream) } else { Ok(out) }
    }

    /// Removes the secret from one event. An event without the secret is returned unchanged.
    fn redact(&self, event: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(event);
        let lines = || text.split(['\r', '\n']).filter(|line| !line.is_empty());
        let data: Vec<&str> = lines().filter_map(data_of).collect();
        // Joined first, because a secret may be split over several `data` lines.
        let payload = data.join("\n");
        // The other lines contain no JSON, but an id or a comment could contain the secret as well.
        let mut others = lines().filter(|line| data_of(line).is_none());
        let redacted = self.redactor.json(&payload);
        if redacted == payload && !others.any(|line| self.redactor.text(line) != line) {
            return event.to_vec();
        }
        let mut out = String::with_capacity(event.len());
        for line in lines().filter(|line| data_of(line).is_none()) {
            out += &self.redactor.text(line);
            out.push('\n');
        }
        if !data.is_empty() {
            // The payload may contain line breaks; each line of it needs the field name.
            for line in redacted.split('\n') {
                out += "data: ";
                out += line;
                out.push('\n');
            }
        }
        out.push('\n');
        out.into_bytes()
    }
}

/// Returns the value of a `data` line.
fn data_of(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("data")?;
    match rest.strip_prefix(':') {
        // One space after the colon does not belong to the value, and a line without a colon has an
        // empty one.
        Some(value) => Some(value.strip_prefix(' ').unwrap_or(value)),
        None => rest.is_empty().then_some(""),
    }
}

/// Returns the end of the first event: the position after the first byte of its empty line's end.
fn end_of_event(bytes: &[u8], from: usize) -> Option<usize> {
    // Lines may end with LF, CRLF or CR, and a server may mix them. Every other pair of these bytes, CRLF, is the end
    // of one line.
    let is_end = |pair: &[u8]| matches!(pair, b"\n\n" | b"\n\r" | b"\r\r");
    let at = bytes[from..].windows(2).position(is_end)?;
    Some(from + at + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "canary-7f3a91";

    /// Pushes a stream in pieces of every size and returns the output, which must be the same for all sizes.
    fn through(stream: &str) -> String {
        let pieces = |size: usize| {
            let mut events = Events::new(Redactor::new(KEY), 1_000);
            let pushed =
                stream.as_bytes().chunks(size).flat_map(|piece| events.push(piece).unwrap());
            String::from_utf8(pushed.collect()).unwrap()
        };
        let whole = pieces(stream.len());
        for size in 1..stream.len() {
            assert_eq!(pieces(size), whole, "in pieces of {size}");
        }
        whole
    }

    /// SE-02: a secret is removed from every part of every event, however the stream is cut.
    #[test]
    fn secrets_are_removed_from_events() {
        let out = through(
            "id: canary-7f3a91\nevent: message\ndata: {\"a\":\"canary-7f3a91\",\"b\":[1]}\n\n: canary-7f3a91\r\n\r\n\
             data: {\"a\":\"\\u0063anary-7f3a91\"}\n\ndata: {\"a\":\ndata: \"canary-7f3a91\"}\r\rdata: canary-7f3a91\n\n\
             data:{\"a\":\"canary-7f3a91\",\"a\":1}\n\ndata: {\"cut\":\"canary-7f3a91\"",
        );
        assert!(!out.contains("7f3a91") && !out.contains("\\u0063"), "{out}");
        assert_eq!(out.matches("[redacted]").count(), 7, "{out}");
        assert!(out.contains("event: message\n") && out.contains("\"b\":[1]"), "{out}");
    }

    #[test]
    fn events_without_the_secret_are_forwarded_byte_by_byte() {
        let stream = "id: 1\ndata: \n\nretry: 3000\r\ndata: {\"n\": 1.0,  \"big\":123456789012345678901234567890}\r\n\r\n: ping\n\n\n\ndata\r\r";
        assert_eq!(through(stream), stream);
    }

    /// An event is complete with its empty line, whatever the ends of its lines are.
    #[test]
    fn events_are_forwarded_as_soon_as_they_are_complete() {
        for end in ["\n", "\r\n", "\r"] {
            for empty in ["\n", "\r\n", "\r"] {
                if (end, empty) == ("\r", "\n") {
                    // The end of one line.
                    continue;
                }
                let event = format!("event: message{end}data: 1{end}{empty}");
                let mut events = Events::new(Redactor::new(KEY), 1_000);
                for _ in 0..2 {
                    assert_eq!(events.push(event.as_bytes()).unwrap(), event.as_bytes());
                }
                let secret = format!("data: {KEY}{end}{empty}");
                let out = through(&secret.repeat(2));
                let datas = out.split("\n\n").map(str::trim).filter(|event| !event.is_empty());
                assert_eq!(datas.collect::<Vec<_>>(), ["data: [redacted]"; 2], "{secret:?}");
            }
        }
    }

    /// SE-02: the same for JSON texts, each of which is forwarded as soon as it is complete.
    #[test]
    fn secrets_are_removed_from_json_texts() {
        let mut texts = JsonTexts::new(Redactor::new(KEY), 1_000);
        assert_eq!(texts.push(b"{\"a\":\"canary-").unwrap(), b"");
        let out = texts.push(b"7f3a91\"}\n{\"b\": 1.0}\n{\"c\"").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "{\"a\":\"[redacted]\"}\n{\"b\": 1.0}\n");
        assert_eq!(texts.push(b":2}\n").unwrap(), b"{\"c\":2}\n");
        for byte in b"[{\"}\": \"\\\"]canary-7f3a91\"}" {
            assert_eq!(texts.push(&[*byte]).unwrap(), b"");
        }
        assert_eq!(texts.push(b"]").unwrap(), b"[{\"}\": \"\\\"][redacted]\"}]");
        assert_eq!(texts.push(b"data: canary-7f3a91"), Err(InvalidStream));
        let mut texts = JsonTexts::new(Redactor::new(KEY), 10);
        assert_eq!(texts.push(b"{\"abcdefghi"), Err(InvalidStream));
    }

    #[test]
    fn large_events_are_refused() {
        let mut events = Events::new(Redactor::new(KEY), 1_000);
        assert!(events.push(format!("data: {}\n\n", "x".repeat(2_000)).as_bytes()).is_ok());
        assert!(events.push(&[b'x'; 900]).is_ok());
        assert_eq!(events.push(&[b'x'; 200]), Err(InvalidStream));
    }
}

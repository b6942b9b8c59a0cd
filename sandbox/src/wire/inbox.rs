//! Splits the bytes that arrive on a socket into frames.

/// The size of the length prefix of each frame, in bytes.
pub(crate) const HEADER: usize = 4;

/// Collects bytes until they contain whole frames. It never allocates for a length that a peer merely claims.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    read: usize,
}

impl Inbox {
    /// Returns the buffer, to append received bytes.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        if self.read == self.bytes.len() {
            self.bytes.clear();
            self.read = 0;
        } else if self.read > 256 * 1024 {
            // Moving the rest to the front costs time, so it waits until it frees much.
            self.bytes.drain(..self.read);
            self.read = 0;
        }
        &mut self.bytes
    }

    /// Returns the body of the next complete frame; `None` if it is incomplete.
    pub(crate) fn next(&mut self, cap: usize) -> Result<Option<&[u8]>, String> {
        let rest = &self.bytes[self.read..];
        let Some(header) = rest.first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_le_bytes(*header) as usize;
        // Refused before the body arrives, which would fill the buffer.
        if length > cap {
            return Err(format!("a frame of {length} bytes; the limit is {cap}"));
        }
        if rest.len() < HEADER + length {
            return Ok(None);
        }
        let start = self.read + HEADER;
        self.read = start + length;
        Ok(Some(&self.bytes[start..start + length]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_over_the_cap_is_refused_before_the_body() {
        let mut inbox = Inbox::default();
        inbox.tail().extend_from_slice(&u32::MAX.to_le_bytes());
        assert!(inbox.next(1024).unwrap_err().contains("the limit is 1024"));
    }
}

//! Random numbers: the kernel's, or a sequence that a seed repeats.

use crate::child::process::{EXIT_PANIC, exit};

/// A source of random numbers.
#[derive(Default)]
pub(crate) struct Random {
    state: u64,
    seeded: bool,
}

impl Random {
    /// Restarts the sequence. With a seed, all numbers are determined by it.
    pub(crate) fn reset(&mut self, seed: Option<u64>) {
        self.seeded = seed.is_some();
        // Any other start of the sequence could be guessed, so a child without random numbers ends.
        self.state = seed.unwrap_or_else(|| getrandom::u64().unwrap_or_else(|_| exit(EXIT_PANIC)));
    }

    /// Returns a number from 0 (inclusive) to 1 (exclusive).
    pub(crate) fn fraction(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exactly what a double holds")]
        {
            (self.next_word() >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Returns random bytes: fit for secrets unless seeded.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        if !self.seeded {
            // These bytes are used as secrets and must be unpredictable, so there is no fallback.
            getrandom::fill(&mut bytes).unwrap_or_else(|_| exit(EXIT_PANIC));
            return bytes;
        }
        for chunk in bytes.chunks_mut(8) {
            // In the same order on every machine, so that a seed gives the same bytes everywhere.
            let word = self.next_word().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        bytes
    }

    /// SplitMix64: every 64-bit number once, in an order that looks random.
    fn next_word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

//! Random numbers: the kernel's, or a sequence that a seed repeats.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};

use crate::child::process::{EXIT_PANIC, exit};
use crate::repeatable::Seed;

/// A source of random numbers.
#[derive(Default)]
pub(crate) struct Random {
    state: u64,
    /// A generator for secrets, too: who sees some of its numbers cannot compute the others.
    seeded: Option<ChaCha20Rng>,
}

impl Random {
    /// Restarts the sequence. With a seed, all numbers are determined by it.
    pub(crate) fn reset(&mut self, seed: Option<Seed>) {
        self.seeded = seed.map(ChaCha20Rng::from_seed);
        // Any other start of the sequence could be guessed, so a child without random numbers ends.
        self.state = getrandom::u64().unwrap_or_else(|_| exit(EXIT_PANIC));
    }

    /// Returns a number from 0 (inclusive) to 1 (exclusive).
    pub(crate) fn fraction(&mut self) -> f64 {
        let word = match &mut self.seeded {
            Some(seeded) => seeded.next_u64(),
            None => self.next_word(),
        };
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exactly what a double holds")]
        {
            (word >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Returns random bytes, fit for secrets.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        match &mut self.seeded {
            Some(seeded) => seeded.fill_bytes(&mut bytes),
            // These bytes are used as secrets and must be unpredictable, so there is no fallback.
            None => getrandom::fill(&mut bytes).unwrap_or_else(|_| exit(EXIT_PANIC)),
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

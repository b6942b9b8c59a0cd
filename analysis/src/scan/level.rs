//! Counts what is open at each bracket level, and enforces the limits.

use super::Scanner;
use crate::diagnostic::Finding;

/// The maximum number of `<` in code: the parser backtracks at each type assertion
/// and type argument list.
const ANGLE_LIMIT: u32 = 500;
/// The maximum nesting of `? (…) : name =>`. The parser reads what follows the arrow as the body of a
/// function with a return type, and again if it is not: each level doubles or triples its time.
const FORK_LIMIT: u32 = 4;
/// The maximum nesting of brackets after a `<` that may begin type arguments: the parser first reads
/// their contents as a type.
const SHADOW_LIMIT: u32 = 3;
/// The maximum nesting of `<` at the start of a value: casts and generic functions.
const CAST_LIMIT: u32 = 6;

/// What is open at one bracket level.
#[derive(Default, Clone, Copy)]
pub(super) struct Level {
    /// Whether this is the `(` of an `if (…)`.
    pub(super) head: bool,
    /// Whether this is the `${` of a template.
    pub(super) hole: bool,
    /// Whether there was a `?` since the last boundary.
    pub(super) choice: bool,
    /// Whether there was a `? … (…) :` since then whose arrow may follow.
    pub(super) fork: bool,
    /// The number of `<` without `>` since the last boundary: a comma may separate types.
    pub(super) angles: u32,
    /// The number of `<` at the start of a value since then.
    pub(super) casts: u32,
    /// Whether the enclosing level has an open `<`.
    pub(super) shadowed: bool,
    /// The number of arrows after `? … (…) :` since then.
    pub(super) forks: u32,
    /// The number of tokens since the last boundary that nest what follows them.
    pub(super) right: u32,
    /// The number of tokens since the last boundary that lengthen a chain.
    pub(super) left: u32,
}

impl Scanner<'_> {
    pub(super) fn reset(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            self.right_total -= level.right;
            level.right = 0;
            level.left = 0;
            if level.angles == 0 {
                self.cast_total -= level.casts;
                self.fork_total -= level.forks;
                level.casts = 0;
                level.choice = false;
                level.fork = false;
                level.forks = 0;
            }
        }
    }

    /// Returns an upper estimate of how many times the parser reads the text here.
    ///
    /// Measured: it reads twice what is in a cast or after `? (…) : name =>`, and up to five times what is
    /// in brackets after a `<`, where the `<` is in the body of an arrow function that it reads twice.
    pub(super) fn times_read(&self) -> u64 {
        (1 << (self.cast_total + self.fork_total)) * 5_u64.pow(self.shadow_total)
    }

    /// Counts a token that nests what follows.
    pub(super) fn nest(&mut self) -> Result<(), Finding> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        level.right += 1;
        self.right_total += 1;
        // Looser than the depth limit, because not every such token nests; `survey` checks the tree exactly.
        if level.right > self.limits.depth * 4 || self.right_total > self.limits.depth * 8 {
            return Err(self.too_complex("the program is nested too deeply here"));
        }
        Ok(())
    }

    /// Records that no type argument list is open here.
    pub(super) fn end_types(&mut self) {
        self.levels.last_mut().into_iter().for_each(|level| level.angles = 0);
    }

    /// Counts a `<`.
    pub(super) fn angle(&mut self, begins_value: bool) -> Result<(), Finding> {
        self.angles += 1;
        if self.angles > ANGLE_LIMIT {
            return Err(self.too_complex("too many `<` in one program"));
        }
        if let Some(level) = self.levels.last_mut() {
            level.angles += 1;
            level.casts += u32::from(begins_value);
            self.cast_total += u32::from(begins_value);
        }
        if self.cast_total > CAST_LIMIT {
            return Err(self.too_complex("too many nested casts or generic functions here"));
        }
        Ok(())
    }

    /// Counts a `>`.
    pub(super) fn close_angle(&mut self) {
        let level = self.levels.last_mut();
        level.into_iter().for_each(|level| level.angles = level.angles.saturating_sub(1));
    }

    /// Counts an arrow at which the parser may backtrack.
    pub(super) fn arrow(&mut self) -> Result<(), Finding> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        if std::mem::take(&mut level.fork) {
            level.forks += 1;
            self.fork_total += 1;
            if self.fork_total > FORK_LIMIT {
                return Err(self.too_complex("too many nested `?:` with arrow functions here"));
            }
        }
        Ok(())
    }

    /// Counts a token that lengthens a chain.
    pub(super) fn chain(&mut self) -> Result<(), Finding> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        level.left += 1;
        if level.left > self.limits.chain {
            return Err(
                self.too_complex("the chain of operators, members or calls is too long here")
            );
        }
        Ok(())
    }

    pub(super) fn open(&mut self, level: Level) -> Result<(), Finding> {
        let shadowed = self.levels.last().is_some_and(|around| around.angles > 0);
        self.levels.push(Level { shadowed, ..level });
        self.shadow_total += u32::from(shadowed);
        if self.shadow_total > SHADOW_LIMIT {
            return Err(self.too_complex("too many nested brackets after `<` here"));
        }
        if self.levels.len() > self.limits.depth as usize + 1 {
            return Err(self.too_complex("too many nested brackets here"));
        }
        Ok(())
    }

    pub(super) fn close(&mut self) -> Level {
        self.end_types();
        self.reset();
        if self.levels.len() == 1 {
            return Level::default();
        }
        let level = self.levels.pop().unwrap_or_default();
        self.shadow_total -= u32::from(level.shadowed);
        level
    }
}

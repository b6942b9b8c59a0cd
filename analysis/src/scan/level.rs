//! What is open at each depth of brackets, and how much of it there may be.

use super::Scanner;
use crate::diagnostic::Finding;

/// The most `<` in code: type assertions and type arguments make the parser try
/// again at each of them.
const ANGLE_LIMIT: u32 = 500;
/// The most `? (…) : name =>` within each other. The parser reads what follows the arrow as the body
/// of a function with a return type, and again when it is not: each of them doubles or trebles its time.
const FORK_LIMIT: u32 = 4;
/// The most brackets within each other that stand after a `<` that may begin type arguments: the parser
/// reads what is in them as a type first.
const SHADOW_LIMIT: u32 = 3;
/// The most `<` within each other that begin a value: casts, and parameters of generic functions.
const CAST_LIMIT: u32 = 6;

/// What is open at one depth of brackets.
#[derive(Default, Clone, Copy)]
pub(super) struct Level {
    /// Whether this is the `(` of an `if (…)`.
    pub(super) head: bool,
    /// Whether this is the `${` of a template.
    pub(super) hole: bool,
    /// Whether a `?` was met since the last boundary.
    pub(super) choice: bool,
    /// Whether `? … (…) :` was met since then, and not yet its arrow.
    pub(super) fork: bool,
    /// How many `<` since the last boundary have no `>`: a comma may stand between types.
    pub(super) angles: u32,
    /// How many `<` that begin a value were met since then.
    pub(super) casts: u32,
    /// Whether the level around has such a `<`.
    pub(super) shadowed: bool,
    /// How many such arrows were met since then.
    pub(super) forks: u32,
    /// Tokens since the last boundary that nest what follows them.
    pub(super) right: u32,
    /// Tokens since the last boundary that lengthen a chain.
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

    /// Counts a token that nests what follows.
    pub(super) fn nest(&mut self) -> Result<(), Finding> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        level.right += 1;
        self.right_total += 1;
        if level.right > self.limits.depth * 4 || self.right_total > self.limits.depth * 8 {
            return Err(self.too_complex("the program nests too deep here"));
        }
        Ok(())
    }

    /// Notes that no list of types is open here.
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
            return Err(self.too_complex("too many `<` begin a value here"));
        }
        Ok(())
    }

    /// Counts a `>`.
    pub(super) fn close_angle(&mut self) {
        let level = self.levels.last_mut();
        level.into_iter().for_each(|level| level.angles = level.angles.saturating_sub(1));
    }

    /// Counts an arrow at which the parser may have two ways to go.
    pub(super) fn arrow(&mut self) -> Result<(), Finding> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        if std::mem::take(&mut level.fork) {
            level.forks += 1;
            self.fork_total += 1;
            if self.fork_total > FORK_LIMIT {
                return Err(self.too_complex("too many functions are chosen from here by `?`"));
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
            return Err(self.too_complex("too many brackets after `<` are open here"));
        }
        if self.levels.len() > self.limits.depth as usize + 1 {
            return Err(self.too_complex("too many brackets are open here"));
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

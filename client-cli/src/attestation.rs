//! Signed statements about what happened on this machine, for readers elsewhere.
//!
//! A statement is an in-toto Statement (version 1) in a DSSE envelope with one Ed25519 signature. The signing key is made
//! on first use and never leaves the user's state folder. A reader trusts keys that came another way than the statement:
//! an envelope has no key, only the id of one.

mod envelope;
mod keys;
mod statement;

pub(crate) use self::envelope::{FILE_LIMIT, Opened, Refused, open, seal};
pub(crate) use self::keys::{KeyError, PublicKey, SigningKey, TrustedKeys};
pub(crate) use self::statement::Statement;

#[cfg(test)]
mod tests;

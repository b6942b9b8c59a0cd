//! The acting principal: a member, a service, a key, or a subject of an identity provider.

use std::fmt;
use std::str::FromStr;

use protocol::look_alike;

use crate::RegistryError;

/// Names that the audit log and the registry use for PML itself. They are compared without regard to case.
const RESERVED: [&str; 9] = [
    "operator",
    "pml",
    "pml-server",
    "system",
    "local",
    "public",
    "anonymous",
    "admin",
    "administrator",
];

/// The prefixes of names that PML assigns, one for each kind.
const KINDS: [(&str, PrincipalKind); 3] = [
    ("service:", PrincipalKind::Service),
    ("key:", PrincipalKind::Key),
    ("sub:", PrincipalKind::Subject),
];

/// The name of the acting person, service or key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Principal(String);

/// The kind of a principal's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrincipalKind {
    /// A person, or another name that the operator or an identity provider uses.
    Member,
    /// `service:NAME`: a program whose keys the administrators of its project create.
    Service,
    /// `key:ID`: a key that acts for itself.
    Key,
    /// `sub:HASH`: the subject of a token, whose name contains characters that a principal cannot have.
    Subject,
    /// A name of PML itself, or one that looks like it.
    Reserved,
}

impl Principal {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the kind of principal that a name belongs to.
    pub fn kind(&self) -> PrincipalKind {
        let folded = self.0.to_ascii_lowercase();
        // Also names that look like one of them, such as `adm1n`.
        let is_reserved = |name: &str| {
            let read = look_alike::skeleton(name);
            RESERVED.iter().any(|reserved| look_alike::skeleton(reserved) == read)
        };
        if is_reserved(&folded) {
            return PrincipalKind::Reserved;
        }
        for (prefix, kind) in KINDS {
            // A different spelling of a prefix, such as `Service:`, and a prefix without a name
            // belong to nobody: a reader would take them for the real kind.
            let is_spelt_so = self.0.starts_with(prefix) && self.0.len() > prefix.len();
            if folded.starts_with(prefix) {
                return if is_spelt_so { kind } else { PrincipalKind::Reserved };
            }
        }
        // `operator:` and `pml:` look like the prefixes of a kind.
        match folded.split_once(':') {
            Some((first, _)) if is_reserved(first) => PrincipalKind::Reserved,
            _ => PrincipalKind::Member,
        }
    }

    /// Returns whether this principal may receive a key of another one: the holder of a key acts as its principal.
    ///
    /// `made_by` is the creator of the existing key in a rotation, who has seen it.
    pub(crate) fn may_hold_key_of(&self, other: &Self, made_by: Option<&str>) -> bool {
        match other.kind() {
            // A service acts for its project and is no person, so its key impersonates nobody.
            PrincipalKind::Service => true,
            // The creator of a `key:ID` has seen the key, and can act with it anyway.
            PrincipalKind::Key if self != other => made_by == Some(self.as_str()),
            _ => self == other,
        }
    }
}

impl FromStr for Principal {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        // The same characters as in the constraints of the tables. `Tenant::begin` depends on them:
        // none is a quote or a backslash.
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._:@+-".contains(&b);
        if (1..=128).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(RegistryError::Invalid(
                "a principal must be 1 to 128 ASCII letters, digits or `. _ : @ + -`".to_owned(),
            ))
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(text: &str) -> Principal {
        text.parse().unwrap()
    }

    #[test]
    fn derives_the_kind_from_the_name() {
        for (text, kind) in [
            ("alice", PrincipalKind::Member),
            ("operator@acme.example", PrincipalKind::Member),
            ("urn:acme:alice", PrincipalKind::Member),
            ("service:ci", PrincipalKind::Service),
            ("key:0195d2a0-0000-7000-8000-000000000000", PrincipalKind::Key),
            ("sub:00", PrincipalKind::Subject),
            ("operator", PrincipalKind::Reserved),
            ("Operator", PrincipalKind::Reserved),
            ("PML", PrincipalKind::Reserved),
            ("pml:ci", PrincipalKind::Reserved),
            ("pmI", PrincipalKind::Reserved),
            ("p-m-l", PrincipalKind::Reserved),
            ("adm1n", PrincipalKind::Reserved),
            ("0perator:ci", PrincipalKind::Reserved),
            ("admins", PrincipalKind::Member),
            ("locals", PrincipalKind::Member),
            ("Service:ci", PrincipalKind::Reserved),
            ("KEY:x", PrincipalKind::Reserved),
            ("service:", PrincipalKind::Reserved),
        ] {
            assert_eq!(principal(text).kind(), kind, "{text}");
        }
    }

    /// NX-08: the holder of a key acts as its principal.
    #[test]
    fn only_the_person_may_hold_a_persons_key() {
        let (alice, own) = (principal("alice"), principal("key:1"));
        for (actor, of, made_by, expected) in [
            (&alice, "alice", None, true),
            (&alice, "bob", None, false),
            (&alice, "bob", Some("alice"), false),
            (&alice, "Alice", None, false),
            (&alice, "sub:00", None, false),
            (&alice, "operator", Some("alice"), false),
            (&alice, "service:ci", None, true),
            (&alice, "key:1", Some("alice"), true),
            (&alice, "key:1", Some("operator"), false),
            (&alice, "key:1", None, false),
            (&own, "key:1", None, true),
            (&own, "alice", None, false),
        ] {
            assert_eq!(actor.may_hold_key_of(&principal(of), made_by), expected, "{actor} {of}");
        }
    }
}

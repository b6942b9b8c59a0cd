//! The roles of members, in order.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::RegistryError;
use crate::identity::right::{Right, Rights};

/// The role of a member, in an organisation or in one of its projects. A higher role includes the lower ones.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    // `Ord` is derived, so the order of the variants is the order of the roles.
    /// Reads.
    Viewer,
    /// Also runs programs and publishes.
    Member,
    /// Also manages API keys, members and projects.
    Admin,
    /// Also creates owners and deletes projects; only for an organisation.
    Owner,
}

impl Role {
    /// Every role, lowest first.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Member, Self::Admin, Self::Owner];

    /// Returns the word used on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Member => "member",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }

    /// Returns the upper bound of the rights of a member with the role; equal to `role_rights` in the database.
    pub fn rights(self) -> Rights {
        match self {
            Self::Viewer => [Right::Read].into_iter().collect(),
            Self::Member => [Right::Execute, Right::Read, Right::Publish].into_iter().collect(),
            Self::Admin | Self::Owner => Right::ALL.into_iter().collect(),
        }
    }
}

impl FromStr for Role {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        Self::ALL.into_iter().find(|role| role.as_str() == text).ok_or_else(|| {
            RegistryError::Invalid(format!(
                "`{}` is not a role; use `owner`, `admin`, `member` or `viewer`",
                text.escape_debug()
            ))
        })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

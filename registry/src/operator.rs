//! Operations of the operator, with the role that owns the database.

pub(crate) mod classes;
pub(crate) mod quarantine;
pub(crate) mod rules;
pub(crate) mod seed;
pub(crate) mod shipped;
pub(crate) mod stdio;

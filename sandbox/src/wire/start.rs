//! The arguments with which a host starts a child: the mark, the host's process id, the kind of child, and what that
//! kind needs.

/// The first argument of every child.
pub(crate) const CHILD_MARK: &str = "__sandbox-child";
/// The kinds of child: one forks the children that run programs, the other runs jobs.
pub(crate) const ZYGOTE: &str = "zygote";
pub(crate) const JOB: &str = "job";

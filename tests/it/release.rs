//! Releases: installing `pml`, upgrading it, and the packages of package managers.

mod install;
mod newer_state;
mod packages;
mod support;
mod upgrade;

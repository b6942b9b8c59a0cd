//! Releases: installing `pml`, upgrading it, and the packages of package managers.

mod bundles;
mod contents;
mod image;
mod install;
mod kubernetes;
mod newer_state;
mod packages;
mod served_script;
mod support;
mod upgrade;

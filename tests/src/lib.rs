//! Black-box tests of the whole product; the tests are in `it/`.
//!
//! They start the built `pml-server` on its private Postgres and the built `pml`
//! with real MCP servers, and communicate with them over HTTP and stdio. They never
//! link a crate of this workspace and never replace a part of it by a mock.

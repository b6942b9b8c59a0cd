//! Real MCP servers and clients from npm and PyPI, installed once into a cache.
//!
//! The versions are pinned under `tests/fixtures`. The cache is in the build folder, with one folder for each state of
//! the pins. The CLI's own tests include this file, too.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

/// The MCP servers that the tests start with Node.
pub(crate) const SERVERS: &str = "mcp";
/// The MCP servers and the client from PyPI.
pub(crate) const PYTHON: &str = "python";
/// The TypeScript SDKs of both protocol generations.
pub(crate) const CLIENTS: &str = "clients";
/// Schemathesis from PyPI, which tests a gateway against its OpenAPI document.
pub(crate) const SCHEMATHESIS: &str = "schemathesis";
/// The balancer in front of several gateways, from PyPI.
pub(crate) const BALANCER: &str = "balancer";
/// The compiler of TypeScript.
pub(crate) const TYPESCRIPT: &str = "typescript";
/// The tools of MCP Bundles.
pub(crate) const MCPB: &str = "mcpb";
/// Node 22, for clients that require it.
pub(crate) const NODE_22: &str = "node22";

/// Returns the folder of an installed npm fixture.
pub(crate) fn npm(fixture: &str) -> PathBuf {
    let pins = fixtures().join(fixture);
    install(fixture, &[pins.join("package.json"), pins.join("package-lock.json")], |folder| {
        require("npm", "Node.js 18 or newer with npm");
        for name in ["package.json", "package-lock.json"] {
            fs::copy(pins.join(name), folder.join(name)).expect("the pins can be copied");
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(folder);
        run(npm);
    })
}

/// Returns the folder of the programs of an installed Python fixture.
pub(crate) fn python(fixture: &str) -> PathBuf {
    let pins = fixtures().join(fixture).join("requirements.txt");
    let folder = install(fixture, std::slice::from_ref(&pins), |folder| {
        require("python3", "Python 3.10 or newer with venv");
        let mut venv = Command::new("python3");
        // Symbolic links, because a copied interpreter would not find its library from another folder.
        venv.args(["-m", "venv", "--symlinks"]).arg(folder);
        run(venv);
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]);
        pip.args(["--disable-pip-version-check", "-r"]).arg(&pins);
        run(pip);
    });
    folder.join("bin")
}

/// Returns the script of an MCP server from npm, to be started by `node`.
pub(crate) fn server_script(name: &str) -> PathBuf {
    require("node", "Node.js 18 or newer");
    let script =
        npm(SERVERS).join("node_modules/@modelcontextprotocol").join(name).join("dist/index.js");
    assert!(script.is_file(), "the package does not contain `{}`", script.display());
    script
}

/// Returns Node 22.
pub(crate) fn node_22() -> PathBuf {
    let folder = npm(NODE_22);
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let node = folder.join(format!("node_modules/node-linux-{machine}/bin/node"));
    assert!(node.is_file(), "npm has no Node 22 for this machine: `{}`", node.display());
    node
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures")
}

/// Installs with `make` into a folder named after the hash of the pins, unless it exists.
fn install(name: &str, pins: &[PathBuf], make: impl FnOnce(&Path)) -> PathBuf {
    let mut hash = Sha256::new();
    for pin in pins {
        hash.update(fs::read(pin).unwrap_or_else(|e| panic!("`{}`: {e}", pin.display())));
    }
    let hash: String = hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let cache = cache();
    fs::create_dir_all(&cache).expect("the build folder takes folders");
    let folder = cache.join(format!("{name}-{hash}"));
    let done = folder.join(".installed");
    let lock = File::create(cache.join(format!("{name}-{hash}.lock"))).expect("a lock can be made");
    // Other test processes wait here. The operating system releases the lock of a process that dies.
    lock.lock().expect("the lock can be waited for");
    if !done.is_file() {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("the cache takes folders");
        make(&folder);
        File::create(&done).expect("the cache takes files");
    }
    folder
}

fn cache() -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    // <target>/<profile>/deps/it-…
    let target = test.ancestors().nth(3).expect("it lies in the build folder");
    target.join("test-cache")
}

#[track_caller]
fn require(program: &str, what: &str) {
    let there =
        Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success());
    assert!(there, "these tests need {what}: `{program}` does not run; install it and try again");
}

#[track_caller]
fn run(mut command: Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{:?}: {e}", command.get_program()));
    assert!(
        output.status.success(),
        "{:?} {:?}: {}\n{}{}",
        command.get_program(),
        command.get_args(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

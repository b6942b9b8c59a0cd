//! Installs the baselines of the benches: npm packages with pinned versions.

use std::error::Error;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the pins.
const PINS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/bench");

/// Installs the pinned packages, once for each state of the pins; returns the folder with `node_modules`. If `file`
/// exists in it, it is complete.
pub(crate) fn installed(file: &str) -> Result<PathBuf, Box<dyn Error>> {
    let pins = Path::new(PINS);
    let names = ["package.json", "package-lock.json"];
    let mut hash = DefaultHasher::new();
    for name in names {
        fs::read(pins.join(name))?.hash(&mut hash);
    }
    let bench = std::env::current_exe()?;
    // <target>/<profile>/deps/pool-…
    let target = bench.ancestors().nth(3).ok_or("the bench lies in no build folder")?;
    let folder = target.join(format!("test-cache/bench-{:016x}", hash.finish()));
    if !folder.join(file).is_file() {
        fs::create_dir_all(&folder)?;
        for name in names {
            fs::copy(pins.join(name), folder.join(name))?;
        }
        let output = Command::new("npm")
            // `npm ci` requests the packages of all platforms, which not every registry has.
            .args(["install", "--ignore-scripts", "--no-audit", "--no-fund"])
            .current_dir(&folder)
            .output()
            .map_err(|e| format!("the baselines come from npm, which does not run: {e}"))?;
        if !output.status.success() {
            return Err(format!("npm install: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
    }
    Ok(folder)
}

/// Builds a package with native code in the folder, if its output `file` does not exist. It is an error if the machine
/// has no compiler.
#[allow(dead_code, reason = "not every bench needs native code")]
pub(crate) fn built(folder: &Path, package: &str, file: &str) -> Result<(), Box<dyn Error>> {
    let file = folder.join("node_modules").join(package).join(file);
    if file.is_file() {
        return Ok(());
    }
    let output = Command::new("npm").args(["rebuild", package]).current_dir(folder).output()?;
    if output.status.success() && file.is_file() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let why = stderr.lines().find_map(|line| Some(line.split_once(" stack Error: ")?.1));
    Err(format!("`npm rebuild {package}` failed: {}", why.unwrap_or("it does not say why")).into())
}

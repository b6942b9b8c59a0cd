//! Installs what the benches compare with: npm packages of pinned versions.

use std::error::Error;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the pins lie.
const PINS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/bench");

/// Installs the pinned packages, once for each state of the pins, and returns the folder with its
/// `node_modules`; `file` is one in it that must be there.
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
            // `ci` asks for the packages of all platforms, which not every registry has.
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

/// Builds a package of the folder that is native code; `file` is what comes of it. A machine without compilers
/// cannot, and is told so by the error.
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

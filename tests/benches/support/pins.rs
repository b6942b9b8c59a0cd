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

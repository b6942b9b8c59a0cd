//! The paths of the built programs.

use std::path::PathBuf;

/// Returns the path of the built program `name`, in the parent folder of this test's binary.
pub(crate) fn built(name: &str) -> PathBuf {
    let folder = match std::env::var_os("PML_TEST_BIN_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let test = std::env::current_exe().expect("a running program has a path");
            let deps = test.parent().expect("a program lies in a folder");
            deps.parent().expect("`deps` lies in the profile's folder").to_owned()
        }
    };
    let program = folder.join(name);
    assert!(
        program.is_file(),
        "`{}` is not built; run `make test`, which builds it first, or set PML_TEST_BIN_DIR",
        program.display()
    );
    program
}

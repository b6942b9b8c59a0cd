//! Finds processes by a marker in their arguments or variables.

/// Returns the running processes, other than this one, whose arguments or variables contain the marker.
pub(crate) fn marked(mark: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let carries =
        |bytes: Vec<u8>| bytes.windows(mark.len()).any(|window| window == mark.as_bytes());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid == own || !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        // The process may have exited in the meantime.
        let (Ok(arguments), Ok(variables)) = (
            std::fs::read(entry.path().join("cmdline")),
            std::fs::read(entry.path().join("environ")),
        ) else {
            continue;
        };
        let shown = String::from_utf8_lossy(&arguments).replace('\0', " ");
        if carries(arguments) || carries(variables) {
            found.push(format!("{pid} {shown}"));
        }
    }
    found
}

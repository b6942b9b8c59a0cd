//! Resolves import specifiers to paths relative to the folder that contains all files of a program.

/// File extensions of programs.
const PROGRAM_ENDINGS: [&str; 4] = [".ts", ".mts", ".js", ".mjs"];

/// File extensions of other kinds of files, and what to do instead.
const OTHER_ENDINGS: [(&str, &str); 14] = [
    (".json", "put the data into a `.ts` file as `export const data = …`"),
    (".jsonc", "put the data into a `.ts` file as `export const data = …`"),
    (".yaml", "put the data into a `.ts` file as `export const data = …`"),
    (".txt", "put the text into a `.ts` file as `export const text = …`"),
    (".md", "put the text into a `.ts` file as `export const text = …`"),
    (".html", "put the text into a `.ts` file as `export const text = …`"),
    (".css", "put the text into a `.ts` file as `export const text = …`"),
    (".wasm", "WebAssembly does not run here; write it as TypeScript"),
    (".node", "native code does not run here; write it as TypeScript"),
    (".tsx", "JSX is not supported; write a `.ts` file"),
    (".jsx", "JSX is not supported; write a `.ts` file"),
    (".cjs", "write it with `export` in a `.ts` or `.js` file"),
    (".cts", "write it with `export` in a `.ts` file"),
    (".d.ts", "it contains only types; write `import type`"),
];

/// Returns the path that `specifier` names in the file `from`, or an error message.
pub(super) fn resolve(from: &str, specifier: &str) -> Result<String, String> {
    let shown = crate::diagnostic::shown(specifier, 200);
    if !(specifier.starts_with("./") || specifier.starts_with("../")) {
        return Err(not_relative(specifier, &shown));
    }
    let not_allowed = |c: char| matches!(c, '\\' | '?' | '#' | '%') || c.is_control();
    if specifier.contains(not_allowed) || shown != specifier {
        return Err(format!(
            "`{shown}` is not a valid file path; use only letters, digits, `-`, `_` and `.` in file names"
        ));
    }
    if let Some((_, instead)) = OTHER_ENDINGS.iter().rev().find(|(e, _)| specifier.ends_with(e)) {
        return Err(format!("`{shown}` is not a program; {instead}"));
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in specifier.split('/') {
        match part {
            "." => {}
            ".." if parts.pop().is_none() => {
                return Err(format!("`{shown}` is outside the workspace; copy the file into it"));
            }
            ".." => {}
            "" => return Err(format!("`{shown}` names a folder; write `{shown}index.ts`")),
            name => parts.push(name),
        }
    }
    match specifier.rsplit('/').next() {
        Some("." | "..") | None => {
            Err(format!("`{shown}` names a folder; write `{shown}/index.ts`"))
        }
        Some(_) => Ok(parts.join("/")),
    }
}

fn not_relative(specifier: &str, shown: &str) -> String {
    let begins = |start: &&str| specifier.starts_with(start);
    if specifier.starts_with('/') || specifier.starts_with("file:") {
        format!(
            "`{shown}` is an absolute path; write the path relative to this file, as in `./lib.ts`"
        )
    } else if ["http:", "https:", "data:", "blob:"].iter().any(begins) {
        format!("`{shown}` is a URL; copy the file into the workspace, or call a tool")
    } else if ["node:", "bun:", "deno:"].iter().any(begins) {
        format!(
            "`{shown}` is a module of another runtime; call a tool, as in `mcp.namespace.action({{ … }})`"
        )
    } else {
        format!(
            "`{shown}` is a package, and packages are not supported; import a file of your own, as in `./lib.ts`, or call a tool"
        )
    }
}

/// Returns the files that a path may resolve to; the first that exists is meant.
///
/// As in TypeScript, `x.js` may mean `x.ts`, and the extension may be missing.
pub fn candidates(path: &str) -> Vec<String> {
    let mut found = Vec::new();
    let ending = PROGRAM_ENDINGS.into_iter().find(|ending| path.ends_with(ending));
    match ending {
        Some(ending) => {
            found.push(path.to_owned());
            if let Some(stem) = path.strip_suffix(".js").or_else(|| path.strip_suffix(".mjs")) {
                found.push(format!("{stem}{}", if ending == ".js" { ".ts" } else { ".mts" }));
            }
        }
        None => {
            found.extend(PROGRAM_ENDINGS.map(|ending| format!("{path}{ending}")));
            found.extend(["index.ts", "index.js"].map(|file| format!("{path}/{file}")));
        }
    }
    found
}

/// Returns the path of a file for messages: relative to the folder of the entry file.
pub(super) fn shown_from(entry: &str, path: &str) -> String {
    let folder: Vec<&str> = entry.split('/').collect();
    let folder = &folder[..folder.len() - 1];
    let parts: Vec<&str> = path.split('/').collect();
    let same = folder.iter().zip(&parts).take_while(|(left, right)| left == right).count();
    let up = folder.len() - same;
    let lead = if up == 0 { "./".to_owned() } else { "../".repeat(up) };
    crate::diagnostic::shown(&(lead + &parts[same..].join("/")), 600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_everything_except_files_beneath_the_folder() {
        let at = |specifier| resolve("caps/main.ts", specifier);
        assert_eq!(at("./x.ts").unwrap(), "caps/x.ts");
        assert_eq!(at("../lib/./y").unwrap(), "lib/y");
        for refused in [
            "zod",
            "node:fs",
            "npm:zod",
            "jsr:@a/b",
            "https://a.b/c.ts",
            "/etc/x.ts",
            "file:///x.ts",
            "#x",
            "../../x.ts",
            "../..",
            "./",
            ".",
            "..",
            "./lib/",
            "./a\\b.ts",
            "./a\u{0}.ts",
            "./a\u{2028}.ts",
            "./x.ts?raw",
            "./x%20y.ts",
            "./x.json",
            "./x.d.ts",
            "./x.tsx",
            "",
            "./a//b.ts",
            "./\u{202e}st.ts",
        ] {
            at(refused).expect_err(refused);
        }
    }

    #[test]
    fn paths_are_shown_relative_to_the_folder_of_the_entry() {
        assert_eq!(shown_from("main.ts", "lib/x.ts"), "./lib/x.ts");
        assert_eq!(shown_from("caps/main.ts", "caps/x.ts"), "./x.ts");
        assert_eq!(shown_from("caps/deep/main.ts", "lib/x.ts"), "../../lib/x.ts");
    }

    #[test]
    fn extensions_are_tried_in_the_order_of_typescript() {
        assert_eq!(candidates("a.ts"), ["a.ts"]);
        assert_eq!(candidates("a.js"), ["a.js", "a.ts"]);
        assert_eq!(candidates("a.mjs"), ["a.mjs", "a.mts"]);
        let expected = ["a.b.ts", "a.b.mts", "a.b.js", "a.b.mjs", "a.b/index.ts", "a.b/index.js"];
        assert_eq!(candidates("a.b"), expected);
    }
}

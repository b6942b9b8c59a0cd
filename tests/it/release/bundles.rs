//! What other programs install `pml` with: the formula of Homebrew, the bundle for desktop apps, and links for editors.

use std::path::{Path, PathBuf};
use std::process::Command;

use data_encoding::BASE64;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::contents::{Small, VERSION, ok};
use super::packages::of_version;
use crate::support::cli::Project;
use crate::support::guard;
use crate::support::mcp_client::{Era, StdioClient};
use crate::support::mcp_servers::{MCPB, node_22, npm};

const MACHINE: &str = std::env::consts::ARCH;
const URL: &str = "https://releases.acme.example/pml";

fn small() -> Small {
    let small = Small::new();
    // The address may have a slash at its end.
    small.built("x86_64 aarch64", &[("PML_RELEASE_URL", &format!("{URL}/"))]);
    small
}

/// Returns the value in quotes of each line that begins with a word.
fn quoted<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix(word));
    lines.filter_map(|rest| rest.trim().strip_prefix('"')?.strip_suffix('"')).collect()
}

/// The formula names the programs of the release, each with its hash, and no other system than Linux.
#[test]
fn homebrew_gets_a_formula() {
    let small = small();
    let formula = std::fs::read_to_string(small.file("pml.rb")).unwrap();
    assert_eq!(quoted(&formula, "version "), [VERSION]);
    let (urls, hashes) = (quoted(&formula, "url "), quoted(&formula, "sha256 "));
    assert_eq!((urls.len(), hashes.len()), (2, 2), "{formula}");
    for (url, hash) in urls.iter().zip(hashes) {
        let name = url.strip_prefix(&format!("{URL}/{VERSION}/")).unwrap();
        let content = std::fs::read(small.file(name)).unwrap();
        let found: String = Sha256::digest(content).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hash, found, "{name}");
    }
    for line in ["  on_intel do", "  on_arm do", "  depends_on :linux"] {
        assert!(formula.lines().any(|it| it == line), "{line}");
    }
    let opened = formula.lines().filter(|it| it.ends_with(" do") || it.trim().starts_with("def "));
    let ended = formula.lines().filter(|it| it.trim() == "end");
    // The class ends, too.
    assert_eq!(opened.count() + 1, ended.count(), "{formula}");
    // Only where it is installed; the formula needs no Ruby.
    if Command::new("ruby").arg("--version").output().is_ok() {
        assert!(
            ok(Command::new("ruby").arg("-wc").arg(small.file("pml.rb"))).contains("Syntax OK")
        );
    }
    // With one machine only, the formula says so, and without an address there is none.
    let one = Small::new();
    one.built(MACHINE, &[("PML_RELEASE_URL", URL)]);
    let formula = std::fs::read_to_string(one.file("pml.rb")).unwrap();
    let machine = if MACHINE == "x86_64" { "x86_64" } else { "arm64" };
    assert!(formula.contains(&format!("depends_on arch: :{machine}")), "{formula}");
    let none = Small::new();
    none.built(MACHINE, &[]);
    assert!(!none.file("pml.rb").exists());
}

/// Asserts that the tools of MCP Bundles accept a bundle, and returns it unpacked.
#[track_caller]
fn unpacked(bundle: &Path) -> PathBuf {
    let tool = npm(MCPB).join("node_modules/@anthropic-ai/mcpb/dist/cli/cli.js");
    let folder = guard::folder("mcpb").join("bundle");
    let run = |command: &str, argument: &Path| {
        let mut node = Command::new(node_22());
        node.arg(&tool).arg(command).arg(argument);
        node
    };
    ok(run("unpack", bundle).arg(&folder));
    let valid = ok(&mut run("validate", &folder.join("manifest.json")));
    assert!(valid.contains("passes"), "{valid}");
    folder
}

/// The bundle is valid, and a desktop app that starts it as its manifest says can run programs.
#[test]
fn desktop_apps_get_a_bundle() {
    let bundle = unpacked(&of_version(&format!("pml-{VERSION}-linux-{MACHINE}.mcpb")));
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(bundle.join("manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["version"], VERSION);
    assert_eq!(manifest["compatibility"]["platforms"], json!(["linux"]));
    let config = &manifest["server"]["mcp_config"];
    let project = Project::offline();
    let filled = |text: &Value| {
        let text = text.as_str().unwrap().replace("${__dirname}", bundle.to_str().unwrap());
        let filled =
            text.replace("${user_config.workspace}", project.workspace().to_str().unwrap());
        assert!(!filled.contains("${"), "{filled}");
        filled
    };
    assert_eq!(
        filled(&config["command"]),
        bundle.join(manifest["server"]["entry_point"].as_str().unwrap()).to_str().unwrap()
    );
    let arguments: Vec<String> = config["args"].as_array().unwrap().iter().map(filled).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command = project.wrap(Command::new(filled(&config["command"])), &arguments);
    command.env_remove("PML_WORKSPACE").current_dir("/");
    let mut client = StdioClient::start(command, Era::Handshake, &project.log());
    let answer = client.execute("return 6 * 7;");
    assert!(answer.to_string().contains("42"), "{answer:#}");
    // Each setting that the arguments name is asked for.
    assert_eq!(manifest["user_config"]["workspace"]["required"], true);
    // The bundle of the other machine is valid too.
    for machine in ["x86_64", "aarch64"] {
        unpacked(&small().file(&format!("pml-{VERSION}-linux-{machine}.mcpb")));
    }
}

/// The links contain what docs/cli.md tells users of these editors to write, and docs/install.md has them.
#[test]
fn editors_get_links() {
    let links: Value =
        serde_json::from_slice(&std::fs::read(small().file("links.json")).unwrap()).unwrap();
    let link = |name: &str| links[name].as_str().unwrap();
    let written = |section: &str, list: &str| {
        let page = read("docs/cli.md");
        let (_, rest) = page.split_once(section).unwrap();
        let line = rest.lines().find(|line| line.starts_with('{')).unwrap();
        serde_json::from_str::<Value>(line).unwrap()[list]["pml"].clone()
    };
    let mut of_code = written("\nIn VS Code, `", "servers");
    assert_eq!(of_code["type"], "stdio");
    for name in ["vscode", "vscode-insiders"] {
        let url: reqwest::Url = link(name).parse().unwrap();
        assert_eq!((url.scheme(), url.path()), (name, "mcp/install"));
        // The whole query is one encoded value, without a name.
        let fields: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        assert_eq!((fields.len(), fields[0].1.as_str()), (1, ""));
        let mut sent: Value = serde_json::from_str(&fields[0].0).unwrap();
        assert_eq!(sent.as_object_mut().unwrap().remove("name"), Some(json!("pml")));
        assert_eq!(sent, of_code);
    }
    of_code.as_object_mut().unwrap().remove("type");
    let url: reqwest::Url = link("cursor").parse().unwrap();
    assert_eq!((url.scheme(), url.host_str()), ("cursor", Some("anysphere.cursor-deeplink")));
    assert_eq!(url.path(), "/mcp/install");
    let fields: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    assert_eq!(fields[0], ("name".to_owned(), "pml".to_owned()));
    assert_eq!((fields.len(), fields[1].0.as_str()), (2, "config"));
    let sent: Value =
        serde_json::from_slice(&BASE64.decode(fields[1].1.as_bytes()).unwrap()).unwrap();
    assert_eq!(sent, of_code);
    assert_eq!(sent, written("\nIn Cursor, `", "mcpServers"));
    let page = read("docs/install.md");
    for (name, link) in links.as_object().unwrap() {
        assert!(page.contains(link.as_str().unwrap()), "docs/install.md lacks the link of {name}");
    }
}

fn read(page: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page)).unwrap()
}

//! A registry of npm and PyPI packages on this machine, with packages that real ones would not have.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use data_encoding::BASE64;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

/// Builds a wheel from a file and the names of a package and its program. It needs nothing but Python.
const WHEEL: &str = r#"
import sys, zipfile
name, version, source, out = sys.argv[1:]
info = f"{name}-{version}.dist-info"
with zipfile.ZipFile(out, "w") as wheel:
    wheel.write(source, f"{name}.py")
    wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name} = {name}:answer\n")
    wheel.writestr(f"{info}/RECORD", "")
"#;

/// The registry. It serves until the test process ends.
pub(crate) struct Registry {
    url: String,
    files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl Registry {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let files: Arc<Mutex<BTreeMap<String, Vec<u8>>>> = Arc::default();
        let served = Arc::clone(&files);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut head = [0; 8192];
                let length = stream.read(&mut head).unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..length]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                let found = served.lock().unwrap().get(&path).cloned();
                let kind = match path.starts_with("/simple/") {
                    true => "text/html",
                    false => "application/json",
                };
                let (status, body) = match found {
                    Some(body) => ("200 OK", body),
                    None => ("404 Not Found", b"{}".to_vec()),
                };
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
                );
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
            }
        });
        Self { url, files }
    }

    /// The URL for npm.
    pub(crate) fn npm(&self) -> &str {
        &self.url
    }

    /// The URL for pip.
    pub(crate) fn pypi(&self) -> String {
        format!("{}/simple/", self.url)
    }

    fn serve(&self, path: &str, body: impl Into<Vec<u8>>) {
        self.files.lock().unwrap().insert(path.to_owned(), body.into());
    }

    /// Publishes an npm package with these files and this `package.json`, apart from its name and, if it has none, its
    /// version, which is 1.0.0. It becomes the latest. `changed` is added to the package after its hash was computed.
    pub(crate) fn publish(
        &self,
        scratch: &Path,
        name: &str,
        files: &[(&str, &str)],
        manifest: &Value,
        changed: &[u8],
    ) {
        let mut manifest = manifest.clone();
        manifest["name"] = json!(name);
        let version = manifest["version"].as_str().unwrap_or("1.0.0").to_owned();
        manifest["version"] = json!(version);
        let folder = scratch.join(format!("npm-{name}"));
        std::fs::create_dir_all(folder.join("package")).unwrap();
        let manifest_text = manifest.to_string();
        for (file, text) in files.iter().chain([&("package.json", &*manifest_text)]) {
            let file = folder.join("package").join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let packed = folder.join("package.tgz");
        let mut tar = Command::new("tar");
        tar.arg("-czf").arg(&packed).arg("-C").arg(&folder).arg("package");
        assert!(tar.status().unwrap().success());
        let mut packed = std::fs::read(packed).unwrap();
        let integrity = format!("sha512-{}", BASE64.encode(&Sha512::digest(&packed)));
        packed.extend_from_slice(changed);
        let path = format!("/{name}/-/{name}-{version}.tgz");
        manifest["dist"] =
            json!({ "tarball": format!("{}{path}", self.url), "integrity": integrity });
        // As npm asks for a package of a scope.
        let page = format!("/{}", name.replace('/', "%2f"));
        let known = self.files.lock().unwrap().get(&page).cloned();
        let mut about = known.map_or_else(
            || json!({ "name": name, "versions": {} }),
            |known| serde_json::from_slice(&known).unwrap(),
        );
        about["dist-tags"] = json!({ "latest": version });
        about["versions"][&version] = manifest;
        self.serve(&path, packed);
        self.serve(&page, about.to_string());
    }

    /// Publishes a version of a Python package as a wheel, with a program of the same name.
    pub(crate) fn publish_wheel(&self, scratch: &Path, name: &str, version: &str, source: &Path) {
        let file = format!("{name}-{version}-py3-none-any.whl");
        let wheel = scratch.join(&file);
        let mut python = Command::new("python3");
        python.args(["-c", WHEEL, name, version]).arg(source).arg(&wheel);
        assert!(python.status().unwrap().success());
        let bytes = std::fs::read(wheel).unwrap();
        self.list(name, &file, bytes);
    }

    /// Publishes a file of a Python package, with its hash, next to the others.
    pub(crate) fn list(&self, name: &str, file: &str, bytes: Vec<u8>) {
        let hash: String =
            sha2::Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        self.serve(&format!("/files/{file}"), bytes);
        let path = format!("/simple/{}/", name.replace('_', "-"));
        let mut page = self.files.lock().unwrap().get(&path).cloned().unwrap_or_default();
        page.extend_from_slice(
            format!("<a href=\"/files/{file}#sha256={hash}\">{file}</a>\n").as_bytes(),
        );
        self.serve(&path, page);
    }
}

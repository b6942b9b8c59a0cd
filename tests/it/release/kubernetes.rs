//! `deploy/kubernetes`: valid, and in agreement with the gateway.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::support::cli::text;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// Returns the interpreter of an environment with the validator of PyPI, which has the schemas of Kubernetes.
fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../target/test-cache/kubernetes-validate-1.37");
        let python = folder.join("bin/python");
        if !folder.join("complete").exists() {
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(folder.parent().unwrap()).unwrap();
            ok(Command::new("python3").args(["-m", "venv"]).arg(&folder));
            ok(Command::new(&python)
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .arg("kubernetes-validate==1.37.0"));
            std::fs::write(folder.join("complete"), "").unwrap();
        }
        python
    })
}

#[track_caller]
fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}\n{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Renders the base as `kubectl kustomize` does: the resources in their order, the label, and the image.
const CHECK: &str = r#"
import json, sys, yaml, kubernetes_validate
from pathlib import Path
base = Path(sys.argv[1])
kustomization = yaml.safe_load((base / "kustomization.yaml").read_text())
files = {path.name for path in base.glob("*.yaml")} - {"kustomization.yaml"}
assert files == set(kustomization["resources"]), files
found = []
for name in kustomization["resources"]:
    for resource in yaml.safe_load_all((base / name).read_text()):
        # Strict: a member that Kubernetes does not know is an error.
        kubernetes_validate.validate(resource, "1.37", strict=True)
        found.append(resource)
print(json.dumps(found))
"#;

fn resources() -> Vec<serde_json::Value> {
    let shown = ok(Command::new(python()).args(["-c", CHECK]).arg(deploy().join("kubernetes")));
    serde_json::from_str(&shown).unwrap()
}

/// Every resource is valid, and every container is confined as far as a restricted namespace demands.
#[test]
fn the_resources_are_valid_and_restricted() {
    let resources = resources();
    let mut containers = 0;
    for resource in &resources {
        let Some(pod) = resource.pointer("/spec/template/spec") else { continue };
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{resource:#}");
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(pod["automountServiceAccountToken"], false);
        for container in ["containers", "initContainers"]
            .iter()
            .filter_map(|list| pod[*list].as_array())
            .flatten()
        {
            let security = &container["securityContext"];
            assert_eq!(security["allowPrivilegeEscalation"], false, "{container:#}");
            assert_eq!(security["readOnlyRootFilesystem"], true, "{container:#}");
            assert_eq!(security["capabilities"]["drop"][0], "ALL", "{container:#}");
            assert!(container["resources"]["limits"]["memory"].is_string(), "{container:#}");
            containers += 1;
        }
    }
    assert_eq!(containers, 3);
    let kinds: Vec<&str> =
        resources.iter().map(|resource| resource["kind"].as_str().unwrap()).collect();
    for kind in [
        "Deployment",
        "Job",
        "Service",
        "Ingress",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "HorizontalPodAutoscaler",
    ] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
}

/// The variables are settings of the gateway, and the probes are routes of it.
#[test]
fn the_resources_agree_with_the_gateway() {
    let settings = std::fs::read_to_string(deploy().join("README.md")).unwrap();
    let routes = crate::support::binaries::built("pml-server");
    let routes = ok(Command::new(routes).args(["routes", "--json"]));
    let mut checked = 0;
    let mut open: Vec<serde_json::Value> = resources();
    while let Some(value) = open.pop() {
        match value {
            serde_json::Value::Object(members) => {
                for (name, member) in members {
                    if name == "path" && member.as_str().is_some_and(|path| path.len() > 1) {
                        assert!(
                            routes.contains(&format!("\"{}\"", member.as_str().unwrap())),
                            "{member}"
                        );
                        checked += 1;
                    }
                    if name.starts_with("PML_")
                        || member.as_str().is_some_and(|text| text.starts_with("PML_"))
                    {
                        let name = if name.starts_with("PML_") {
                            name
                        } else {
                            member.as_str().unwrap().to_owned()
                        };
                        assert!(settings.contains(&format!("`{name}`")), "{name}");
                        checked += 1;
                    }
                    open.push(member);
                }
            }
            serde_json::Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    assert!(checked >= 8, "{checked}");
}

/// The file for compose names settings of the gateway, too.
#[test]
fn the_compose_file_agrees_with_the_gateway() {
    let settings = std::fs::read_to_string(deploy().join("README.md")).unwrap();
    let load = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let shown = ok(Command::new(python()).args(["-c", load]).arg(deploy().join("compose.yaml")));
    let compose: serde_json::Value = serde_json::from_str(&shown).unwrap();
    for service in ["migrate", "seed", "gateway"] {
        let service = &compose["services"][service];
        assert_eq!(service["read_only"], true, "{service:#}");
        for name in service["environment"].as_object().unwrap().keys() {
            assert!(settings.contains(&format!("`{name}`")), "{name}");
        }
    }
}

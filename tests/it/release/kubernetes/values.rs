//! What the chart accepts as values.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::chart::{CHART, everything, render};
use super::tools::{can_run, helm, root, yaml};
use crate::skipped::skipped;
use crate::support::cli::text;
use crate::support::guard;

fn schema() -> Value {
    let path = root().join(CHART).join("values.schema.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Wrong values are refused before anything is rendered, each with its place; the same value without the mistake is not.
#[test]
fn wrong_values_are_refused() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    let variable = |name: &str, value: Value| {
        let mut variable = json!({ "name": name });
        variable.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        json!({ "extraEnv": [variable] })
    };
    let secret = json!({ "valueFrom": { "secretKeyRef": { "name": "a", "key": "b" } } });
    let setting = |name: &str, value: Value| json!({ "settings": { name: value } });
    let monitor = |enabled: bool| json!({ "metrics": { "enabled": enabled, "serviceMonitor": { "enabled": true } } });
    let cases = [
        // Names that do not exist.
        (json!({ "replicaCount": 3 }), json!({ "replicas": 3 }), "replicaCount"),
        (json!({ "ingress": { "host": "a" } }), json!({ "ingress": { "className": "a" } }), "host"),
        (
            setting("PML_TRUSTED_PROXY", json!("a")),
            setting("PML_TRUSTED_PROXIES", json!("a")),
            "PML_TRUSTED_PROXY",
        ),
        (setting("TZ", json!("UTC")), variable("TZ", json!({ "value": "UTC" })), "TZ"),
        // Settings that have another place, or none in a container.
        (
            setting("PML_PUBLIC_URL", json!("https://a")),
            json!({ "publicUrl": "https://a" }),
            "PML_PUBLIC_URL",
        ),
        (
            setting("PML_LISTEN", json!("0.0.0.0:80")),
            json!({ "service": { "port": 80 } }),
            "PML_LISTEN",
        ),
        (
            setting("PML_METRICS_LISTEN", json!("a:1")),
            json!({ "metrics": { "enabled": true } }),
            "PML_METRICS_LISTEN",
        ),
        (
            variable("PML_LOG", json!({ "value": "debug" })),
            setting("PML_LOG", json!("debug")),
            "extraEnv",
        ),
        // Secrets as values.
        (
            json!({ "database": { "url": "postgres://a:b@c/d" } }),
            json!({ "database": { "existingSecret": "a" } }),
            "url",
        ),
        (
            setting("PML_DATABASE_URL", json!("postgres://a:b@c/d")),
            json!({ "database": { "urlKey": "a" } }),
            "PML_DATABASE_URL",
        ),
        (
            setting("PML_MASTER_KEY", json!("a")),
            json!({ "masterKey": { "key": "a" } }),
            "PML_MASTER_KEY",
        ),
        (
            setting("PML_METRICS_TOKEN", json!("a")),
            variable("PML_METRICS_TOKEN", secret.clone()),
            "PML_METRICS_TOKEN",
        ),
        (
            variable("PML_METRICS_TOKEN", json!({ "value": "a" })),
            variable("PML_METRICS_TOKEN", secret.clone()),
            "extraEnv",
        ),
        (
            variable("OTEL_EXPORTER_OTLP_HEADERS", json!({ "value": "a=b" })),
            variable("OTEL_EXPORTER_OTLP_HEADERS", secret.clone()),
            "extraEnv",
        ),
        (
            variable(
                "ACME_TOKEN",
                json!({ "valueFrom": { "configMapKeyRef": { "name": "a", "key": "b" } } }),
            ),
            variable("ACME_TOKEN", secret.clone()),
            "extraEnv",
        ),
        (
            setting("OTEL_EXPORTER_OTLP_ENDPOINT", json!("https://user:password@a")),
            setting("OTEL_EXPORTER_OTLP_ENDPOINT", json!("https://a")),
            "OTEL_EXPORTER_OTLP_ENDPOINT",
        ),
        (
            variable("A", json!({ "value": "https://user:password@a" })),
            variable("A", json!({ "value": "https://a" })),
            "extraEnv",
        ),
        (
            json!({ "publicUrl": "https://user:password@a" }),
            json!({ "publicUrl": "https://a" }),
            "publicUrl",
        ),
        // Values of another kind or out of range.
        (variable("A", json!({})), variable("A", json!({ "value": "b" })), "extraEnv"),
        (json!({ "replicas": "3" }), json!({ "replicas": 3 }), "replicas"),
        (json!({ "replicas": 0 }), json!({ "replicas": 1 }), "replicas"),
        (
            json!({ "publicUrl": "gw.acme.example" }),
            json!({ "publicUrl": "http://gw.acme.example" }),
            "publicUrl",
        ),
        (
            json!({ "publicUrl": "https://a/path" }),
            json!({ "publicUrl": "https://a/" }),
            "publicUrl",
        ),
        (
            json!({ "image": { "repository": "" } }),
            json!({ "image": { "repository": "a/b" } }),
            "repository",
        ),
        (json!({ "image": { "tag": "a b" } }), json!({ "image": { "tag": "a_b" } }), "tag"),
        (
            json!({ "image": { "digest": "sha256:abc" } }),
            json!({ "image": { "digest": "" } }),
            "digest",
        ),
        (
            setting("PML_DATABASE_CONNECTIONS", json!(1001)),
            setting("PML_DATABASE_CONNECTIONS", json!(1000)),
            "PML_DATABASE_CONNECTIONS",
        ),
        (
            setting("PML_TRACE_RETENTION_DAYS", json!(6)),
            setting("PML_TRACE_RETENTION_DAYS", json!(7)),
            "PML_TRACE_RETENTION_DAYS",
        ),
        (
            setting("PML_RATE_PER_KEY", json!("10/day")),
            setting("PML_RATE_PER_KEY", json!("10/min")),
            "PML_RATE_PER_KEY",
        ),
        (
            setting("PML_ISOLATION", json!("loose")),
            setting("PML_ISOLATION", json!("strict")),
            "PML_ISOLATION",
        ),
        (setting("PML_LOG", json!("")), setting("PML_LOG", json!("warn")), "PML_LOG"),
        (
            json!({ "migrations": { "scopes": ["acme"] } }),
            json!({ "migrations": { "scopes": ["acme.web"] } }),
            "scopes",
        ),
        (
            json!({ "database": { "existingSecret": "" } }),
            json!({ "masterKey": { "existingSecret": "" } }),
            "existingSecret",
        ),
        (
            json!({ "podLabels": { "app.kubernetes.io/name": "a" } }),
            json!({ "podLabels": { "name": "a" } }),
            "app.kubernetes.io/name",
        ),
        (
            json!({ "networkPolicy": { "from": [{}] } }),
            json!({ "networkPolicy": { "from": [{ "podSelector": {} }] } }),
            "networkPolicy/from",
        ),
        (
            json!({ "resources": { "limit": {} } }),
            json!({ "resources": { "limits": { "cpu": 1 } } }),
            "limit",
        ),
        (
            json!({ "fullnameOverride": "Gateway_1" }),
            json!({ "fullnameOverride": "gateway-1" }),
            "fullnameOverride",
        ),
        (
            json!({ "migrations": { "ttlSecondsAfterFinished": 0 } }),
            json!({ "migrations": { "ttlSecondsAfterFinished": 60 } }),
            "ttlSecondsAfterFinished",
        ),
        // Values that need another one.
        (
            json!({ "ingress": { "enabled": true } }),
            json!({ "ingress": { "enabled": true }, "publicUrl": "https://a" }),
            "publicUrl",
        ),
        (monitor(false), monitor(true), "metrics/enabled"),
        (
            json!({ "serviceAccount": { "create": false } }),
            json!({ "serviceAccount": { "create": false, "name": "a" } }),
            "serviceAccount.name",
        ),
        (
            json!({ "autoscaling": { "enabled": true, "minReplicas": 11 } }),
            json!({ "autoscaling": { "enabled": true, "minReplicas": 10 } }),
            "autoscaling.minReplicas",
        ),
    ];
    for (wrong, right, place) in cases {
        let file = guard::folder("wrong").join("values.json");
        std::fs::write(&file, wrong.to_string()).unwrap();
        let output = helm(&["template", "pml-server", CHART, "--values", file.to_str().unwrap()]);
        let stderr = text(&output.stderr);
        assert!(!output.status.success(), "accepted: {wrong}");
        let names_it = stderr.contains(place) || stderr.contains(&place.replace('/', "."));
        assert!(names_it, "{wrong}: `{place}` is not in {stderr}");
        assert!(output.stdout.is_empty(), "{wrong}");
        render(&[], &right);
    }
}

/// The schema has exactly the gateway's settings that are not secret and have a meaning in a container.
#[test]
fn the_schema_knows_every_setting() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    let table = std::fs::read_to_string(root().join("deploy/README.md")).unwrap();
    let documented: BTreeSet<&str> = table
        .lines()
        .filter(|line| line.starts_with("| `PML_"))
        .flat_map(|line| line.split('|').nth(1).unwrap_or_default().split('`'))
        .filter(|word| word.starts_with("PML_"))
        .collect();
    assert!(documented.len() >= 30, "{documented:?}");
    let elsewhere = [
        // Values of the chart set these.
        "PML_DATABASE_URL",
        "PML_MIGRATE_URL",
        "PML_MASTER_KEY",
        "PML_MASTER_KEY_NEW",
        "PML_MASTER_KEY_OLD",
        "PML_METRICS_LISTEN",
        "PML_METRICS_TOKEN",
        "PML_PUBLIC_URL",
        // Secrets come as variables.
        "PML_MASTER_KEY_FILE",
        "PML_MASTER_KEY_NEW_FILE",
        "PML_MASTER_KEY_OLD_FILE",
        "PML_METRICS_TOKEN_FILE",
        // Pods speak HTTP; HTTPS ends at the ingress.
        "PML_TLS_CERT_FILE",
        "PML_TLS_KEY_FILE",
        // The image has no Node.js and no Python to run `stdio` servers.
        "PML_STDIO_DIR",
        "PML_STDIO_FOLDER_MB",
        "PML_STDIO_IDLE_SECONDS",
        "PML_STDIO_MEMORY_MB",
        "PML_STDIO_PROCESSES",
        "PML_STDIO_TENANT_PROCESSES",
        // The image sets these, and has no programs of Postgres.
        "PML_BACKUP_URL",
        "PML_DATA_DIR",
        "PML_LISTEN",
        "PML_PG_BIN",
    ];
    let schema = schema();
    let settings = schema["properties"]["settings"]["properties"].as_object().unwrap();
    let known: BTreeSet<&str> = settings
        .keys()
        .map(String::as_str)
        .filter(|name| name.starts_with("PML_"))
        .chain(elsewhere)
        .collect();
    assert_eq!(known, documented);
    let page = std::fs::read_to_string(root().join("docs/operating.md")).unwrap();
    for name in settings.keys().filter(|name| name.starts_with("OTEL_")) {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

/// Collects the objects in the schema that accept names which they do not have.
fn loose(path: &str, schema: &Value, found: &mut BTreeSet<String>) {
    if schema["type"] == "object" && schema["additionalProperties"] != false {
        found.insert(path.to_owned());
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        loose(&format!("{path}/{name}"), property, found);
    }
}

/// Every value is in `values.yaml` with its default and a comment, and the schema has no others.
#[test]
fn every_value_has_a_default_and_a_comment() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    fn compare(path: &str, schema: &Value, values: &Value) {
        let Some(properties) = schema["properties"].as_object() else { return };
        let Some(values) = values.as_object() else { panic!("{path} is no object") };
        // Maps that are empty by default have names of their own.
        if values.is_empty() {
            return;
        }
        let known: BTreeSet<&String> = properties.keys().filter(|name| *name != "global").collect();
        assert_eq!(values.keys().collect::<BTreeSet<_>>(), known, "{path}");
        for (name, value) in values {
            compare(&format!("{path}/{name}"), &properties[name], value);
        }
    }
    let schema = schema();
    let file = root().join(CHART).join("values.yaml");
    compare("", &schema, &yaml(&file));
    let mut found = BTreeSet::new();
    loose("", &schema, &mut found);
    // Maps of labels and the like, and what Kubernetes itself checks.
    let allowed = [
        "/affinity/nodeAffinity",
        "/affinity/podAffinity",
        "/affinity/podAntiAffinity",
        "/global",
        "/ingress/annotations",
        "/metrics/serviceMonitor/labels",
        "/nodeSelector",
        "/podAnnotations",
        "/podLabels",
        "/service/annotations",
        "/serviceAccount/annotations",
    ];
    assert_eq!(found, allowed.map(str::to_owned).into());

    // Consecutive values share the comment above the first; a parent needs none if its first value has one.
    let lines = std::fs::read_to_string(&file).unwrap();
    let mut commented = false;
    let mut lines = lines.lines().peekable();
    while let Some(line) = lines.next() {
        let is_comment = |line: &str| line.trim_start().starts_with('#');
        if is_comment(line) {
            commented = true;
        } else if line.is_empty() {
            commented = false;
        } else if !line.ends_with(':') || !lines.peek().is_some_and(|next| is_comment(next)) {
            assert!(commented, "no comment above `{line}`");
        }
    }
    // Everything that a test sets at once is accepted, so the list of values is not empty by mistake.
    assert!(everything().as_object().unwrap().len() >= 20);
}

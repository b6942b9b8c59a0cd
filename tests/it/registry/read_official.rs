//! What readers of the official registry's API see of published servers.

use super::publish_official::{OFFICIAL, minimal, published, read, tenant, versions};
use crate::identity::keys::call;
use crate::support::cli::text;
use crate::support::http::get;
use crate::support::upstream::scope_of;
use serde_json::{Value, json};

/// The remote of an HTTP server is the gateway's proxy, for every caller and way of publishing.
#[test]
fn remotes_are_shown_as_the_gateways_proxy() {
    let tenant = tenant();
    let scope = scope_of(&tenant);
    let name = format!("{scope}/crm");
    let server = json!({
        "name": name, "title": "CRM", "description": "Knows customers.", "version": "1.0.0",
        "remotes": [
            { "type": "sse", "url": "https://crm.internal.example/sse" },
            {
                "type": "streamable-http", "url": "https://crm.internal.example/mcp",
                "headers": [{ "name": "Authorization", "value": "Bearer {CRM_TOKEN}", "isRequired": true, "isSecret": true }],
            },
        ],
    });
    let answer = published(&tenant, &server);
    let body = json!({
        "name": "erp", "type": "cloud", "description": "Knows orders.", "proxy_to": "https://erp.internal.example/mcp",
        "env_required": ["ERP_TOKEN"], "tools": [{ "name": "list", "inputSchema": { "type": "object" } }],
    });
    assert_eq!(
        call(&tenant.key, "POST", &format!("{}/api/v1/servers", tenant.url), Some(&body)).status,
        201
    );
    let links = format!("{}/api/v1/registry-links", tenant.url);
    let link = call(&tenant.key, "POST", &links, Some(&json!({ "name": "VS Code" }))).json();
    let link = link["path"].as_str().unwrap();
    let mut answers = vec![answer];
    for name in [name.clone(), format!("{scope}/erp")] {
        let encoded = name.replace('/', "%2F");
        answers.push(versions(&tenant, &name, "/latest").json());
        answers.push(versions(&tenant, &name, "").json()["servers"][0].clone());
        for path in
            [format!("/v0.1/servers?search={name}"), format!("{link}/v0.1/servers?search={name}")]
        {
            answers.push(read(&tenant, &path).json()["servers"][0].clone());
        }
        let linked =
            get(&format!("{}{link}/v0.1/servers/{encoded}/versions/latest", tenant.url), &[]);
        answers.push(linked.json());
    }
    for found in &answers {
        assert!(!found.to_string().contains("internal.example"), "{found:#}");
        let remotes = found["server"]["remotes"].as_array().unwrap_or_else(|| panic!("{found:#}"));
        let namespace = found["server"]["name"].as_str().unwrap().rsplit('/').next().unwrap();
        let variable =
            if namespace == "crm" { "X-PML-Key-CRM-TOKEN" } else { "X-PML-Key-ERP-TOKEN" };
        assert_eq!(remotes.len(), 1, "{found:#}");
        assert_eq!(remotes[0]["url"], format!("{}/mcp/proxy/{scope}.{namespace}", tenant.url));
        assert_eq!(remotes[0]["headers"][0]["value"], "Bearer {pml_api_key}");
        assert_eq!(remotes[0]["headers"][1]["name"], variable);
    }
    // A foreign `Host` is not used in the address.
    let url = format!("{}/v0.1/servers/{}/versions/latest", tenant.url, name.replace('/', "%2F"));
    let bearer = format!("Bearer {}", tenant.key);
    let found = get(&url, &[("authorization", &bearer), ("host", "evil.example")]);
    assert_eq!((found.status, &found.json()["server"]["remotes"]), (200, &json!([])));
    // The same for servers of the catalog.
    let listed = read(&tenant, "/v0.1/servers?limit=100&version=latest").json();
    for one in listed["servers"].as_array().unwrap() {
        for remote in one["server"]["remotes"].as_array().into_iter().flatten() {
            let url = remote["url"].as_str().unwrap();
            assert!(url.starts_with(&format!("{}/mcp/proxy/", tenant.url)), "{one:#}");
        }
    }
}

/// Every version is listed with its own status. A yanked version is found by its number only.
#[test]
fn each_version_has_its_own_status() {
    let tenant = tenant();
    let name = format!("{}/notes", scope_of(&tenant));
    for version in ["1.0.0", "1.1.0", "1.2.0", "2.0.0"] {
        published(&tenant, &minimal(&name, version));
    }
    let api = format!("{}/api/v1/servers/notes", tenant.url);
    let say = |what: &str, body: Value| {
        let reply = call(&tenant.key, "POST", &format!("{api}/{what}"), Some(&body));
        assert_eq!(reply.status, 200, "{}", text(&reply.body));
    };
    say("deprecate", json!({ "version": "1.0.0", "message": "loses notes\u{202e}" }));
    say("yank", json!({ "version": "1.1.0" }));
    say("yank", json!({ "version": "2.0.0" }));
    let statuses = |list: &Value| -> Vec<(String, String, bool)> {
        let servers = list["servers"].as_array().unwrap_or_else(|| panic!("{list:#}"));
        let one = |one: &Value| {
            let meta = &one["_meta"][OFFICIAL];
            let word = |value: &Value| value.as_str().unwrap().to_owned();
            (word(&one["server"]["version"]), word(&meta["status"]), meta["isLatest"] == true)
        };
        servers.iter().map(one).collect()
    };
    let expect = |all: &[(&str, &str, bool)]| -> Vec<(String, String, bool)> {
        all.iter().map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), *c)).collect()
    };
    let shown = expect(&[("1.2.0", "active", true), ("1.0.0", "deprecated", false)]);
    let whole = expect(&[
        ("2.0.0", "deleted", false),
        ("1.2.0", "active", true),
        ("1.1.0", "deleted", false),
        ("1.0.0", "deprecated", false),
    ]);
    assert_eq!(statuses(&versions(&tenant, &name, "").json()), shown);
    assert_eq!(statuses(&versions(&tenant, &name, "?include_deleted=true").json()), whole);
    let meta = |path: &str| {
        let reply = versions(&tenant, &name, path);
        assert_eq!(reply.status, 200, "{path}: {}", text(&reply.body));
        reply.json()["_meta"][OFFICIAL].clone()
    };
    assert_eq!(meta("/1.0.0")["statusMessage"], "loses notes\\u{202e}");
    assert_eq!(meta("/1.1.0")["status"], "deleted", "found by its number");
    assert_eq!(
        (&meta("/latest")["status"], meta("/latest").get("statusMessage")),
        (&json!("active"), None)
    );
    assert_eq!(versions(&tenant, &name, "/9.9.9").status, 404);
    // The list can have every version, the latest or a given one.
    let list = |query: &str| {
        let mut servers =
            statuses(&read(&tenant, &format!("/v0.1/servers?search={name}&{query}")).json());
        servers.sort_by(|a, b| b.cmp(a));
        servers
    };
    assert_eq!(list("limit=100"), shown);
    assert_eq!(list("include_deleted=true"), whole);
    assert_eq!(list("version=latest"), shown[..1]);
    assert_eq!(list("version=1.0.0"), shown[1..]);
    assert_eq!(list("version=1.1.0&include_deleted=true"), whole[2..3]);
    // A page can end between the versions of a server, and the next one continues there.
    let mut paged = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = read(
            &tenant,
            &format!("/v0.1/servers?search={name}&include_deleted=true&limit=1{cursor}"),
        )
        .json();
        paged.extend(statuses(&page));
        match page["metadata"]["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    paged.sort_by(|a, b| b.cmp(a));
    assert_eq!(paged, whole);
    // `updated_since` returns later changes only.
    let since = meta("/1.1.0")["updatedAt"].as_str().unwrap().to_owned();
    let changed = list(&format!("updated_since={since}"));
    assert!(changed.contains(&whole[0]) && changed.contains(&whole[2]), "{changed:?}");
    assert!(!changed.contains(&whole[3]), "{changed:?}");
    // If all versions are yanked, the server is not listed, but each version is still found by its number.
    say("yank", json!({ "version": "1.0.0" }));
    say("yank", json!({ "version": "1.2.0" }));
    assert_eq!(
        (versions(&tenant, &name, "").status, versions(&tenant, &name, "/latest").status),
        (404, 404)
    );
    assert_eq!(versions(&tenant, &name, "/1.2.0").status, 200);
    assert_eq!(statuses(&versions(&tenant, &name, "?include_deleted=true").json()).len(), 4);
    // For other tenants it does not exist.
    let stranger = self::tenant();
    for path in ["", "/1.0.0", "/latest", "?include_deleted=true"] {
        assert_eq!(versions(&stranger, &name, path).status, 404, "{path}");
    }
    assert_eq!(call(&tenant.key, "DELETE", &api, None).status, 204);
    let gone = statuses(&versions(&tenant, &name, "?include_deleted=true").json());
    assert!(gone.iter().all(|(_, status, _)| status == "deleted"), "{gone:?}");
}

/// With `http_as=cloud`, entries of HTTP servers have the older type `cloud`, with the gateway's proxy as address.
#[test]
fn http_servers_are_shown_as_cloud_on_request() {
    let tenant = tenant();
    let scope = scope_of(&tenant);
    let body = json!({
        "name": "search", "type": "cloud", "description": "Web search", "proxy_to": "https://up.example/mcp",
        "env_required": ["SEARCH_KEY"], "tools": [{ "name": "find", "inputSchema": { "type": "object" } }],
    });
    let url = format!("{}/api/v1/servers", tenant.url);
    assert_eq!(call(&tenant.key, "POST", &url, Some(&body)).status, 201);
    let entry = read(&tenant, "/mcp/search").json();
    assert_eq!((&entry["type"], &entry["proxy_to"]), (&json!("http"), &body["proxy_to"]));
    for name in ["search", "search:find"] {
        let cloud = read(&tenant, &format!("/mcp/{name}?http_as=cloud")).json();
        assert_eq!(cloud["type"], "cloud");
        assert_eq!(cloud["proxy_to"], format!("{}/mcp/proxy/{scope}.search", tenant.url));
        assert_eq!(cloud["env_required"], json!(["SEARCH_KEY"]));
        assert!(!cloud.to_string().contains("up.example"), "{cloud}");
    }
    // Other types do not change, and other values of the parameter are refused.
    assert_eq!(read(&tenant, "/mcp/filesystem?http_as=cloud").json()["type"], "stdio");
    assert_eq!(read(&tenant, "/mcp/search?http_as=http").json(), entry);
    for path in ["/mcp/search?http_as=Cloud", "/mcp?http_as=deno"] {
        assert_eq!(read(&tenant, path).status, 400, "{path}");
    }
    for (query, word) in [
        ("type=cloud", "http"),
        ("type=http&http_as=cloud", "cloud"),
        ("type=cloud&http_as=http", "http"),
    ] {
        let page = read(&tenant, &format!("/mcp?search=search&namespace=search&{query}")).json();
        let items = page["items"].as_array().unwrap();
        assert!(
            !items.is_empty() && items.iter().all(|item| item["type"] == word),
            "{query}: {page:#}"
        );
    }
}

//! Reads binary files as MCP content blocks.

use std::fs::File;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::failed;
use super::read::{self, ReadLimit};
use crate::tools::{NativeError, RESULT_LIMIT, arguments};
use crate::workspace::reach::Reach;

#[derive(Deserialize)]
struct ReadMedia {
    path: String,
}

pub(super) fn read_media_file(workspace: Reach<'_>, value: Value) -> Result<Value, NativeError> {
    let input: ReadMedia = arguments("filesystem:read_media_file", value)?;
    let opened = read::open(workspace, &input.path)?;
    let size = u64::try_from(opened.stat.st_size).unwrap_or(0);
    // Base64 encodes three bytes as four.
    let limit = ReadLimit::of(workspace, RESULT_LIMIT / 4 * 3);
    let bytes = read::read_all(File::from(opened.fd), &input.path, size, limit)?;
    let encoded = STANDARD.encode(bytes);
    let extension = opened.real.extension().and_then(|e| e.to_str()).unwrap_or("").to_lowercase();
    let block = match media_type(&extension) {
        Some(kind) => {
            json!({ "type": kind.0, "data": encoded, "mimeType": kind.1 })
        }
        None => {
            let uri = url::Url::from_file_path(workspace.root().join(&opened.real))
                .map_err(|()| failed("the workspace's path cannot be a URL".to_owned()))?;
            json!({
                "type": "resource",
                "resource": {
                    "uri": uri.as_str(),
                    "mimeType": "application/octet-stream",
                    "blob": encoded,
                },
            })
        }
    };
    Ok(json!({ "content": [block], "structuredContent": { "content": [block] } }))
}

fn media_type(extension: &str) -> Option<(&'static str, &'static str)> {
    Some(match extension {
        "png" => ("image", "image/png"),
        "jpg" | "jpeg" => ("image", "image/jpeg"),
        "gif" => ("image", "image/gif"),
        "webp" => ("image", "image/webp"),
        "bmp" => ("image", "image/bmp"),
        "svg" => ("image", "image/svg+xml"),
        "mp3" => ("audio", "audio/mpeg"),
        "wav" => ("audio", "audio/wav"),
        "ogg" => ("audio", "audio/ogg"),
        "flac" => ("audio", "audio/flac"),
        _ => return None,
    })
}

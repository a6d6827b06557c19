//! A registry on loopback with one image of one layer, with the part of the distribution protocol that a pull needs.

use serde_json::json;
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// Serves until the test process ends.
pub struct Registry {
    pub port: u16,
}

struct Image {
    manifest: Vec<u8>,
    blobs: [Vec<u8>; 2],
}

impl Registry {
    /// Serves `layer` (a tar archive) as the image `tool` under every tag.
    pub fn serve(layer: Vec<u8>) -> Registry {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let image = Arc::new(Image::of(layer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let image = Arc::clone(&image);
                std::thread::spawn(move || image.answer(stream));
            }
        });
        Registry { port }
    }
}

impl Image {
    fn of(layer: Vec<u8>) -> Image {
        let config = json!({
            "architecture": go_name(std::env::consts::ARCH),
            "os": "linux",
            "config": {},
            "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
        });
        let config = config.to_string().into_bytes();
        let part = |kind: &str, blob: &[u8]| {
            json!({
                "mediaType": format!("application/vnd.docker.{kind}"),
                "size": blob.len(),
                "digest": digest(blob),
            })
        };
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": part("container.image.v1+json", &config),
            "layers": [part("image.rootfs.diff.tar", &layer)],
        });
        Image { manifest: manifest.to_string().into_bytes(), blobs: [config, layer] }
    }

    /// Answers one request and closes the connection.
    fn answer(&self, mut stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().expect("a copy")).lines().map_while(Result::ok);
        let Some(request) = lines.next() else { return };
        while lines.next().is_some_and(|line| !line.is_empty()) {}
        let mut words = request.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (status, kind, body): (_, _, &[u8]) = if path == "/v2/" {
            ("200 OK", "application/json", b"{}")
        } else if path.contains("/manifests/") {
            ("200 OK", MANIFEST, &self.manifest)
        } else if let Some(blob) = self.blobs.iter().find(|blob| path.ends_with(&digest(blob))) {
            ("200 OK", "application/octet-stream", blob)
        } else {
            ("404 Not Found", "application/json", b"{}")
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\nDocker-Distribution-Api-Version: registry/2.0\r\n\
             Docker-Content-Digest: {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            digest(body),
            body.len()
        );
        let sent = stream.write_all(head.as_bytes());
        if method != "HEAD" && sent.is_ok() {
            // The engine may close the connection early and ask again.
            let _ = stream.write_all(body);
        }
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

fn go_name(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

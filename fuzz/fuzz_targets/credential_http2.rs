//! Arbitrary heads of HTTP/2 for a host that a credential is bound to: `cargo +nightly fuzz run credential_http2`.

#![no_main]

use agent_network::credentials::head::read;
use agent_network::credentials::http2::translated;
use http::{HeaderName, HeaderValue, Request};
use libfuzzer_sys::fuzz_target;

/// Method, target and fields.
type Written<'b> = (&'b str, &'b str, Vec<(&'b [u8], &'b [u8])>);

fuzz_target!(|input: (Written, bool)| {
    let ((method, target, fields), has_body) = input;
    let Ok(request) = Request::builder().method(method).uri(target).body(()) else { return };
    let (mut head, ()) = request.into_parts();
    for (name, value) in fields {
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) else { return };
        // More than a map takes are refused before.
        if head.headers.try_append(name, value).is_err() {
            return;
        }
    }
    let authority = head.uri.authority().map(|authority| authority.to_string());
    let Ok(head) = translated(head, has_body) else { return };
    let mut bytes = format!("{} {} HTTP/1.1\r\n", head.method, head.uri).into_bytes();
    for (name, value) in &head.headers {
        bytes.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    bytes.extend(b"\r\n");
    // It is the same request there, with nothing behind it, or none.
    let Ok(Some(read)) = read(&bytes) else { return };
    assert_eq!((read.length, &read.method, read.path.as_str()), (bytes.len(), &head.method, head.uri.path()));
    assert_eq!(read.query.as_deref().unwrap_or_default(), head.uri.query().unwrap_or_default());
    if let Some(authority) = authority {
        let hosts: Vec<_> = read.fields.get_all("host").iter().collect();
        assert!(hosts.len() == 1 && hosts[0] == authority.as_str(), "{hosts:?}");
    }
});

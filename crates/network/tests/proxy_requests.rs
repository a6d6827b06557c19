//! Requests to the sandbox's proxy, from programs that mean no good.

use agent_network::{Action, parse_request};
use proptest::collection::vec;
use proptest::prelude::*;

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-zA-Z0-9:/.?#@%*_-]{0,12}",
        1 => "\\PC{0,6}",
        1 => prop_oneof![Just("\r\n"), Just("\n"), Just("\r"), Just(" "), Just("\t"), Just("\0")].prop_map(str::to_owned),
        2 => prop_oneof![
            Just("http://"), Just("HTTP://a.com"), Just(" HTTP/1.1"), Just("Host"), Just(": "), Just("a.com"),
            Just("evil.test"), Just("Content-Length"), Just("Transfer-Encoding: chunked"), Just("Connection: "), Just("5"),
        ]
        .prop_map(str::to_owned),
    ]
}

/// Mostly like a request, somewhere not.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![4 => Just("GET http://a.com/x HTTP/1.1".to_owned()), 1 => vec(piece(), 0..6).prop_map(|p| p.concat())];
    let field = prop_oneof![
        2 => ("[A-Za-z-]{1,16}", "[ -~]{0,20}").prop_map(|(name, value)| format!("{name}: {value}")),
        1 => vec(piece(), 0..5).prop_map(|pieces| pieces.concat()),
    ];
    (line, vec(field, 0..6), vec(piece(), 0..4)).prop_map(|(line, fields, rest)| {
        let mut text = line + "\r\n";
        fields.iter().for_each(|field| text += &format!("{field}\r\n"));
        (text + "\r\n" + &rest.concat()).into_bytes()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_goes_on_is_one_request_for_the_host_that_is_judged(bytes in request()) {
        let Ok(Some(request)) = parse_request(&bytes) else { return Ok(()) };
        prop_assert!(request.length <= bytes.len());
        let Action::Http { head, body } = request.action else { return Ok(()) };
        let mut fields = [httparse::EMPTY_HEADER; 200];
        let mut again = httparse::Request::new(&mut fields);
        prop_assert_eq!(again.parse(&head), Ok(httparse::Status::Complete(head.len())), "one head and nothing more");
        prop_assert!(again.path.is_some_and(|path| path.starts_with('/')));
        let values = |name: &str| -> Vec<String> {
            let found = again.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
            found.map(|field| String::from_utf8_lossy(field.value).into_owned()).collect()
        };
        let port = if request.port == 80 { String::new() } else { format!(":{}", request.port) };
        prop_assert_eq!(values("host"), [format!("{}{port}", request.host)]);
        prop_assert_eq!(values("connection"), ["close"]);
        prop_assert!(values("transfer-encoding").is_empty() && values("upgrade").is_empty());
        let length = values("content-length");
        prop_assert!(length.is_empty() && body == 0 || length == [body.to_string()]);
        // Each line ends as it should: nobody sees another line in a lone CR or LF.
        let lone = |at: usize| match head[at] {
            b'\r' => head.get(at + 1) != Some(&b'\n'),
            b'\n' => at == 0 || head[at - 1] != b'\r',
            _ => false,
        };
        prop_assert!(!(0..head.len()).any(lone));
    }

    #[test]
    fn arbitrary_bytes_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..500)) {
        let _ = parse_request(&bytes);
    }
}

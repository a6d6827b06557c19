//! Server-sent events, decoded leniently: any line ends, comments, a byte-order mark, a last event without
//! an empty line, invalid UTF-8. See <https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream>.

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// The `event:` field; empty where there is none.
    pub name: String,
    /// The `data:` lines, joined by line breaks. Never empty.
    pub data: String,
}

/// An event that is longer than the decoder's bound.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

/// Bytes in, events out. Work is linear in the number of bytes, memory is bounded.
pub struct Decoder {
    line: Vec<u8>,
    after_cr: bool,
    at_start: bool,
    name: String,
    data: Option<String>,
    bound: usize,
}

impl Decoder {
    /// A decoder that refuses events of more than `bound` bytes.
    pub fn new(bound: usize) -> Self {
        Self { line: Vec::new(), after_cr: false, at_start: true, name: String::new(), data: None, bound }
    }

    /// Takes bytes, cut anywhere, and appends the events they complete.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), TooLong> {
        let mut rest = bytes;
        if self.after_cr && rest.first() == Some(&b'\n') {
            rest = &rest[1..];
        }
        if !bytes.is_empty() {
            self.after_cr = false;
        }
        while let Some(end) = rest.iter().position(|b| matches!(b, b'\n' | b'\r')) {
            self.line.extend_from_slice(&rest[..end]);
            let cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if cr {
                match rest.first() {
                    Some(b'\n') => rest = &rest[1..],
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            self.end_line(events)?;
        }
        self.line.extend_from_slice(rest);
        self.check_bound()
    }

    /// The stream has ended: what is left counts as an event.
    pub fn finish(&mut self, events: &mut Vec<Event>) -> Result<(), TooLong> {
        if !self.line.is_empty() {
            self.end_line(events)?;
        }
        self.dispatch(events);
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<Event>) -> Result<(), TooLong> {
        self.check_bound()?;
        let line = std::mem::take(&mut self.line);
        let mut bytes = line.as_slice();
        if std::mem::take(&mut self.at_start) {
            bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        }
        let line = String::from_utf8_lossy(bytes);
        if line.is_empty() {
            self.dispatch(events);
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = value.to_owned(),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            // An empty field is a comment; `id` and `retry` mean nothing here; the rest is unknown.
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, events: &mut Vec<Event>) {
        let name = std::mem::take(&mut self.name);
        if let Some(data) = self.data.take().filter(|data| !data.trim().is_empty()) {
            events.push(Event { name, data });
        }
    }

    fn check_bound(&self) -> Result<(), TooLong> {
        let held = self.line.len() + self.data.as_ref().map_or(0, String::len);
        if held > self.bound { Err(TooLong) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(pieces: &[&[u8]]) -> Vec<String> {
        let (mut decoder, mut events) = (Decoder::new(1000), Vec::new());
        for piece in pieces {
            decoder.feed(piece, &mut events).unwrap();
        }
        decoder.finish(&mut events).unwrap();
        events.into_iter().map(|event| event.data).collect()
    }

    #[test]
    fn line_ends_comments_and_a_byte_order_mark() {
        let text = "\u{feff}data: a\r\n\r\n: comment\r\n\r\ndata:b\rdata: c\r\revent: x\nid: 7\ndata: d\n\n";
        assert_eq!(decode(&[text.as_bytes()]), ["a", "b\nc", "d"]);
    }

    #[test]
    fn the_last_event_needs_no_line_end() {
        assert_eq!(decode(&[b"data: a\n\ndata: b"]), ["a", "b"]);
        assert_eq!(decode(&[b"data: a\n\ndata: b\n"]), ["a", "b"]);
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(decode(&[b"data: a\xffb\n\n"]), ["a\u{fffd}b"]);
    }

    #[test]
    fn an_event_beyond_the_bound_is_refused() {
        let mut decoder = Decoder::new(10);
        assert_eq!(decoder.feed(b"data: 0123456789", &mut Vec::new()), Err(TooLong));
        let mut decoder = Decoder::new(10);
        assert_eq!(decoder.feed(b"data:012\ndata:345\ndata:678\ndata:9\n", &mut Vec::new()), Err(TooLong));
    }

    proptest! {
        #[test]
        fn cutting_the_bytes_anywhere_changes_nothing(text in "(data: [aé\\n\\r:]{0,8}[\\n\\r]{1,3}){0,6}", cut in 0usize..80) {
            let bytes = text.as_bytes();
            let cut = cut.min(bytes.len());
            prop_assert_eq!(decode(&[&bytes[..cut], &bytes[cut..]]), decode(&[bytes]));
        }

        #[test]
        fn arbitrary_bytes_never_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20)) {
            let (mut decoder, mut events) = (Decoder::new(64), Vec::new());
            for piece in &pieces {
                let _ = decoder.feed(piece, &mut events);
            }
            let _ = decoder.finish(&mut events);
        }
    }
}

//! The output of an interpreter that is kept: the answers of its driver, and the mark that ends a cell's output.

use agent_event::Stream;
use agent_sandbox::Output;
use memchr::memmem;

/// The longest text of an answer, in bytes.
const MAX_TEXT: usize = 256 << 10;
/// The longest first line of an answer.
const MAX_HEADER: usize = 128;
/// Stands before the nonce of a mark, and behind that of the one that ends a cell's output.
const MARK: u8 = 0x1e;
/// Stands behind the nonce of a mark that is followed by the length of a piece of standard error, a new line and the piece.
const ERRORS: u8 = 0x1f;
/// The longest piece, and the digits of its length.
const MAX_PIECE: usize = 1 << 16;
const MAX_DIGITS: usize = 6;
/// The line that the driver writes before it reads the first request.
const READY: &[u8] = b"\x1eready\n";

/// The driver's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status of the code at its end.
    pub status: Status,
    /// The exit code that a program would have had.
    pub exit_code: u8,
    /// The value of a last expression; empty where there is none.
    pub value: String,
    /// The exception with its traceback.
    pub error: String,
}

/// The status of a cell's code at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It came to its end.
    Ok,
    /// It asked for the end of the program, which is the end of the cell.
    Exit,
    /// An exception ended it.
    Error,
    /// An interrupt ended it.
    Interrupted,
}

/// Finds the mark that ends a cell's output, and passes on what is before it: pieces of standard error as such.
pub struct Mark {
    /// The bytes with which every mark begins.
    begin: Vec<u8>,
    /// Bytes that may be the beginning of a mark.
    held: Vec<u8>,
    /// The number of bytes that are still to come of a piece of standard error.
    errors: usize,
    pub is_found: bool,
    /// The bytes that arrived behind it.
    pub behind: Vec<u8>,
}

/// The kind of a mark, which stands behind its beginning.
enum Kind {
    End,
    /// A piece of this length, behind so many bytes.
    Errors {
        length: usize,
        digits: usize,
    },
    Unfinished,
    /// Something that a program has printed.
    Other,
}

impl Kind {
    fn of(rest: &[u8]) -> Self {
        match rest.first() {
            None => Self::Unfinished,
            Some(&MARK) => Self::End,
            Some(&ERRORS) => {
                let digits = rest[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                let length = std::str::from_utf8(&rest[1..=digits]).ok().and_then(|text| text.parse().ok());
                match (rest.get(1 + digits), length) {
                    (None, _) if digits <= MAX_DIGITS => Self::Unfinished,
                    (Some(b'\n'), Some(length)) if length <= MAX_PIECE => Self::Errors { length, digits },
                    _ => Self::Other,
                }
            }
            Some(_) => Self::Other,
        }
    }
}

impl Mark {
    pub fn new(nonce: &str) -> Self {
        let begin = [&[MARK], nonce.as_bytes()].concat();
        Self { begin, held: Vec::new(), errors: 0, is_found: false, behind: Vec::new() }
    }

    pub fn take(&mut self, bytes: &[u8], on_output: &mut (dyn FnMut(Output<'_>) + Send)) {
        if self.is_found {
            self.behind.extend_from_slice(bytes);
            return;
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let mut rest = &all[..];
        let mut pass = |stream, bytes: &[u8]| {
            if !bytes.is_empty() {
                on_output(Output::Data(stream, bytes));
            }
        };
        while !rest.is_empty() {
            if self.errors > 0 {
                let (piece, after) = rest.split_at(self.errors.min(rest.len()));
                self.errors -= piece.len();
                rest = after;
                pass(Stream::Stderr, piece);
                continue;
            }
            let at = memmem::find(rest, &self.begin);
            let (before, from) = rest.split_at(at.unwrap_or_else(|| self.partial(rest)));
            pass(Stream::Stdout, before);
            if at.is_none() {
                self.held = from.to_vec();
                return;
            }
            let behind = &from[self.begin.len()..];
            match Kind::of(behind) {
                Kind::End => {
                    self.is_found = true;
                    self.behind = behind[1..].to_vec();
                    return;
                }
                Kind::Errors { length, digits } => {
                    self.errors = length;
                    rest = &behind[digits + 2..];
                }
                Kind::Unfinished => {
                    self.held = from.to_vec();
                    return;
                }
                Kind::Other => {
                    pass(Stream::Stdout, &from[..self.begin.len()]);
                    rest = behind;
                }
            }
        }
    }

    /// Returns the position in `rest` from which on it may be the beginning of a mark; its length if there is none.
    fn partial(&self, rest: &[u8]) -> usize {
        let tail = rest.len().saturating_sub(self.begin.len() - 1);
        let mut marks = memchr::memchr_iter(MARK, &rest[tail..]).map(|at| tail + at);
        marks.find(|at| self.begin.starts_with(&rest[*at..])).unwrap_or(rest.len())
    }

    /// There is no mark to come: what was held back is output.
    pub fn give_up(&mut self, on_output: &mut (dyn FnMut(Output<'_>) + Send)) {
        if !self.held.is_empty() {
            on_output(Output::Data(Stream::Stdout, &std::mem::take(&mut self.held)));
        }
    }
}

/// Takes the driver's first line out of what has arrived, and returns what was printed before it: warnings, and what modules
/// print that an interpreter imports by itself. `None` while the driver has not started.
pub fn take_ready(arrived: &mut Vec<u8>) -> Option<Vec<u8>> {
    let at = memmem::find(arrived, READY)?;
    let rest = arrived.split_off(at + READY.len());
    arrived.truncate(at);
    Some(std::mem::replace(arrived, rest))
}

/// Something that is not an answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Garbage;

/// Takes an answer out of what has arrived; `None` while it is not whole.
pub fn parse(arrived: &mut Vec<u8>, nonce: &str) -> std::result::Result<Option<Answer>, Garbage> {
    let Some(end) = memchr::memchr(b'\n', arrived) else {
        return if arrived.len() > MAX_HEADER { Err(Garbage) } else { Ok(None) };
    };
    let header = std::str::from_utf8(&arrived[..end]).map_err(|_| Garbage)?;
    let fields: Vec<&str> = header.split(' ').collect();
    let [found, status, exit_code, value, error] = fields[..] else { return Err(Garbage) };
    let status = match status {
        "ok" => Status::Ok,
        "exit" => Status::Exit,
        "error" => Status::Error,
        "interrupted" => Status::Interrupted,
        _ => return Err(Garbage),
    };
    let exit_code = exit_code.parse().map_err(|_| Garbage)?;
    let length = |text: &str| text.parse().ok().filter(|length| *length <= MAX_TEXT).ok_or(Garbage);
    let (value, error): (usize, usize) = (length(value)?, length(error)?);
    if found != nonce {
        return Err(Garbage);
    }
    let (begin, whole) = (end + 1, end + 1 + value + error);
    if arrived.len() < whole {
        return Ok(None);
    }
    // There is one answer to each request.
    if arrived.len() > whole {
        return Err(Garbage);
    }
    let text = |from: usize, to: usize| String::from_utf8_lossy(&arrived[from..to]).into_owned();
    let answer =
        Answer { status, exit_code, value: text(begin, begin + value), error: text(begin + value, whole) };
    arrived.clear();
    Ok(Some(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output_of(pieces: &[&[u8]]) -> (String, bool, String) {
        let mut mark = Mark::new("abc");
        let mut printed = Vec::new();
        let mut on_output = |output: Output<'_>| {
            if let Output::Data(_, bytes) = output {
                printed.extend_from_slice(bytes);
            }
        };
        pieces.iter().for_each(|piece| mark.take(piece, &mut on_output));
        mark.give_up(&mut on_output);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&printed), mark.is_found, text(&mark.behind))
    }

    #[test]
    fn the_mark_is_found_wherever_the_output_is_cut() {
        let whole = b"one\x1e two\x1eabc\x1ethree";
        for cut in 0..whole.len() {
            let (a, b) = whole.split_at(cut);
            assert_eq!(output_of(&[a, b]), ("one\x1e two".into(), true, "three".into()), "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(output_of(&bytes), ("one\x1e two".into(), true, "three".into()));
        assert_eq!(output_of(&[b"no mark \x1eab"]), ("no mark \x1eab".into(), false, String::new()));
    }

    #[test]
    fn standard_error_is_told_apart_wherever_the_output_is_cut() {
        let whole = b"one\n\x1eabc\x1f4\nerr\ntwo\x1eabc\x1fno\x1e\x1eabc\x1ethree";
        let all: Vec<Vec<&[u8]>> = (0..whole.len())
            .map(|cut| vec![&whole[..cut], &whole[cut..]])
            .chain([whole.chunks(1).collect()])
            .collect();
        for pieces in all {
            let mut mark = Mark::new("abc");
            let mut printed = (Vec::new(), Vec::new());
            for piece in pieces {
                mark.take(piece, &mut |output| match output {
                    Output::Data(Stream::Stdout, bytes) => printed.0.extend_from_slice(bytes),
                    Output::Data(Stream::Stderr, bytes) => printed.1.extend_from_slice(bytes),
                    Output::Gap(_) => {}
                });
            }
            assert_eq!(String::from_utf8_lossy(&printed.0), "one\ntwo\x1eabc\x1fno\x1e");
            assert_eq!(String::from_utf8_lossy(&printed.1), "err\n");
            assert_eq!((mark.is_found, &mark.behind[..]), (true, &b"three"[..]));
        }
    }

    #[test]
    fn an_answer_is_taken_when_it_is_whole() {
        let whole = b"n1 error 1 2 3\nabxyz";
        let answer = Answer { status: Status::Error, exit_code: 1, value: "ab".into(), error: "xyz".into() };
        for cut in 0..whole.len() {
            assert_eq!(parse(&mut whole[..cut].to_vec(), "n1"), Ok(None), "cut at {cut}");
        }
        let mut arrived = whole.to_vec();
        assert_eq!(parse(&mut arrived, "n1"), Ok(Some(answer)));
        assert!(arrived.is_empty());
    }

    #[test]
    fn anything_else_is_not_an_answer() {
        for garbage in [
            "\n",
            "n2 ok 0 0 0\n",
            "n1 ok 0 0 0\nmore",
            "n1 ok 0 0\n",
            "n1 fine 0 0 0\n",
            "n1 ok 300 0 0\n",
            "n1 ok 0 99999999999 0\n",
            "n1 ok 0 -1 0\n",
        ] {
            assert_eq!(parse(&mut garbage.as_bytes().to_vec(), "n1"), Err(Garbage), "{garbage:?}");
        }
        assert_eq!(parse(&mut vec![b'x'; 1000], "n1"), Err(Garbage));
    }

    #[test]
    fn what_is_printed_before_the_driver_starts_is_no_answer() {
        let mut arrived = b"a warning\n\x1erea".to_vec();
        assert_eq!(take_ready(&mut arrived), None);
        arrived.extend_from_slice(b"dy\nn1 ok");
        assert_eq!(take_ready(&mut arrived), Some(b"a warning\n".to_vec()));
        assert_eq!(arrived, b"n1 ok");
    }
}

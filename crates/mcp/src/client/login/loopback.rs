//! Where a browser comes back to after a login: a port of this machine's loopback, for that one request.

use agent_base::error::{Error, Result};
use agent_base::sanitise::one_line;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use url::Url;

/// The longest request.
const MAX_REQUEST: usize = 16 << 10;
/// The time limit for a browser to send it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests that are answered: browsers ask for icons, and others may try.
const MAX_REQUESTS: usize = 100;

/// A port that waits for the browser.
pub(super) struct Loopback {
    listener: TcpListener,
    address: Url,
}

impl Loopback {
    pub async fn open() -> Result<Self> {
        let failed = |error| Error::unexpected("no port of this machine could be opened").caused_by(error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let address = Url::parse(&format!("http://127.0.0.1:{port}/callback"));
        let address = address.map_err(|error| Error::unexpected("no address").caused_by(error))?;
        Ok(Self { listener, address })
    }

    pub fn address(&self) -> &Url {
        &self.address
    }

    /// Waits for the code of the login with this `state`.
    pub async fn code(self, state: &str, issuer: &str, time: Duration) -> Result<String> {
        let late = |_| Error::config("nobody logged in in time");
        timeout(time, self.wait(state, issuer)).await.map_err(late)?
    }

    async fn wait(self, state: &str, issuer: &str) -> Result<String> {
        for _ in 0..MAX_REQUESTS {
            let Ok((mut stream, _)) = self.listener.accept().await else { continue };
            let Ok(Some(target)) = timeout(REQUEST_TIMEOUT, target(&mut stream)).await else { continue };
            let Some(answer) = answer(&target, state, issuer) else {
                say(&mut stream, "404 Not Found", "This is not the login that agent waits for.").await;
                continue;
            };
            let text = match &answer {
                Ok(_) => "You are logged in. You can close this page.",
                Err(_) => "The login failed; agent says why.",
            };
            say(&mut stream, "200 OK", text).await;
            return answer;
        }
        Err(Error::config("too many requests came that were not the login's"))
    }
}

/// The code in a request, or why there is none; `None` where the request is another one.
fn answer(target: &str, state: &str, issuer: &str) -> Option<Result<String>> {
    let url = Url::parse("http://127.0.0.1/").ok()?.join(target).ok()?;
    let fields: BTreeMap<_, _> = url.query_pairs().collect();
    let field = |name: &str| fields.get(name).map(AsRef::as_ref);
    if url.path() != "/callback" || field("state") != Some(state) {
        return None;
    }
    if field("iss").is_some_and(|named| named.trim_end_matches('/') != issuer.trim_end_matches('/')) {
        return Some(Err(Error::config("the login is that of another authorization server")));
    }
    Some(match (field("code"), field("error")) {
        (Some(code), None) => Ok(code.to_owned()),
        (_, error) => {
            let why = [error.unwrap_or("it names no code"), field("error_description").unwrap_or_default()];
            let why = one_line(why.join(" ").trim(), 200);
            Err(Error::config(format!("the authorization server refuses the login: {why}")))
        }
    })
}

/// The target of a GET.
async fn target(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        if bytes.len() > MAX_REQUEST || stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let head = String::from_utf8(bytes).ok()?;
    Some(head.strip_prefix("GET ")?.split(' ').next()?.to_owned())
}

async fn say(stream: &mut TcpStream, status: &str, text: &str) {
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    );
    // A browser that does not read it misses it.
    let _ = timeout(REQUEST_TIMEOUT, stream.write_all(answer.as_bytes())).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_this_login_counts() {
        let of = |target: &str| answer(target, "s", "https://a.test/");
        assert_eq!(of("/callback?code=c&state=s").unwrap().unwrap(), "c");
        assert_eq!(of("/callback?code=c%2F&state=s&iss=https://a.test").unwrap().unwrap(), "c/");
        for other in ["/callback?code=c", "/callback?code=c&state=t", "/favicon.ico", "/other?code=c&state=s"]
        {
            assert!(of(other).is_none(), "{other}");
        }
        let refused = |target: &str| of(target).unwrap().unwrap_err().to_string();
        assert!(refused("/callback?error=access_denied&state=s").contains("access_denied"));
        assert!(refused("/callback?state=s").contains("no code"));
        assert!(refused("/callback?code=c&state=s&iss=https://b.test").contains("another"));
    }
}

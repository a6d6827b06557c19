//! Who gives tokens for a server: the metadata of the server (RFC 9728) and of its authorization server (RFC 8414).

use super::exchange::{get, is_safe};
use agent_base::error::{Error, Result};
use agent_base::sanitise::one_line;
use reqwest::header::{ACCEPT, HeaderMap, WWW_AUTHENTICATE};
use reqwest::{Client, StatusCode};
use serde::Deserialize;
use url::Url;

/// Scopes that are asked for, in bytes.
const MAX_SCOPE: usize = 2_000;

/// The metadata of a server.
#[derive(Debug, Deserialize)]
struct OfServer {
    resource: Url,
    #[serde(default)]
    authorization_servers: Vec<Url>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

/// The metadata of an authorization server.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Issuer {
    pub issuer: String,
    pub authorization_endpoint: Option<Url>,
    pub token_endpoint: Url,
    pub registration_endpoint: Option<Url>,
    pub device_authorization_endpoint: Option<Url>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
}

/// The issuer of tokens for a server, and what they are for.
pub(super) struct Found {
    pub issuer: Issuer,
    pub resource: Url,
    pub scope: Option<String>,
}

impl Issuer {
    pub fn has_pkce(&self) -> bool {
        self.code_challenge_methods_supported.iter().any(|method| method == "S256")
    }
}

/// Asks a server who gives tokens for it.
pub(super) async fn find(client: &Client, server: &Url) -> Result<Found> {
    if !is_safe(server) {
        return Err(Error::config(format!("{server} is not https://, so that no login goes there")));
    }
    let answer =
        client.get(server.clone()).header(ACCEPT, "application/json, text/event-stream").send().await;
    let answer = answer.map_err(|error| {
        Error::config(format!("{server} cannot be reached")).caused_by(error.without_url())
    })?;
    let challenge = match answer.status() {
        StatusCode::UNAUTHORIZED => Challenge::of(answer.headers()),
        _ => Challenge::default(),
    };
    let of_server = match &challenge.metadata {
        Some(named) => get::<OfServer>(client, named).await?,
        None => first(client, &well_known(server, "oauth-protected-resource")).await?,
    };
    let (issuer, resource, scopes) = match of_server {
        Some(of_server) => {
            if !is_of(&of_server.resource, server) {
                let other = one_line(of_server.resource.as_str(), 200);
                return Err(Error::config(format!("the server says that it is another one: {other}")));
            }
            let issuer = of_server.authorization_servers.into_iter().next();
            let none = || Error::config("the server names no authorization server");
            (issuer.ok_or_else(none)?, of_server.resource, of_server.scopes_supported)
        }
        // As servers of an earlier version of the protocol have it.
        None => (root(server), server.clone(), Vec::new()),
    };
    let mut places = well_known(&issuer, "oauth-authorization-server");
    places.extend(well_known(&issuer, "openid-configuration"));
    if let Ok(below) =
        Url::parse(&format!("{}/.well-known/openid-configuration", issuer.as_str().trim_end_matches('/')))
    {
        places.push(below);
    }
    let found: Option<Issuer> = first(client, &places).await?;
    let found = found.ok_or_else(|| {
        Error::config(format!("{server} offers no login by OAuth"))
            .hint("name the variable with its token as bearer_token_env_var")
    })?;
    check(&found, &issuer)?;
    let scope = challenge.scope.or_else(|| (!scopes.is_empty()).then(|| scopes.join(" ")));
    Ok(Found { issuer: found, resource, scope: scope.filter(|scope| scope.len() <= MAX_SCOPE) })
}

fn check(found: &Issuer, asked: &Url) -> Result<()> {
    if found.issuer.trim_end_matches('/') != asked.as_str().trim_end_matches('/') {
        let other = one_line(&found.issuer, 200);
        return Err(Error::config(format!(
            "the authorization server {asked} says that it is another one: {other}"
        )));
    }
    let endpoints = [
        Some(&found.token_endpoint),
        found.authorization_endpoint.as_ref(),
        found.registration_endpoint.as_ref(),
        found.device_authorization_endpoint.as_ref(),
    ];
    match endpoints.into_iter().flatten().find(|endpoint| !is_safe(endpoint)) {
        Some(bad) => Err(Error::config(format!("{bad} is not https://, so that no login goes there"))),
        None => Ok(()),
    }
}

/// Returns whether a server at `server` may say that it is `resource`.
fn is_of(resource: &Url, server: &Url) -> bool {
    let below = resource.path().trim_end_matches('/');
    let rest = server.path().strip_prefix(below);
    resource.origin() == server.origin() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the addresses of documents about an address: with its path, and at the root.
fn well_known(of: &Url, name: &str) -> Vec<Url> {
    let path = of.path().trim_end_matches('/');
    let mut places: Vec<Url> = Vec::new();
    for path in [path, ""] {
        let mut place = root(of);
        place.set_path(&format!("/.well-known/{name}{path}"));
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

fn root(of: &Url) -> Url {
    let mut root = of.clone();
    root.set_path("/");
    root.set_query(None);
    root.set_fragment(None);
    root
}

async fn first<T: serde::de::DeserializeOwned>(client: &Client, places: &[Url]) -> Result<Option<T>> {
    for place in places {
        if let Some(found) = get(client, place).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The challenge of a server that refuses a request: what it says about tokens.
#[derive(Debug, Default, PartialEq)]
struct Challenge {
    metadata: Option<Url>,
    scope: Option<String>,
}

impl Challenge {
    fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let bearer = values
            .into_iter()
            .find(|value| value.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer")));
        let parameter = |name: &str| {
            let (_, after) = bearer?.split_once(&format!("{name}=\""))?;
            after.split('"').next().map(str::to_owned)
        };
        let metadata = parameter("resource_metadata").and_then(|text| Url::parse(&text).ok());
        Self { metadata, scope: parameter("scope") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn documents_are_looked_for_with_the_path_first() {
        let places =
            |of: &str| -> Vec<String> { well_known(&url(of), "x").iter().map(ToString::to_string).collect() };
        assert_eq!(
            places("https://a.test/mcp/?q"),
            ["https://a.test/.well-known/x/mcp", "https://a.test/.well-known/x"]
        );
        assert_eq!(places("https://a.test"), ["https://a.test/.well-known/x"]);
    }

    #[test]
    fn a_server_is_itself_or_below_what_it_names() {
        let server = url("https://a.test/mcp/v1");
        for resource in
            ["https://a.test/mcp/v1", "https://a.test/mcp", "https://a.test/", "https://a.test:443"]
        {
            assert!(is_of(&url(resource), &server), "{resource}");
        }
        for resource in
            ["https://b.test/mcp/v1", "http://a.test/mcp", "https://a.test/mc", "https://a.test/mcp/v1/x"]
        {
            assert!(!is_of(&url(resource), &server), "{resource}");
        }
    }

    #[test]
    fn the_challenge_names_the_metadata() {
        let mut headers = HeaderMap::new();
        headers.append(WWW_AUTHENTICATE, "Basic realm=\"x\"".parse().unwrap());
        let text = "Bearer error=\"invalid_token\", resource_metadata=\"https://a.test/m\", scope=\"a b\"";
        headers.append(WWW_AUTHENTICATE, text.parse().unwrap());
        let challenge = Challenge { metadata: Some(url("https://a.test/m")), scope: Some("a b".into()) };
        assert_eq!(Challenge::of(&headers), challenge);
        assert_eq!(Challenge::of(&HeaderMap::new()), Challenge::default());
    }
}

//! Requests whose bodies are looked at before they are sent: pushes, which the user sees, and what is signed.

use super::intercept::{End, refused};
use super::requests::{Requests, Rest};
use super::sign::{self, Signed};
use super::{Bound, aws, lfs, push};
use crate::gateway::Gateway;
use crate::host::Host;
use agent_base::hash::Hash;
use bytes::Bytes;
use http::header;
use http::request::Parts;
use tokio::io::AsyncRead;

/// The longest body that is read to sign it.
const MAX_SIGNED: usize = 8 << 20;

/// Has the user see what a push changes. Returns the pieces of it that were read for that.
pub(super) async fn approved_push(
    requests: &mut Requests<impl AsyncRead + Unpin>,
    (gateway, host, port): (&Gateway, &Host, u16),
    bound: &Bound,
    head: &Parts,
    rest: &mut Rest,
) -> Result<Vec<Bytes>, End> {
    if !gateway.is_anybody_asked() {
        return Ok(Vec::new());
    }
    let name = &bound.rule.name;
    let of_lfs = lfs::read(head.method.as_str(), head.uri.path());
    if let Some((lfs::LfsAction::Write, path)) = of_lfs {
        gateway.approve_files(name, &format!("{host}:{port}{path}")).await.map_err(refused)?;
        return Ok(Vec::new());
    }
    if head.headers.contains_key(header::CONTENT_ENCODING) {
        return Err(refused("the push is compressed, so that the user cannot see what it changes"));
    }
    let (pieces, bytes) = beginning(requests, rest).await?;
    if let Some((_, path)) = of_lfs {
        // Some servers read the query as well.
        let is_whole = bytes.len() < push::MAX_LOOKED_AT && head.uri.query().is_none();
        if !is_whole || !lfs::only_downloads(&bytes) {
            gateway.approve_files(name, &format!("{host}:{port}{path}")).await.map_err(refused)?;
        }
        return Ok(pieces);
    }
    let push = push::read(&bytes).map_err(refused)?;
    if push.updates.is_empty() {
        return Ok(pieces);
    }
    let path = head.uri.path().trim_end_matches("/git-receive-pack");
    let repository = format!("{host}:{port}{path}");
    let changes = push.description();
    gateway.approve_push(name, &repository, &changes).await.map_err(refused)?;
    gateway.forget_files(name).await;
    Ok(pieces)
}

/// The first bytes of a body, as pieces and as a whole.
async fn beginning(
    requests: &mut Requests<impl AsyncRead + Unpin>,
    rest: &mut Rest,
) -> Result<(Vec<Bytes>, Vec<u8>), End> {
    let (mut pieces, mut bytes) = (Vec::new(), Vec::new());
    while bytes.len() < push::MAX_LOOKED_AT
        && let Some(piece) = requests.piece(rest).await?
    {
        bytes.extend_from_slice(&piece);
        pieces.push(piece);
    }
    Ok((pieces, bytes))
}

/// Signs a request. Returns the pieces of its body that were read for that.
pub(super) async fn signed(
    requests: &mut Requests<impl AsyncRead + Unpin>,
    (bound, host): (&Bound, &Host),
    head: &mut Parts,
    rest: &mut Rest,
) -> Result<Vec<Bytes>, End> {
    let (Some(key), Some(signed)) = (&bound.key, Signed::by(&head.headers, &bound.placeholder)) else {
        return Ok(Vec::new());
    };
    if let Some(reason) = sign::objection(&head.headers) {
        return Err(refused(reason));
    }
    let (mut pieces, mut bytes) = (Vec::new(), Vec::new());
    let (service, host) = (signed.service(), host.to_string());
    let has_action = aws::names_action_in_body(service, &host);
    if has_action || sign::content_hash(&head.headers).is_none() {
        while let Some(piece) = requests.piece(rest).await? {
            bytes.extend_from_slice(&piece);
            pieces.push(piece);
            if bytes.len() > MAX_SIGNED {
                return Err(refused(
                    "its body is longer than 8 MiB, and has to be read to be signed or judged",
                ));
            }
        }
    }
    let judged = aws::gives_nothing((service, &host), head, has_action.then_some(&bytes));
    judged.map_err(refused)?;
    let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
    let request = (&head.method, path.as_str(), query.as_str());
    signed.sign(key, request, &mut head.headers, Some(Hash::of(&bytes))).map_err(refused)?;
    Ok(pieces)
}

//! Actions of AWS: those that only read, and those whose answers hold keys or tokens, which no program inside gets.

use super::path;
use http::HeaderMap;
use http::request::Parts;

/// Actions that only read, by the beginnings of their names.
const READS: [&str; 3] = ["Describe", "List", "GetCallerIdentity"];
/// The actions of STS that return neither keys nor tokens. All others are refused: some day it has more of them.
const OF_STS: [&str; 3] = ["GetCallerIdentity", "GetAccessKeyInfo", "DecodeAuthorizationMessage"];
/// Actions of other services whose answers hold keys, tokens or passwords.
const GIVING: [&str; 20] = [
    "AssumeDecoratedRoleWithSAML",
    "CreateAccessKey",
    "CreateServiceSpecificCredential",
    "ResetServiceSpecificCredential",
    "AssumeRole",
    "AssumeRoleWithSAML",
    "AssumeRoleWithWebIdentity",
    "AssumeRoot",
    "GetSessionToken",
    "GetFederationToken",
    "GetCredentialsForIdentity",
    "GetOpenIdToken",
    "GetOpenIdTokenForDeveloperIdentity",
    "GetAuthorizationToken",
    "GetClusterCredentials",
    "GetCredentials",
    "GetClusterCredentialsWithIAM",
    "GetTemporaryGlueTableCredentials",
    "GetTemporaryGluePartitionCredentials",
    "GetTemporaryDataLocationCredentials",
];
/// Words in the names of actions that return keys or tokens, in lower case: AWS adds actions that no list has.
const GIVING_WORDS: [&str; 5] =
    ["credentials", "accesskey", "assumerole", "sessiontoken", "authorizationtoken"];
/// The beginnings of names that have such a word although nothing secret is returned, in lower case.
const HARMLESS: [&str; 4] = ["list", "delete", "update", "getaccesskeylastused"];
/// The ends of paths by which services without actions return keys or tokens, in lower case.
const GIVING_ENDS: [&str; 3] = ["/credentials", "/token", "-roles"];
/// Services whose paths are names that the user chose.
const OF_USERS: [&str; 5] = ["s3", "s3express", "s3-object-lambda", "s3-outposts", "execute-api"];
/// Single paths that return them: the service, and what the path ends with.
const GIVING_PATHS: [(&str, &str); 2] =
    [("codeartifact", "/authorization-token"), ("s3", "/accessgrantsinstance/dataaccess")];
/// The services that take their action in the body, as a form, and have one that is refused.
const OF_FORMS: [&str; 3] = ["sts", "iam", "redshift"];
const TARGET: &str = "x-amz-target";
const REFUSED: &str = "its action returns keys or tokens of AWS, which would be inside then";

/// Refuses an action that may change something, or returns keys: many services take every action by GET.
///
/// # Errors
/// The reason.
pub(super) fn only_reads(query: &str) -> Result<(), String> {
    let is_read = |action: &String| READS.iter().any(|read| action.starts_with(read));
    match actions(query).iter().all(is_read) {
        true => Ok(()),
        false => Err("its Action may write, and :write was not given".to_owned()),
    }
}

/// Returns whether the action is in the body of requests to a service.
pub(super) fn names_action_in_body(service: &str, host: &str) -> bool {
    OF_FORMS.iter().any(|known| is_service(known, service, host))
}

/// Refuses what returns keys or tokens. `body`: where the service takes its action there.
///
/// # Errors
/// The reason.
pub(super) fn gives_nothing(
    (service, host): (&str, &str),
    head: &Parts,
    body: Option<&[u8]>,
) -> Result<(), String> {
    if body.is_some_and(|body| !body.is_empty()) && !is_form(&head.headers) {
        return Err("its action is not in a form, so that it cannot be judged".to_owned());
    }
    let mut named = actions(head.uri.query().unwrap_or_default());
    named.extend(body.map(|body| actions(&String::from_utf8_lossy(body))).unwrap_or_default());
    for target in head.headers.get_all(TARGET) {
        let target = target.to_str().unwrap_or_default();
        named.push(target.rsplit('.').next().unwrap_or_default().to_owned());
    }
    let paths = path::decodings(head.uri.path());
    let of_path = paths.iter().flat_map(|path| path.split('/'));
    let is_giving = |name: &str| GIVING.iter().any(|known| known.eq_ignore_ascii_case(name.trim()));
    let is_path = |(of, end): &(&str, &str)| {
        is_service(of, service, host) && paths.iter().any(|path| path.trim_end_matches('/').ends_with(end))
    };
    let is_s3_session = service == "s3express"
        && parameters(head.uri.query().unwrap_or_default()).iter().any(|(name, _)| name == "session");
    let is_refused = match is_service("sts", service, host) {
        true => named.is_empty() || named.iter().any(|action| !OF_STS.contains(&action.as_str())),
        false => named.iter().any(|action| is_giving(action) || has_giving_name(action)),
    };
    let is_refused = is_refused
        || of_path.into_iter().any(is_giving)
        || GIVING_PATHS.iter().any(is_path)
        || is_s3_session
        || (!OF_USERS.contains(&service) && paths.iter().any(|path| is_giving_path(path)));
    if is_refused { Err(REFUSED.to_owned()) } else { Ok(()) }
}

/// Returns whether the name of an action is like those that return keys.
fn has_giving_name(action: &str) -> bool {
    let name = action.trim().to_ascii_lowercase();
    let is_harmless = HARMLESS.iter().any(|beginning| name.starts_with(beginning));
    !is_harmless && GIVING_WORDS.iter().any(|word| name.contains(word))
}

/// Returns whether a path is like those by which services return keys: by its end, or by an action that is all of it or its operation.
fn is_giving_path(path: &str) -> bool {
    let path = path.trim_end_matches('/').to_ascii_lowercase();
    let action = match path.rsplit_once("/operation/") {
        Some((_, action)) => action,
        None => path.trim_start_matches('/'),
    };
    let is_assumed = path.rsplit('/').next().is_some_and(|last| last.starts_with("assume-role"));
    let is_giving = !action.contains('/') && has_giving_name(action);
    is_assumed || is_giving || GIVING_ENDS.iter().any(|end| path.ends_with(end))
}

/// By the name that is signed, or by the host: AWS refuses a request where they differ, others that speak its protocols may not.
fn is_service(name: &str, service: &str, host: &str) -> bool {
    let is_label = |label: &str| label == name || label.strip_suffix("-fips") == Some(name);
    service == name || host.split('.').any(is_label)
}

fn is_form(headers: &HeaderMap) -> bool {
    let is_plain = !headers.contains_key(http::header::CONTENT_ENCODING);
    let kind =
        headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    is_plain && kind.trim().to_ascii_lowercase().starts_with("application/x-www-form-urlencoded")
}

/// The actions that a query or a form names, in every way in which servers decode them.
fn actions(text: &str) -> Vec<String> {
    let named = parameters(text).into_iter().filter(|(name, _)| name.trim().eq_ignore_ascii_case("Action"));
    named.map(|(_, value)| value.trim().to_owned()).collect()
}

fn parameters(text: &str) -> Vec<(String, String)> {
    // With spaces as forms have them. A value counts as it is decoded at last: what is still encoded names no action.
    let decodings = path::decodings(&text.replace('+', "%20"));
    let mut all = Vec::new();
    for (index, decoding) in decodings.iter().enumerate() {
        for pair in decoding.split(['&', ';']) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if index + 1 == decodings.len() || !value.contains('%') {
                all.push((name.to_owned(), value.to_owned()));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn judge(service: &str, target: &str, body: Option<&str>, fields: &[(&str, &str)]) -> Result<(), String> {
        let mut request =
            Request::builder().uri(format!("https://{service}.eu-central-1.amazonaws.com{target}"));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        gives_nothing((service, "localhost"), &head, body.map(str::as_bytes))
    }

    const FORM: &[(&str, &str)] = &[("content-type", "application/x-www-form-urlencoded; charset=utf-8")];

    #[test]
    fn no_action_that_returns_keys_passes() {
        for action in
            ["AssumeRole", "GetSessionToken", "GetFederationToken", "SomethingNew", "%41ssumeRole", ""]
        {
            let body = format!("Version=2011-06-15&Action={action}");
            assert!(judge("sts", "/", Some(&body), FORM).is_err(), "{body}");
            assert!(judge("sts", &format!("/?{body}"), None, &[]).is_err(), "{body}");
        }
        assert!(judge("sts", "/", Some(""), &[]).is_err(), "no action is named");
        let twice = "Action=GetCallerIdentity&Action=AssumeRole";
        assert!(judge("sts", "/", Some(twice), FORM).is_err());
        assert!(judge("sts", "/?Action=AssumeRole", Some("Action=GetCallerIdentity"), FORM).is_err());
        assert!(judge("iam", "/", Some("Action=CreateAccessKey&UserName=x"), FORM).is_err());
        assert!(
            judge("iam", "/", Some("Action=ListUsers"), &[("content-type", "application/cbor")]).is_err()
        );
        let target = [("x-amz-target", "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken")];
        assert!(judge("ecr", "/", None, &target).is_err());
        assert!(judge("codeartifact", "/v1/authorization-token?domain=d", None, &[]).is_err());
        assert!(judge("lakeformation", "/GetTemporaryGlueTableCredentials", None, &[]).is_err());
        assert!(judge("sts", "/service/Sts/operation/AssumeRole", None, &[]).is_err());
        assert!(judge("s3express", "/?session", None, &[]).is_err());
    }

    #[test]
    fn what_is_named_like_an_action_that_returns_keys_is_refused() {
        for action in ["GetNewCredentials", "RotateAccessKey", "AssumeRoleForX", "CreateSessionTokenForX"] {
            let target = [("x-amz-target", &*format!("Service_20260101.{action}"))];
            assert!(judge("new", "/", None, &target).is_err(), "{action}");
            assert!(judge("new", &format!("/?Action={action}"), None, &[]).is_err(), "{action}");
            assert!(judge("new", &format!("/{action}"), None, &[]).is_err(), "{action}");
            assert!(judge("new", &format!("/service/New/operation/{action}"), None, &[]).is_err());
        }
        for path in [
            "/virtualclusters/v/endpoints/e/credentials",
            "/v2/domains/d/environments/e/credentials/",
            "/v2/domains/d/environments/e/%63redentials",
            "/clusters/c/assume-role-for-pod-identity",
            "/clusters/c/assume-roles",
            "/token",
        ] {
            assert!(judge("new", path, None, &[]).is_err(), "{path}");
        }
    }

    #[test]
    fn names_that_are_like_those_and_return_no_keys_pass() {
        for action in ["ListAccessKeys", "DeleteAccessKey", "UpdateAssumeRolePolicy", "GetAccessKeyLastUsed"]
        {
            assert_eq!(judge("iam", "/", Some(&format!("Action={action}")), FORM), Ok(()), "{action}");
        }
        assert_eq!(judge("s3", "/bucket/app/credentials", None, &[]), Ok(()));
        assert_eq!(judge("s3", "/AccessKeys.csv", None, &[]), Ok(()));
        assert_eq!(judge("lambda", "/functions/RotateAccessKeys/invocations", None, &[]), Ok(()));
    }

    #[test]
    fn other_actions_pass() {
        assert_eq!(judge("sts", "/", Some("Action=GetCallerIdentity&Version=2011-06-15"), FORM), Ok(()));
        assert_eq!(judge("sts", "/?Action=GetCallerIdentity", None, &[]), Ok(()));
        assert_eq!(judge("iam", "/", Some("Action=CreateUser&UserName=a%2Bb"), FORM), Ok(()));
        assert_eq!(judge("dynamodb", "/", None, &[("x-amz-target", "DynamoDB_20120810.PutItem")]), Ok(()));
        assert_eq!(judge("s3", "/bucket/key?list-type=2", None, &[]), Ok(()));
    }

    #[test]
    fn a_service_is_known_by_its_host_as_well() {
        for host in
            ["sts.amazonaws.com", "sts.eu-central-1.amazonaws.com", "sts-fips.us-east-1.amazonaws.com"]
        {
            assert!(names_action_in_body("other", host), "{host}");
        }
        assert!(names_action_in_body("sts", "localhost") && !names_action_in_body("s3", "s3.amazonaws.com"));
    }
}

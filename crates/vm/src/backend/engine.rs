//! The Docker engine in a machine: that of the image, or of this machine's `/usr`.

use agent_sandbox::PROXY_PORT;
use agent_wire::launch_spec::ENGINE_SOCKET;
use std::ffi::OsString;

/// Where engines and what they call are found, in the order of Debian's root.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The machine on the engine's bridge, as other engines have it by default.
const BRIDGE: &str = "172.17.0.1";

/// The command that starts it, and its environment. It pulls images through the sandbox's proxy, as every program inside does.
pub fn command() -> (Vec<OsString>, Vec<(OsString, OsString)>) {
    let listens = format!("unix://{ENGINE_SOCKET}");
    let bridge = format!("{BRIDGE}/16");
    let command =
        ["dockerd", "--host", &listens, "--bip", &bridge, "--exec-opt", "native.cgroupdriver=cgroupfs"];
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let variables = [
        ("PATH", PATH),
        ("HOME", "/root"),
        ("HTTP_PROXY", &proxy),
        ("HTTPS_PROXY", &proxy),
        ("NO_PROXY", "localhost,127.0.0.1,::1"),
    ];
    (command.map(OsString::from).into(), variables.map(|(name, value)| (name.into(), value.into())).into())
}

/// The settings of the client `docker`: containers and builds reach the proxy at the address that the engine's bridge has.
pub fn client_settings() -> Vec<u8> {
    let proxy = format!("http://{BRIDGE}:{PROXY_PORT}");
    let none = "localhost,127.0.0.1,::1";
    format!(r#"{{"proxies": {{"default": {{"httpProxy": "{proxy}", "httpsProxy": "{proxy}", "noProxy": "{none}"}}}}}}"#)
        .into_bytes()
}

//! The Docker engine in a machine: that of the image, or of this machine's `/usr`.

use agent_sandbox::{DOCKER_BRIDGE, PROXY_PORT};
use agent_wire::launch_spec::ENGINE_SOCKET;
use std::ffi::OsString;

/// The directories in which engines and what they call are found, in the order of Debian's root.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The command that starts it, and its environment. It pulls images through the sandbox's proxy, as every program inside does.
pub fn command() -> (Vec<OsString>, Vec<(OsString, OsString)>) {
    let listens = format!("unix://{ENGINE_SOCKET}");
    let bridge = format!("{DOCKER_BRIDGE}/16");
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

//! Two sessions side by side.

use agent_testbed::backends::on_every_backend;

#[tokio::test]
async fn attack_18_two_sessions_do_not_reach_each_other() {
    on_every_backend(async |inside| {
        let other = inside.neighbour().await;
        let server = "import os, socket, time\n\
             if os.fork() == 0:\n\
            \x20   unix = socket.socket(socket.AF_UNIX); unix.bind(chr(0) + \"neighbour\"); unix.listen()\n\
            \x20   tcp = socket.create_server((\"0.0.0.0\", 4711)); open(\"/tmp/listens\", \"w\"); time.sleep(60)";
        inside.output_of(&format!("/usr/bin/python3 -c '{server}' > /dev/null 2>&1")).await;
        inside.output_of("touch /tmp/mine /dev/shm/mine /run/mine /workspace/mine ~/mine; (exec -a n31ghbour sleep 60 &) > /dev/null 2>&1").await;
        for place in ["/tmp", "/dev/shm", "/run", "/workspace", "~"] {
            other.expect_failure(&format!("ls {place}/mine")).await;
        }
        let connect = |address: &str| {
            format!("/usr/bin/python3 -c 'import socket; s = socket.socket({address}'")
        };
        let unix = connect("socket.AF_UNIX); s.connect(chr(0) + \"neighbour\")");
        let tcp = connect("); s.settimeout(2); s.connect((\"127.0.0.1\", 4711))");
        inside.output_of(&format!("until [ -e /tmp/listens ]; do sleep 0.05; done; {unix} && {tcp}")).await;
        other.expect_failure(&unix).await;
        other.expect_failure(&tcp).await;
        // Processes, and signals by any number.
        assert_eq!(other.output_of("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'n31ghbou[r]' || true").await, "0");
        other.sh("for n in $(seq 2 400); do kill -9 $n 2>/dev/null; done").await;
        assert_eq!(inside.output_of("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'n31ghbou[r]'").await, "1");
        // System V's shared memory and message queues have names of their own.
        inside.output_of("ipcmk -M 4096 > /dev/null && ipcmk -Q > /dev/null").await;
        assert_eq!(other.output_of("ipcs -m -q | grep -c 0x || true").await, "0");
        other.destroy().await;
    })
    .await;
}

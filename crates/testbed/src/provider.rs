//! What made-up providers share.

use axum::Router;
use std::sync::Arc;

/// Starts a provider in threads of its own, because sandboxes outlive a test's runtime. `make` gets its address, `http://127.0.0.1:PORT`.
pub(crate) fn start<P: Send + Sync + 'static>(
    make: impl FnOnce(String) -> P + Send + 'static,
    router: impl FnOnce(Arc<P>) -> Router + Send + 'static,
) -> Arc<P> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(async move {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let provider = Arc::new(make(format!("http://{}", listener.local_addr().expect("an address"))));
            sender.send(Arc::clone(&provider)).expect("somebody waits");
            axum::serve(listener, router(provider)).await.expect("it serves");
        });
    });
    receiver.recv().expect("it starts")
}

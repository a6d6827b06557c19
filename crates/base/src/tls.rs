//! The one implementation of TLS that this process has.

use std::sync::Once;

/// Makes ring the provider of rustls, once. Called before the first client is made.
pub fn install_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that the embedding program installed one already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

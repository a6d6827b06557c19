//! Observers of every session of a machine, beside its frontend.

use agent_event::Listener;

/// Makes a listener for each session that is opened; kept with the machine.
pub struct Observer(Box<dyn Fn() -> Box<dyn Listener> + Send + Sync>);

impl Observer {
    pub fn new(listener: impl Fn() -> Box<dyn Listener> + Send + Sync + 'static) -> Self {
        Self(Box::new(listener))
    }

    pub(super) fn listener(&self) -> Box<dyn Listener> {
        (self.0)()
    }
}

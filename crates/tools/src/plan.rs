//! The plan of a session: its steps, and whether the user has accepted it.

use agent_base::error::Result;
use agent_base::lock::Lock;
use agent_event::{Event, Events, PlanStep};
use agent_sandbox::Sandbox;

/// The plan that the model writes down. While it awaits the user's consent, the workspace is read-only.
#[derive(Debug, Default)]
pub struct Plan(Lock<State>);

#[derive(Debug, Clone, Default)]
struct State {
    steps: Vec<PlanStep>,
    read_only: bool,
    /// The number of times that the model has written it down.
    updates: u64,
}

impl Plan {
    /// The plan of an earlier process.
    pub fn resumed(steps: Vec<PlanStep>, read_only: bool) -> Self {
        Self(Lock::new(State { steps, read_only, updates: 0 }))
    }

    /// Its steps.
    pub fn steps(&self) -> Vec<PlanStep> {
        self.0.lock().steps.clone()
    }

    /// Returns whether the workspace is read-only until the user accepts it.
    pub fn is_read_only(&self) -> bool {
        self.0.lock().read_only
    }

    /// `sandbox`, for commands that may not change the workspace while the plan waits.
    pub fn sandbox(&self, sandbox: Sandbox) -> Sandbox {
        if self.is_read_only() { sandbox.read_only() } else { sandbox }
    }

    /// Returns the number of times that the model has written it down in this process.
    pub fn updates(&self) -> u64 {
        self.0.lock().updates
    }

    /// Takes the steps that the model wrote.
    pub(super) fn update(&self, steps: Vec<PlanStep>, events: &Events) -> Result<()> {
        let mut state = self.0.lock();
        events.emit(Event::Plan { steps: steps.clone(), read_only: state.read_only })?;
        state.steps = steps;
        state.updates += 1;
        Ok(())
    }

    /// Begins to plan anew, or ends it.
    pub fn set_read_only(&self, read_only: bool, events: &Events) -> Result<()> {
        let mut state = self.0.lock();
        let steps = if read_only { Vec::new() } else { state.steps.clone() };
        events.emit(Event::Plan { steps: steps.clone(), read_only })?;
        (state.steps, state.read_only) = (steps, read_only);
        Ok(())
    }
}

//! The work of a session that another one's model delegates to.

use super::approver::OfPart;
use super::{Delegate, Origin, Parent, Workspace};
use crate::{Builder, Frontend, Governance, ModelSettings, Retention, SandboxSettings, Start};
use agent_base::error::{Error, Result};
use agent_core::{Governed, RunLimits, Spent};
use agent_event::Events;
use agent_policy::Approver;
use std::convert::Infallible;
use std::sync::Arc;

/// The result of the work on a delegated task.
pub(super) struct Worked {
    pub answer: Result<String>,
    pub spent: Spent,
    /// The cost of its tokens, where that is known.
    pub cost: Option<f64>,
    /// Absent where it used no tool.
    pub workspace: Option<Arc<Workspace>>,
}

impl Delegate {
    /// Works on `prompt` in a session of its own, which is number `number` of this one's. Ends soon after this one's turn is
    /// stopped.
    pub(super) async fn work(&self, origin: Origin, number: u64, prompt: &str) -> Worked {
        let spent = Spent::default();
        let mut worked = Worked { answer: Ok(String::new()), spent, cost: None, workspace: None };
        let answer = self.try_work(origin, number, prompt, &mut worked).await;
        Worked { answer, ..worked }
    }

    async fn try_work(
        &self,
        origin: Origin,
        number: u64,
        prompt: &str,
        worked: &mut Worked,
    ) -> Result<String> {
        let events = Arc::new(Events::new(1));
        for listener in self.frontend.listeners_of_delegate(number) {
            events.listen(listener);
        }
        let user = self.frontend.approver();
        let approver = user.map(|user| Arc::new(OfPart { number, user }) as Arc<dyn Approver>);
        let (parent, gate) = (Arc::clone(&self.frontend), Arc::new(self.gate.asking(approver.clone())));
        let frontend = Arc::new(Delegated { events: Arc::clone(&events), parent, approver });
        let parent = Parent { gate, ..origin.parent };
        let builder = self.builder(Origin { parent, ..origin })?;
        let has_price = builder.model.price.is_some();
        let mut session = builder.open(frontend).await?;
        let interrupt = session.conversation.interrupt();
        let stop = async {
            interrupt.trigger(self.shared.interrupt.triggered().await);
            std::future::pending::<Infallible>().await
        };
        let result = tokio::select! {
            answer = session.prompt(prompt) => answer.map(|answer| answer.text),
            never = stop => match never {},
        };
        worked.spent = session.conversation.total();
        worked.cost = has_price.then_some(worked.spent.cost);
        worked.workspace = session.startup().if_ready().map(|ready| Arc::clone(&ready.workspace));
        let finished = session.finish(&result).await;
        let flushed = events.flush().await;
        let answer = result?;
        finished.and(flushed).map(|()| answer)
    }

    fn builder(&self, origin: Origin) -> Result<Builder> {
        let governance = &self.governance;
        // Tokens and cost are those of the prompt that delegates, and its time limit stops this session too.
        let limits = RunLimits { turns: governance.limits.turns, ..RunLimits::default() };
        Ok(Builder {
            tools: self.tools.clone(),
            governance: Governance { limits, ..governance.clone() },
            workspace: self.workspace.clone(),
            sandbox: SandboxSettings { retention: Retention::Remove, ..self.sandbox.clone() },
            store: self.store.clone(),
            start: Start::Delegated(Box::new(origin)),
            ..Builder::new(Arc::clone(&self.workspace.machine), &self.workspace.root, self.model()?)?
        })
    }

    /// The model of the session, whose answers are paid together with its own.
    fn model(&self) -> Result<ModelSettings> {
        let model = self.model.lock().clone();
        let client = model.client.for_another_conversation().ok_or_else(|| {
            Error::usage("the answers of this session are recorded, so nothing can be delegated")
        })?;
        let budgets = [&self.shared.prompt, &self.shared.delegated].map(Arc::clone);
        let counted = Governed::by(&budgets, client, model.price);
        Ok(ModelSettings { client: counted, answer_schema: None, ..model })
    }
}

/// The frontend of such a session: the user is the same.
struct Delegated {
    events: Arc<Events>,
    parent: Arc<dyn Frontend>,
    approver: Option<Arc<dyn Approver>>,
}

impl Frontend for Delegated {
    fn events(&self) -> &Arc<Events> {
        &self.events
    }

    fn approver(&self) -> Option<Arc<dyn Approver>> {
        self.approver.clone()
    }

    fn asks_about_network(&self) -> bool {
        self.parent.asks_about_network()
    }

    fn network_command(&self) -> &'static str {
        self.parent.network_command()
    }
}

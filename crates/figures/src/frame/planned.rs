//! Figures of one form, which their plans fill in.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::context::Context;
use super::error::FigureError;
use super::figure::Figure;
use super::findings::Findings;

/// What plans of one form hold, and what is done with them.
pub(crate) trait Form: DeserializeOwned {
    /// Runs one seed of the figure of that name.
    fn run(&self, figure: &'static str, context: &Context<'_>) -> Result<Findings, FigureError>;
}

/// One of the figures of a form.
pub(crate) struct Planned<F> {
    name: &'static str,
    plan: &'static str,
    form: PhantomData<fn() -> F>,
}

/// The figure of that name, whose plan is in the file of that name.
macro_rules! planned {
    ($name:literal) => {
        crate::frame::planned::Planned::new(
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/plans/", $name, ".toml")),
        )
    };
}
pub(crate) use planned;

impl<F> Planned<F> {
    /// Use the macro: it finds the plan.
    pub(crate) const fn new(name: &'static str, plan: &'static str) -> Planned<F> {
        Planned { name, plan, form: PhantomData }
    }
}

impl<F: Form> Figure for Planned<F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn plan(&self) -> &'static str {
        self.plan
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        context.plan::<F>(self)?.run(self.name, context)
    }
}

#[cfg(test)]
impl<F: Form> Planned<F> {
    /// What its plan holds at one of its sizes.
    pub(crate) fn form(&self, quick: bool) -> F {
        crate::Plan::of(self).unwrap().settings(self, quick).unwrap()
    }
}

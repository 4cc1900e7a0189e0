//! Where flows come from.

use std::iter::Peekable;

use thalweg_workload::FlowSpec;

/// Flows in order of time, made as they are needed.
pub(crate) type Source = Peekable<Box<dyn Iterator<Item = FlowSpec> + Send>>;

/// A source of these, which are in order of time.
pub(crate) fn source(flows: impl Iterator<Item = FlowSpec> + Send + 'static) -> Source {
    let flows: Box<dyn Iterator<Item = FlowSpec> + Send> = Box::new(flows);
    flows.peekable()
}

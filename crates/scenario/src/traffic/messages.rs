//! Flows that are messages of types.

use thalweg_core::{Bytes, Rng};
use thalweg_prioritize::NewFlow;
use thalweg_prioritize::generate::types::{MessageTypes, TypeSettings, TypesError};
use thalweg_workload::{FlowSpec, SizeDistribution};

use crate::error::Mistake;
use crate::file::MessagesTable;

/// The types of the messages of some traffic, and the sizes that strangers have.
#[derive(Clone, Debug)]
pub(crate) struct Messages {
    pub(crate) types: MessageTypes,
    settings: TypeSettings,
    curve: SizeDistribution,
}

impl Messages {
    pub(crate) fn new(
        table: &MessagesTable,
        curve: &SizeDistribution,
    ) -> Result<Messages, Mistake> {
        let default = TypeSettings::default();
        let settings = TypeSettings {
            types: table.types.unwrap_or(default.types),
            popularity: table.popularity.unwrap_or(default.popularity),
            jitter: table.jitter.unwrap_or(default.jitter),
            strangers: table.strangers.unwrap_or(default.strangers),
        };
        Messages::of_curve(settings, curve).map_err(|error| {
            let key = match error {
                TypesError::Types(_) => "types",
                TypesError::Popularity(_) => "popularity",
                TypesError::Share { name, .. } => name,
            };
            Mistake::at(key, error)
        })
    }

    fn of_curve(settings: TypeSettings, curve: &SizeDistribution) -> Result<Messages, TypesError> {
        let types = MessageTypes::new(settings, |share| curve.quantile(share))?;
        Ok(Messages { types, settings, curve: curve.clone() })
    }

    /// The same types of messages with the sizes of another curve.
    pub(crate) fn with_sizes(&self, curve: &SizeDistribution) -> Messages {
        Messages::of_curve(self.settings, curve).expect("these settings were checked")
    }

    /// The sizes of the types.
    pub(crate) fn sizes(&self) -> SizeDistribution {
        SizeDistribution::of_shares(&self.types.shares()).expect("types have sizes")
    }

    /// Messages that ended before.
    pub(crate) fn ended(&self, count: u32, rng: &Rng) -> Vec<(NewFlow, Bytes)> {
        self.types.ended(count, rng, |rng| self.curve.sample(rng))
    }

    /// Makes messages of flows that have the sizes of types.
    pub(crate) fn of<F: Iterator<Item = FlowSpec> + Send>(
        self,
        flows: F,
        rng: &Rng,
    ) -> impl Iterator<Item = FlowSpec> + Send + use<F> {
        let mut draws = rng.stream("messages");
        flows.map(move |flow| {
            let kind = self.types.kind_of(flow.bytes);
            let bytes = self.types.size(kind, &mut draws, |rng| self.curve.sample(rng));
            FlowSpec { bytes, kind: Some(kind), ..flow }
        })
    }
}

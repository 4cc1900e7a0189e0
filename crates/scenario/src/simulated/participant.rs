//! The part of a simulated host in one job.

use thalweg_baselines::switchml;
use thalweg_collective::{SubmitError, SumCall};
use thalweg_core::{Check, Operation, Packet, Reports, Time, machine_of_variants};
use thalweg_stack::{JobEvent, JobMachine, Participant};
use thalweg_transport::JobClass;
use thalweg_values::{Coverage, Tensor};
use thalweg_wire::Prefix;

/// The part of a simulated host in one job.
pub(crate) enum SimulatedParticipant {
    /// A machine that sessions run as well.
    Product(Participant),
    /// A worker of SwitchML, whose server is the switch.
    SwitchMl(Box<switchml::Worker>),
}

impl SimulatedParticipant {
    /// The machine that sessions run as well, if it is one.
    pub(crate) fn product(&self) -> Option<&Participant> {
        match self {
            SimulatedParticipant::Product(participant) => Some(participant),
            SimulatedParticipant::SwitchMl(_) => None,
        }
    }
}

impl JobMachine for SimulatedParticipant {
    fn submit(&mut self, now: Time, call: SumCall) -> Result<Operation, SubmitError> {
        match self {
            SimulatedParticipant::Product(participant) => participant.submit(now, call),
            SimulatedParticipant::SwitchMl(worker) => Ok(worker.submit(now, call.tensor)),
        }
    }

    fn set_class(&mut self, now: Time, class: JobClass) {
        if let SimulatedParticipant::Product(participant) = self {
            participant.set_class(now, class);
        }
    }

    fn outgoing(&self) -> usize {
        self.product().map_or(0, JobMachine::outgoing)
    }

    #[inline]
    fn handle_checked(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        match self {
            SimulatedParticipant::Product(participant) => {
                participant.handle_checked(now, prefix, packet);
            }
            SimulatedParticipant::SwitchMl(worker) => worker.handle_checked(now, prefix, packet),
        }
    }
}

machine_of_variants!(SimulatedParticipant { Product, SwitchMl });

impl Reports for SimulatedParticipant {
    type Event = JobEvent;

    #[inline]
    fn poll_event(&mut self) -> Option<JobEvent> {
        match self {
            SimulatedParticipant::Product(participant) => participant.poll_event(),
            SimulatedParticipant::SwitchMl(worker) => poll_switchml(worker),
        }
    }
}

impl Check for SimulatedParticipant {
    fn check(&self) {
        // SwitchML is a published design, to compare with.
        if let Some(participant) = self.product() {
            participant.check();
        }
    }
}

fn poll_switchml(worker: &mut switchml::Worker) -> Option<JobEvent> {
    let switchml::Event::Finished { operation } = worker.poll_event()?;
    let tensor = worker.tensor(operation).cloned().unwrap_or(Tensor::Length(0));
    worker.release(operation);
    let coverage = Coverage::Exact;
    Some(JobEvent::Sum(thalweg_collective::Event::Finished { operation, tensor, coverage }))
}

//! One line a flow, or an iteration of a job.

use std::fmt::Write;

use crate::outcome::Outcome;

/// All flows as CSV. `fct_us` is empty for a flow that did not arrive whole.
pub fn flows(outcome: &Outcome) -> String {
    let mut text = String::from("id,src,dst,bytes,start_us,fct_us,ideal_us,retransmissions\n");
    for (id, (flow, ideal)) in outcome.flows.iter().zip(&outcome.ideals).enumerate() {
        let fct = outcome.completion(flow).map(|span| span.as_us_f64().to_string());
        let retransmissions = flow.end.map_or(0, |end| end.retransmissions);
        let spec = &flow.spec;
        writeln!(
            text,
            "{id},{},{},{},{},{},{},{retransmissions}",
            spec.src,
            spec.dst,
            spec.bytes.as_u64(),
            spec.start.as_us_f64(),
            fct.unwrap_or_default(),
            ideal.as_us_f64(),
        )
        .expect("writing to a string cannot fail");
    }
    text
}

/// All iterations of all jobs as CSV.
pub fn jobs(outcome: &Outcome) -> String {
    let mut text = String::from("job,kind,model,collective,workers,iteration,iteration_us\n");
    for (number, job) in outcome.jobs.iter().enumerate() {
        for (iteration, span) in job.iterations.iter().enumerate() {
            writeln!(
                text,
                "{number},{},{},{},{},{iteration},{}",
                job.kind.name(),
                job.model,
                job.collective.name(),
                job.workers,
                span.as_us_f64(),
            )
            .expect("writing to a string cannot fail");
        }
    }
    text
}

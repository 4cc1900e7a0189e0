//! Collectives in memory and in the fabric, against sums that are computed here.

mod agreement;
mod bounds;
mod delivered;
mod exact;
mod failures;
mod group;
mod hostile;
mod layers;
mod lossy;
mod mesh;
mod oracle;
mod shuttle;
mod stage;
mod swarm;

//! In-network aggregation: gradients summed in switches, completed by a server.

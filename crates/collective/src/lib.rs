//! All-reduce without help from the network: parameter servers and rings, over reliable flows.

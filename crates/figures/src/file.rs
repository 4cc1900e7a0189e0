//! Parts of scenario files, which figures write from their plans.

use toml::{Table, Value};

/// Entries of a table.
pub(crate) fn entries<const N: usize>(entries: [(&str, Value); N]) -> Table {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A table in another.
pub(crate) fn table<const N: usize>(of: [(&str, Value); N]) -> Value {
    Value::Table(entries(of))
}

/// A cable, both ways.
pub(crate) fn cable(rate: &str, delay: &str) -> Value {
    table([("rate", rate.into()), ("delay", delay.into())])
}

/// The topology of so many hosts around one switch.
pub(crate) fn one_switch(hosts: u32, host_cable: Value) -> Value {
    table([("one-switch", table([("hosts", hosts.into()), ("host-cable", host_cable)]))])
}

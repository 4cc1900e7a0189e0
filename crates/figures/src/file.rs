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

/// A table with one entry.
pub(crate) fn one(key: &str, value: impl Into<Value>) -> Value {
    table([(key, value.into())])
}

/// A table with other entries added to it, or in place of its own.
pub(crate) fn changed(table: &Table, by: impl IntoIterator<Item = (String, Value)>) -> Table {
    let mut changed = table.clone();
    changed.extend(by);
    changed
}

/// A cable, both ways.
pub(crate) fn cable(rate: &str, delay: &str) -> Value {
    table([("rate", rate.into()), ("delay", delay.into())])
}

/// The topology of this number of hosts around one switch.
pub(crate) fn one_switch(hosts: u32, host_cable: Value) -> Value {
    one("one-switch", table([("hosts", hosts.into()), ("host-cable", host_cable)]))
}

/// Puts the entries of one table into another, and into the tables in it. What is `false` takes out an entry that is
/// no switch itself.
pub(crate) fn merge(into: &mut Table, from: &Table) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (Some(Value::Table(own)), Value::Table(value)) => merge(own, value),
            (Some(own), Value::Boolean(false)) if !own.is_bool() => _ = into.remove(key),
            _ => _ = into.insert(key.clone(), value.clone()),
        }
    }
}

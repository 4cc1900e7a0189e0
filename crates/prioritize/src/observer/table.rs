//! A table of bounded size.

use std::collections::BTreeMap;

/// Entries by key. A new one makes the least recently used one go where there is no room.
#[derive(Debug)]
pub(super) struct Table<K, V> {
    entries: BTreeMap<K, (u64, V)>,
    /// Keys by the number of their last use.
    uses: BTreeMap<u64, K>,
    uses_until_now: u64,
    capacity: usize,
}

impl<K: Ord + Copy, V> Table<K, V> {
    /// An empty table, for at least one entry.
    pub(super) fn new(capacity: usize) -> Table<K, V> {
        let (entries, uses) = (BTreeMap::new(), BTreeMap::new());
        Table { entries, uses, uses_until_now: 0, capacity: capacity.max(1) }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// Finds an entry, which does not count as a use.
    pub(super) fn find(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(_, value)| value)
    }

    /// Notes a use.
    pub(super) fn touch(&mut self, key: &K) {
        let Some((used, _)) = self.entries.get_mut(key) else { return };
        self.uses.remove(used);
        self.uses_until_now += 1;
        *used = self.uses_until_now;
        self.uses.insert(*used, *key);
    }

    /// Adds an entry with a new key, and returns the key of the one that went for it.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<K> {
        let is_full = self.entries.len() == self.capacity && !self.entries.contains_key(&key);
        let evicted = if is_full { self.uses.first_key_value().map(|(_, key)| *key) } else { None };
        if let Some(evicted) = &evicted {
            self.remove(evicted);
        }
        self.remove(&key);
        self.uses_until_now += 1;
        self.uses.insert(self.uses_until_now, key);
        self.entries.insert(key, (self.uses_until_now, value));
        evicted
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some((used, _)) = self.entries.remove(key) {
            self.uses.remove(&used);
        }
    }

    /// Keys of the entries that meet a condition, ascending.
    pub(super) fn keys_where(&self, is_meant: impl Fn(&V) -> bool) -> Vec<K> {
        let meant = self.entries.iter().filter(|(_, (_, value))| is_meant(value));
        meant.map(|(key, _)| *key).collect()
    }

    /// Checks that both orders hold the same keys.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert!(self.entries.len() <= self.capacity);
        assert_eq!(self.entries.len(), self.uses.len());
        assert!(self.uses.iter().all(|(used, key)| self.entries[key].0 == *used));
    }
}

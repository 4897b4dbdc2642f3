//! A hash map for lookups that every request makes.

/// A map with a hash function that takes a few nanoseconds, regardless of the key's length. The
/// standard hash function takes about sixty nanoseconds for a file handle.
///
/// Use this map only for keys that peers cannot choose, such as file handles with a MAC, state ids
/// and indexes. Peers may look up any key, but all inserted keys were created by this process, so
/// that no peer can fill one bucket on purpose.
pub type QuickMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

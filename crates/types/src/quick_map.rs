//! A hash map for lookups that every request makes.

/// A map with a hash that takes a few nanoseconds regardless of the key's length; the standard one
/// takes about sixty for a file handle.
///
/// Use it only for keys that peers cannot choose, such as MACed file handles, state ids and
/// indexes. Peers may look up anything, but only keys made by this process are inserted, so that no
/// peer can fill a bucket on purpose.
pub type QuickMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

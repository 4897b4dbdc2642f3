//! A hash map for what is looked up with every request.

/// A map whose hash costs a few nanoseconds however long the key is: the standard one hashes a
/// file handle in some sixty.
///
/// For keys that peers cannot choose, such as sealed file handles, state ids and indexes: a
/// peer may ask for what it likes, but only what this process made gets in, so that nobody can
/// fill a bucket on purpose.
pub type QuickMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

//! Exports to NFS clients: the file of exports(5), and the rules that it is compiled into.
//!
//! - `parse`: the lines of a file.
//! - `options`: the options of a client.
//! - `clients`: the names of clients.
//! - `flavors`: how the calls of clients are authenticated.
//! - `compile`: from lines to rules. Looks up hosts and netgroups.
//! - `describe`: the rules as text.
//! - `rules`: the rules that the server applies.

pub(crate) mod clients;
pub(crate) mod compile;
pub(crate) mod describe;
pub(crate) mod flavors;
pub(crate) mod options;
pub(crate) mod parse;
pub(crate) mod rules;

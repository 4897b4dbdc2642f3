//! What POSIX asks of a file system, as a table of cases; and random testers.
//!
//! Programs that know nothing of DAFS and work on any directory:
//!
//! - `posix-suite DIR`: the cases of `src/tables`, in the manner of pjdfstest ([`suite`]).
//! - `posix-fsx FILE`: random calls on one file, against a model in memory ([`fsx`]).
//! - `posix-stress DIR`: random calls on trees, by many processes: each on a tree of its own,
//!   against a model ([`stress`]), and all on one ([`shared`]); [`many`] starts them.
//!
//! Invariant: every call that is judged goes through [`raw`], and so through the C library.

mod bytes;
pub mod fsx;
pub mod many;
pub mod names;
pub mod perform;
mod perform_files;
mod perform_more;
mod perform_names;
pub mod random;
pub mod raw;
pub mod script;
pub mod shared;
pub mod stress;
pub mod suite;
pub mod tables;
pub mod tree;
pub mod worker;

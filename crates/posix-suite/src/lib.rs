//! Checks a file system against POSIX, with a table of cases and with random tests.
//!
//! The programs know nothing of DAFS and work in any directory:
//!
//! - `posix-suite DIR`: the cases of `src/tables`, in the style of pjdfstest ([`suite`]).
//! - `posix-fsx FILE`: random calls on one file, compared with a model in memory ([`fsx`]).
//! - `posix-stress DIR`: random calls on trees, by many processes: each on a tree of its own,
//!   compared with a model ([`stress`]), and all on one tree ([`shared`]). [`many`] starts them.
//!
//! Invariant: every call under test goes through [`raw`], and so through the C library.

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

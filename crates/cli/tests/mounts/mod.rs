//! Tests the mount with programs that know nothing of it, and with failures: a real server and a
//! real mount. Skipped where FUSE or a program is missing; `DAFS_REQUIRE_FACES=1` makes that a
//! failure.

mod failures;
pub(crate) mod host;
mod options;
mod programs;
mod xattrs;

//! Tests of the `dafs` command as users run it, against real servers.
//!
//! All tests are in one binary, because linking many takes longer than running them.

mod applications;
mod blocks;
mod cli;
mod copy;
mod exec;
mod exec_trouble;
mod external;
mod fence;
mod lock;
mod logins;
mod mount;
mod mounts;
mod nfs_exports;
mod odd_names;
mod operands;
mod packages;
mod page;
mod place;
mod preloaded;
mod program;
mod reactors;
mod recover;
mod reflink;
mod reload;
mod scale;
mod space;
mod status;
mod tls;
mod trust;
mod watch;
mod watched;

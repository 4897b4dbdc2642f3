//! External memory over local files and over a real server.
//!
//! One binary for all of them: linking many takes longer than running them.

mod memory;
mod server;

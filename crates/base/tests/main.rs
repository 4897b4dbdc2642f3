//! The integration tests of the crate, in one program.

mod slab;

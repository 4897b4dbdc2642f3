//! Everything at once.

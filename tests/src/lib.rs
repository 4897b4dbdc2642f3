//! Tests of the whole; everything is in `tests/`.

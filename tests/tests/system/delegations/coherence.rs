//! The client's cache against a model.

//! Authenticates the client: by the user that the kernel reports, a password or Kerberos (draft
//! 3.1.1.1, 6.2.2).
//!
//! Invariant: in a Kerberos session a server is trusted only after it has proved its identity. A
//! password is sent only to the server for which it was given.
//!
//! All work with tickets blocks, because the client has no other thread; see [`crate::Login`].

pub(crate) mod establish;
pub(crate) mod identity;
pub(crate) mod tokens;

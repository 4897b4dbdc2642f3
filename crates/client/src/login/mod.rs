//! Proving who the client is: by the kernel's word, a password or Kerberos (draft 3.1.1.1,
//! 6.2.2).
//!
//! Invariant: nobody is believed to be the server of a Kerberos session who has not proved
//! it, and a password goes out only where somebody has given one for this server.
//!
//! Whatever has to do with tickets blocks, for this thread has none beside it; see
//! [`crate::Login`].

pub(crate) mod establish;
pub(crate) mod identity;
pub(crate) mod tokens;

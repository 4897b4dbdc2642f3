//! Kerberos V authentication through the system's GSS-API library (RFC 2743, 2744, 4121). The
//! library is loaded at its first use. A host without it lacks only this authentication type.
//!
//! Invariant: a token from a peer reaches the C library only if it is framed as a token of Kerberos
//! V of at most [`TOKEN_BYTES_MAX`] bytes. A peer is reported as authenticated only if both sides
//! are authenticated (mutual authentication) and the client has a name.
//!
//! A server acquires one [`Service`] from its keytab and creates an [`Acceptor`] for each
//! connection. A client acquires a [`Credential`] and creates an [`Initiator`] for each connection.
//! Both process tokens ([`Step`]) until they yield a [`Context`].
//!
//! **Calls block.** Acquiring credentials and the steps of an initiator communicate with a key
//! distribution center and with name servers, and take many seconds if these do not reply. The
//! steps of an acceptor read the keytab, and lock and write the replay cache. A server runs them on
//! threads that may block, never on its reactor: everything here is [`Send`]. Steps on the same
//! [`Service`] wait for each other, because the library locks a credential while it uses it.
//!
//! The library reads `KRB5_CONFIG` and similar variables from the environment. A program that
//! changes its environment must do so before the first call. Everything specific to a connection is
//! passed by argument ([`ServiceOptions`], [`CredentialSource`]).
//!
//! Only the modules `raw` (loading the library) and `calls` (calling it) use `unsafe`. The reasons
//! for the design are in `docs/decisions/0012-kerberos.md`.
#![deny(unsafe_code)]

mod acceptor;
mod calls;
mod context;
mod error;
mod frame;
mod initiator;
mod library;
mod name;
mod raw;

pub use acceptor::{Acceptor, Service, ServiceOptions};
pub use context::{Context, Protection, Step};
pub use error::{GssError, Reason};
pub use initiator::{Credential, CredentialSource, Initiator};
pub use library::{GssUnavailable, Library};
pub use name::{NameError, Principal, ServiceName};

/// The greatest length of a context token, in bytes. The largest tokens in practice contain group
/// memberships and stay below 64 KiB. The protocol that carries the token may have a lower limit.
pub const TOKEN_BYTES_MAX: usize = 64 << 10;

/// The maximum length in bytes of a message to protect in one call. The protected form may be
/// longer. A message of NFS with 1 MiB of data fits.
pub const MESSAGE_BYTES_MAX: usize = (1 << 20) + (64 << 10);

/// The greatest length of the name of a service or principal, in bytes.
pub const NAME_BYTES_MAX: usize = 1024;

/// The object identifier of Kerberos V (1.2.840.113554.1.2.2) in DER, without tag and length, as
/// offered by SECINFO.
pub const KERBEROS_OID: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];

//! Kerberos V authentication through the system's GSS-API library (RFC 2743, 2744, 4121),
//! which is loaded when it is first wanted: a host without it loses this authentication
//! type and nothing else.
//!
//! Invariant: a token from a peer reaches the C library only if it is framed as a token of
//! Kerberos V within [`TOKEN_BYTES_MAX`] bytes, and nobody is reported as authenticated
//! unless both sides are (mutual authentication) and the client has a name.
//!
//! A server acquires one [`Service`] from its keytab and makes an [`Acceptor`] for each
//! connection; a client acquires a [`Credential`] and makes an [`Initiator`] for each. Both
//! are driven by tokens ([`Step`]) until they are a [`Context`].
//!
//! **Calls block.** Acquiring credentials and an initiator's steps talk to a key
//! distribution centre and to name servers, for many seconds if these are silent; an
//! acceptor's steps read the keytab and lock and write the replay cache. A server runs them
//! on the threads that may block, never on its reactor: everything here is [`Send`]. Steps on
//! one [`Service`] take turns, for the library locks a credential while it uses it.
//!
//! The library reads `KRB5_CONFIG` and its like from the environment: whoever changes the
//! environment of the process must have done so before the first call. What it wants to
//! know of a connection is given by argument ([`ServiceOptions`], [`CredentialSource`]).
//!
//! `unsafe` lives in `raw` (what is loaded) and `calls` (what is called) alone.
//! `docs/decisions/0012-kerberos.md` says why things are as they are.
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

/// Longest context token that is looked at, in bytes. The largest in the wild carry group
/// memberships and stay below 64 KiB; how much a message can carry is for others to say.
pub const TOKEN_BYTES_MAX: usize = 64 << 10;

/// Longest message that is protected at once, in bytes, and longest token that is opened,
/// less what protection adds.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Longest name of a service or principal, in bytes.
pub const NAME_BYTES_MAX: usize = 1024;

/// The object identifier of Kerberos V (1.2.840.113554.1.2.2) in DER, without tag and
/// length: what SECINFO offers.
pub const KERBEROS_OID: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];

//! rpcbind (RFC 1833): the registry of a host's RPC programs and their addresses.
//!
//! In version 2, addresses are ports; in versions 3 and 4, they are addresses of any transport.
//! Procedures with which a client asks rpcbind to call another server are left out.

mod address;
pub mod v2;
pub mod v3;
pub mod v4;

pub use address::{UNIVERSAL_BYTES_MAX, parse_universal, universal_address};

use crate::xdr::{Opaque, xdr};

/// The TCP and UDP port of rpcbind.
pub const PORT: u16 = 111;
/// The maximum length of a network identifier, an address or the name of an owner, in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;
/// The maximum number of registrations in a list.
pub const REGISTRATIONS_MAX: usize = 4096;

/// A network identifier such as "tcp6", a universal address, or the name of an owner.
pub type Text<'b> = Opaque<'b, TEXT_BYTES_MAX>;

xdr! {
    /// A registration in versions 3 and 4.
    #[derive(Copy)]
    struct Registration<'b> {
        /// The number of the program.
        program: u32,
        /// The version of the program.
        version: u32,
        /// The network identifier of the transport.
        netid: Text<'b>,
        /// The universal address of the server.
        address: Text<'b>,
        /// The name of the user that made the registration.
        owner: Text<'b>,
    }
}

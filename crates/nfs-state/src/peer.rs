//! The sender of a request, and the protection of a client's state from other senders.

use crate::Nfs4Error;
use crate::operation::{OperationNumber, OperationNumber as Op, OperationSet};

/// The identity that a request states or proves by its RPC credential. Two principals are equal if
/// they are of the same kind and their contents are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Principal {
    /// The sender of a request with AUTH_NONE.
    Nobody,
    /// A user that the client's host names by AUTH_SYS, without proof.
    System(u32),
    /// A user that the client's host names by AUTH_SYS, on a connection that is authenticated by
    /// the host's certificate.
    Certified {
        /// The host that the certificate names.
        host: Box<[u8]>,
        /// The numeric user id that the host states.
        user: u32,
    },
    /// A user that has authenticated by RPCSEC_GSS, identified by the exported name.
    Gss(Box<[u8]>),
}

impl Principal {
    /// Returns true if the principal, or the host that names it, has proved its identity.
    #[must_use]
    pub const fn is_proved(&self) -> bool {
        matches!(self, Self::Certified { .. } | Self::Gss(_))
    }
}

/// The protection of one request by RPCSEC_GSS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Service {
    /// The content of the request has no checksum and is not encrypted.
    #[default]
    Plain,
    /// The request has a checksum, so that the server detects a change in transit.
    Integrity,
    /// The request is encrypted and has a checksum.
    Privacy,
}

/// The number of a connection. The server never uses it for another connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A host, such as its address. The limits per host are counted for this value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u128);

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The identity that the request states or proves by its credential.
    pub principal: &'a Principal,
    /// The protection of the request.
    pub service: Service,
    /// The connection that the request arrived on.
    pub connection: ConnectionId,
    /// The host at the other end of the connection.
    pub peer: PeerId,
}

impl Caller<'_> {
    /// Returns true if the server would detect a change of the request in transit.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        matches!(self.principal, Principal::Gss(_)) && self.service != Service::Plain
    }
}

/// The protection of state that a client asks for (RFC 8881 section 18.35.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectionAsk {
    /// SP4_NONE: every principal may execute every operation.
    None,
    /// SP4_MACH_CRED: some operations need the machine credential (the credential that the client's
    /// host used for EXCHANGE_ID).
    MachineCredential {
        /// The operations that need the machine credential.
        enforce: OperationSet,
        /// The operations that the machine credential may execute on state of other principals.
        allow: OperationSet,
    },
    /// SP4_SSV: a shared secret, which this server does not support.
    SharedSecret,
}

/// The protection of a client's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// SP4_NONE: every principal may execute every operation.
    #[default]
    None,
    /// SP4_MACH_CRED: some operations need the machine credential (the credential that the client's
    /// host used for EXCHANGE_ID).
    MachineCredential {
        /// The operations that need the machine credential.
        enforce: OperationSet,
        /// The operations that the machine credential may execute on state of other principals.
        allow: OperationSet,
    },
}

impl Protection {
    /// Decides on the protection for a client. The server always enforces the machine credential
    /// for the operations on clients, sessions and connections. Returns the protection with the
    /// sets that the server has chosen.
    ///
    /// # Errors
    /// INVAL if the request asks for SP4_MACH_CRED and is not protected itself; ENCR_ALG_UNSUPP for
    /// SP4_SSV.
    pub fn negotiate(ask: ProtectionAsk, caller: &Caller<'_>) -> Result<Self, Nfs4Error> {
        match ask {
            ProtectionAsk::None => Ok(Self::None),
            ProtectionAsk::SharedSecret => Err(Nfs4Error::EncrAlgUnsupp),
            ProtectionAsk::MachineCredential { .. } if !caller.is_protected() => {
                Err(Nfs4Error::Inval)
            }
            ProtectionAsk::MachineCredential { enforce, allow } => Ok(Self::MachineCredential {
                enforce: ENFORCED.union(enforce.intersection(ENFORCEABLE)),
                allow: allow.intersection(ALLOWABLE),
            }),
        }
    }

    /// Checks whether the sender may execute an operation on a client that belongs to `principal`.
    ///
    /// # Errors
    /// WRONG_CRED if the operation needs the machine credential, and the sender does not have it.
    pub fn check(
        &self,
        operation: OperationNumber,
        machine: &Principal,
        caller: &Caller<'_>,
    ) -> Result<(), Nfs4Error> {
        match self {
            Self::MachineCredential { enforce, .. }
                if enforce.contains(operation)
                    && !(caller.is_protected() && caller.principal == machine) =>
            {
                Err(Nfs4Error::WrongCred)
            }
            Self::None | Self::MachineCredential { .. } => Ok(()),
        }
    }

    /// Returns true if the sender has the machine credential and may therefore execute an operation
    /// on state that belongs to another principal.
    #[must_use]
    pub fn allows(
        &self,
        operation: OperationNumber,
        machine: &Principal,
        caller: &Caller<'_>,
    ) -> bool {
        match self {
            Self::None => false,
            Self::MachineCredential { allow, .. } => {
                allow.contains(operation) && caller.is_protected() && caller.principal == machine
            }
        }
    }

    /// Returns true if connections must be bound to a session explicitly, by BIND_CONN_TO_SESSION.
    #[must_use]
    pub const fn binds_connections(&self) -> bool {
        matches!(self, Self::MachineCredential { .. })
    }
}

/// The operations that always need the machine credential under SP4_MACH_CRED.
const ENFORCED: OperationSet = OperationSet::of(&[
    Op::BIND_CONN_TO_SESSION,
    Op::EXCHANGE_ID,
    Op::CREATE_SESSION,
    Op::DESTROY_SESSION,
    Op::DESTROY_CLIENTID,
]);
/// The operations for which a client may demand the machine credential.
const ENFORCEABLE: OperationSet = OperationSet::of(&[Op::BACKCHANNEL_CTL]);
/// The operations for which a client may demand that the machine credential suffices.
const ALLOWABLE: OperationSet = OperationSet::of(&[
    Op::CLOSE,
    Op::OPEN_DOWNGRADE,
    Op::LOCKU,
    Op::DELEGRETURN,
    Op::TEST_STATEID,
    Op::FREE_STATEID,
]);

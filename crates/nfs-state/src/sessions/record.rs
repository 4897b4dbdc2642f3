//! The data of a session that a journal stores, so that the session survives a restart of the
//! server.
//!
//! Invariant: every record that this code encodes can be decoded. Other bytes are refused, and
//! decoding them never allocates more memory than their length.

use dafs_types::{ClientId, Verifier};

use super::attributes::ChannelAttributes;
use super::session::{CallbackParameters, CallbackSecurity, create_flags};
use crate::keys::SessionId4;
use crate::limits::CLIENT_OWNER_BYTES_MAX;
use crate::operation::OperationSet;
use crate::peer::{PeerId, Principal, Protection};

/// A session and its client, as a journal stores them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// The client id of the client.
    pub client: ClientId,
    /// The name by which the client calls itself.
    pub owner: Box<[u8]>,
    /// The verifier of this incarnation of the client.
    pub verifier: Verifier,
    /// The principal that sent EXCHANGE_ID.
    pub principal: Principal,
    /// The host that sent EXCHANGE_ID.
    pub peer: PeerId,
    /// The protection of the client's state.
    pub protection: Protection,
    /// The id of the session.
    pub session: SessionId4,
    /// The sequence number of the CREATE_SESSION.
    pub sequence: u32,
    /// The principal that sent CREATE_SESSION.
    pub creator: Principal,
    /// The flags that CREATE_SESSION returned.
    pub flags: u32,
    /// The attributes of the fore channel.
    pub fore: ChannelAttributes,
    /// The attributes of the back channel.
    pub back: ChannelAttributes,
    /// The parameters of callbacks; `None` if the server can send no callbacks to the client.
    pub callbacks: Option<CallbackParameters>,
}

/// The last journaled request of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRecord {
    /// The number of the slot.
    pub slot: u32,
    /// The sequence number of the request.
    pub sequence: u32,
    /// The checksum of the request ([`SequenceAsk::checksum`]).
    ///
    /// [`SequenceAsk::checksum`]: crate::SequenceAsk::checksum
    pub checksum: u64,
    /// What became of the request.
    pub end: SlotEnd,
}

/// What became of the last journaled request of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotEnd {
    /// The request was executed and has this reply.
    Replied(Box<[u8]>),
    /// The request was executed, and its reply was not kept.
    NotKept,
    /// The server ended before it had executed the whole request.
    Unfinished,
}

impl SessionRecord {
    /// Appends the encoded record to `to`.
    pub fn encode(&self, to: &mut Vec<u8>) {
        to.push(VERSION);
        to.extend_from_slice(&self.client.0.to_be_bytes());
        put_bytes(to, &self.owner);
        to.extend_from_slice(&self.verifier.0);
        put_principal(to, &self.principal);
        to.extend_from_slice(&self.peer.0.to_be_bytes());
        put_protection(to, &self.protection);
        to.extend_from_slice(&self.session.0);
        put_u32(to, self.sequence);
        put_principal(to, &self.creator);
        put_u32(to, self.flags);
        put_attributes(to, &self.fore);
        put_attributes(to, &self.back);
        put_callbacks(to, self.callbacks.as_ref());
    }

    /// Returns true if the client has asked for a back channel.
    pub(crate) fn wants_back(&self) -> bool {
        self.flags & create_flags::CONN_BACK_CHAN != 0
    }

    /// Decodes a record; `None` if the bytes are not exactly one record.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let from = &mut &*bytes;
        if take_array::<1>(from)? != [VERSION] {
            return None;
        }
        let record = Self {
            client: ClientId(u64::from_be_bytes(take_array(from)?)),
            owner: take_bytes(from)?,
            verifier: Verifier(take_array(from)?),
            principal: take_principal(from)?,
            peer: PeerId(u128::from_be_bytes(take_array(from)?)),
            protection: take_protection(from)?,
            session: SessionId4(take_array(from)?),
            sequence: take_u32(from)?,
            creator: take_principal(from)?,
            flags: take_u32(from)?,
            fore: take_attributes(from)?,
            back: take_attributes(from)?,
            callbacks: take_callbacks(from)?,
        };
        from.is_empty().then_some(record)
    }
}

const VERSION: u8 = 1;
const NOBODY: u8 = 0;
const SYSTEM: u8 = 1;
const CERTIFIED: u8 = 2;
const GSS: u8 = 3;

fn put_u32(to: &mut Vec<u8>, value: u32) {
    to.extend_from_slice(&value.to_be_bytes());
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(to, bytes.len() as u32);
    to.extend_from_slice(bytes);
}

fn put_principal(to: &mut Vec<u8>, principal: &Principal) {
    match principal {
        Principal::Nobody => to.push(NOBODY),
        Principal::System(user) => {
            to.push(SYSTEM);
            put_u32(to, *user);
        }
        Principal::Certified { host, user } => {
            to.push(CERTIFIED);
            put_u32(to, *user);
            put_bytes(to, host);
        }
        Principal::Gss(name) => {
            to.push(GSS);
            put_bytes(to, name);
        }
    }
}

fn put_protection(to: &mut Vec<u8>, protection: &Protection) {
    match protection {
        Protection::None => to.push(0),
        Protection::MachineCredential { enforce, allow } => {
            to.push(1);
            to.extend_from_slice(&enforce.bits().to_be_bytes());
            to.extend_from_slice(&allow.bits().to_be_bytes());
        }
    }
}

fn put_attributes(to: &mut Vec<u8>, of: &ChannelAttributes) {
    let sizes = [of.header_padding, of.request_bytes_max, of.reply_bytes_max, of.kept_bytes_max];
    for value in sizes.into_iter().chain([of.operations_max, of.requests_max]) {
        put_u32(to, value);
    }
}

fn put_callbacks(to: &mut Vec<u8>, callbacks: Option<&CallbackParameters>) {
    let Some(callbacks) = callbacks else { return to.push(0) };
    match callbacks.security {
        CallbackSecurity::None => to.push(1),
        CallbackSecurity::System { user, group } => {
            to.push(2);
            put_u32(to, user);
            put_u32(to, group);
        }
        CallbackSecurity::Gss => to.push(3),
    }
    put_u32(to, callbacks.program);
}

fn take_array<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*bytes)
}

fn take_u32(from: &mut &[u8]) -> Option<u32> {
    take_array(from).map(u32::from_be_bytes)
}

fn take_bytes(from: &mut &[u8]) -> Option<Box<[u8]>> {
    let length = take_u32(from)? as usize;
    if length > CLIENT_OWNER_BYTES_MAX {
        return None;
    }
    let (bytes, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(bytes.into())
}

fn take_principal(from: &mut &[u8]) -> Option<Principal> {
    let [kind] = take_array(from)?;
    Some(match kind {
        NOBODY => Principal::Nobody,
        SYSTEM => Principal::System(take_u32(from)?),
        CERTIFIED => {
            let user = take_u32(from)?;
            Principal::Certified { host: take_bytes(from)?, user }
        }
        GSS => Principal::Gss(take_bytes(from)?),
        _ => return None,
    })
}

fn take_protection(from: &mut &[u8]) -> Option<Protection> {
    let set = |from: &mut &[u8]| {
        take_array(from).map(|bits| OperationSet::from_bits(u128::from_be_bytes(bits)))
    };
    match take_array(from)? {
        [0] => Some(Protection::None),
        [1] => {
            let enforce = set(from)?;
            Some(Protection::MachineCredential { enforce, allow: set(from)? })
        }
        [_] => None,
    }
}

fn take_attributes(from: &mut &[u8]) -> Option<ChannelAttributes> {
    Some(ChannelAttributes {
        header_padding: take_u32(from)?,
        request_bytes_max: take_u32(from)?,
        reply_bytes_max: take_u32(from)?,
        kept_bytes_max: take_u32(from)?,
        operations_max: take_u32(from)?,
        requests_max: take_u32(from)?,
    })
}

fn take_callbacks(from: &mut &[u8]) -> Option<Option<CallbackParameters>> {
    let security = match take_array(from)? {
        [0] => return Some(None),
        [1] => CallbackSecurity::None,
        [2] => {
            let user = take_u32(from)?;
            CallbackSecurity::System { user, group: take_u32(from)? }
        }
        [3] => CallbackSecurity::Gss,
        [_] => return None,
    };
    Some(Some(CallbackParameters { program: take_u32(from)?, security }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::OperationNumber;

    fn record() -> SessionRecord {
        let attributes = ChannelAttributes { operations_max: 8, ..Default::default() };
        SessionRecord {
            client: ClientId(7 << 32 | 9),
            owner: b"Linux NFSv4.1 host".as_slice().into(),
            verifier: Verifier([3; 8]),
            principal: Principal::Certified { host: b"host".as_slice().into(), user: 12 },
            peer: PeerId(0xfe80),
            protection: Protection::MachineCredential {
                enforce: OperationSet::of(&[OperationNumber::CREATE_SESSION]),
                allow: OperationSet::of(&[OperationNumber::REMOVEXATTR]),
            },
            session: SessionId4([5; 16]),
            sequence: u32::MAX,
            creator: Principal::Gss(b"nfs@HOST".as_slice().into()),
            flags: 3,
            fore: attributes,
            back: ChannelAttributes { requests_max: 16, ..attributes },
            callbacks: Some(CallbackParameters {
                program: 0x4000_0000,
                security: CallbackSecurity::System { user: 1, group: 2 },
            }),
        }
    }

    #[test]
    fn a_record_comes_back_and_nothing_else_does() {
        let mut bytes = Vec::new();
        record().encode(&mut bytes);
        assert_eq!(SessionRecord::decode(&bytes), Some(record()));
        for length in 0..bytes.len() {
            assert_eq!(SessionRecord::decode(&bytes[..length]), None, "{length} bytes");
        }
        bytes.push(0);
        assert_eq!(SessionRecord::decode(&bytes), None);
    }

    #[test]
    fn a_length_that_is_too_large_allocates_nothing() {
        let mut bytes = Vec::new();
        record().encode(&mut bytes);
        // The length of the owner follows the version and the client id.
        bytes[9..13].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(SessionRecord::decode(&bytes), None);
    }
}

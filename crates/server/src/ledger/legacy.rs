//! Decodes journal records that earlier versions of this server have written.
//!
//! Up to and including commit be567f9, and in some commits after it, the journal contained requests
//! as messages, and outcomes as the results of replies (record kinds 1 to 5). This module converts
//! such records to operations.
//!
//! Invariant: records of these kinds are never written, and their meaning never changes.

use dafs_files::ledger::bytes::Take;
use dafs_files::ledger::plan::Precondition;
use dafs_journal::RecordKind;
use dafs_ops::{Append, Operation};
use dafs_sessions::RequestName;
use dafs_types::{CacheHint, SequenceNumber, SessionId, Stability, StateId, Status, StreamId};
use dafs_wire::{ByteOrder, RequestHeader, decode_arguments};

use super::record::{
    Intent, Record, Reply, RequestKey, take_circumstances, take_order, take_session,
};
use crate::requests::decode::Scratch;
use crate::requests::translate;

/// Decodes a record of kinds 1 to 5. `None` if the record is malformed.
pub(super) fn decode(kind: RecordKind, bytes: &[u8]) -> Option<Record> {
    let mut from = bytes;
    let record = match kind.0 {
        1 => {
            let session = SessionId(from.take_u64()?);
            Record::Session(take_session(session, &mut from)?)
        }
        2 => Record::Intent(take_intent(&mut from)?),
        3 => Record::Reply(Reply {
            key: take_key(&mut from)?,
            status: Status::from_number(from.take_u32()?)?,
            bytes: std::mem::take(&mut from).into(),
        }),
        4 => Record::Abandoned(take_key(&mut from)?.origin()),
        5 => Record::Forgotten(SessionId(from.take_u64()?)),
        _ => return None,
    };
    from.is_empty().then_some(record)
}

fn take_key(from: &mut &[u8]) -> Option<RequestKey> {
    Some(RequestKey {
        session: SessionId(from.take_u64()?),
        request: RequestName {
            stream: StreamId(from.take_u16()?),
            sequence: SequenceNumber(from.take_u16()?),
            procedure: from.take_u32()?,
        },
    })
}

fn take_intent(from: &mut &[u8]) -> Option<Intent> {
    let origin = take_key(from)?.origin();
    let order = take_order(from)?;
    let (who, precondition) = take_circumstances(from)?;
    let operation = operation_of(order, &precondition, std::mem::take(from));
    Some(Intent { origin, who, precondition, operation: operation.into() })
}

/// Returns the encoded operation that a message requests. Returns no bytes for a message without an
/// operation, because such a request never had an effect.
fn operation_of(order: ByteOrder, precondition: &Precondition, message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Precondition::Appends { file, length, .. } = *precondition {
        // The messages of appends were not stored; recovery needs only these fields.
        let (state, stability, hint) = (StateId::ANONYMOUS, Stability::FileSync, CacheHint(0));
        Operation::Append(Append { file, state, length, stability, hint }).encode(&mut bytes);
        return bytes;
    }
    let decoded = RequestHeader::decode(order, message)
        .and_then(|header| decode_arguments(order, &header, message));
    let Ok(request) = decoded else { return bytes };
    let mut scratch = Scratch::new();
    if let Ok(Some(operation)) = translate::operation(&request, &mut scratch) {
        operation.encode(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use dafs_filer::Principal;
    use dafs_ops::Rename;
    use dafs_types::FileHandle;
    use dafs_wire::messages;
    use dafs_wire::{Request, encode_request};

    use super::*;

    const KEY: [u8; 16] = [9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0xff, 0xff, 144, 0, 0, 0];

    fn key() -> RequestKey {
        let (stream, sequence) = (StreamId(3), SequenceNumber(65_535));
        let request = RequestName { stream, sequence, procedure: 144 };
        RequestKey { session: SessionId(9), request }
    }

    #[test]
    fn principals_of_sessions_have_their_tags() {
        let principal_of = |tag: u8, rest: &[u8]| {
            let bytes = [&[9, 0, 0, 0, 0, 0, 0, 0, 0, tag], rest, &[1, 0, 0, 0, b'c']].concat();
            match decode(RecordKind(1), &bytes) {
                Some(Record::Session(session)) => session.principal,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(principal_of(0, &[]), Principal::Anonymous);
        assert_eq!(principal_of(1, &[7, 0, 0, 0]), Principal::LocalUser(7));
        assert_eq!(principal_of(2, b"\x03\0\0\0ann"), Principal::User("ann".into()));
        assert_eq!(principal_of(3, b"\x05\0\0\0ann@R"), Principal::Gss("ann@R".into()));
    }

    #[test]
    fn a_message_becomes_the_operation_that_it_asks_for() {
        let (source, target) = (FileHandle([1; 64]), FileHandle([2; 64]));
        // The last byte of the name is not valid UTF-8 and is escaped in the message.
        let (old_name, new_name) = ("old", "new\u{efff}");
        let rename = messages::Rename { source, target, old_name, new_name };
        for (order, number) in [(ByteOrder::Little, 0), (ByteOrder::Big, 1)] {
            let header = RequestHeader::new(StreamId(3), SequenceNumber(65_535));
            let mut message = [0; 512];
            let length =
                encode_request(order, &header, &Request::Rename(rename), &mut message).unwrap();
            let mut bytes = KEY.to_vec();
            bytes.push(number);
            // User 1, group 2, one more group, and the object that has the old name.
            bytes.extend([1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 3]);
            bytes.extend([5; 64]);
            bytes.extend(&message[..length]);
            let Some(Record::Intent(intent)) = decode(RecordKind(2), &bytes) else { panic!() };
            assert_eq!(intent.origin, key().origin());
            assert_eq!((intent.who.uid(), intent.who.gid(), intent.who.groups()), (1, 2, &[7][..]));
            let object = FileHandle([5; 64]);
            assert_eq!(intent.precondition, Precondition::Renames { object, replaced: None });
            let (old_name, new_name) = (b"old".as_slice(), b"new\xff".as_slice());
            let expected = Operation::Rename(Rename { source, target, old_name, new_name });
            assert_eq!(Operation::decode(&intent.operation), Some(expected));
        }
    }

    #[test]
    fn ends_of_requests_and_sessions_are_what_they_were() {
        let results = [&KEY[..], &[17, 0, 0, 0], b"results"].concat();
        let reply = Reply { key: key(), status: Status::Exist, bytes: b"results"[..].into() };
        assert_eq!(decode(RecordKind(3), &results), Some(Record::Reply(reply)));
        assert_eq!(decode(RecordKind(4), &KEY), Some(Record::Abandoned(key().origin())));
        assert_eq!(decode(RecordKind(5), &KEY[..8]), Some(Record::Forgotten(SessionId(9))));
        for kind in [1, 2, 3, 4, 5] {
            assert_eq!(decode(RecordKind(kind), &KEY[..7]), None);
        }
        assert_eq!(decode(RecordKind(4), &results), None);
    }
}

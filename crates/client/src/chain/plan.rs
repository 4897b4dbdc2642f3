//! Adds members to a chain and hands the chain to its session.
//!
//! Invariant: a member that does not name an object or open uses those of the members before it,
//! and no member is at a position that its class forbids (draft 4.3.1).

use std::cell::RefMut;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use dafs_types::names::shown;
use dafs_types::{FileHandle, SequenceNumber, StateId, Status, StreamId};
use dafs_wire::{
    ByteOrder, ChainClass, ChainFlags, Checksum, EncodeError, Path, Procedure, Request,
    RequestHeader, encode_request,
};
use smallvec::SmallVec;

use crate::buffer::Slice;
use crate::chain::Chain;
use crate::chain::chained::Chained;
use crate::chain::draft::Draft;
use crate::chain::outcome::{ChainFailure, MemberDetails};
use crate::chain::work::{ChainMember, ChainWork};
use crate::error::{ClientError, Result};
use crate::impersonation::acting_bits;

impl<'s> Chain<'s> {
    pub(super) fn submit(self) -> std::result::Result<Chained<'s>, ChainFailure> {
        let Self { session, work } = self;
        let mut chain = work.borrow_mut();
        if let Some(failure) = chain.draft.refused.take() {
            return Err(*failure);
        }
        if let Some(last) = chain.members.last()
            && last.flags.contains(ChainFlags::SAVE)
        {
            let what = "SAVE on the last member, which nothing follows".into();
            return Err(ChainFailure {
                member: chain.members.len() - 1,
                name: last.procedure.name(),
                error: ClientError::Status { what, status: Status::ChainForm },
                done: Vec::new(),
            });
        }
        chain.save_needed_results();
        let name = chain.members.first().map_or("", |member| member.procedure.name());
        drop(chain);
        let started = session.shared.borrow_mut().start_chain(session.key, &work);
        match started {
            Ok(()) => Ok(Chained::in_flight(session, work)),
            Err(error) => Err(ChainFailure { member: 0, name, error, done: Vec::new() }),
        }
    }

    pub(super) fn draft(&self) -> RefMut<'_, Draft> {
        RefMut::map(self.work.borrow_mut(), |work| &mut work.draft)
    }

    /// Returns the object to put into the next member's message.
    pub(super) fn object(&self) -> FileHandle {
        self.draft().file.unwrap_or(FileHandle::NULL)
    }

    pub(super) fn open_state(&self) -> StateId {
        self.draft().state.unwrap_or(StateId::ANONYMOUS)
    }

    /// Returns the directory from which `path` is resolved, and makes that directory the object of
    /// the next member.
    pub(super) fn start_of(&self, path: &str) -> FileHandle {
        if path.starts_with('/') {
            self.draft().stand_on(self.session.root, StateId::ANONYMOUS);
        }
        self.object()
    }

    /// Returns the maximum number of bytes for [`Chain::write_inline`]: the room in a request after
    /// the arguments of WRITE_INLINE.
    #[must_use]
    pub fn inline_bytes_max(&self) -> usize {
        self.draft().request_bytes_max.saturating_sub(INLINE_HEAD_BYTES)
    }

    pub(super) fn checksum_of(&self, slice: &Slice) -> Checksum {
        if self.draft().has_checksums && self.check_slice(slice).is_ok() {
            Checksum::of(&slice.buffer.memory.to_vec(slice.offset, slice.length as usize))
        } else {
            Checksum::NONE
        }
    }

    pub(super) fn check_slice(&self, slice: &Slice) -> Result<()> {
        if slice.buffer.belongs_to(&self.session.shared) {
            Ok(())
        } else {
            Err(ClientError::Foreign { what: "a chain".into() })
        }
    }

    pub(super) fn push(self, request: &Request<'_>, what: Option<&OsStr>) -> Self {
        self.push_with(request, what, None, 0)
    }

    pub(super) fn push_with(
        self,
        request: &Request<'_>,
        what: Option<&OsStr>,
        slice: Option<Slice>,
        length: u32,
    ) -> Self {
        if let Err(error) = slice.as_ref().map_or(Ok(()), |slice| self.check_slice(slice)) {
            return self.refuse_with(request.procedure(), error);
        }
        self.work.borrow_mut().push(request, what, slice, length);
        self
    }

    pub(super) fn refuse(self, procedure: Procedure, what: &str, status: Status) -> Self {
        self.refuse_with(procedure, ClientError::Status { what: what.to_owned(), status })
    }

    pub(super) fn refuse_with(self, procedure: Procedure, error: ClientError) -> Self {
        self.work.borrow_mut().refuse(procedure, error);
        self
    }
}

impl ChainWork {
    /// Adds a member, unless an earlier member was refused.
    fn push(
        &mut self,
        request: &Request<'_>,
        what: Option<&OsStr>,
        slice: Option<Slice>,
        length: u32,
    ) {
        if self.draft.refused.is_some() {
            return;
        }
        let procedure = request.procedure();
        if let Some(what) = self.draft.misplaced(procedure) {
            return self.refuse(procedure, status(what, Status::ChainForm));
        }
        let flags = self.draft.flags_of(procedure, self.members.is_empty());
        let message = match self.encode(request) {
            Ok(message) => message,
            Err(error) => return self.refuse(procedure, unsendable(procedure, error)),
        };
        if let Some(last) = self.members.last_mut() {
            last.flags = last.flags.with(ChainFlags::FORWARD);
        }
        let what = what.map(|what| {
            let start = self.names.len();
            self.names.push_str(&shown(what.as_bytes()));
            start..self.names.len()
        });
        self.members.push(ChainMember {
            message,
            procedure,
            asked: MemberDetails { what, slice, length },
            planned: flags,
            flags,
            status: None,
            answer: None,
            is_noted: false,
        });
        self.draft.note_left_behind(procedure);
    }

    /// Appends an encoded request to the chain's messages and returns the range of its bytes.
    fn encode(&mut self, request: &Request<'_>) -> std::result::Result<Range<usize>, EncodeError> {
        let Self { bytes, filled, draft, .. } = self;
        let start = *filled;
        // CLOSE always uses the client's own credentials, as in [`Session::answer_to`].
        let is_own = matches!(request, Request::Close(_));
        let header = RequestHeader {
            desired_credits: draft.wanted_credits,
            analyzer: acting_bits(draft.acting.filter(|_| !is_own)) | draft.label,
            ..RequestHeader::new(StreamId(0), SequenceNumber(0))
        };
        let mut encoded = Err(EncodeError::Space);
        // Few requests are long: try a small space first instead of reserving the maximum for each.
        for room in [USUAL_BYTES.min(draft.request_bytes_max), draft.request_bytes_max] {
            if bytes.len() < start + room {
                bytes.resize(start + room, 0);
            }
            let room = &mut bytes[start..start + room];
            encoded = encode_request(ByteOrder::NATIVE, &header, request, room);
            if encoded != Err(EncodeError::Space) {
                break;
            }
        }
        *filled = start + encoded.unwrap_or(0);
        encoded.map(|length| start..start + length)
    }

    fn refuse(&mut self, procedure: Procedure, error: ClientError) {
        let (member, name) = (self.members.len(), procedure.name());
        let failure = ChainFailure { member, name, error, done: Vec::new() };
        self.draft.refused.get_or_insert_with(|| Box::new(failure));
    }

    /// Marks results on which a later change depends, so that the server keeps them in the response
    /// cache and the chain can be resumed after a lost connection (draft 4.3.1, simple requests).
    fn save_needed_results(&mut self) {
        let mut is_rested_on = false;
        for member in self.members.iter_mut().rev() {
            match member.procedure.chain_class() {
                ChainClass::ModifiesFiles => is_rested_on = true,
                ChainClass::Simple if is_rested_on => {
                    member.flags = member.flags.with(ChainFlags::SAVE);
                }
                ChainClass::Simple
                | ChainClass::BulkFetch
                | ChainClass::ModifiesLocks
                | ChainClass::Special
                | ChainClass::BackControl => {}
            }
            member.planned = member.flags;
        }
    }
}

fn status(what: String, status: Status) -> ClientError {
    ClientError::Status { what, status }
}

/// Returns the error for a request that cannot be encoded.
#[cold]
fn unsendable(procedure: Procedure, error: EncodeError) -> ClientError {
    let what = format!("{}: {error}", procedure.name());
    let reason = match (error, procedure) {
        (EncodeError::Space, Procedure::WriteInline | Procedure::AppendInline) => {
            Status::WriteTooBig
        }
        (EncodeError::TooMany { .. } | EncodeError::Space, _) => Status::NameTooLong,
        (other, _) => other.status(),
    };
    status(what, reason)
}

/// The components of a path.
pub(super) struct Names<'p>(SmallVec<[&'p str; 8]>);

impl<'p> Names<'p> {
    pub(super) fn of(path: &'p str) -> Self {
        let names = path.split('/').filter(|name| !name.is_empty() && *name != ".");
        Self(names.collect())
    }

    /// # Errors
    /// INVAL if the path has no components, or if a component is `..`.
    pub(super) fn path(&self) -> std::result::Result<Path<'_>, Status> {
        let is_plain = !self.0.is_empty() && !self.0.contains(&"..");
        if is_plain { Ok(Path::new(&self.0)) } else { Err(Status::Inval) }
    }
}

/// A size in bytes that is sufficient for most requests.
const USUAL_BYTES: usize = 512;

/// The size in bytes of the header and the arguments of WRITE_INLINE.
const INLINE_HEAD_BYTES: usize = 136;

#[cfg(test)]
mod tests {
    use dafs_types::{Random, limits};
    use dafs_wire::decode_request;
    use dafs_wire::messages::{GetAttributes, Lookup};

    use super::*;
    use crate::metadata::METADATA;

    /// A chain whose path is too long is refused as a whole; its caller then sends separate
    /// requests.
    #[test]
    fn a_member_fits_its_request_or_the_chain_is_refused_as_too_long() {
        let (mut refused, mut taken) = (0, 0);
        for seed in 0..3000 {
            let mut random = Random::new(seed);
            let bounds = [limits::REQUEST_BYTES_MIN, 8192, limits::REQUEST_BYTES_MAX];
            let bytes_max = bounds[random.below(3)];
            let mut work = ChainWork::default();
            let file = Some(FileHandle::NULL);
            work.draft = Draft { file, request_bytes_max: bytes_max, ..Draft::default() };
            let mut pushed = 0;
            for _ in 0..1 + random.below(4) {
                let text = crate::path_resolution::tests::names(&mut random, 12).join("/");
                let names = Names::of(&text);
                let lookup = Lookup { directory: FileHandle::NULL, path: names.path().unwrap() };
                work.push(&Request::Lookup(lookup), Some(OsStr::new(&text)), None, 0);
                let found = GetAttributes { file: FileHandle::NULL, wanted: METADATA };
                work.push(&Request::GetAttrInline(found), None, None, 0);
                pushed += 2;
            }
            let mut end = 0;
            for member in &work.members {
                assert_eq!(member.message.start, end, "seed {seed}");
                end = member.message.end;
                assert!(member.message.len() <= bytes_max, "seed {seed}");
                let decoded =
                    decode_request(ByteOrder::NATIVE, &work.bytes[member.message.clone()]);
                assert!(decoded.is_ok(), "seed {seed}: {:?}", decoded.err());
            }
            assert_eq!(work.filled, end, "seed {seed}");
            match work.draft.refused {
                None => {
                    assert_eq!(work.members.len(), pushed, "seed {seed}");
                    taken += 1;
                }
                Some(failure) => {
                    assert_eq!(failure.error.status(), Some(Status::NameTooLong), "seed {seed}");
                    assert_eq!(failure.member, work.members.len(), "seed {seed}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 100 && taken > 100, "{refused} {taken}");
    }
}

//! Members put behind each other, and the whole given to the session.
//!
//! Invariant: a member takes from those before what it does not name, and no member stands
//! where its class may not (draft 4.3.1).

use std::cell::RefMut;
use std::ops::Range;

use dafs_types::{CredHandle, FileHandle, SequenceNumber, StateId, Status, StreamId};
use dafs_wire::{
    ByteOrder, ChainClass, ChainFlags, Checksum, EncodeError, Path, Procedure, Request,
    RequestHeader, encode_request,
};

use super::Chain;
use smallvec::SmallVec;

use super::chained::Chained;
use super::outcome::{Asked, ChainFailure};
use super::send::{ChainMember, ChainWork};
use crate::buffer::Slice;
use crate::error::{ClientError, Result};

impl<'s> Chain<'s> {
    pub(super) fn submit(mut self) -> std::result::Result<Chained<'s>, ChainFailure> {
        if let Some(failure) = self.refused.take() {
            return Err(*failure);
        }
        let Self { session, work, .. } = self;
        let mut chain = work.borrow_mut();
        if let Some(last) = chain.members.last()
            && last.flags.contains(ChainFlags::SAVE)
        {
            let what = "SAVE on the last member, which nobody follows".into();
            return Err(ChainFailure {
                member: chain.members.len() - 1,
                name: last.procedure.name(),
                error: ClientError::Status { what, status: Status::ChainForm },
                done: Vec::new(),
            });
        }
        chain.save_what_others_rest_on();
        for member in &mut chain.members {
            member.planned = member.flags;
        }
        let name = chain.members.first().map_or("", |member| member.procedure.name());
        drop(chain);
        let started = session.shared.borrow_mut().start_chain(session.index, &work);
        match started {
            Ok(()) => Ok(Chained::under_way(session, work)),
            Err(error) => Err(ChainFailure { member: 0, name, error, done: Vec::new() }),
        }
    }

    /// The members so far.
    pub(super) fn members(&self) -> RefMut<'_, Vec<ChainMember>> {
        RefMut::map(self.work.borrow_mut(), |work| &mut work.members)
    }

    /// The object to put into the next member's message.
    pub(super) fn object(&self) -> FileHandle {
        self.file.unwrap_or(FileHandle::NULL)
    }

    pub(super) fn open_state(&self) -> StateId {
        self.state.unwrap_or(StateId::ANONYMOUS)
    }

    /// The names of a path, and the chain set to where it begins.
    pub(super) fn walk_from(self, path: &str) -> (Self, std::result::Result<Names<'_>, Status>) {
        let root = self.session.root;
        let chain = if path.starts_with('/') { self.at(root) } else { self };
        (chain, Names::of(path))
    }

    /// Octets that fit a request behind WRITE_INLINE's arguments.
    pub(super) fn inline_bytes_max(&self) -> usize {
        self.request_bytes_max.saturating_sub(INLINE_HEAD_BYTES)
    }

    pub(super) fn checksum_of(&self, slice: &Slice) -> Checksum {
        if self.has_checksums && self.check_slice(slice).is_ok() {
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

    pub(super) fn push(self, request: &Request<'_>, what: Option<&str>) -> Self {
        self.push_with(request, what, None, 0)
    }

    pub(super) fn push_with(
        mut self,
        request: &Request<'_>,
        what: Option<&str>,
        slice: Option<Slice>,
        length: u32,
    ) -> Self {
        if self.refused.is_some() {
            return self;
        }
        let procedure = request.procedure();
        if let Err(error) = slice.as_ref().map_or(Ok(()), |slice| self.check_slice(slice)) {
            return self.refuse_with(procedure, error);
        }
        if let Some(what) = self.misplaced(procedure) {
            return self.refuse(procedure, &what, Status::ChainForm);
        }
        let flags = self.flags_of(procedure);
        let message = match self.encode(request) {
            Ok(message) => message,
            Err(error) => {
                let what = format!("{}: {error}", procedure.name());
                let status = match (error, procedure) {
                    (EncodeError::Space, Procedure::WriteInline | Procedure::AppendInline) => {
                        Status::WriteTooBig
                    }
                    (EncodeError::TooMany { .. } | EncodeError::Space, _) => Status::NameTooLong,
                    (other, _) => other.status(),
                };
                return self.refuse(procedure, &what, status);
            }
        };
        let file = self.object();
        let mut borrowed = self.work.borrow_mut();
        let work = &mut *borrowed;
        if let Some(last) = work.members.last_mut() {
            last.flags = last.flags.with(ChainFlags::FORWARD);
        }
        let what = what.map(|what| {
            work.names.push_str(what);
            work.names.len() - what.len()..work.names.len()
        });
        work.members.push(ChainMember {
            message,
            procedure,
            asked: Asked { what, slice, length, file },
            planned: flags,
            flags,
            status: None,
            answer: None,
            is_noted: false,
        });
        drop(borrowed);
        self.note_left_behind(procedure);
        self
    }

    /// Puts a request behind those that are there. Gives where its octets are.
    fn encode(&self, request: &Request<'_>) -> std::result::Result<Range<usize>, EncodeError> {
        let octets = &mut self.work.borrow_mut().octets;
        let start = octets.len();
        // As in [`crate::call::Answer::of`]: what closes a file is the client's own.
        let is_own = matches!(request, Request::Close(_));
        let header = RequestHeader {
            desired_credits: self.wish,
            credentials: if is_own { CredHandle(0) } else { self.session.acting },
            ..RequestHeader::new(StreamId(0), SequenceNumber(0))
        };
        let mut encoded = Err(EncodeError::Space);
        // Few requests are long, and room for the longest would be cleared for each.
        for room in [USUAL_BYTES.min(self.request_bytes_max), self.request_bytes_max] {
            octets.resize(start + room, 0);
            encoded = encode_request(ByteOrder::NATIVE, &header, request, &mut octets[start..]);
            if encoded != Err(EncodeError::Space) {
                break;
            }
        }
        octets.truncate(start + encoded.unwrap_or(0));
        encoded.map(|length| start..start + length)
    }

    fn flags_of(&self, procedure: Procedure) -> ChainFlags {
        let mut flags = ChainFlags::default();
        if !self.members().is_empty() {
            flags = flags.with(ChainFlags::BACK);
        }
        if self.file.is_none() && procedure.chained_handle_at().is_some() {
            flags = flags.with(ChainFlags::FILE_HANDLE);
        }
        if self.state.is_none() && procedure.chained_state_at().is_some() {
            flags = flags.with(ChainFlags::STATE_ID);
        }
        flags
    }

    /// What is wrong with a procedure in this place, if anything is.
    fn misplaced(&self, procedure: Procedure) -> Option<String> {
        let name = procedure.name();
        match procedure.chain_class() {
            ChainClass::Special | ChainClass::BackControl => {
                Some(format!("{name} cannot be in a chain (draft 4.3.1)"))
            }
            ChainClass::ModifiesFiles if self.has_fetched && procedure != Procedure::Close => {
                Some(format!("{name} cannot stand behind a member that fetches (draft 4.3.1)"))
            }
            ChainClass::ModifiesFiles
            | ChainClass::BulkFetch
            | ChainClass::Simple
            | ChainClass::ModifiesLocks => None,
        }
    }

    /// What a member leaves for the next one.
    fn note_left_behind(&mut self, procedure: Procedure) {
        self.has_fetched |= procedure.chain_class() == ChainClass::BulkFetch;
        if procedure == Procedure::Open {
            (self.file, self.state) = (None, None);
        } else if procedure.finds() {
            // Another object, which nobody has opened here.
            (self.file, self.state) = (None, Some(StateId::ANONYMOUS));
        } else if procedure.chained_handle_at().is_some() {
            self.file = None;
        }
    }

    pub(super) fn refuse(self, procedure: Procedure, what: &str, status: Status) -> Self {
        self.refuse_with(procedure, ClientError::Status { what: what.to_owned(), status })
    }

    pub(super) fn refuse_with(mut self, procedure: Procedure, error: ClientError) -> Self {
        let (member, name) = (self.members().len(), procedure.name());
        let failure = ChainFailure { member, name, error, done: Vec::new() };
        self.refused.get_or_insert_with(|| Box::new(failure));
        self
    }
}

impl ChainWork {
    /// Results that others rest on are kept, so that a chain that was cut off can be taken up
    /// again (draft 4.3.1, simple requests).
    fn save_what_others_rest_on(&mut self) {
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
        }
    }
}

/// The names of a path. Few paths have many.
pub(super) struct Names<'p>(SmallVec<[&'p str; 8]>);

impl<'p> Names<'p> {
    fn of(path: &'p str) -> std::result::Result<Self, Status> {
        let names = path.split('/').filter(|name| !name.is_empty() && *name != ".");
        let names = Self(names.collect());
        let is_plain = !names.0.is_empty() && !names.0.contains(&"..");
        if is_plain { Ok(names) } else { Err(Status::Inval) }
    }

    pub fn path(&self) -> Path<'_> {
        Path::new(&self.0)
    }
}

/// Octets that most requests fit in.
const USUAL_BYTES: usize = 512;
/// Header and arguments of WRITE_INLINE.
const INLINE_HEAD_BYTES: usize = 136;

//! Compounds of version 4 that are in progress, and what they wait for.

use std::sync::Arc;

use dafs_dat::records::LinkId;
use dafs_files::caller::Caller;
use dafs_journal::RecordNumber;
use dafs_nfs_state::{Admitted, StateKey};
use dafs_nfs_wire::nfs4::{Bitmap, OperationKind, ReplyWriter, StateId};
use dafs_nfs_wire::xdr::Writer;
use dafs_types::{Credentials, FileHandle};
use smallvec::SmallVec;

use super::journaled::Journaled;
use super::read_plan::ReadPlus;
use super::states::Asked;
use crate::access::exports::rules::NfsPeer;
use crate::guests::GuestRead;
use crate::meter::call::CallNote;
use crate::nfs::calls::CallId;
use crate::nfs::gss::{GssUser, Route, Seal};

/// The sender of a call.
#[derive(Clone, Debug)]
pub(in crate::nfs) struct Sender {
    /// The connection on which the call has arrived.
    pub link: LinkId,
    /// The client's machine and the kind of its port.
    pub peer: NfsPeer,
    /// The credentials that the client states. If the client states none, those of the user
    /// `nobody`.
    pub credentials: Credentials,
    /// True if the client states or proves its credentials.
    pub has_credentials: bool,
    /// The proof of the credentials by Kerberos. `None` if the client only states them.
    pub proof: Option<Proof>,
    /// What is noted about the call for statistics.
    pub note: CallNote,
}

/// The proof of a call's user by Kerberos.
#[derive(Clone, Debug)]
pub(in crate::nfs) struct Proof {
    /// The context of the call, and the protection of the call and of its reply.
    pub seal: Seal,
    /// The user who has authenticated.
    pub user: Arc<GssUser>,
}

impl Sender {
    /// Returns the way of the reply.
    pub(in crate::nfs) fn route(&self) -> Route {
        let seal = self.proof.as_ref().map(|proof| proof.seal);
        Route { link: self.link, seal, note: self.note }
    }
}

/// A compound in progress.
#[derive(Debug)]
pub(in crate::nfs) struct Compound {
    pub id: CallId,
    pub sender: Sender,
    pub call: CallFacts,
    /// The number of operations that were not executed yet.
    pub left: u32,
    /// The encoded operations that were not executed yet; empty unless the compound waits.
    pub rest: Vec<u8>,
    /// The reply so far, while the compound waits. At other times the reply is in [`Desk`].
    pub writer: Writer,
    pub reply: Option<ReplyWriter>,
    /// The position in the reply at which the results of the compound begin.
    pub body: usize,
    pub request: Option<Admitted>,
    /// The journal's part in a request of a persistent session.
    pub journaled: Option<Journaled>,
    /// The caller on whose behalf operations on files are executed. `None` before SEQUENCE.
    pub by: Option<Caller>,
    pub current: Option<FileHandle>,
    pub saved: Option<FileHandle>,
    /// The state id that the last operation returned. Clients refer to it by the special state id
    /// with the sequence number 1 and zeros.
    pub current_state: Option<StateId>,
    pub saved_state: Option<StateId>,
    /// The bytes that the READs of the compound have read, in the order of the reply.
    pub reads: SmallVec<[GuestRead; 1]>,
    /// The operation whose end the compound waits for.
    pub awaits: Option<Awaits>,
    /// The number of the journal record that must be durable before the reply is sent.
    pub after: RecordNumber,
    /// True if the failed operation has already written its result, so that no status must be
    /// appended.
    pub is_answered: bool,
    /// True if the failed operation has written part of its result, which must be removed from the
    /// reply.
    pub takes_back: bool,
}

/// The facts about a compound that are known when it arrives.
#[derive(Clone, Copy, Debug)]
pub(in crate::nfs) struct CallFacts {
    /// The minor version of the protocol.
    pub minor: u32,
    /// The number of operations.
    pub count: u32,
    /// The size in bytes of the call that contains the compound.
    pub bytes: u32,
    /// The position in the reply at which the results of the operations begin.
    pub results: usize,
}

/// An operation that has started and not ended.
#[derive(Debug)]
pub(in crate::nfs) enum Awaits {
    /// The bytes of a READ.
    Read,
    /// The list of the holes for a READ_PLUS, or the bytes of its next part.
    ReadPlus(Box<ReadPlus>),
    /// The end of an operation on a range of a file.
    Range(OperationKind),
    /// The end of a WRITE.
    Write,
    /// The end of a COMMIT.
    Commit,
    /// The report of a delegation's holder for a GETATTR of these attributes.
    Holder(Bitmap),
    /// The end of a SETATTR that sets these attributes.
    SetAttributes(Bitmap),
    /// The truncation of the file of an OPEN.
    Open(Box<Opening>),
    /// The end of a CLOSE of this open.
    Close(StateKey),
    /// The end of a LOCK that belongs to this lock state.
    Lock(StateKey),
    /// The end of other requests that change the names that the next operation changes, or the
    /// intent of this operation.
    Names,
    /// The end of the last journaled operation, before the next one.
    Part,
    /// The journal record that must be durable before the reply is sent. All operations have ended.
    Record,
}

/// The progress of an operation.
pub(super) enum Did {
    /// The operation has ended, and its result is in the reply.
    Written,
    /// The compound waits.
    Later,
}

/// The outcome of [`serve`] or [`resume`].
pub(in crate::nfs) enum Ran {
    /// The reply, which takes this way, is in the writer. The payloads of the reply are the bytes
    /// of these reads.
    Done(Route, SmallVec<[GuestRead; 1]>),
    /// The compound waits.
    Later,
}

/// An OPEN that waits for the truncation of its file.
#[derive(Debug)]
pub(in crate::nfs) struct Opening {
    pub asked: Asked,
    /// The name of the open owner.
    pub owner: Box<[u8]>,
    pub mask: Bitmap,
}

impl Compound {
    /// Returns the writer of the results. `None` after the last result.
    pub(super) fn reply_writer(&mut self) -> Option<&mut ReplyWriter> {
        self.reply.as_mut()
    }
}

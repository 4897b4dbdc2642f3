//! The handles and state ids that members of a chain pass on to later members, and their offsets in
//! messages (draft 4.1.3.1, 4.3.2).
//!
//! Invariant: the handle of a procedure is the one that the draft calls "the file handle used": the
//! target directory for LINK and RENAME (6.5.17, 6.5.34), and the only handle for all other
//! procedures.
//!
//! Handles and state ids have the same bytes in either byte order, so a member's result is copied
//! unchanged into the next member's message, before that message is decoded.

use dafs_types::FileHandle;

use crate::message::Response;
use crate::procedure::Procedure;

impl Procedure {
    /// Returns the offset of the file handle that the flag FILE_HANDLE replaces and that is passed
    /// on to the next member, counted from the start of the arguments. `None` for a procedure
    /// without such a handle. A batch has many handles, but none of them is replaced or passed on.
    #[must_use]
    pub const fn chained_handle_at(self) -> Option<usize> {
        use Procedure as P;
        match self {
            P::Access
            | P::Allocate
            | P::CacheHint
            | P::Close
            | P::Commit
            | P::Create
            | P::Deallocate
            | P::GetFsAttr
            | P::GetAttrInline
            | P::GetAttrDirect
            | P::HandOver
            | P::Lock
            | P::LockT
            | P::LockU
            | P::Lookup
            | P::LookupP
            | P::NVerify
            | P::OpenDowngrade
            | P::OpenAttr
            | P::ReadInline
            | P::ReadDirect
            | P::ReadDirInline
            | P::ReadDirDirect
            | P::ReadLinkInline
            | P::ReadLinkDirect
            | P::Remove
            | P::Seek
            | P::SetAttrInline
            | P::SetAttrDirect
            | P::Verify
            | P::WriteInline
            | P::WriteDirect
            | P::AppendInline
            | P::AppendDirect => Some(0),
            // The handle follows the claim type; every kind of claim has its handle at this offset.
            P::Open => Some(8),
            // The handle of the target directory or file follows the source handle.
            P::Link | P::Rename | P::CloneRange | P::CopyRange => Some(64),
            P::ClientAuth
            | P::ClientConnect
            | P::ClientConnectAuth
            | P::ConnectBind
            | P::Disconnect
            | P::RegisterCred
            | P::ReleaseCred
            | P::SecInfo
            | P::ServerAuth
            | P::Channels
            | P::CheckResponse
            | P::FetchResponse
            | P::DiscardResponses
            | P::DelegPurge
            | P::DelegReturn
            | P::GetRootHandle
            | P::Null
            | P::BatchSubmit
            | P::HurryUp
            | P::GetFencingList
            | P::SetFencingList
            | P::BcGetAttr
            | P::BcNull
            | P::BcRecall
            | P::BcLockReady
            | P::BcBatchCompletion => None,
        }
    }

    /// Returns the offset of the state id that the flag STATE_ID replaces and that is passed on to
    /// the next member, counted from the start of the arguments. `None` for a procedure without
    /// such a state id. The state id of a delegation in an OPEN is not passed on, because it does
    /// not name an open.
    #[must_use]
    pub const fn chained_state_at(self) -> Option<usize> {
        use Procedure as P;
        match self {
            P::Allocate
            | P::Close
            | P::Deallocate
            | P::HandOver
            | P::OpenDowngrade
            | P::ReadInline
            | P::ReadDirect
            | P::Seek
            | P::SetAttrInline
            | P::SetAttrDirect
            | P::WriteInline
            | P::WriteDirect
            | P::AppendInline
            | P::AppendDirect => Some(64),
            // The state id follows the lock type and the options.
            P::Lock | P::LockU => Some(72),
            // The state id of the target follows both handles and the state id of the source.
            P::CloneRange | P::CopyRange => Some(136),
            P::DelegReturn => Some(0),
            P::Access
            | P::CacheHint
            | P::Commit
            | P::Create
            | P::GetFsAttr
            | P::GetAttrInline
            | P::GetAttrDirect
            | P::Link
            | P::LockT
            | P::Lookup
            | P::LookupP
            | P::NVerify
            | P::Open
            | P::OpenAttr
            | P::ReadDirInline
            | P::ReadDirDirect
            | P::ReadLinkInline
            | P::ReadLinkDirect
            | P::Remove
            | P::Rename
            | P::Verify
            | P::ClientAuth
            | P::ClientConnect
            | P::ClientConnectAuth
            | P::ConnectBind
            | P::Disconnect
            | P::RegisterCred
            | P::ReleaseCred
            | P::SecInfo
            | P::ServerAuth
            | P::Channels
            | P::CheckResponse
            | P::FetchResponse
            | P::DiscardResponses
            | P::DelegPurge
            | P::GetRootHandle
            | P::Null
            | P::BatchSubmit
            | P::HurryUp
            | P::GetFencingList
            | P::SetFencingList
            | P::BcGetAttr
            | P::BcNull
            | P::BcRecall
            | P::BcLockReady
            | P::BcBatchCompletion => None,
        }
    }

    /// Returns true if the procedure's results contain the handle of an object, which the next
    /// member uses.
    #[must_use]
    pub const fn finds(self) -> bool {
        use Procedure as P;
        matches!(
            self,
            P::Lookup | P::LookupP | P::OpenAttr | P::GetRootHandle | P::Create | P::Open
        )
    }
}

impl Response<'_> {
    /// Returns the handle of the object in these results. `None` for a failure, and for a procedure
    /// whose results contain no such handle ([`Procedure::finds`]).
    #[must_use]
    pub const fn found(&self) -> Option<FileHandle> {
        match self {
            Self::Lookup(found) => Some(found.file),
            Self::LookupP(found) | Self::OpenAttr(found) | Self::GetRootHandle(found) => {
                Some(found.file)
            }
            Self::Create(created) => Some(created.file),
            Self::Open(opened) => Some(opened.file),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::{Field, Handle, Opaque64};

    #[test]
    fn what_is_passed_on_goes_where_the_layout_has_it() {
        for &procedure in Procedure::ALL {
            let fields = procedure.request_fields();
            let name = procedure.name();
            let is_chained = !matches!(
                procedure.chain_class(),
                crate::ChainClass::Special | crate::ChainClass::BackControl
            );
            // If there are two handles, the last one is the target's.
            let handle = fields.iter().rfind(|field| field.kind == Handle::KIND);
            let handle = handle.filter(|_| is_chained).map(|field| field.offset);
            let state = fields
                .iter()
                .find(|field| field.name == "state" && field.kind == Opaque64::KIND)
                .filter(|_| is_chained)
                .map(|field| field.offset);
            if procedure == Procedure::Open {
                assert_eq!((handle, procedure.chained_handle_at()), (None, Some(8)));
            } else {
                assert_eq!(procedure.chained_handle_at(), handle, "{name}");
            }
            assert_eq!(procedure.chained_state_at(), state, "{name}");
            let has_handle = procedure.response_fields().iter().any(|f| f.kind == Handle::KIND);
            assert_eq!(procedure.finds(), is_chained && has_handle, "{name}");
        }
    }

    #[test]
    fn every_claim_of_an_open_has_its_handle_in_one_place() {
        use crate::messages::{DelegationType, Open, OpenCreation, OpenTarget};
        use crate::{ByteOrder, HEADER_BYTES, Path, Request, RequestHeader, encode_request};
        use dafs_types::{
            DeleteDisposition, FileHandle, SequenceNumber, ShareAccess, ShareDeny, StateId,
            StreamId,
        };
        let handle = FileHandle([7; 64]);
        let path = Path::new(&["name"]);
        for target in [
            OpenTarget::Null { directory: handle, path },
            OpenTarget::Previous { file: handle, delegation: DelegationType::None },
            OpenTarget::DelegateCurrent { directory: handle, path, state: StateId(3) },
            OpenTarget::DelegatePrevious { directory: handle, path },
            OpenTarget::CreateUnlinked { directory: handle },
        ] {
            let open = Open {
                target,
                creation: OpenCreation::NoCreate,
                delete_disposition: DeleteDisposition::DontCare,
                owner: b"o",
                access: ShareAccess::Read,
                deny: ShareDeny::None,
                key: None,
            };
            let header = RequestHeader::new(StreamId(0), SequenceNumber(0));
            let mut message = [0; 512];
            let request = Request::Open(open);
            encode_request(ByteOrder::NATIVE, &header, &request, &mut message).unwrap();
            let at = HEADER_BYTES + Procedure::Open.chained_handle_at().unwrap();
            assert_eq!(message[at..at + 64], [7; 64]);
        }
    }
}

//! Callbacks: calls that the server sends and the client answers (RFC 8881 section 20, RFC 7862
//! section 16).
//!
//! Invariant: the types of a callback's arguments and results are those in its row of the table.

use crate::xdr::{List, Opaque, xdr};

use super::attributes::Fattr;
use super::bitmap::Bitmap;
use super::limits::{BODY_BYTES_MAX, NOTIFICATIONS_MAX, REFERRING_CALLS_MAX};
use super::open::Delegation;
use super::operation::{Outcome, Reply};
use super::status::Status;
use super::table::{CallbackKind, callback_table};
use super::types::{
    DeviceId, FileHandle, FsId, LayoutMode, LayoutType, Name, SessionId, StateId, StateOwner,
    Verifier, WriteResponse,
};

xdr! {
    /// Arguments of CB_GETATTR.
    #[derive(Copy, Default)]
    struct CbGetAttrArgs<'b> {
        /// The delegated file.
        handle: FileHandle<'b>,
        /// The attributes that the server wants to know.
        attributes: Bitmap,
    }
    /// Arguments of CB_RECALL.
    #[derive(Copy, Default)]
    struct CbRecallArgs<'b> {
        /// The delegation to return.
        state: StateId,
        /// True if the file will be truncated, so that the client need not write back its data.
        truncate: bool,
        /// The delegated file.
        handle: FileHandle<'b>,
    }
    /// Arguments of CB_LAYOUTRECALL.
    #[derive(Copy)]
    struct CbLayoutRecallArgs<'b> {
        /// The type of the layouts.
        kind: LayoutType,
        /// The access mode of the layouts.
        mode: LayoutMode,
        /// True if the layouts will change, so that the client should not write data through the
        /// old ones.
        changed: bool,
        /// The layouts to return.
        what: LayoutRecall<'b>,
    }
    /// The layouts to return.
    #[derive(Copy)]
    union LayoutRecall<'b> on u32 {
        /// Layouts of a range of a file.
        1 => File(RecalledRange<'b>),
        /// All layouts of a file system.
        2 => FileSystem(FsId),
        /// All layouts of the client.
        3 => All,
    }
    /// A range of a file whose layouts are to be returned.
    #[derive(Copy, Default)]
    struct RecalledRange<'b> {
        /// The file that the layouts are of.
        handle: FileHandle<'b>,
        /// The offset in the file of the first byte.
        offset: u64,
        /// The number of bytes; all bits set means up to the end of the file.
        length: u64,
        /// The id of the layouts.
        state: StateId,
    }
    /// Arguments of CB_NOTIFY.
    #[derive(Default)]
    struct CbNotifyArgs<'b> {
        /// The delegation of the directory.
        state: StateId,
        /// The delegated directory.
        handle: FileHandle<'b>,
        /// The changes of the directory.
        changes: List<Notification<'b>, NOTIFICATIONS_MAX>,
    }
    /// The kinds of notifications about a directory.
    enum DirectoryNotice {
        /// The attributes of an entry changed: a [`NoticedEntry`].
        ChildAttributes = 0,
        /// The attributes of the directory changed: a [`NoticedEntry`] without a name.
        DirectoryAttributes = 1,
        /// An entry was removed: a [`RemovedEntry`].
        Remove = 2,
        /// An entry was added: an [`AddedEntry`].
        Add = 3,
        /// An entry was renamed: a [`RenamedEntry`].
        Rename = 4,
        /// The verifier of cookies changed: a [`ChangedVerifier`].
        Verifier = 5,
    }
    /// An entry of a directory, with some of the attributes of its object.
    #[derive(Copy, Default)]
    struct NoticedEntry<'b> {
        /// The name of the entry.
        name: Name<'b>,
        /// The attributes that the notification reports.
        attributes: Fattr<'b>,
    }
    /// An entry that was removed, and its former position in the directory.
    #[derive(Copy, Default)]
    struct RemovedEntry<'b> {
        /// The entry that was removed.
        entry: NoticedEntry<'b>,
        /// The cookie of the entry.
        cookie: u64,
    }
    /// An entry that was added to a directory.
    #[derive(Copy, Default)]
    struct AddedEntry<'b> {
        /// The entry that this one has replaced, if there was one.
        old: Option<RemovedEntry<'b>>,
        /// The entry that was added.
        entry: NoticedEntry<'b>,
        /// The cookie of the entry, if the server reports it.
        cookie: Option<u64>,
        /// The entry before this one, if the server reports it.
        previous: Option<RemovedEntry<'b>>,
        /// True if this is now the last entry of the directory.
        is_last: bool,
    }
    /// An entry that was renamed.
    #[derive(Copy, Default)]
    struct RenamedEntry<'b> {
        /// The entry under its old name.
        old: RemovedEntry<'b>,
        /// The entry under its new name.
        new: AddedEntry<'b>,
    }
    /// The verifier of cookies before and after a change.
    #[derive(Copy, Default)]
    struct ChangedVerifier {
        /// The verifier before the change.
        old: Verifier,
        /// The verifier after the change.
        new: Verifier,
    }
    /// Notifications of one or several kinds.
    #[derive(Copy, Default)]
    struct Notification<'b> {
        /// The kinds of the notifications.
        mask: Bitmap,
        /// The encoded notifications, in the order of their kinds.
        values: Opaque<'b, BODY_BYTES_MAX>,
    }
    /// Arguments of CB_PUSH_DELEG: a delegation becomes available.
    #[derive(Copy, Default)]
    struct CbPushDelegArgs<'b> {
        /// The file that is delegated.
        handle: FileHandle<'b>,
        /// The delegation that the client waited for.
        delegation: Delegation<'b>,
    }
    /// Arguments of CB_RECALL_ANY and CB_RECALLABLE_OBJ_AVAIL.
    #[derive(Copy, Default)]
    struct CbRecallAnyArgs {
        /// The number of delegations and layouts that the client may keep.
        keep: u32,
        /// The kinds of state to return: the numbers of [`Recallable`].
        kinds: Bitmap,
    }
    /// The kinds of state that a server can recall.
    enum Recallable {
        /// Delegations of files for reading.
        ReadDelegation = 0,
        /// Delegations of files for writing.
        WriteDelegation = 1,
        /// Delegations of directories.
        DirectoryDelegation = 2,
        /// File layouts of NFSv4.1.
        FileLayout = 3,
        /// Block layouts.
        BlockLayout = 4,
        /// Flexible file layouts for reading.
        FlexibleRead = 16,
        /// Flexible file layouts for reading and writing.
        FlexibleReadWrite = 17,
    }
    /// Arguments of CB_SEQUENCE: the session and slot of this compound.
    #[derive(Default)]
    struct CbSequenceArgs {
        /// The session that the compound belongs to.
        session: SessionId,
        /// The sequence number of the slot.
        sequence: u32,
        /// The slot of this request.
        slot: u32,
        /// The highest slot on which the server has a request at this time.
        highest_slot: u32,
        /// True if the server wants the client to keep the whole reply for a repeat.
        cache_this: bool,
        /// The client's calls in which it got the state that the callback concerns.
        referring: List<ReferringSession, REFERRING_CALLS_MAX>,
    }
    /// The calls of one session to which a callback refers.
    #[derive(Default)]
    struct ReferringSession {
        /// The session of the calls.
        session: SessionId,
        /// The calls of this session.
        calls: List<ReferringCall, REFERRING_CALLS_MAX>,
    }
    /// A call to which a callback refers.
    #[derive(Copy, Default)]
    struct ReferringCall {
        /// The sequence number of the call.
        sequence: u32,
        /// The slot of the call.
        slot: u32,
    }
    /// Results of CB_SEQUENCE.
    #[derive(Copy, Default)]
    struct CbSequenceDone {
        /// The session that the compound belongs to.
        session: SessionId,
        /// The sequence number of the slot.
        sequence: u32,
        /// The slot of this request.
        slot: u32,
        /// The highest slot that the server may use.
        highest_slot: u32,
        /// The highest slot that the client wants the server to use from now on.
        target_highest_slot: u32,
    }
    /// Arguments of CB_WANTS_CANCELLED.
    #[derive(Copy, Default)]
    struct CbWantsCancelledArgs {
        /// True if the server drops the wishes for delegations that it refused because of
        /// contention.
        contended: bool,
        /// True if the server drops the wishes for delegations that it refused because of a lack of
        /// resources.
        resourced: bool,
    }
    /// Arguments of CB_NOTIFY_LOCK.
    #[derive(Copy, Default)]
    struct CbNotifyLockArgs<'b> {
        /// The file that the lock belongs to.
        handle: FileHandle<'b>,
        /// The owner that waits for the lock.
        owner: StateOwner<'b>,
    }
    /// Arguments of CB_NOTIFY_DEVICEID.
    #[derive(Default)]
    struct CbNotifyDeviceIdArgs<'b> {
        /// The changes of devices: kind 1 is a [`DeviceChange`], kind 2 a [`DeviceDelete`].
        changes: List<Notification<'b>, NOTIFICATIONS_MAX>,
    }
    /// A device that changed.
    #[derive(Copy, Default)]
    struct DeviceChange {
        /// The type of the layouts.
        kind: LayoutType,
        /// The device that changed.
        device: DeviceId,
        /// True if the old addresses of the device are no longer valid.
        immediate: bool,
    }
    /// A device that no longer exists.
    #[derive(Copy, Default)]
    struct DeviceDelete {
        /// The type of the layouts.
        kind: LayoutType,
        /// The device that no longer exists.
        device: DeviceId,
    }
    /// Arguments of CB_OFFLOAD.
    #[derive(Copy)]
    struct CbOffloadArgs<'b> {
        /// The target of the copy.
        handle: FileHandle<'b>,
        /// The id of the copy.
        state: StateId,
        /// The result of the copy.
        result: OffloadResult,
    }
    /// The result of a copy that continued after the reply to its COPY.
    #[derive(Copy)]
    union OffloadResult on Status {
        /// The copy is complete.
        Ok => Done(WriteResponse),
        /// The copy failed after this number of bytes.
        _ => Failed(u64),
    }
}

macro_rules! callbacks {
    ($($variant:ident $number:literal $name:literal [$args:ty] [$result:ty]
        $minor:literal $requirement:ident;)*) => {
        xdr! {
            /// A callback, with its arguments.
            union Callback<'b> on u32 {
                $(#[doc = concat!("`", $name, "`, number ", $number, ".")]
                $number => $variant($args),)*
                /// A number that is not assigned in the minor version. The length of its arguments
                /// is unknown, so the rest of the compound cannot be decoded.
                _ => Illegal,
            }
            /// The result of a callback, with its status.
            union CallbackAnswer<'b> on u32 {
                $(#[doc = concat!("`", $name, "`, number ", $number, ".")]
                $number => $variant($result),)*
                /// The result for a number that no callback has.
                10_044 => Illegal(Status),
            }
        }

        impl Callback<'_> {
            /// Returns the row of the callback in the table.
            #[must_use]
            pub const fn kind(&self) -> CallbackKind {
                match self {
                    $(Self::$variant(_) => CallbackKind::$variant,)*
                    Self::Illegal(_) => CallbackKind::Illegal,
                }
            }
        }

        impl CallbackAnswer<'_> {
            /// Returns the row of the callback in the table.
            #[must_use]
            pub const fn kind(&self) -> CallbackKind {
                match self {
                    $(Self::$variant(_) => CallbackKind::$variant,)*
                    Self::Illegal(_) => CallbackKind::Illegal,
                }
            }

            /// Returns the status of the callback.
            #[must_use]
            pub fn status(&self) -> Status {
                match self {
                    $(Self::$variant(result) => Outcome::status(result),)*
                    Self::Illegal(status) => *status,
                }
            }

            /// Returns the result of a callback that failed with this status.
            #[must_use]
            pub fn failed(kind: CallbackKind, status: Status) -> Self {
                match kind {
                    $(CallbackKind::$variant => Self::$variant(Outcome::failed(status)),)*
                    CallbackKind::Illegal => Self::Illegal(status),
                }
            }
        }
    };
}

callback_table!(callbacks);

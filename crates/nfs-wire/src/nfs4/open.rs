//! Operations on opens and delegations (RFC 8881 sections 18.2, 18.5, 18.6, 18.16 to 18.18, 18.39
//! and 18.49; RFC 9754).
//!
//! Invariant: an unknown claim, kind of creation or type of delegation is refused.

use crate::xdr::xdr;

use super::attribute_types::Ace;
use super::attributes::Fattr;
use super::bitmap::Bitmap;
use super::types::{ChangeInfo, Name, StateId, StateOwner, Time, Verifier};

xdr! {
    /// Arguments of CLOSE.
    #[derive(Copy, Default)]
    struct CloseArgs {
        /// A number that minor version 1 does not use.
        sequence: u32,
        /// The open that ends.
        state: StateId,
    }
    /// The access that an open allows, and wishes for a delegation.
    flags ShareAccess: u32 {
        /// The open allows reading.
        READ = 0x1,
        /// The open allows writing.
        WRITE = 0x2,
        /// The open allows reading and writing.
        BOTH = 0x3,
        /// The client wants a delegation for reading.
        WANT_READ_DELEG = 0x100,
        /// The client wants a delegation for writing.
        WANT_WRITE_DELEG = 0x200,
        /// The client wants any delegation.
        WANT_ANY_DELEG = 0x300,
        /// The client wants no delegation.
        WANT_NO_DELEG = 0x400,
        /// The client no longer wants the delegation that it asked for.
        WANT_CANCEL = 0x500,
        /// All bits of wishes that exclude each other.
        WANT_DELEG_MASK = 0xff00,
        /// The server is to signal when a delegation becomes available.
        WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL = 0x1_0000,
        /// The server is to push a delegation when no other client uses the file.
        WANT_PUSH_DELEG_WHEN_UNCONTENDED = 0x2_0000,
        /// The holder of the delegation will keep the times.
        WANT_DELEG_TIMESTAMPS = 0x10_0000,
        /// The client wants either an open or a delegation, but not both.
        WANT_OPEN_XOR_DELEGATION = 0x20_0000,
    }
    /// The access that an open denies to others.
    flags ShareDeny: u32 {
        /// Nothing is denied.
        NONE = 0,
        /// Others must not read.
        READ = 1,
        /// Others must not write.
        WRITE = 2,
        /// Others must neither read nor write.
        BOTH = 3,
    }
    /// Arguments of OPEN.
    #[derive(Copy)]
    struct OpenArgs<'b> {
        /// A number that minor version 1 does not use.
        sequence: u32,
        /// The access that the open allows, and wishes for a delegation.
        access: ShareAccess,
        /// The access that the open denies to others.
        deny: ShareDeny,
        /// The owner of the open.
        owner: StateOwner<'b>,
        /// Whether and how the file is created.
        how: OpenHow<'b>,
        /// The file, or the state that is reclaimed.
        claim: OpenClaim<'b>,
    }
    /// Whether an open creates the file.
    #[derive(Copy)]
    union OpenHow<'b> on u32 {
        /// The file must exist.
        0 => NoCreate,
        /// The file is created if it does not exist.
        1 => Create(CreateHow<'b>),
    }
    /// The way in which an open creates the file.
    #[derive(Copy)]
    union CreateHow<'b> on u32 {
        /// A file that exists is opened.
        0 => Unchecked(Fattr<'b>),
        /// A file that exists is an error.
        1 => Guarded(Fattr<'b>),
        /// A file that exists is an error, unless it has the verifier.
        2 => Exclusive(Verifier),
        /// Like `Exclusive`, with attributes.
        3 => ExclusiveWithAttributes(ExclusiveCreate<'b>),
    }
    /// The verifier and attributes of a new file.
    #[derive(Copy, Default)]
    struct ExclusiveCreate<'b> {
        /// The number that tells this creation from others.
        verifier: Verifier,
        /// The first attributes of the file.
        attributes: Fattr<'b>,
    }
    /// The file that is opened, or the state that is reclaimed.
    #[derive(Copy)]
    union OpenClaim<'b> on u32 {
        /// The file with this name in the current directory.
        0 => Name(Name<'b>),
        /// The current file, opened before the restart, with this delegation.
        1 => Previous(DelegationType),
        /// The file with this name, under the delegation.
        2 => DelegateCurrent(DelegatedName<'b>),
        /// The file with this name, under a delegation of the client's last instance.
        3 => DelegatePrevious(Name<'b>),
        /// The current file.
        4 => Handle,
        /// The current file, under the delegation.
        5 => DelegateCurrentHandle(StateId),
        /// The current file, under a delegation of the client's last instance.
        6 => DelegatePreviousHandle,
    }
    /// A name and the delegation of the file.
    #[derive(Copy, Default)]
    struct DelegatedName<'b> {
        /// The delegation of the file.
        state: StateId,
        /// The name in the current directory.
        name: Name<'b>,
    }
    /// The type of a delegation.
    enum DelegationType {
        /// No delegation at all.
        None = 0,
        /// A delegation for reading.
        Read = 1,
        /// A delegation for writing.
        Write = 2,
        /// No delegation, with the reason.
        NoneWithReason = 3,
        /// A delegation for reading, whose holder keeps the times.
        ReadWithTimes = 4,
        /// A delegation for writing, whose holder keeps the times.
        WriteWithTimes = 5,
    }
    /// Results of OPEN.
    #[derive(Copy)]
    struct OpenDone<'b> {
        /// The id of the open.
        state: StateId,
        /// The change of the directory.
        change: ChangeInfo,
        /// Properties of the open.
        flags: OpenFlags,
        /// The attributes that were set.
        attributes: Bitmap,
        /// The delegation that comes with the open.
        delegation: Delegation<'b>,
    }
    /// Properties of an open.
    flags OpenFlags: u32 {
        /// The open must be confirmed, in minor version 0.
        CONFIRM = 0x2,
        /// Locks behave as POSIX says.
        LOCKTYPE_POSIX = 0x4,
        /// A removed file exists until it is closed.
        PRESERVE_UNLINKED = 0x8,
        /// The server may send CB_NOTIFY_LOCK.
        MAY_NOTIFY_LOCK = 0x20,
        /// There is only a delegation, and no open.
        NO_OPEN_STATEID = 0x10,
    }
    /// A delegation, or the reason why there is none.
    #[derive(Copy, Default)]
    union Delegation<'b> on DelegationType {
        /// No delegation at all.
        #[default]
        None => None,
        /// A delegation for reading.
        Read => Read(ReadDelegation<'b>),
        /// A delegation for writing.
        Write => Write(WriteDelegation<'b>),
        /// No delegation, with the reason.
        NoneWithReason => Refused(NoDelegation),
        /// A delegation for reading, whose holder keeps the times.
        ReadWithTimes => ReadWithTimes(ReadDelegation<'b>),
        /// A delegation for writing, whose holder keeps the times.
        WriteWithTimes => WriteWithTimes(WriteDelegation<'b>),
    }
    /// A delegation for reading.
    #[derive(Copy, Default)]
    struct ReadDelegation<'b> {
        /// The id of the delegation.
        state: StateId,
        /// Whether the delegation, which was reclaimed, is to be returned at once.
        recall: bool,
        /// Who may open the file for reading without ACCESS.
        permissions: Ace<'b>,
    }
    /// A delegation for writing.
    #[derive(Copy)]
    struct WriteDelegation<'b> {
        /// The id of the delegation.
        state: StateId,
        /// Whether the delegation, which was reclaimed, is to be returned at once.
        recall: bool,
        /// How much the client may write before it asks.
        space: SpaceLimit,
        /// Who may open the file without ACCESS.
        permissions: Ace<'b>,
    }
    /// How much a client may write before it asks.
    #[derive(Copy)]
    union SpaceLimit on u32 {
        /// The size of the file in bytes.
        1 => Size(u64),
        /// The number of blocks and their size.
        2 => Blocks(BlockLimit),
    }
    /// A number of blocks and their size.
    #[derive(Copy, Default)]
    struct BlockLimit {
        /// The number of blocks.
        count: u32,
        /// The size of a block in bytes.
        block_bytes: u32,
    }
    /// The reason why there is no delegation.
    #[derive(Copy)]
    union NoDelegation on u32 {
        /// The client does not want one.
        0 => NotWanted,
        /// Others use the file; the value tells whether the server will push one.
        1 => Contention(bool),
        /// The server has no resources; the value tells whether it will signal.
        2 => Resource(bool),
        /// The type of the file allows none.
        3 => FileType,
        /// The type of the file allows none for writing.
        4 => FileTypeForWriting,
        /// A delegation cannot be upgraded.
        5 => Upgrade,
        /// A delegation cannot be downgraded.
        6 => Downgrade,
        /// The client cancelled its wish.
        7 => Cancelled,
        /// The object is a directory.
        8 => Directory,
    }
    /// Arguments of OPEN_CONFIRM, of minor version 0.
    #[derive(Copy, Default)]
    struct OpenConfirmArgs {
        /// The open to confirm.
        state: StateId,
        /// The sequence number of the owner.
        sequence: u32,
    }
    /// Arguments of OPEN_DOWNGRADE.
    #[derive(Copy, Default)]
    struct OpenDowngradeArgs {
        /// The open that changes.
        state: StateId,
        /// A number that minor version 1 does not use.
        sequence: u32,
        /// The access that remains.
        access: ShareAccess,
        /// The denied access that remains.
        deny: ShareDeny,
    }
    /// Arguments of GET_DIR_DELEGATION.
    #[derive(Copy, Default)]
    struct GetDirDelegationArgs {
        /// Whether the server is to signal when a delegation becomes available.
        signal: bool,
        /// The notifications that the client wants.
        notifications: Bitmap,
        /// The wanted delay of notifications about attributes of entries.
        child_delay: Time,
        /// The wanted delay of notifications about attributes of the directory.
        directory_delay: Time,
        /// The attributes of entries that the client wants to know of.
        child_attributes: Bitmap,
        /// The attributes of the directory that the client wants to know of.
        directory_attributes: Bitmap,
    }
    /// Results of GET_DIR_DELEGATION.
    #[derive(Copy)]
    union DirDelegation on u32 {
        /// The directory is delegated.
        0 => Granted(GetDirDelegationDone),
        /// There is no delegation; the value tells whether the server will signal.
        1 => Unavailable(bool),
    }
    /// The delegation of a directory.
    #[derive(Copy, Default)]
    struct GetDirDelegationDone {
        /// The verifier for cookies of the directory.
        verifier: Verifier,
        /// The id of the delegation.
        state: StateId,
        /// The notifications that the server will send.
        notifications: Bitmap,
        /// The attributes of entries that it will send.
        child_attributes: Bitmap,
        /// The attributes of the directory that it will send.
        directory_attributes: Bitmap,
    }
    /// Arguments of WANT_DELEGATION.
    #[derive(Copy)]
    struct WantDelegationArgs {
        /// The wish, in the bits of share access.
        want: ShareAccess,
        /// The file, or the delegation that is reclaimed.
        claim: DelegationClaim,
    }
    /// The file of a delegation, or the delegation that is reclaimed.
    #[derive(Copy)]
    union DelegationClaim on u32 {
        /// The current file, with a delegation from before the restart.
        1 => Previous(DelegationType),
        /// The current file.
        4 => Handle,
        /// The current file, delegated to the client's last instance.
        6 => DelegatePreviousHandle,
    }
}

//! Operations on opens and delegations (RFC 8881 sections 18.2, 18.5, 18.6, 18.16 to 18.18, 18.39
//! and 18.49; RFC 9754).
//!
//! Invariant: decoding refuses an unknown claim, kind of creation or type of delegation.

use crate::xdr::xdr;

use super::attribute_types::Ace;
use super::attributes::Fattr;
use super::bitmap::Bitmap;
use super::types::{ChangeInfo, Name, StateId, StateOwner, Time, Verifier};

xdr! {
    /// Arguments of CLOSE.
    #[derive(Copy, Default)]
    struct CloseArgs {
        /// A sequence number that only minor version 0 uses.
        sequence: u32,
        /// The state id of the open that ends.
        state: StateId,
    }
    /// The access that an open allows, and the client's wishes for a delegation.
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
        /// The client withdraws its earlier wish for a delegation.
        WANT_CANCEL = 0x500,
        /// The mask of the bits of which a client sets one wish.
        WANT_DELEG_MASK = 0xff00,
        /// The server should notify the client when it has resources for a delegation.
        WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL = 0x1_0000,
        /// The server should push a delegation when no other client uses the file.
        WANT_PUSH_DELEG_WHEN_UNCONTENDED = 0x2_0000,
        /// The holder of the delegation will determine the file's times.
        WANT_DELEG_TIMESTAMPS = 0x10_0000,
        /// The client wants either an open or a delegation, but not both.
        WANT_OPEN_XOR_DELEGATION = 0x20_0000,
    }
    /// The access that an open denies to other owners.
    flags ShareDeny: u32 {
        /// Other owners may read and write.
        NONE = 0,
        /// Other owners must not read.
        READ = 1,
        /// Other owners must not write.
        WRITE = 2,
        /// Other owners must neither read nor write.
        BOTH = 3,
    }
    /// Arguments of OPEN.
    #[derive(Copy)]
    struct OpenArgs<'b> {
        /// A sequence number that only minor version 0 uses.
        sequence: u32,
        /// The access that the open allows, and the client's wishes for a delegation.
        access: ShareAccess,
        /// The access that the open denies to other owners.
        deny: ShareDeny,
        /// The owner of the open.
        owner: StateOwner<'b>,
        /// The way in which the file is created, or not created.
        how: OpenHow<'b>,
        /// The file to open, or the state to reclaim.
        claim: OpenClaim<'b>,
    }
    /// The kinds of OPEN: with and without the creation of the file.
    #[derive(Copy)]
    union OpenHow<'b> on u32 {
        /// The file must exist.
        0 => NoCreate,
        /// The file is created if it does not exist.
        1 => Create(CreateHow<'b>),
    }
    /// The way in which an OPEN creates the file.
    #[derive(Copy)]
    union CreateHow<'b> on u32 {
        /// If the file exists, it is opened.
        0 => Unchecked(Fattr<'b>),
        /// If the file exists, OPEN fails.
        1 => Guarded(Fattr<'b>),
        /// If the file exists, OPEN fails, unless the file was created with this verifier.
        2 => Exclusive(Verifier),
        /// As `Exclusive`, but with attributes for the new file.
        3 => ExclusiveWithAttributes(ExclusiveCreate<'b>),
    }
    /// The verifier and attributes of a new file.
    #[derive(Copy, Default)]
    struct ExclusiveCreate<'b> {
        /// A number by which the server recognizes a repeat of this creation.
        verifier: Verifier,
        /// The attributes to set on the new file.
        attributes: Fattr<'b>,
    }
    /// The file to open, or the state to reclaim.
    #[derive(Copy)]
    union OpenClaim<'b> on u32 {
        /// The file with this name in the current directory.
        0 => Name(Name<'b>),
        /// The current file, which the client had open, with this delegation, before a restart of
        /// the server.
        1 => Previous(DelegationType),
        /// The file with this name, for which the client has this delegation.
        2 => DelegateCurrent(DelegatedName<'b>),
        /// The file with this name, for which the client's previous instance had a delegation.
        3 => DelegatePrevious(Name<'b>),
        /// The file of the current file handle.
        4 => Handle,
        /// The file of the current file handle, for which the client has this delegation.
        5 => DelegateCurrentHandle(StateId),
        /// The file of the current file handle, for which the client's previous instance had a
        /// delegation.
        6 => DelegatePreviousHandle,
    }
    /// The name of a file, and the delegation that the client has for it.
    #[derive(Copy, Default)]
    struct DelegatedName<'b> {
        /// The state id of the delegation.
        state: StateId,
        /// The name in the current directory.
        name: Name<'b>,
    }
    /// The type of a delegation.
    enum DelegationType {
        /// No delegation, and no reason.
        None = 0,
        /// A delegation for reading.
        Read = 1,
        /// A delegation for writing.
        Write = 2,
        /// No delegation, and the reason for that.
        NoneWithReason = 3,
        /// A delegation for reading whose holder determines the file's times.
        ReadWithTimes = 4,
        /// A delegation for writing whose holder determines the file's times.
        WriteWithTimes = 5,
    }
    /// Results of OPEN.
    #[derive(Copy)]
    struct OpenDone<'b> {
        /// The state id of the open.
        state: StateId,
        /// The change attribute of the directory before and after the operation.
        change: ChangeInfo,
        /// Properties of the open.
        flags: OpenFlags,
        /// The attributes that the server has set.
        attributes: Bitmap,
        /// The delegation that the server grants together with the open.
        delegation: Delegation<'b>,
    }
    /// Properties of an open.
    flags OpenFlags: u32 {
        /// The open must be confirmed by OPEN_CONFIRM (minor version 0 only).
        CONFIRM = 0x2,
        /// Locks behave as POSIX defines.
        LOCKTYPE_POSIX = 0x4,
        /// A file that is removed while it is open exists until it is closed.
        PRESERVE_UNLINKED = 0x8,
        /// The server may send CB_NOTIFY_LOCK when a lock becomes available.
        MAY_NOTIFY_LOCK = 0x20,
        /// The server has granted only a delegation, and no open.
        NO_OPEN_STATEID = 0x10,
    }
    /// A delegation, or the reason why none is granted.
    #[derive(Copy, Default)]
    union Delegation<'b> on DelegationType {
        /// No delegation, and no reason.
        #[default]
        None => None,
        /// A delegation for reading.
        Read => Read(ReadDelegation<'b>),
        /// A delegation for writing.
        Write => Write(WriteDelegation<'b>),
        /// No delegation, and the reason for that.
        NoneWithReason => Refused(NoDelegation),
        /// A delegation for reading whose holder determines the file's times.
        ReadWithTimes => ReadWithTimes(ReadDelegation<'b>),
        /// A delegation for writing whose holder determines the file's times.
        WriteWithTimes => WriteWithTimes(WriteDelegation<'b>),
    }
    /// A delegation for reading.
    #[derive(Copy, Default)]
    struct ReadDelegation<'b> {
        /// The state id of the delegation.
        state: StateId,
        /// True if the client must return the delegation, which it has reclaimed, immediately.
        recall: bool,
        /// The users that may open the file for reading without an ACCESS.
        permissions: Ace<'b>,
    }
    /// A delegation for writing.
    #[derive(Copy)]
    struct WriteDelegation<'b> {
        /// The state id of the delegation.
        state: StateId,
        /// True if the client must return the delegation, which it has reclaimed, immediately.
        recall: bool,
        /// The amount of data that the client may write before it must ask the server for more
        /// space.
        space: SpaceLimit,
        /// The users that may open the file without an ACCESS.
        permissions: Ace<'b>,
    }
    /// The amount of data that a client may write before it must ask the server for more space.
    #[derive(Copy)]
    union SpaceLimit on u32 {
        /// The maximum size of the file in bytes.
        1 => Size(u64),
        /// The maximum number of blocks, and their size.
        2 => Blocks(BlockLimit),
    }
    /// A number of blocks, and the size of a block.
    #[derive(Copy, Default)]
    struct BlockLimit {
        /// The number of blocks.
        count: u32,
        /// The size of a block in bytes.
        block_bytes: u32,
    }
    /// The reason why the server grants no delegation.
    #[derive(Copy)]
    union NoDelegation on u32 {
        /// The client does not want a delegation.
        0 => NotWanted,
        /// Other clients use the file; the value is true if the server will push a delegation
        /// later.
        1 => Contention(bool),
        /// The server lacks resources; the value is true if the server will notify the client
        /// later.
        2 => Resource(bool),
        /// There are no delegations for this type of file.
        3 => FileType,
        /// There are no delegations for writing for this type of file.
        4 => FileTypeForWriting,
        /// A delegation for reading cannot be changed into one for writing.
        5 => Upgrade,
        /// A delegation for writing cannot be changed into one for reading.
        6 => Downgrade,
        /// The client has withdrawn its wish.
        7 => Cancelled,
        /// The object is a directory.
        8 => Directory,
    }
    /// Arguments of OPEN_CONFIRM, of minor version 0.
    #[derive(Copy, Default)]
    struct OpenConfirmArgs {
        /// The state id of the open to confirm.
        state: StateId,
        /// The sequence number of the owner.
        sequence: u32,
    }
    /// Arguments of OPEN_DOWNGRADE.
    #[derive(Copy, Default)]
    struct OpenDowngradeArgs {
        /// The state id of the open that changes.
        state: StateId,
        /// A sequence number that only minor version 0 uses.
        sequence: u32,
        /// The access that the open still allows.
        access: ShareAccess,
        /// The access that the open still denies to other owners.
        deny: ShareDeny,
    }
    /// Arguments of GET_DIR_DELEGATION.
    #[derive(Copy, Default)]
    struct GetDirDelegationArgs {
        /// True if the server should notify the client when a delegation becomes available.
        signal: bool,
        /// The kinds of notifications that the client wants.
        notifications: Bitmap,
        /// The delay that the client wants for notifications about attributes of entries.
        child_delay: Time,
        /// The delay that the client wants for notifications about attributes of the directory.
        directory_delay: Time,
        /// The attributes of entries whose changes the client wants to learn.
        child_attributes: Bitmap,
        /// The attributes of the directory whose changes the client wants to learn.
        directory_attributes: Bitmap,
    }
    /// Results of GET_DIR_DELEGATION.
    #[derive(Copy)]
    union DirDelegation on u32 {
        /// The directory is delegated.
        0 => Granted(GetDirDelegationDone),
        /// No delegation is available; the value is true if the server will notify the client
        /// later.
        1 => Unavailable(bool),
    }
    /// The delegation of a directory.
    #[derive(Copy, Default)]
    struct GetDirDelegationDone {
        /// The verifier of cookies of the directory.
        verifier: Verifier,
        /// The state id of the delegation.
        state: StateId,
        /// The kinds of notifications that the server will send.
        notifications: Bitmap,
        /// The attributes of entries whose changes the server will report.
        child_attributes: Bitmap,
        /// The attributes of the directory whose changes the server will report.
        directory_attributes: Bitmap,
    }
    /// Arguments of WANT_DELEGATION.
    #[derive(Copy)]
    struct WantDelegationArgs {
        /// The wish for a delegation, in the bits of share access.
        want: ShareAccess,
        /// The file, or the delegation to reclaim.
        claim: DelegationClaim,
    }
    /// The file for which a delegation is wanted, or the delegation to reclaim.
    #[derive(Copy)]
    union DelegationClaim on u32 {
        /// The current file, for which the client had this delegation before a restart of the
        /// server.
        1 => Previous(DelegationType),
        /// The file of the current file handle.
        4 => Handle,
        /// The file of the current file handle, for which the client's previous instance had a
        /// delegation.
        6 => DelegatePreviousHandle,
    }
}

//! Functions that encode the operations of versions 4.1 and 4.2.
//!
//! Invariant: each function encodes the operation exactly as the RFC describes it.

use super::StateId;
use super::attributes::{Set, put_bits};
use crate::xdr::Put;

/// An operation with its encoded arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// The number of the operation.
    pub number: u32,
    /// The encoded arguments of the operation.
    pub arguments: Vec<u8>,
}

macro_rules! operations {
    ($($name:ident $number:literal)*) => {
        $(#[doc = concat!("The operation `", stringify!($name), "`, number ", $number, ".")]
        pub const $name: u32 = $number;)*

        /// Returns the name of an operation.
        #[must_use]
        pub fn name(number: u32) -> String {
            match number {
                $($number => stringify!($name).into(),)*
                other => format!("operation {other}"),
            }
        }

        /// The numbers of all operations, in ascending order.
        pub const ALL: &[u32] = &[$($number,)*];
    };
}

operations! {
    ACCESS 3
    CLOSE 4
    COMMIT 5
    CREATE 6
    DELEGPURGE 7
    DELEGRETURN 8
    GETATTR 9
    GETFH 10
    LINK 11
    LOCK 12
    LOCKT 13
    LOCKU 14
    LOOKUP 15
    LOOKUPP 16
    NVERIFY 17
    OPEN 18
    OPENATTR 19
    OPEN_CONFIRM 20
    OPEN_DOWNGRADE 21
    PUTFH 22
    PUTPUBFH 23
    PUTROOTFH 24
    READ 25
    READDIR 26
    READLINK 27
    REMOVE 28
    RENAME 29
    RENEW 30
    RESTOREFH 31
    SAVEFH 32
    SECINFO 33
    SETATTR 34
    SETCLIENTID 35
    SETCLIENTID_CONFIRM 36
    VERIFY 37
    WRITE 38
    RELEASE_LOCKOWNER 39
    BACKCHANNEL_CTL 40
    BIND_CONN_TO_SESSION 41
    EXCHANGE_ID 42
    CREATE_SESSION 43
    DESTROY_SESSION 44
    FREE_STATEID 45
    GET_DIR_DELEGATION 46
    GETDEVICEINFO 47
    GETDEVICELIST 48
    LAYOUTCOMMIT 49
    LAYOUTGET 50
    LAYOUTRETURN 51
    SECINFO_NO_NAME 52
    SEQUENCE 53
    SET_SSV 54
    TEST_STATEID 55
    WANT_DELEGATION 56
    DESTROY_CLIENTID 57
    RECLAIM_COMPLETE 58
    ALLOCATE 59
    COPY 60
    COPY_NOTIFY 61
    DEALLOCATE 62
    IO_ADVISE 63
    LAYOUTERROR 64
    LAYOUTSTATS 65
    OFFLOAD_CANCEL 66
    OFFLOAD_STATUS 67
    READ_PLUS 68
    SEEK 69
    WRITE_SAME 70
    CLONE 71
    GETXATTR 72
    SETXATTR 73
    LISTXATTRS 74
    REMOVEXATTR 75
    ILLEGAL 10044
}

/// The bits of share access and share deny in an OPEN.
pub mod share {
    /// Access for reading; in share deny: other owners must not read.
    pub const READ: u32 = 1;
    /// Access for writing; in share deny: other owners must not write.
    pub const WRITE: u32 = 2;
    /// Both reading and writing.
    pub const BOTH: u32 = 3;
    /// The client wants a delegation for reading.
    pub const WANT_READ: u32 = 0x100;
    /// The client wants a delegation for writing.
    pub const WANT_WRITE: u32 = 0x200;
    /// The client wants no delegation.
    pub const WANT_NONE: u32 = 0x400;
}

/// The numbers of the types of locks.
pub mod lock_type {
    /// A shared lock of a range.
    pub const READ: u32 = 1;
    /// An exclusive lock of a range.
    pub const WRITE: u32 = 2;
    /// A shared lock, which the client will request again until it is granted.
    pub const READW: u32 = 3;
    /// An exclusive lock, which the client will request again until it is granted.
    pub const WRITEW: u32 = 4;
}

/// The way in which an OPEN creates its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// The file is not created; it must exist.
    Open,
    /// If the file exists, it is opened.
    Unchecked(Set),
    /// If the file exists, OPEN fails.
    Guarded(Set),
    /// If the file exists, OPEN fails, unless the file was created with this verifier.
    Exclusive([u8; 8]),
    /// As `Exclusive`, but with attributes for the new file.
    Exclusive41([u8; 8], Set),
}

/// The file that an OPEN opens, or the state that it reclaims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A name in the current directory.
    Name(Vec<u8>),
    /// The current file, which the client had open, with this type of delegation, before a restart.
    Previous(u32),
    /// A name in the current directory, of whose file the client holds this delegation.
    DelegateCur(StateId, Vec<u8>),
    /// The file of the current file handle.
    Fh,
    /// The current file, of which the client holds this delegation.
    DelegCurFh(StateId),
    /// The current file, of which the client's previous instance held a delegation.
    DelegPrevFh,
}

/// The owner of the locks in a LOCK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locker {
    /// An owner that has no locks under the open yet: the state id of the open, and the owner's
    /// name.
    New(StateId, Vec<u8>),
    /// An owner that already has locks of the file: the state id of the locks.
    Known(StateId),
}

/// The limits of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// The number of padding bytes before the data of a WRITE.
    pub header_pad: u32,
    /// The maximum length of a request in bytes.
    pub request_max: u32,
    /// The maximum length of a reply in bytes.
    pub response_max: u32,
    /// The maximum length in bytes of a reply that is kept for a repeat.
    pub cached_max: u32,
    /// The maximum number of operations in a compound.
    pub operations: u32,
    /// The maximum number of requests in progress. This is the number of slots.
    pub requests: u32,
}

impl Channel {
    /// The limits that most cases ask for, for their own calls.
    pub const FORE: Self = Self {
        header_pad: 0,
        request_max: 1 << 20,
        response_max: 1 << 20,
        cached_max: 8192,
        operations: 64,
        requests: 16,
    };
    /// The limits that most cases ask for, for callbacks.
    pub const BACK: Self = Self {
        header_pad: 0,
        request_max: 4096,
        response_max: 4096,
        cached_max: 4096,
        operations: 8,
        requests: 4,
    };

    fn put(&self, put: Put) -> Put {
        let put = put.u32(self.header_pad).u32(self.request_max).u32(self.response_max);
        put.u32(self.cached_max).u32(self.operations).u32(self.requests).u32(0)
    }
}

/// Returns an operation with these encoded arguments.
#[must_use]
pub fn op(number: u32, arguments: Put) -> Op {
    Op { number, arguments: arguments.0 }
}

/// Returns an operation without arguments.
#[must_use]
pub fn bare(number: u32) -> Op {
    op(number, Put::new())
}

fn named(number: u32, name: impl AsRef<[u8]>) -> Op {
    op(number, Put::new().opaque(name))
}

fn of_state(number: u32, state: StateId) -> Op {
    op(number, state.put(Put::new()))
}

macro_rules! simple {
    ($($(#[$about:meta])* $function:ident($($argument:ident: $type:ty),*) = $op:expr;)*) => {$(
        $(#[$about])*
        #[must_use]
        pub fn $function($($argument: $type),*) -> Op {
            $op
        }
    )*};
}

simple! {
    /// PUTROOTFH: sets the current file handle to the server's root.
    putrootfh() = bare(PUTROOTFH);
    /// PUTPUBFH: sets the current file handle to the public directory.
    putpubfh() = bare(PUTPUBFH);
    /// PUTFH: sets the current file handle.
    putfh(fh: &[u8]) = named(PUTFH, fh);
    /// GETFH: returns the current file handle.
    getfh() = bare(GETFH);
    /// SAVEFH: saves the current file handle.
    savefh() = bare(SAVEFH);
    /// RESTOREFH: sets the current file handle to the saved one.
    restorefh() = bare(RESTOREFH);
    /// LOOKUPP: sets the current file handle to the parent directory.
    lookupp() = bare(LOOKUPP);
    /// READLINK: returns the target of a symbolic link.
    readlink() = bare(READLINK);
    /// LOOKUP: sets the current file handle to the object with this name.
    lookup(name: impl AsRef<[u8]>) = named(LOOKUP, name);
    /// REMOVE: removes a name from the current directory.
    remove(name: impl AsRef<[u8]>) = named(REMOVE, name);
    /// SECINFO: returns the security flavors for a name.
    secinfo(name: impl AsRef<[u8]>) = named(SECINFO, name);
    /// LINK: creates a name for the saved file in the current directory.
    link(name: impl AsRef<[u8]>) = named(LINK, name);
    /// SECINFO_NO_NAME: returns the security flavors for the current object (0) or for its parent
    /// (1).
    secinfo_no_name(style: u32) = op(SECINFO_NO_NAME, Put::new().u32(style));
    /// ACCESS: returns the rights that the caller has.
    access(rights: u32) = op(ACCESS, Put::new().u32(rights));
    /// GETATTR: returns the attributes with these numbers.
    getattr(numbers: &[u32]) = op(GETATTR, put_bits(Put::new(), numbers));
    /// SETATTR: sets these attributes.
    setattr(state: StateId, set: &Set) = op(SETATTR, set.put(state.put(Put::new())));
    /// VERIFY: fails unless the attributes have these values.
    verify(set: &Set) = op(VERIFY, set.put(Put::new()));
    /// NVERIFY: fails if the attributes have these values.
    nverify(set: &Set) = op(NVERIFY, set.put(Put::new()));
    /// READ: returns data of a range.
    read(state: StateId, offset: u64, count: u32) =
        op(READ, state.put(Put::new()).u64(offset).u32(count));
    /// READ_PLUS: returns data and holes of a range.
    read_plus(state: StateId, offset: u64, count: u32) =
        op(READ_PLUS, state.put(Put::new()).u64(offset).u32(count));
    /// WRITE: writes data. The stability is 0 (unstable), 1 (data sync) or 2 (file sync).
    write(state: StateId, offset: u64, stable: u32, data: &[u8]) =
        op(WRITE, state.put(Put::new()).u64(offset).u32(stable).opaque(data));
    /// COMMIT: puts written data on stable storage.
    commit(offset: u64, count: u32) = op(COMMIT, Put::new().u64(offset).u32(count));
    /// CLOSE: ends an open.
    close(state: StateId) = op(CLOSE, state.put(Put::new().u32(0)));
    /// OPEN_DOWNGRADE: reduces the access or the reservation of an open.
    downgrade(state: StateId, access: u32, deny: u32) =
        op(OPEN_DOWNGRADE, state.put(Put::new()).u32(0).u32(access).u32(deny));
    /// RENAME: moves a name from the saved directory to the current one.
    rename(from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) =
        op(RENAME, Put::new().opaque(from).opaque(to));
    /// READDIR: lists the current directory.
    readdir(cookie: u64, verifier: [u8; 8], counts: (u32, u32), numbers: &[u32]) = {
        let put = Put::new().u64(cookie).raw(&verifier).u32(counts.0).u32(counts.1);
        op(READDIR, put_bits(put, numbers))
    };
    /// OPENATTR: sets the current file handle to the directory of named attributes.
    openattr(create: bool) = op(OPENATTR, Put::new().bool(create));
    /// TEST_STATEID: returns the status of each state id.
    test_stateid(states: &[StateId]) =
        op(TEST_STATEID, Put::new().list(states, |put, state| state.put(put)));
    /// FREE_STATEID: frees a state id that is no longer used.
    free_stateid(state: StateId) = of_state(FREE_STATEID, state);
    /// DELEGRETURN: returns a delegation.
    delegreturn(state: StateId) = of_state(DELEGRETURN, state);
    /// DELEGPURGE: gives up the delegations of the client's previous instance.
    delegpurge(client: u64) = op(DELEGPURGE, Put::new().u64(client));
    /// RECLAIM_COMPLETE: reports that the client will reclaim no more state.
    reclaim_complete(one_fs: bool) = op(RECLAIM_COMPLETE, Put::new().bool(one_fs));
    /// DESTROY_SESSION: ends a session.
    destroy_session(id: [u8; 16]) = op(DESTROY_SESSION, Put::new().raw(&id));
    /// DESTROY_CLIENTID: ends a client.
    destroy_clientid(client: u64) = op(DESTROY_CLIENTID, Put::new().u64(client));
    /// BIND_CONN_TO_SESSION: binds the connection. The direction is 1 (fore), 2 (back), 3 or 7
    /// (both).
    bind_conn(id: [u8; 16], direction: u32) =
        op(BIND_CONN_TO_SESSION, Put::new().raw(&id).u32(direction).bool(false));
    /// BACKCHANNEL_CTL: sets the RPC program for callbacks, which are sent without a credential.
    backchannel_ctl(program: u32) = op(BACKCHANNEL_CTL, Put::new().u32(program).u32(1).u32(0));
    /// SEQUENCE: states the session, the slot and the sequence number of the compound.
    sequence(id: [u8; 16], number: u32, slot: u32, highest: u32, cache: bool) =
        op(SEQUENCE, Put::new().raw(&id).u32(number).u32(slot).u32(highest).bool(cache));
    /// EXCHANGE_ID: identifies a client, which asks for no protection of its state.
    exchange_id(verifier: [u8; 8], owner: &[u8], flags: u32) =
        op(EXCHANGE_ID, Put::new().raw(&verifier).opaque(owner).u32(flags).u32(0).u32(0));
    /// EXCHANGE_ID: identifies a client, which asks for SP4_MACH_CRED: that operations need the
    /// credential of its machine (`enforce`), and that it suffices for others (`allow`).
    exchange_id_protected(verifier: [u8; 8], owner: &[u8], enforce: &[u32], allow: &[u32]) = {
        let put = Put::new().raw(&verifier).opaque(owner).u32(0).u32(1);
        op(EXCHANGE_ID, put_bits(put_bits(put, enforce), allow).u32(0))
    };
    /// CREATE_SESSION: creates a session, whose callbacks are sent without a credential.
    create_session(client: u64, number: u32, flags: u32, fore: Channel, back: Channel) = {
        let put = Put::new().u64(client).u32(number).u32(flags);
        op(CREATE_SESSION, back.put(fore.put(put)).u32(super::callback::PROGRAM).u32(1).u32(0))
    };
    /// LOCKT: tests whether a lock would conflict with another.
    lockt(kind: u32, offset: u64, length: u64, owner: &[u8]) =
        op(LOCKT, Put::new().u32(kind).u64(offset).u64(length).u64(0).opaque(owner));
    /// LOCKU: releases locks in a range.
    locku(kind: u32, state: StateId, offset: u64, length: u64) =
        op(LOCKU, state.put(Put::new().u32(kind).u32(0)).u64(offset).u64(length));
    /// GET_DIR_DELEGATION: asks for a delegation of the current directory.
    get_dir_delegation() = {
        let put = Put::new().bool(false).u32(0).u64(0).u32(0).u64(0).u32(0);
        op(GET_DIR_DELEGATION, put.u32(0).u32(0))
    };
    /// WANT_DELEGATION: asks for a delegation of the current file.
    want_delegation(want: u32) = op(WANT_DELEGATION, Put::new().u32(want).u32(4));
    /// LAYOUTGET: asks for a layout of this type.
    layoutget(kind: u32, state: StateId) = {
        let put = Put::new().bool(false).u32(kind).u32(1).u64(0).u64(u64::MAX).u64(0);
        op(LAYOUTGET, state.put(put).u32(4096))
    };
    /// GETDEVICEINFO: asks for a device of this layout type.
    getdeviceinfo(kind: u32) =
        op(GETDEVICEINFO, Put::new().raw(&[7; 16]).u32(kind).u32(4096).u32(0));
    /// GETDEVICELIST: asks for the devices of this layout type.
    getdevicelist(kind: u32) =
        op(GETDEVICELIST, Put::new().u32(kind).u32(10).u64(0).u64(0));
    /// LAYOUTRETURN: returns the layout of a whole file.
    layoutreturn(kind: u32, state: StateId) = {
        let put = Put::new().bool(false).u32(kind).u32(3).u32(1).u64(0).u64(u64::MAX);
        op(LAYOUTRETURN, state.put(put).opaque(""))
    };
    /// LAYOUTCOMMIT: commits a layout, without any changes.
    layoutcommit(kind: u32, state: StateId) = {
        let put = state.put(Put::new().u64(0).u64(0).bool(false)).bool(false).bool(false);
        op(LAYOUTCOMMIT, put.u32(kind).opaque(""))
    };
    /// SET_SSV: sets a shared secret, although the client has asked for none.
    set_ssv() = op(SET_SSV, Put::new().opaque([1; 32]).opaque([2; 32]));
    /// ALLOCATE: reserves storage for a range.
    allocate(state: StateId, offset: u64, length: u64) =
        op(ALLOCATE, state.put(Put::new()).u64(offset).u64(length));
    /// DEALLOCATE: makes a range a hole.
    deallocate(state: StateId, offset: u64, length: u64) =
        op(DEALLOCATE, state.put(Put::new()).u64(offset).u64(length));
    /// SEEK: finds the next data (0) or the next hole (1).
    seek(state: StateId, offset: u64, what: u32) =
        op(SEEK, state.put(Put::new()).u64(offset).u32(what));
    /// IO_ADVISE: tells the server the expected use of a range.
    io_advise(state: StateId, offset: u64, count: u64, hints: &[u32]) =
        op(IO_ADVISE, put_bits(state.put(Put::new()).u64(offset).u64(count), hints));
    /// COPY: copies a range of the saved file to the current file, within the server.
    copy(from: StateId, to: StateId, offsets: (u64, u64), count: u64, synchronous: bool) = {
        let put = to.put(from.put(Put::new())).u64(offsets.0).u64(offsets.1).u64(count);
        op(COPY, put.bool(true).bool(synchronous).u32(0))
    };
    /// CLONE: makes a range of the current file share blocks with the saved file.
    clone(from: StateId, to: StateId, offsets: (u64, u64), count: u64) =
        op(CLONE, to.put(from.put(Put::new())).u64(offsets.0).u64(offsets.1).u64(count));
    /// OFFLOAD_STATUS: returns the progress of a copy.
    offload_status(state: StateId) = of_state(OFFLOAD_STATUS, state);
    /// OFFLOAD_CANCEL: cancels a copy.
    offload_cancel(state: StateId) = of_state(OFFLOAD_CANCEL, state);
    /// COPY_NOTIFY: announces that another server will copy the file.
    copy_notify(state: StateId) =
        op(COPY_NOTIFY, state.put(Put::new()).u32(1).opaque("elsewhere"));
    /// WRITE_SAME: writes one block.
    write_same(state: StateId) = {
        let put = state.put(Put::new()).u32(2).u64(0).u64(512).u64(1).u64(0).u32(0);
        op(WRITE_SAME, put.u64(0).opaque("x"))
    };
    /// GETXATTR: returns the value of an extended attribute.
    getxattr(name: impl AsRef<[u8]>) = named(GETXATTR, name);
    /// SETXATTR: sets an extended attribute. The option is 0 (either), 1 (create) or 2 (replace).
    setxattr(option: u32, name: impl AsRef<[u8]>, value: &[u8]) =
        op(SETXATTR, Put::new().u32(option).opaque(name).opaque(value));
    /// LISTXATTRS: returns the names of extended attributes.
    listxattrs(cookie: u64, count: u32) = op(LISTXATTRS, Put::new().u64(cookie).u32(count));
    /// REMOVEXATTR: removes an extended attribute.
    removexattr(name: impl AsRef<[u8]>) = named(REMOVEXATTR, name);
}

/// CREATE: creates an object that is not a regular file. `kind` is the encoded type of the object,
/// with its link text or device number.
#[must_use]
pub fn create(kind: Put, name: impl AsRef<[u8]>, set: &Set) -> Op {
    op(CREATE, set.put(kind.opaque(name)))
}

/// CREATE: creates a directory.
#[must_use]
pub fn mkdir(name: impl AsRef<[u8]>) -> Op {
    create(Put::new().u32(2), name, &Set::new().mode(0o777))
}

/// CREATE: creates a symbolic link.
#[must_use]
pub fn symlink(name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Op {
    create(Put::new().u32(5).opaque(target), name, &Set::new())
}

/// LOCK: locks a range.
#[must_use]
pub fn lock(kind: u32, reclaim: bool, offset: u64, length: u64, locker: &Locker) -> Op {
    let put = Put::new().u32(kind).bool(reclaim).u64(offset).u64(length);
    op(
        LOCK,
        match locker {
            Locker::New(open, owner) => open.put(put.bool(true).u32(0)).u32(0).u64(0).opaque(owner),
            Locker::Known(state) => state.put(put.bool(false)).u32(0),
        },
    )
}

/// OPEN: opens a file.
#[must_use]
pub fn open(owner: &[u8], access: u32, deny: u32, how: &How, claim: &Claim) -> Op {
    let put = Put::new().u32(0).u32(access).u32(deny).u64(0).opaque(owner);
    let put = match how {
        How::Open => put.u32(0),
        How::Unchecked(set) => set.put(put.u32(1).u32(0)),
        How::Guarded(set) => set.put(put.u32(1).u32(1)),
        How::Exclusive(verifier) => put.u32(1).u32(2).raw(verifier),
        How::Exclusive41(verifier, set) => set.put(put.u32(1).u32(3).raw(verifier)),
    };
    let put = match claim {
        Claim::Name(name) => put.u32(0).opaque(name),
        Claim::Previous(kind) => put.u32(1).u32(*kind),
        Claim::DelegateCur(state, name) => state.put(put.u32(2)).opaque(name),
        Claim::Fh => put.u32(4),
        Claim::DelegCurFh(state) => state.put(put.u32(5)),
        Claim::DelegPrevFh => put.u32(6),
    };
    op(OPEN, put)
}

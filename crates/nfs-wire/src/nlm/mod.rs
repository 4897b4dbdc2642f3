//! The network lock manager (NLM), for clients of NFS version 3. In version 4, offsets and lengths
//! have 64 bits; in versions 1 and 3, they have 32 bits.

pub mod v3;
pub mod v4;

use crate::xdr::{Opaque, xdr};

/// The maximum length of the name of a client, in bytes.
pub const CALLER_BYTES_MAX: usize = 1024;
/// The maximum length of a cookie or of an owner, in bytes.
pub const OBJECT_BYTES_MAX: usize = 1024;
/// The lowest number of a procedure that is only in versions 3 and 4.
pub const FIRST_OF_VERSION_3: u32 = 20;

/// The name of a client.
pub type CallerName<'b> = Opaque<'b, CALLER_BYTES_MAX>;
/// A cookie, an owner or a file handle.
pub type NetObject<'b> = Opaque<'b, OBJECT_BYTES_MAX>;

xdr! {
    /// The status of a procedure. Versions 1 and 3 have only the values up to 5.
    enum LockStatus {
        /// The lock is granted, or the procedure has succeeded.
        Granted = 0,
        /// The lock conflicts with another lock.
        Denied = 1,
        /// The server has no memory for the lock.
        DeniedNoLocks = 2,
        /// The lock conflicts with another lock; the server will grant it later by a call to the
        /// client.
        Blocked = 3,
        /// The server has restarted and only accepts reclaims of old locks.
        DeniedGracePeriod = 4,
        /// To wait for the lock would be a deadlock.
        Deadlock = 5,
        /// The file system is read-only.
        RoFs = 6,
        /// The file of the handle no longer exists.
        StaleFh = 7,
        /// The offset or the length is too large for the server.
        FBig = 8,
        /// The server failed for another reason.
        Failed = 9,
    }

    /// The access that a share reservation denies to other owners.
    enum ShareMode {
        /// Other owners may read and write.
        DenyNone = 0,
        /// Other owners must not read.
        DenyRead = 1,
        /// Other owners must not write.
        DenyWrite = 2,
        /// Other owners must neither read nor write.
        DenyReadWrite = 3,
    }

    /// The access for which a share reservation is made.
    enum ShareAccess {
        /// The holder neither reads nor writes.
        None = 0,
        /// The holder wants to read.
        Read = 1,
        /// The holder wants to write.
        Write = 2,
        /// The holder wants to read and write.
        ReadWrite = 3,
    }
}

/// Declares the types and the table of a version whose offsets and lengths are of the type
/// `$number`.
macro_rules! lock_manager {
    ($table:ident = $title:literal, version $version:literal, numbers $number:ty) => {
        use super::{CallerName, LockStatus, NetObject, ShareAccess, ShareMode};
        use $crate::table::program;
        use $crate::xdr::xdr;

        xdr! {
            /// A lock with which a requested lock conflicts.
            #[derive(Copy)]
            struct Holder<'b> {
                /// True if the lock is exclusive.
                is_exclusive: bool,
                /// The id of the process that holds the lock.
                process: u32,
                /// The owner of the lock, as the client encodes it.
                owner: NetObject<'b>,
                /// The offset in the file of the first byte.
                offset: $number,
                /// The number of bytes; 0 means up to the end of the file.
                length: $number,
            }

            /// A lock of a range of a file.
            #[derive(Copy)]
            struct Lock<'b> {
                /// The name of the client's host.
                caller: CallerName<'b>,
                /// The handle of the file.
                file: NetObject<'b>,
                /// The owner of the lock, as the client encodes it.
                owner: NetObject<'b>,
                /// The id of the process on the client's host.
                process: u32,
                /// The offset in the file of the first byte.
                offset: $number,
                /// The number of bytes; 0 means up to the end of the file.
                length: $number,
            }

            /// A share reservation of a file.
            #[derive(Copy)]
            struct Share<'b> {
                /// The name of the client's host.
                caller: CallerName<'b>,
                /// The handle of the file.
                file: NetObject<'b>,
                /// The owner of the reservation, as the client encodes it.
                owner: NetObject<'b>,
                /// The access that is denied to other owners.
                mode: ShareMode,
                /// The access for which the reservation is made.
                access: ShareAccess,
            }

            /// The arguments of TEST and GRANTED.
            #[derive(Copy)]
            struct TestArgs<'b> {
                /// A value that the results repeat.
                cookie: NetObject<'b>,
                /// True if the lock is exclusive.
                is_exclusive: bool,
                /// The lock that is tested, or that was granted.
                lock: Lock<'b>,
            }

            /// The arguments of LOCK.
            #[derive(Copy)]
            struct LockArgs<'b> {
                /// A value that the results repeat.
                cookie: NetObject<'b>,
                /// True if the client waits until the lock is granted.
                waits: bool,
                /// True if the lock is exclusive.
                is_exclusive: bool,
                /// The lock to set.
                lock: Lock<'b>,
                /// True if the client held the lock before a restart of the server.
                reclaims: bool,
                /// The state number of the client's status monitor: see [`nsm`](crate::nsm).
                state: u32,
            }

            /// The arguments of CANCEL.
            #[derive(Copy)]
            struct CancelArgs<'b> {
                /// A value that the results repeat.
                cookie: NetObject<'b>,
                /// True if the client waited for the lock.
                waits: bool,
                /// True if the lock is exclusive.
                is_exclusive: bool,
                /// The lock that the client no longer wants.
                lock: Lock<'b>,
            }

            /// The arguments of UNLOCK.
            #[derive(Copy)]
            struct UnlockArgs<'b> {
                /// A value that the results repeat.
                cookie: NetObject<'b>,
                /// The range to unlock.
                lock: Lock<'b>,
            }

            /// The outcome of the test of a lock.
            #[derive(Copy)]
            union TestReply<'b> on LockStatus {
                /// The test failed because of this lock.
                Denied => Denied(Holder<'b>),
                /// The lock could be granted, or the procedure failed; the number is the status.
                _ => Other,
            }

            /// The results of TEST.
            #[derive(Copy)]
            struct TestResult<'b> {
                /// The value that the arguments contained.
                cookie: NetObject<'b>,
                /// The outcome of the test.
                reply: TestReply<'b>,
            }

            /// The results of LOCK, CANCEL, UNLOCK and GRANTED.
            #[derive(Copy)]
            struct LockResult<'b> {
                /// The value that the arguments contained.
                cookie: NetObject<'b>,
                /// The status of the procedure.
                status: LockStatus,
            }

            /// The arguments of SHARE and UNSHARE.
            #[derive(Copy)]
            struct ShareArgs<'b> {
                /// A value that the results repeat.
                cookie: NetObject<'b>,
                /// The share reservation to set or remove.
                share: Share<'b>,
                /// True if the client had the reservation before a restart of the server.
                reclaims: bool,
            }

            /// The results of SHARE and UNSHARE.
            #[derive(Copy)]
            struct ShareResult<'b> {
                /// The value that the arguments contained.
                cookie: NetObject<'b>,
                /// The status of the procedure.
                status: LockStatus,
                /// A sequence number, which no client uses.
                sequence: u32,
            }

            /// The arguments of FREE_ALL, which releases the locks of a client that has restarted.
            #[derive(Copy)]
            struct FreeAllArgs<'b> {
                /// The name of the client's host.
                client: CallerName<'b>,
                /// The state number of the client's status monitor: see [`nsm`](crate::nsm).
                state: u32,
            }
        }

        program! {
            #[doc = concat!("The table of ", $title, ".")]
            $table = $title, 100021 version $version;
            Procedure, Arguments<'b>, Results<'b>;
            Null = 0 "NULL" (()) -> (()) Reads;
            Test = 1 "TEST" (TestArgs<'b>) -> (TestResult<'b>) Reads;
            Lock = 2 "LOCK" (LockArgs<'b>) -> (LockResult<'b>) Repeats;
            Cancel = 3 "CANCEL" (CancelArgs<'b>) -> (LockResult<'b>) Repeats;
            Unlock = 4 "UNLOCK" (UnlockArgs<'b>) -> (LockResult<'b>) Repeats;
            Granted = 5 "GRANTED" (TestArgs<'b>) -> (LockResult<'b>) Repeats;
            TestMsg = 6 "TEST_MSG" (TestArgs<'b>) -> (()) Reads;
            LockMsg = 7 "LOCK_MSG" (LockArgs<'b>) -> (()) Repeats;
            CancelMsg = 8 "CANCEL_MSG" (CancelArgs<'b>) -> (()) Repeats;
            UnlockMsg = 9 "UNLOCK_MSG" (UnlockArgs<'b>) -> (()) Repeats;
            GrantedMsg = 10 "GRANTED_MSG" (TestArgs<'b>) -> (()) Repeats;
            TestRes = 11 "TEST_RES" (TestResult<'b>) -> (()) Repeats;
            LockRes = 12 "LOCK_RES" (LockResult<'b>) -> (()) Repeats;
            CancelRes = 13 "CANCEL_RES" (LockResult<'b>) -> (()) Repeats;
            UnlockRes = 14 "UNLOCK_RES" (LockResult<'b>) -> (()) Repeats;
            GrantedRes = 15 "GRANTED_RES" (LockResult<'b>) -> (()) Repeats;
            Share = 20 "SHARE" (ShareArgs<'b>) -> (ShareResult<'b>) Repeats;
            Unshare = 21 "UNSHARE" (ShareArgs<'b>) -> (ShareResult<'b>) Repeats;
            NmLock = 22 "NM_LOCK" (LockArgs<'b>) -> (LockResult<'b>) Repeats;
            FreeAll = 23 "FREE_ALL" (FreeAllArgs<'b>) -> (()) Repeats;
        }
    };
}
use lock_manager;

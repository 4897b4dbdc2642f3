//! The lock manager (NLM) for clients of NFS version 3: version 4 has numbers of 64 bits, versions
//! 1 and 3 have numbers of 32 bits.

pub mod v3;
pub mod v4;

use crate::xdr::{Opaque, xdr};

/// The maximum length of the name of a client, in bytes.
pub const CALLER_BYTES_MAX: usize = 1024;
/// The maximum length of a cookie or of an owner, in bytes.
pub const OBJECT_BYTES_MAX: usize = 1024;
/// The first number of the procedures that versions before 3 lack.
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
        /// Another lock is in conflict.
        Denied = 1,
        /// The server has no memory for the lock.
        DeniedNoLocks = 2,
        /// The lock will be granted later, by a call of the server.
        Blocked = 3,
        /// The server has restarted, and only old locks are granted.
        DeniedGracePeriod = 4,
        /// The lock would wait for itself.
        Deadlock = 5,
        /// The file system can only be read.
        RoFs = 6,
        /// The file of the handle does not exist any more.
        StaleFh = 7,
        /// Offset and length are beyond what the server has.
        FBig = 8,
        /// The server failed for another reason.
        Failed = 9,
    }

    /// What a share reservation denies to others.
    enum ShareMode {
        /// Others may do everything.
        DenyNone = 0,
        /// Others may not read.
        DenyRead = 1,
        /// Others may not write.
        DenyWrite = 2,
        /// Others may neither read nor write.
        DenyReadWrite = 3,
    }

    /// What a share reservation is for.
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

/// Declares types and table of a version whose offsets and lengths are of the type `$number`.
macro_rules! lock_manager {
    ($table:ident = $title:literal, version $version:literal, numbers $number:ty) => {
        use super::{CallerName, LockStatus, NetObject, ShareAccess, ShareMode};
        use $crate::table::program;
        use $crate::xdr::xdr;

        xdr! {
            /// A lock that stands against another.
            #[derive(Copy)]
            struct Holder<'b> {
                /// Whether the lock excludes all others.
                is_exclusive: bool,
                /// The number of the process that holds the lock.
                process: u32,
                /// The owner, which is opaque.
                owner: NetObject<'b>,
                /// The offset of the first byte.
                offset: $number,
                /// The number of bytes; 0 stands for all up to the end.
                length: $number,
            }

            /// A lock of a range of a file.
            #[derive(Copy)]
            struct Lock<'b> {
                /// The name of the client.
                caller: CallerName<'b>,
                /// The handle of the file.
                file: NetObject<'b>,
                /// The owner, which is opaque.
                owner: NetObject<'b>,
                /// The number of the process.
                process: u32,
                /// The offset of the first byte.
                offset: $number,
                /// The number of bytes; 0 stands for all up to the end.
                length: $number,
            }

            /// A share reservation of a file.
            #[derive(Copy)]
            struct Share<'b> {
                /// The name of the client.
                caller: CallerName<'b>,
                /// The handle of the file.
                file: NetObject<'b>,
                /// The owner, which is opaque.
                owner: NetObject<'b>,
                /// What others are denied.
                mode: ShareMode,
                /// What the reservation is for.
                access: ShareAccess,
            }

            /// The arguments of TEST and GRANTED.
            #[derive(Copy)]
            struct TestArgs<'b> {
                /// The number that the results repeat.
                cookie: NetObject<'b>,
                /// Whether the lock excludes all others.
                is_exclusive: bool,
                /// The lock that is asked about, or granted.
                lock: Lock<'b>,
            }

            /// The arguments of LOCK.
            #[derive(Copy)]
            struct LockArgs<'b> {
                /// The number that the results repeat.
                cookie: NetObject<'b>,
                /// Whether the client waits for the lock.
                waits: bool,
                /// Whether the lock excludes all others.
                is_exclusive: bool,
                /// The lock to set.
                lock: Lock<'b>,
                /// Whether the client had the lock before the server restarted.
                reclaims: bool,
                /// The state number of the client's status monitor.
                state: u32,
            }

            /// The arguments of CANCEL.
            #[derive(Copy)]
            struct CancelArgs<'b> {
                /// The number that the results repeat.
                cookie: NetObject<'b>,
                /// Whether the client waited for the lock.
                waits: bool,
                /// Whether the lock excludes all others.
                is_exclusive: bool,
                /// The lock that is not wanted any more.
                lock: Lock<'b>,
            }

            /// The arguments of UNLOCK.
            #[derive(Copy)]
            struct UnlockArgs<'b> {
                /// The number that the results repeat.
                cookie: NetObject<'b>,
                /// The range to unlock.
                lock: Lock<'b>,
            }

            /// Whether a lock could be granted.
            #[derive(Copy)]
            union TestReply<'b> on LockStatus {
                /// The lock that stands against it.
                Denied => Denied(Holder<'b>),
                /// The lock could be granted, or the procedure failed.
                _ => Other,
            }

            /// The results of TEST.
            #[derive(Copy)]
            struct TestResult<'b> {
                /// The number that the arguments had.
                cookie: NetObject<'b>,
                /// Whether the lock could be granted.
                reply: TestReply<'b>,
            }

            /// The results of LOCK, CANCEL, UNLOCK and GRANTED.
            #[derive(Copy)]
            struct LockResult<'b> {
                /// The number that the arguments had.
                cookie: NetObject<'b>,
                /// The status of the procedure.
                status: LockStatus,
            }

            /// The arguments of SHARE and UNSHARE.
            #[derive(Copy)]
            struct ShareArgs<'b> {
                /// The number that the results repeat.
                cookie: NetObject<'b>,
                /// The share reservation to set or remove.
                share: Share<'b>,
                /// Whether the client had it before the server restarted.
                reclaims: bool,
            }

            /// The results of SHARE and UNSHARE.
            #[derive(Copy)]
            struct ShareResult<'b> {
                /// The number that the arguments had.
                cookie: NetObject<'b>,
                /// The status of the procedure.
                status: LockStatus,
                /// A sequence number, which no client uses.
                sequence: u32,
            }

            /// The arguments of FREE_ALL: a client has restarted.
            #[derive(Copy)]
            struct FreeAllArgs<'b> {
                /// The name of the client.
                client: CallerName<'b>,
                /// The state number of the client's status monitor.
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

//! The status of a procedure (RFC 1813 section 2.6).

use crate::xdr::xdr;

xdr! {
    /// The status of a procedure. Decoding fails for a number that is not listed here.
    enum Status {
        /// The procedure has succeeded.
        Ok = 0,
        /// The caller is neither the owner nor privileged.
        Perm = 1,
        /// The file or name does not exist.
        NoEnt = 2,
        /// The storage failed to read or write.
        Io = 5,
        /// The device does not exist.
        NxIo = 6,
        /// The caller lacks the permission for this.
        Acces = 13,
        /// A file of this name exists already.
        Exist = 17,
        /// The two names are in different file systems.
        XDev = 18,
        /// The device does not support this operation.
        NoDev = 19,
        /// The handle is not that of a directory.
        NotDir = 20,
        /// The handle is that of a directory.
        IsDir = 21,
        /// An argument has a value that is not allowed.
        Inval = 22,
        /// The file would become too large.
        FBig = 27,
        /// There is no space left on the device.
        NoSpc = 28,
        /// The file system is read-only.
        RoFs = 30,
        /// The file has too many hard links.
        MLink = 31,
        /// The name is too long for the file system.
        NameTooLong = 63,
        /// The directory is not empty.
        NotEmpty = 66,
        /// The user's quota is used up.
        DQuot = 69,
        /// The file of the handle no longer exists.
        Stale = 70,
        /// The path leads through too many remote servers.
        Remote = 71,
        /// The handle was not issued by this server.
        BadHandle = 10001,
        /// The guard of SETATTR differs from the file's change time.
        NotSync = 10002,
        /// The cookie of a directory is no longer valid.
        BadCookie = 10003,
        /// The server does not support the procedure.
        NotSupp = 10004,
        /// A buffer or a count is too small.
        TooSmall = 10005,
        /// The server failed for another reason.
        ServerFault = 10006,
        /// The server does not support the type of file.
        BadType = 10007,
        /// The server needs more time. The client should send the call again later.
        Jukebox = 10008,
    }
}

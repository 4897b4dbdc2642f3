//! The types and constants for C programs.
//!
//! Invariant: no layout of a struct and no value of a constant ever changes. New fields are added
//! at the end, and structs that may grow begin with their size.

use std::ffi::{c_char, c_int, c_void};

/// A client: sessions, memory and completion groups that belong together, with the lock that its
/// threads share. NULL means the default client of the process, which is created when it is first
/// needed.
pub struct dap_client {
    _private: [u8; 0],
}

/// A session with a server.
pub struct dap_session {
    _private: [u8; 0],
}

/// An open file of a session.
pub struct dap_file {
    _private: [u8; 0],
}

/// A region of registered memory.
pub struct dap_region {
    _private: [u8; 0],
}

/// A completion group, which collects the completions of operations.
pub struct dap_group {
    _private: [u8; 0],
}

/// A directory that is being read.
pub struct dap_directory {
    _private: [u8; 0],
}

/// A timeout without a limit.
pub const DAP_FOREVER: i64 = -1;

/// The range up to the end of a file, even if the file grows.
pub const DAP_TO_END: u64 = u64::MAX;

// ---- connecting ---------------------------------------------------------------------

/// Use shared memory only.
pub const DAP_CONNECT_SHARED_MEMORY: u32 = 1;
/// Use only TCP to connect.
pub const DAP_CONNECT_TCP: u32 = 2;
/// Use checksums on every message and all data.
pub const DAP_CONNECT_CHECKSUMS: u32 = 4;
/// Use a CRC on iWARP frames.
pub const DAP_CONNECT_CRC: u32 = 8;
/// End the session with its connection instead of reconnecting.
pub const DAP_CONNECT_NO_RECOVERY: u32 = 0x10;
/// Make the server keep replies in case a reply is lost, even without recovery.
pub const DAP_CONNECT_RESPONSE_CACHE: u32 = 0x20;
/// Ask the server for delegations, which allow this client to cache read data.
pub const DAP_CONNECT_DELEGATIONS: u32 = 0x40;

/// No authentication. Over shared memory the kernel vouches for the user.
pub const DAP_AUTH_NONE: u32 = 0;
/// A user name and a password, in clear text.
pub const DAP_AUTH_PASSWORD: u32 = 1;
/// Authenticate with Kerberos only.
pub const DAP_AUTH_KERBEROS: u32 = 2;
/// The strongest method that both the server and this program support.
pub const DAP_AUTH_AUTOMATIC: u32 = 3;

/// The question to an authentication callback.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_auth_question {
    /// The server's name, as in the URL.
    pub server: *const c_char,
    /// The user in the URL, or NULL.
    pub user: *const c_char,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The reason why the previous attempt was refused; NULL for the first attempt.
    pub refusal: *const c_char,
}

/// The answer of an authentication callback, with NULL for unused fields. Texts are copied when the
/// callback returns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_auth_answer {
    /// The method, one of DAP_AUTH_...
    pub method: u32,
    /// For a password: the user name; NULL for the user in the URL.
    pub user: *const c_char,
    /// For a password: the password.
    pub password: *const c_char,
    /// For Kerberos: the service; NULL for dafs@ and the server's host.
    pub service: *const c_char,
    /// For Kerberos: the ticket cache; NULL for the user's default.
    pub cache: *const c_char,
    /// For Kerberos: a client keytab to use instead of a cache.
    pub keytab: *const c_char,
}

/// A callback that chooses how to authenticate. The callback is called when connecting, and again
/// each time the server has refused the previous answer. It returns 0, or a negative error number,
/// with which the connection attempt then fails. It must return: it must neither throw an exception
/// nor jump out.
pub type dap_authenticate = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        question: *const dap_auth_question,
        answer: *mut dap_auth_answer,
    ) -> c_int,
>;

/// Options of a client. Zero means the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_client_options {
    /// The size of this struct: sizeof (dap_client_options).
    pub size: usize,
    /// The longest time to poll before sleeping, in microseconds plus one: 0 for the default of 50
    /// microseconds, 1 for never. With more than the default, a socket is polled as long as the
    /// client waits for a reply.
    pub spin_us_plus_1: u32,
    /// If not 0, a synchronous call that gets large memory without a region handle registers this
    /// memory with an RDMA device while the call runs, instead of copying the data.
    pub lend: u32,
}

/// Options of a session. Zero and NULL mean the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_connect_options {
    /// The size of this struct: sizeof (dap_connect_options).
    pub size: usize,
    /// A combination of DAP_CONNECT_...
    pub flags: u32,
    /// The maximum number of outstanding requests; 0 for the default of 64.
    pub credits: u32,
    /// The name of this client across connections; NULL for a random name.
    pub client_name: *const c_char,
    /// The fence identity of this client.
    pub fence_id: *const c_char,
    /// The longest silence of the server while a call waits for it, in milliseconds; 0 for the
    /// default, DAP_FOREVER for no limit.
    pub answer_timeout_ms: i64,
    /// The time for which a session tries to reconnect, in milliseconds; 0 for the default of two
    /// minutes.
    pub recovery_timeout_ms: i64,
    /// The authentication callback; NULL to use the user and password in the URL, or none.
    pub authenticate: dap_authenticate,
    /// The first argument of `authenticate`.
    pub authenticate_context: *mut c_void,
    /// For dafs+tls: a file with the authorities that sign server certificates.
    pub tls_authorities: *const c_char,
    /// For dafs+tls: a file with this program's certificate, for servers that ask for one.
    pub tls_certificate: *const c_char,
    /// For dafs+tls: a file with the key of that certificate.
    pub tls_key: *const c_char,
    /// For dafs+tls: the name in the server's certificate; NULL for the host in the URL.
    pub tls_name: *const c_char,
}

// ---- opening ------------------------------------------------------------------------

/// Open the file for reading.
pub const DAP_READ: u32 = 1;
/// Open the file for writing.
pub const DAP_WRITE: u32 = 2;
/// Create the file if it does not exist.
pub const DAP_CREATE: u32 = 4;
/// Create the file, which must not exist.
pub const DAP_EXCLUSIVE: u32 = 8;
/// Truncate the file to zero bytes.
pub const DAP_TRUNCATE: u32 = 0x10;
/// Create a file without a name in the file system of the directory at the path. The file exists as
/// long as it is open.
pub const DAP_NAMELESS: u32 = 0x20;

/// While the file is open, deny opens for reading by others.
pub const DAP_DENY_READ: u32 = 1;
/// While the file is open, deny opens for writing by others.
pub const DAP_DENY_WRITE: u32 = 2;
/// Deny opens that do not give the same key.
pub const DAP_SHARE_KEY: u32 = 4;
/// While the file is open, deny other clients the removal of its name.
pub const DAP_KEEP_NAME: u32 = 8;

/// No information on the order of accesses.
pub const DAP_PATTERN_NORMAL: u32 = 0;
/// Accesses are in random order.
pub const DAP_PATTERN_RANDOM: u32 = 1;
/// Accesses have increasing offsets.
pub const DAP_PATTERN_SEQUENTIAL: u32 = 2;
/// The range will be needed soon.
pub const DAP_PATTERN_WILL_NEED: u32 = 3;
/// The range will not be needed soon.
pub const DAP_PATTERN_DONT_NEED: u32 = 4;

/// The server should fetch the range now.
pub const DAP_HINT_PREFETCH: u32 = 1;

/// Options of an open. Zero means the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_open_options {
    /// The size of this struct: sizeof (dap_open_options).
    pub size: usize,
    /// A combination of DAP_DENY_..., DAP_SHARE_KEY and DAP_KEEP_NAME.
    pub sharing: u32,
    /// One of DAP_PATTERN_...: the expected use of the whole file.
    pub pattern: u32,
    /// The key for DAP_SHARE_KEY.
    pub key: u64,
    /// DAP_HINT_PREFETCH in bit 0. Bits 1 to 3 and 4 to 6 are the likelihood of reading and
    /// writing, from 1 to 7, or 0 for unknown.
    pub hint: u32,
    /// Reserved, and must be 0.
    pub reserved: u32,
}

// ---- data ---------------------------------------------------------------------------

/// A memory descriptor. Without a region handle, the bytes are copied once through registered
/// memory of the library.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_memory {
    /// The address of the first byte, which is in the region if there is one.
    pub pointer: *mut c_void,
    /// The length in bytes.
    pub length: usize,
    /// The region that contains the memory, or NULL.
    pub region: *mut dap_region,
}

/// A range of a file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_range {
    /// The offset of the first byte.
    pub offset: u64,
    /// The length in bytes, below 4 GiB.
    pub length: u64,
}

/// A server restart may lose the written data until dap_fsync.
pub const DAP_UNSTABLE: u32 = 0;
/// The written data is durable, with the attributes needed to read it.
pub const DAP_DATA_SYNC: u32 = 1;
/// The written data and all attributes are durable.
pub const DAP_FILE_SYNC: u32 = 2;

/// The file ends where the read ended, so that a read from there would return no bytes.
pub const DAP_END_OF_FILE: u32 = 1;

/// The completion of an operation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_completion {
    /// The number of the operation.
    pub operation: u64,
    /// The value of `context` that was given when the operation was submitted.
    pub context: *mut c_void,
    /// The number of bytes transferred, or a negative error number.
    pub result: i64,
    /// The flags: DAP_END_OF_FILE or 0.
    pub flags: u32,
    /// Reserved, and always 0.
    pub reserved: u32,
    /// The error text, valid until this thread waits for completions again; NULL if there is no
    /// error.
    pub text: *const c_char,
}

/// A request of a batch: several ranges of a file, and several pieces of memory with the same total
/// length. There can be at most 64 ranges and 64 pieces.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_batch_request {
    /// The file of the request.
    pub file: *mut dap_file,
    /// The direction: DAP_READ or DAP_WRITE.
    pub direction: u32,
    /// Reserved, and must be 0.
    pub reserved: u32,
    /// The ranges of the file.
    pub ranges: *const dap_range,
    /// The number of ranges.
    pub range_count: usize,
    /// The pieces of memory.
    pub memory: *const dap_memory,
    /// The number of pieces of memory.
    pub memory_count: usize,
    /// A value of the caller, which is returned with the completion.
    pub context: *mut c_void,
    /// Set by dap_batch_submit: the number of the operation.
    pub operation: u64,
    /// Set by dap_batch: the number of bytes transferred, or a negative error number.
    pub result: i64,
}

// ---- attributes ---------------------------------------------------------------------

/// A time since 1970-01-01 00:00 UTC.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct dap_time {
    /// The number of whole seconds.
    pub seconds: i64,
    /// The number of nanoseconds, below 1,000,000,000.
    pub nanoseconds: u32,
    /// Reserved, and must be 0.
    pub reserved: u32,
}

/// The attributes of an object.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct dap_attributes {
    /// The type and permissions, as in struct stat.
    pub mode: u32,
    /// The number of hard links.
    pub link_count: u32,
    /// The user id of the owner; 4294967295 if the server's name for the owner is not a number.
    pub uid: u32,
    /// The group id; 4294967295 if the server's name for the group is not a number.
    pub gid: u32,
    /// The size in bytes.
    pub size: u64,
    /// The allocated storage in bytes.
    pub space_used: u64,
    /// The inode number, unique in the file system.
    pub file_id: u64,
    /// A value that differs after every change of the object.
    pub change: u64,
    /// The time of the last read.
    pub accessed: dap_time,
    /// The time of the last change of data.
    pub modified: dap_time,
    /// The time of the last change of data or attributes.
    pub changed: dap_time,
}

/// An entry of a directory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_entry {
    /// The name, valid until the next dap_readdir or dap_closedir of this directory.
    pub name: *const c_char,
    /// The attributes of the object, if `has_attributes` is not 0. They are missing if the object
    /// was removed.
    pub attributes: dap_attributes,
    /// Not 0 if `attributes` is valid.
    pub has_attributes: u32,
    /// Reserved, and always 0.
    pub reserved: u32,
}

/// Information on a file system.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct dap_filesystem {
    /// Total space in bytes.
    pub space_total: u64,
    /// Free space in bytes.
    pub space_free: u64,
    /// Space that this user may still use, in bytes.
    pub space_available: u64,
    /// Total number of inodes.
    pub files_total: u64,
    /// Number of free inodes.
    pub files_free: u64,
    /// Largest file size in bytes.
    pub file_size_max: u64,
    /// Longest name in bytes.
    pub name_bytes_max: u32,
    /// Maximum number of hard links to an object.
    pub link_count_max: u32,
    /// The time for which the server keeps the opens and locks of a silent client, in seconds.
    pub lease_seconds: u32,
    /// Reserved, and always 0.
    pub reserved: u32,
}

/// Set the permissions to `mode`.
pub const DAP_SET_MODE: u32 = 1;
/// Set the owner to `uid`.
pub const DAP_SET_UID: u32 = 2;
/// Set the group to `gid`.
pub const DAP_SET_GID: u32 = 4;
/// Set the size to `file_size`, by truncating or extending the file.
pub const DAP_SET_SIZE: u32 = 8;
/// Set the time of the last read to `accessed`.
pub const DAP_SET_ACCESSED: u32 = 0x10;
/// Set the time of the last change of data to `modified`.
pub const DAP_SET_MODIFIED: u32 = 0x20;
/// Set the time of the last read to the server's current time.
pub const DAP_SET_ACCESSED_NOW: u32 = 0x40;
/// Set the time of the last change of data to the server's current time.
pub const DAP_SET_MODIFIED_NOW: u32 = 0x80;
/// Do not follow a symbolic link at the end of the path.
pub const DAP_NO_FOLLOW: u32 = 0x100;

/// The attributes to set. Either all of them are set or none.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_changes {
    /// The size of this struct: sizeof (dap_changes).
    pub size: usize,
    /// A combination of DAP_SET_... and DAP_NO_FOLLOW.
    pub flags: u32,
    /// The new permissions of the object.
    pub mode: u32,
    /// The new owner's user id.
    pub uid: u32,
    /// The new group's id.
    pub gid: u32,
    /// The size in bytes.
    pub file_size: u64,
    /// The time of the last read.
    pub accessed: dap_time,
    /// The time of the last change of data.
    pub modified: dap_time,
}

/// The right to read data, or to list a directory.
pub const DAP_ACCESS_READ: u32 = 1;
/// The right to look up names in a directory.
pub const DAP_ACCESS_LOOKUP: u32 = 2;
/// The right to change existing data or entries.
pub const DAP_ACCESS_MODIFY: u32 = 4;
/// The right to add data or entries.
pub const DAP_ACCESS_EXTEND: u32 = 8;
/// The right to remove names from a directory.
pub const DAP_ACCESS_DELETE: u32 = 0x10;
/// The right to execute the file, or to search the directory.
pub const DAP_ACCESS_EXECUTE: u32 = 0x20;

// ---- locks and fences ---------------------------------------------------------------

/// A lock that excludes writers, but allows other shared locks.
pub const DAP_LOCK_SHARED: u32 = 0;
/// A lock that excludes all other locks, readers and writers.
pub const DAP_LOCK_EXCLUSIVE: u32 = 1;

/// If the owner of the lock fails, the lock becomes broken instead of being released.
pub const DAP_LOCK_PERSIST: u32 = 2;
/// If the owner of the lock fails, the server rolls back the changes made under the lock.
pub const DAP_LOCK_AUTO_RECOVERY: u32 = 4;
/// Take over a broken lock. The caller must have checked and repaired the data.
pub const DAP_LOCK_REPAIR: u32 = 8;

/// A lock that conflicts with a request.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct dap_lock_holder {
    /// The kind of lock: DAP_LOCK_SHARED or DAP_LOCK_EXCLUSIVE.
    pub kind: u32,
    /// Reserved, and always 0.
    pub reserved: u32,
    /// The offset of the first locked byte.
    pub offset: u64,
    /// The number of locked bytes, or DAP_TO_END.
    pub length: u64,
}

/// A fence around one file.
pub const DAP_FENCE_FILE: u32 = 0;
/// A fence around the file system that contains a path.
pub const DAP_FENCE_FILE_SYSTEM: u32 = 1;

/// Allow only the named clients to access the object. With no names, the fence is removed.
pub const DAP_FENCE_SET: u32 = 0;
/// Allow the named clients to access the object, in addition to those already allowed.
pub const DAP_FENCE_ADD: u32 = 1;
/// No longer allow the named clients to access the object.
pub const DAP_FENCE_REMOVE: u32 = 2;

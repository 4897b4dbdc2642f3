//! What a C program sees besides the functions.
//!
//! Invariant: nothing here changes its layout or its value; what is new is added behind, and
//! structs that may grow begin with their size.

use std::ffi::{c_char, c_int, c_void};

/// Sessions, memory and completion groups that belong together, and the lock that threads take
/// turns with. NULL stands for one of the process's own, which is made when it is first needed.
pub struct dap_client {
    _private: [u8; 0],
}

/// A session with a server.
pub struct dap_session {
    _private: [u8; 0],
}

/// An open file.
pub struct dap_file {
    _private: [u8; 0],
}

/// Registered memory.
pub struct dap_region {
    _private: [u8; 0],
}

/// A completion group: where the ends of operations are collected.
pub struct dap_group {
    _private: [u8; 0],
}

/// A directory being read.
pub struct dap_directory {
    _private: [u8; 0],
}

/// A timeout without an end.
pub const DAP_FOREVER: i64 = -1;

/// All to the end of a file, wherever that comes to be.
pub const DAP_TO_END: u64 = u64::MAX;

// ---- connecting ---------------------------------------------------------------------

/// Shared memory or nothing.
pub const DAP_CONNECT_SHARED_MEMORY: u32 = 1;
/// TCP or nothing.
pub const DAP_CONNECT_TCP: u32 = 2;
/// Checksums on every message and all data.
pub const DAP_CONNECT_CHECKSUMS: u32 = 4;
/// CRC on the frames of iWARP.
pub const DAP_CONNECT_CRC: u32 = 8;
/// The session ends with its connection, instead of coming back by itself.
pub const DAP_CONNECT_NO_RECOVERY: u32 = 0x10;
/// The server keeps results for the case that an answer is lost, even without recovery.
pub const DAP_CONNECT_RESPONSE_CACHE: u32 = 0x20;
/// Ask for the right to keep what is read of files (delegations).
pub const DAP_CONNECT_DELEGATIONS: u32 = 0x40;

/// No proof: over shared memory the kernel vouches for the user.
pub const DAP_AUTH_NONE: u32 = 0;
/// User name and password, in clear text.
pub const DAP_AUTH_PASSWORD: u32 = 1;
/// Kerberos, or nothing.
pub const DAP_AUTH_KERBEROS: u32 = 2;
/// The best that the server offers and this program has.
pub const DAP_AUTH_AUTOMATIC: u32 = 3;

/// What a program is asked when it connects.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_auth_question {
    /// The server's name, as in the URL.
    pub server: *const c_char,
    /// The user in the URL; NULL if there is none.
    pub user: *const c_char,
    /// Counted from 1.
    pub attempt: u32,
    /// Why the attempt before was refused; NULL at first.
    pub refusal: *const c_char,
}

/// What it answers; NULL where it says nothing. Texts are copied when the callback returns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_auth_answer {
    /// One of DAP_AUTH_...
    pub method: u32,
    /// For a password: whose; NULL for the user in the URL.
    pub user: *const c_char,
    /// For a password.
    pub password: *const c_char,
    /// For Kerberos: the service; NULL for dafs@ and the server's host.
    pub service: *const c_char,
    /// For Kerberos: the ticket cache; NULL for the user's own.
    pub cache: *const c_char,
    /// For Kerberos: a client keytab, instead of a cache.
    pub keytab: *const c_char,
}

/// Asked how to prove who this program is, when it connects and whenever the server has refused
/// what was answered before. Returns 0, or a negative error number, with which connecting fails.
pub type dap_authenticate = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        question: *const dap_auth_question,
        answer: *mut dap_auth_answer,
    ) -> c_int,
>;

/// Habits of a client. What is zero is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_client_options {
    /// sizeof (dap_client_options).
    pub size: usize,
    /// Longest time to spin before sleeping, in microseconds plus one; 0 for the default (50), 1
    /// for never. With more than the default a socket is asked for all that is awaited alone.
    pub spin_us_plus_1: u32,
    /// Not 0: large memory without a region handle is lent to an RDMA device for the time of a
    /// synchronous call, instead of being copied.
    pub lend: u32,
}

/// What a session should be like. What is zero or NULL is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_connect_options {
    /// sizeof (dap_connect_options).
    pub size: usize,
    /// DAP_CONNECT_...
    pub flags: u32,
    /// The most requests to have outstanding; 0 for 64.
    pub credits: u32,
    /// Names this client to the server across connections; NULL for a random name.
    pub client_name: *const c_char,
    /// Name for fencing.
    pub fence_id: *const c_char,
    /// Longest silence of the server while somebody waits for it, in milliseconds; 0 for the
    /// default, DAP_FOREVER for no end.
    pub answer_timeout_ms: i64,
    /// How long a session tries to come back, in milliseconds; 0 for the default, two minutes.
    pub recovery_timeout_ms: i64,
    /// How to prove who this program is; NULL for the user and password of the URL, or nothing.
    pub authenticate: dap_authenticate,
    /// Handed to `authenticate`.
    pub authenticate_context: *mut c_void,
    /// For dafs+tls: a file with the authorities that vouch for servers.
    pub tls_authorities: *const c_char,
    /// For dafs+tls: this program's own certificate, for servers that ask.
    pub tls_certificate: *const c_char,
    /// For dafs+tls: the key of that.
    pub tls_key: *const c_char,
    /// For dafs+tls: whose certificate the server must show; NULL for the host in the URL.
    pub tls_name: *const c_char,
}

// ---- opening ------------------------------------------------------------------------

/// For reading.
pub const DAP_READ: u32 = 1;
/// For writing.
pub const DAP_WRITE: u32 = 2;
/// Make the file if it is not there.
pub const DAP_CREATE: u32 = 4;
/// Make the file; it must not be there.
pub const DAP_EXCLUSIVE: u32 = 8;
/// Cut it to nothing.
pub const DAP_TRUNCATE: u32 = 0x10;
/// Make a file without a name, in the file system of the directory at the path. It lives while
/// it is open.
pub const DAP_NAMELESS: u32 = 0x20;

/// Others may not open it for reading meanwhile.
pub const DAP_DENY_READ: u32 = 1;
/// Others may not open it for writing meanwhile.
pub const DAP_DENY_WRITE: u32 = 2;
/// All opens must show the key.
pub const DAP_SHARE_KEY: u32 = 4;
/// Others may not remove its name meanwhile.
pub const DAP_KEEP_NAME: u32 = 8;

/// No statement about the order of accesses.
pub const DAP_PATTERN_NORMAL: u32 = 0;
/// There is no order.
pub const DAP_PATTERN_RANDOM: u32 = 1;
/// Offsets rise.
pub const DAP_PATTERN_SEQUENTIAL: u32 = 2;
/// It will be needed soon.
pub const DAP_PATTERN_WILL_NEED: u32 = 3;
/// It will not be needed soon.
pub const DAP_PATTERN_DONT_NEED: u32 = 4;

/// The server should fetch the range now.
pub const DAP_HINT_PREFETCH: u32 = 1;

/// More of an open. What is zero is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_open_options {
    /// sizeof (dap_open_options).
    pub size: usize,
    /// DAP_DENY_..., DAP_SHARE_KEY and DAP_KEEP_NAME.
    pub sharing: u32,
    /// One of DAP_PATTERN_...: the use that is expected of the whole file.
    pub pattern: u32,
    /// The key, with DAP_SHARE_KEY.
    pub key: u64,
    /// DAP_HINT_PREFETCH; bits 1 to 3 and 4 to 6 are the likelihood of reading and writing, from
    /// 1 to 7, or 0 for no statement.
    pub hint: u32,
    /// 0.
    pub reserved: u32,
}

// ---- data ---------------------------------------------------------------------------

/// A memory descriptor. Without a region handle the bytes pass through registered memory of the
/// library's, by one copy.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_memory {
    /// The first byte; in the region, if there is one.
    pub pointer: *mut c_void,
    /// Bytes.
    pub length: usize,
    /// The region it lies in, or NULL.
    pub region: *mut dap_region,
}

/// A range of a file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_range {
    /// Its first byte.
    pub offset: u64,
    /// Bytes, below 4 GiB.
    pub length: u64,
}

/// A write may be lost with the server until dap_fsync.
pub const DAP_UNSTABLE: u32 = 0;
/// A write lasts, and what is needed to find it.
pub const DAP_DATA_SYNC: u32 = 1;
/// A write lasts, and all attributes.
pub const DAP_FILE_SYNC: u32 = 2;

/// The file ends where the read ended.
pub const DAP_END_OF_FILE: u32 = 1;

/// The end of an operation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_completion {
    /// Its number.
    pub operation: u64,
    /// The caller's own word, given at the submission.
    pub context: *mut c_void,
    /// Bytes moved, or a negative error number.
    pub result: i64,
    /// DAP_END_OF_FILE.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
    /// Why it failed, until this thread waits for completions again; NULL if it did not.
    pub text: *const c_char,
}

/// A request of a batch: several ranges of a file from or into several pieces of memory, which are
/// as long together. At most 64 of each.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_batch_request {
    /// The file.
    pub file: *mut dap_file,
    /// DAP_READ or DAP_WRITE.
    pub direction: u32,
    /// 0.
    pub reserved: u32,
    /// Where in the file.
    pub ranges: *const dap_range,
    /// How many.
    pub range_count: usize,
    /// Where in memory.
    pub memory: *const dap_memory,
    /// How many.
    pub memory_count: usize,
    /// Handed back with the completion.
    pub context: *mut c_void,
    /// Set by dap_batch_submit: the number of the operation.
    pub operation: u64,
    /// Set by dap_batch: bytes moved, or a negative error number.
    pub result: i64,
}

// ---- attributes ---------------------------------------------------------------------

/// A time since 1970.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct dap_time {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanoseconds: u32,
    /// 0.
    pub reserved: u32,
}

/// Attributes of an object.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct dap_attributes {
    /// Kind and permissions, as in struct stat.
    pub mode: u32,
    /// Hard links.
    pub link_count: u32,
    /// Owner; 4294967295 if the server names it by other than a number.
    pub uid: u32,
    /// Group; the same.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Bytes of storage.
    pub space_used: u64,
    /// Unique in its file system.
    pub file_id: u64,
    /// Differs after every change.
    pub change: u64,
    /// Last read.
    pub accessed: dap_time,
    /// Last change of data.
    pub modified: dap_time,
    /// Last change of anything.
    pub changed: dap_time,
}

/// A name in a directory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_entry {
    /// The name, until the next dap_readdir or dap_closedir of this directory.
    pub name: *const c_char,
    /// Its attributes, if `has_attributes` is not 0: the object may be gone.
    pub attributes: dap_attributes,
    /// Whether there are attributes.
    pub has_attributes: u32,
    /// 0.
    pub reserved: u32,
}

/// A file system.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct dap_filesystem {
    /// All bytes.
    pub space_total: u64,
    /// Free bytes.
    pub space_free: u64,
    /// Bytes that this user may still fill.
    pub space_available: u64,
    /// All file slots.
    pub files_total: u64,
    /// Free file slots.
    pub files_free: u64,
    /// Largest file.
    pub file_size_max: u64,
    /// Longest name, in bytes.
    pub name_bytes_max: u32,
    /// Most links to one object.
    pub link_count_max: u32,
    /// How long clients are missed before what they hold is given up, in seconds.
    pub lease_seconds: u32,
    /// 0.
    pub reserved: u32,
}

/// Set the mode.
pub const DAP_SET_MODE: u32 = 1;
/// Set the owner.
pub const DAP_SET_UID: u32 = 2;
/// Set the group.
pub const DAP_SET_GID: u32 = 4;
/// Cut or extend.
pub const DAP_SET_SIZE: u32 = 8;
/// Set the time of the last read.
pub const DAP_SET_ACCESSED: u32 = 0x10;
/// Set the time of the last change of data.
pub const DAP_SET_MODIFIED: u32 = 0x20;
/// Set the time of the last read to the server's present time.
pub const DAP_SET_ACCESSED_NOW: u32 = 0x40;
/// Set the time of the last change of data to the server's present time.
pub const DAP_SET_MODIFIED_NOW: u32 = 0x80;
/// A symbolic link at the end of the path is not followed.
pub const DAP_NO_FOLLOW: u32 = 0x100;

/// What to set, all of it or nothing.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dap_changes {
    /// sizeof (dap_changes).
    pub size: usize,
    /// DAP_SET_... and DAP_NO_FOLLOW.
    pub flags: u32,
    /// Permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub file_size: u64,
    /// Last read.
    pub accessed: dap_time,
    /// Last change of data.
    pub modified: dap_time,
}

/// Whether data may be read, or a directory listed.
pub const DAP_ACCESS_READ: u32 = 1;
/// Whether names may be looked up.
pub const DAP_ACCESS_LOOKUP: u32 = 2;
/// Whether what is there may be changed.
pub const DAP_ACCESS_MODIFY: u32 = 4;
/// Whether something may be added.
pub const DAP_ACCESS_EXTEND: u32 = 8;
/// Whether names may be removed.
pub const DAP_ACCESS_DELETE: u32 = 0x10;
/// Whether it may be executed.
pub const DAP_ACCESS_EXECUTE: u32 = 0x20;

// ---- locks and fences ---------------------------------------------------------------

/// Keeps writers out.
pub const DAP_LOCK_SHARED: u32 = 0;
/// Keeps everybody out.
pub const DAP_LOCK_EXCLUSIVE: u32 = 1;

/// The lock breaks, instead of vanishing, when its owner fails.
pub const DAP_LOCK_PERSIST: u32 = 2;
/// Changes under the lock are rolled back when its owner fails.
pub const DAP_LOCK_AUTO_RECOVERY: u32 = 4;
/// Takes over a broken lock: the caller has looked after the data.
pub const DAP_LOCK_REPAIR: u32 = 8;

/// A lock that stands in the way.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct dap_lock_holder {
    /// DAP_LOCK_SHARED or DAP_LOCK_EXCLUSIVE.
    pub kind: u32,
    /// 0.
    pub reserved: u32,
    /// Its first byte.
    pub offset: u64,
    /// Bytes, or DAP_TO_END.
    pub length: u64,
}

/// A fence around one file.
pub const DAP_FENCE_FILE: u32 = 0;
/// A fence around the file system that a path is in.
pub const DAP_FENCE_FILE_SYSTEM: u32 = 1;

/// These may reach it and nobody else; without any the fence is gone.
pub const DAP_FENCE_SET: u32 = 0;
/// These may reach it besides those who may.
pub const DAP_FENCE_ADD: u32 = 1;
/// These may reach it no more.
pub const DAP_FENCE_REMOVE: u32 = 2;

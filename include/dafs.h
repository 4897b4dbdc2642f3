/* libdafs: the client of the Direct Access File System for programs in C and C++.
 *
 * Made from the library's source; do not edit. The manual is dafs(3).
 *
 * The interface is our own, in the spirit of the DAFS API of 2001, whose text is lost.
 *
 * Every function returns 0 or a count, or a negative error number of <errno.h>; then
 * dap_error_text () says why. Handles are not to be followed: one that was closed, or is of
 * another kind, is refused with -EBADF, and one of a parent process with -EOWNERDEAD. All
 * functions may be called by any thread at any time. A struct that begins with its size grows in
 * later versions: set all of it to zero, and `size` to its sizeof. Texts end with a NUL. Names and
 * paths are any other bytes; all other texts are UTF-8. What a callback is given lasts until it
 * returns. No function fails with -EINTR: one that a signal interrupts goes on when the handler
 * returns.
 */

#ifndef DAFS_H
#define DAFS_H

#include <stddef.h>
#include <stdint.h>

// A timeout without an end.
#define DAP_FOREVER -1

// All to the end of a file, wherever that comes to be.
#define DAP_TO_END UINT64_MAX

// Shared memory or nothing.
#define DAP_CONNECT_SHARED_MEMORY 1

// TCP or nothing.
#define DAP_CONNECT_TCP 2

// Checksums on every message and all data.
#define DAP_CONNECT_CHECKSUMS 4

// CRC on the frames of iWARP.
#define DAP_CONNECT_CRC 8

// The session ends with its connection, instead of coming back by itself.
#define DAP_CONNECT_NO_RECOVERY 16

// The server keeps results for the case that an answer is lost, even without recovery.
#define DAP_CONNECT_RESPONSE_CACHE 32

// Ask for the right to keep what is read of files (delegations).
#define DAP_CONNECT_DELEGATIONS 64

// No proof: over shared memory the kernel vouches for the user.
#define DAP_AUTH_NONE 0

// User name and password, in clear text.
#define DAP_AUTH_PASSWORD 1

// Kerberos, or nothing.
#define DAP_AUTH_KERBEROS 2

// The best that the server offers and this program has.
#define DAP_AUTH_AUTOMATIC 3

// For reading.
#define DAP_READ 1

// For writing.
#define DAP_WRITE 2

// Make the file if it is not there.
#define DAP_CREATE 4

// Make the file; it must not be there.
#define DAP_EXCLUSIVE 8

// Cut it to nothing.
#define DAP_TRUNCATE 16

// Make a file without a name, in the file system of the directory at the path. It lives while
// it is open.
#define DAP_NAMELESS 32

// Others may not open it for reading meanwhile.
#define DAP_DENY_READ 1

// Others may not open it for writing meanwhile.
#define DAP_DENY_WRITE 2

// All opens must show the key.
#define DAP_SHARE_KEY 4

// Others may not remove its name meanwhile.
#define DAP_KEEP_NAME 8

// No statement about the order of accesses.
#define DAP_PATTERN_NORMAL 0

// There is no order.
#define DAP_PATTERN_RANDOM 1

// Offsets rise.
#define DAP_PATTERN_SEQUENTIAL 2

// It will be needed soon.
#define DAP_PATTERN_WILL_NEED 3

// It will not be needed soon.
#define DAP_PATTERN_DONT_NEED 4

// The server should fetch the range now.
#define DAP_HINT_PREFETCH 1

// A write may be lost with the server until dap_fsync.
#define DAP_UNSTABLE 0

// A write lasts, and what is needed to find it.
#define DAP_DATA_SYNC 1

// A write lasts, and all attributes.
#define DAP_FILE_SYNC 2

// The file ends where the read ended.
#define DAP_END_OF_FILE 1

// Set the mode.
#define DAP_SET_MODE 1

// Set the owner.
#define DAP_SET_UID 2

// Set the group.
#define DAP_SET_GID 4

// Cut or extend.
#define DAP_SET_SIZE 8

// Set the time of the last read.
#define DAP_SET_ACCESSED 16

// Set the time of the last change of data.
#define DAP_SET_MODIFIED 32

// Set the time of the last read to the server's present time.
#define DAP_SET_ACCESSED_NOW 64

// Set the time of the last change of data to the server's present time.
#define DAP_SET_MODIFIED_NOW 128

// A symbolic link at the end of the path is not followed.
#define DAP_NO_FOLLOW 256

// Whether data may be read, or a directory listed.
#define DAP_ACCESS_READ 1

// Whether names may be looked up.
#define DAP_ACCESS_LOOKUP 2

// Whether what is there may be changed.
#define DAP_ACCESS_MODIFY 4

// Whether something may be added.
#define DAP_ACCESS_EXTEND 8

// Whether names may be removed.
#define DAP_ACCESS_DELETE 16

// Whether it may be executed.
#define DAP_ACCESS_EXECUTE 32

// Keeps writers out.
#define DAP_LOCK_SHARED 0

// Keeps everybody out.
#define DAP_LOCK_EXCLUSIVE 1

// The lock breaks, instead of vanishing, when its owner fails.
#define DAP_LOCK_PERSIST 2

// Changes under the lock are rolled back when its owner fails.
#define DAP_LOCK_AUTO_RECOVERY 4

// Takes over a broken lock: the caller has looked after the data.
#define DAP_LOCK_REPAIR 8

// A fence around one file.
#define DAP_FENCE_FILE 0

// A fence around the file system that a path is in.
#define DAP_FENCE_FILE_SYSTEM 1

// These may reach it and nobody else; without any the fence is gone.
#define DAP_FENCE_SET 0

// These may reach it besides those who may.
#define DAP_FENCE_ADD 1

// These may reach it no more.
#define DAP_FENCE_REMOVE 2

// Sessions, memory and completion groups that belong together, and the lock that threads take
// turns with. NULL stands for one of the process's own, which is made when it is first needed.
typedef struct dap_client dap_client;

// A directory being read.
typedef struct dap_directory dap_directory;

// An open file.
typedef struct dap_file dap_file;

// A completion group: where the ends of operations are collected.
typedef struct dap_group dap_group;

// Registered memory.
typedef struct dap_region dap_region;

// A session with a server.
typedef struct dap_session dap_session;

// Habits of a client. What is zero is the default.
typedef struct {
    // sizeof (dap_client_options).
    size_t size;
    // Longest time to spin before sleeping, in microseconds plus one; 0 for the default (50), 1
    // for never. With more than the default a socket is asked for all that is awaited alone.
    uint32_t spin_us_plus_1;
    // Not 0: large memory without a region handle is lent to an RDMA device for the time of a
    // synchronous call, instead of being copied.
    uint32_t lend;
} dap_client_options;

// What a program is asked when it connects.
typedef struct {
    // The server's name, as in the URL.
    const char *server;
    // The user in the URL; NULL if there is none.
    const char *user;
    // Counted from 1.
    uint32_t attempt;
    // Why the attempt before was refused; NULL at first.
    const char *refusal;
} dap_auth_question;

// What it answers; NULL where it says nothing. Texts are copied when the callback returns.
typedef struct {
    // One of DAP_AUTH_...
    uint32_t method;
    // For a password: whose; NULL for the user in the URL.
    const char *user;
    // For a password.
    const char *password;
    // For Kerberos: the service; NULL for dafs@ and the server's host.
    const char *service;
    // For Kerberos: the ticket cache; NULL for the user's own.
    const char *cache;
    // For Kerberos: a client keytab, instead of a cache.
    const char *keytab;
} dap_auth_answer;

// Asked how to prove who this program is, when it connects and whenever the server has refused
// what was answered before. Returns 0, or a negative error number, with which connecting fails.
typedef int (*dap_authenticate)(void *context,
                                const dap_auth_question *question,
                                dap_auth_answer *answer);

// What a session should be like. What is zero or NULL is the default.
typedef struct {
    // sizeof (dap_connect_options).
    size_t size;
    // DAP_CONNECT_...
    uint32_t flags;
    // The most requests to have outstanding; 0 for 64.
    uint32_t credits;
    // Names this client to the server across connections; NULL for a random name.
    const char *client_name;
    // Name for fencing.
    const char *fence_id;
    // Longest silence of the server while somebody waits for it, in milliseconds; 0 for the
    // default, DAP_FOREVER for no end.
    int64_t answer_timeout_ms;
    // How long a session tries to come back, in milliseconds; 0 for the default, two minutes.
    int64_t recovery_timeout_ms;
    // How to prove who this program is; NULL for the user and password of the URL, or nothing.
    dap_authenticate authenticate;
    // Handed to `authenticate`.
    void *authenticate_context;
    // For dafs+tls: a file with the authorities that vouch for servers.
    const char *tls_authorities;
    // For dafs+tls: this program's own certificate, for servers that ask.
    const char *tls_certificate;
    // For dafs+tls: the key of that.
    const char *tls_key;
    // For dafs+tls: whose certificate the server must show; NULL for the host in the URL.
    const char *tls_name;
} dap_connect_options;

// More of an open. What is zero is the default.
typedef struct {
    // sizeof (dap_open_options).
    size_t size;
    // DAP_DENY_..., DAP_SHARE_KEY and DAP_KEEP_NAME.
    uint32_t sharing;
    // One of DAP_PATTERN_...: the use that is expected of the whole file.
    uint32_t pattern;
    // The key, with DAP_SHARE_KEY.
    uint64_t key;
    // DAP_HINT_PREFETCH; bits 1 to 3 and 4 to 6 are the likelihood of reading and writing, from
    // 1 to 7, or 0 for no statement.
    uint32_t hint;
    // 0.
    uint32_t reserved;
} dap_open_options;

// A time since 1970.
typedef struct {
    // Seconds.
    int64_t seconds;
    // Nanoseconds, below 1,000,000,000.
    uint32_t nanoseconds;
    // 0.
    uint32_t reserved;
} dap_time;

// Attributes of an object.
typedef struct {
    // Kind and permissions, as in struct stat.
    uint32_t mode;
    // Hard links.
    uint32_t link_count;
    // Owner; 4294967295 if the server names it by other than a number.
    uint32_t uid;
    // Group; the same.
    uint32_t gid;
    // Bytes.
    uint64_t size;
    // Bytes of storage.
    uint64_t space_used;
    // Unique in its file system.
    uint64_t file_id;
    // Differs after every change.
    uint64_t change;
    // Last read.
    dap_time accessed;
    // Last change of data.
    dap_time modified;
    // Last change of anything.
    dap_time changed;
} dap_attributes;

// A memory descriptor. Without a region handle the bytes pass through registered memory of the
// library's, by one copy.
typedef struct {
    // The first byte; in the region, if there is one.
    void *pointer;
    // Bytes.
    size_t length;
    // The region it lies in, or NULL.
    dap_region *region;
} dap_memory;

// The end of an operation.
typedef struct {
    // Its number.
    uint64_t operation;
    // The caller's own word, given at the submission.
    void *context;
    // Bytes moved, or a negative error number.
    int64_t result;
    // DAP_END_OF_FILE.
    uint32_t flags;
    // 0.
    uint32_t reserved;
    // Why it failed, until this thread waits for completions again; NULL if it did not.
    const char *text;
} dap_completion;

// A range of a file.
typedef struct {
    // Its first byte.
    uint64_t offset;
    // Bytes, below 4 GiB.
    uint64_t length;
} dap_range;

// A request of a batch: several ranges of a file from or into several pieces of memory, which are
// as long together. At most 64 of each.
typedef struct {
    // The file.
    dap_file *file;
    // DAP_READ or DAP_WRITE.
    uint32_t direction;
    // 0.
    uint32_t reserved;
    // Where in the file.
    const dap_range *ranges;
    // How many.
    size_t range_count;
    // Where in memory.
    const dap_memory *memory;
    // How many.
    size_t memory_count;
    // Handed back with the completion.
    void *context;
    // Set by dap_batch_submit: the number of the operation.
    uint64_t operation;
    // Set by dap_batch: bytes moved, or a negative error number.
    int64_t result;
} dap_batch_request;

// A file system.
typedef struct {
    // All bytes.
    uint64_t space_total;
    // Free bytes.
    uint64_t space_free;
    // Bytes that this user may still fill.
    uint64_t space_available;
    // All file slots.
    uint64_t files_total;
    // Free file slots.
    uint64_t files_free;
    // Largest file.
    uint64_t file_size_max;
    // Longest name, in bytes.
    uint32_t name_bytes_max;
    // Most links to one object.
    uint32_t link_count_max;
    // How long clients are missed before what they hold is given up, in seconds.
    uint32_t lease_seconds;
    // 0.
    uint32_t reserved;
} dap_filesystem;

// What to set, all of it or nothing.
typedef struct {
    // sizeof (dap_changes).
    size_t size;
    // DAP_SET_... and DAP_NO_FOLLOW.
    uint32_t flags;
    // Permissions.
    uint32_t mode;
    // Owner.
    uint32_t uid;
    // Group.
    uint32_t gid;
    // Bytes.
    uint64_t file_size;
    // Last read.
    dap_time accessed;
    // Last change of data.
    dap_time modified;
} dap_changes;

// A name in a directory.
typedef struct {
    // The name, until the next dap_readdir or dap_closedir of this directory.
    const char *name;
    // Its attributes, if `has_attributes` is not 0: the object may be gone.
    dap_attributes attributes;
    // Whether there are attributes.
    uint32_t has_attributes;
    // 0.
    uint32_t reserved;
} dap_entry;

// A lock that stands in the way.
typedef struct {
    // DAP_LOCK_SHARED or DAP_LOCK_EXCLUSIVE.
    uint32_t kind;
    // 0.
    uint32_t reserved;
    // Its first byte.
    uint64_t offset;
    // Bytes, or DAP_TO_END.
    uint64_t length;
} dap_lock_holder;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Why the last call of this thread that failed did so; empty if none has. It stays until the
// next call of this thread that fails.
const char *dap_error_text(void);

// The version of the library, such as "0.1.0".
const char *dap_version(void);

// Makes a client. Sessions of different clients have no lock in common, and each client has a
// protection domain of its own: use one for each server that must not be able to name memory
// meant for another, or one for each thread. `options` may be NULL.
//
// Returns 0, or a negative error number: -EINVAL, -EMFILE, -ENOMEM.
int dap_client_create(const dap_client_options *options,
                      dap_client **client);

// Gives a client back. What belongs to it goes on until it is given back itself.
//
// Returns 0, or -EBADF.
int dap_client_release(dap_client *client);

// Connects to the server of a URL: dafs://[user[:password]@]host[:port]/path, dafs+tls://...,
// dafs+verbs://... or dafs+shm:///socket!/path. A server on this host is reached over shared
// memory by itself. Calls of the session take paths from the server's root; those that do not
// begin with a slash begin at the path of the URL. `client` and `options` may be NULL.
//
// A session that loses its connection comes back by itself, and what is under way goes on:
// whoever waits notices a pause. If it does not come back in time it ends, and everything fails
// with -ECONNRESET.
//
// Returns 0, or a negative error number: -EINVAL for a URL or options that mean nothing,
// -ECONNREFUSED if no server is there, -EACCES or -EPERM if it keeps this program out.
int dap_connect(dap_client *client,
                const char *url,
                const dap_connect_options *options,
                dap_session **session);

// Leaves in order. Files of the session that are open are closed; operations under way fail. The
// handle is gone whatever is returned; files, and whatever else is the session's, have theirs
// still to be given back.
//
// Returns 0, or a negative error number: -ECONNRESET if the session had ended before.
int dap_disconnect(dap_session *session);

// Asks the server for nothing, which says that both are there.
//
// Returns 0, or a negative error number.
int dap_ping(dap_session *session);

// Puts the transport address in use into `buffer`, such as tcp:127.0.0.1:2050 or
// shm:/run/dafs/2050.sock, as much as fits, with a NUL at its end. After a loss of the connection
// it may be another than before.
//
// Returns the length it has without the NUL, or a negative error number.
int64_t dap_session_address(dap_session *session,
                            char *buffer,
                            size_t size);

// Opens a file. `flags` are DAP_READ, DAP_WRITE, DAP_CREATE, DAP_EXCLUSIVE, DAP_TRUNCATE and
// DAP_NAMELESS; `mode` is that of a new file. `options` may be NULL. Symbolic links are followed.
//
// Returns 0, or a negative error number: -EINVAL for flags or options that mean nothing, -ETXTBSY
// if another's share reservation keeps it closed, -EBUSY if the key is not the one in force, and
// what open(2) says.
int dap_open(dap_session *session,
             const char *path,
             uint32_t flags,
             uint32_t mode,
             const dap_open_options *options,
             dap_file **file);

// Tells the server what use is expected of a range: `pattern` is one of DAP_PATTERN_..., `hint`
// as in dap_open_options, `length` below 4 GiB, or DAP_TO_END.
//
// Returns 0, or a negative error number.
int dap_hint(dap_file *file,
             uint64_t offset,
             uint64_t length,
             uint32_t pattern,
             uint32_t hint);

// Attributes of an open file.
//
// Returns 0, or a negative error number.
int dap_fstat(dap_file *file, dap_attributes *attributes);

// Cuts or extends an open file.
//
// Returns 0, or a negative error number.
int dap_ftruncate(dap_file *file, uint64_t size);

// Brings everything written to stable storage.
//
// Returns 0, or a negative error number: -EIO if the server has lost what was written before, and
// what the last write failed with if it came back short.
int dap_fsync(dap_file *file);

// Appends to a file, all or nothing, as data that lasts. Others who append at the same time do
// not overlap with it. Puts where it lies now into `offset`, unless that is NULL.
//
// Returns the bytes appended, which are all, or a negative error number: -EFBIG for more than
// the server appends at once.
int64_t dap_append(dap_file *file,
                   const void *buffer,
                   size_t length,
                   uint64_t *offset);

// Closes a file: local processes on the server see what was written. The handle is gone whatever
// is returned. While another thread is in a call with the file, or operations with it are under
// way, it is closed behind them, and nobody is told how that went.
//
// Returns 0, or a negative error number: -EIO if the server has lost what was written and not
// brought to stable storage, and what the last write failed with if it came back short.
int dap_close(dap_file *file);

// Reads `length` bytes at `offset` into plain memory.
//
// Returns the bytes read, fewer only at the end of the file, or a negative error number.
int64_t dap_pread(dap_file *file, void *buffer, size_t length, uint64_t offset);

// Writes `length` bytes at `offset` from plain memory. They may be lost with the server until
// dap_fsync.
//
// Returns the bytes written, or a negative error number. Fewer than `length` were written only
// if something failed behind them; the next write, dap_fsync or dap_close tells what.
int64_t dap_pwrite(dap_file *file,
                   const void *buffer,
                   size_t length,
                   uint64_t offset);

// Reads into `count` pieces of memory, at most 1024, one behind the other, from `offset` on.
//
// Returns as dap_pread does.
int64_t dap_preadv(dap_file *file,
                   const dap_memory *memory,
                   size_t count,
                   uint64_t offset);

// Writes `count` pieces of memory, at most 1024, one behind the other, from `offset` on.
//
// Returns as dap_pwrite does.
int64_t dap_pwritev(dap_file *file,
                    const dap_memory *memory,
                    size_t count,
                    uint64_t offset);

// Registers memory of the program's own, which must stay as it is until the region is given
// back: no transfer copies it then where a device can reach it, or the kernel. `client` may be
// NULL.
//
// Returns 0, or a negative error number: -EINVAL for no memory, -EIO for too many regions.
int dap_register(dap_client *client,
                 void *pointer,
                 size_t length,
                 dap_region **region);

// Gives out registered memory of `length` bytes, which a server on this host can map: nothing
// is copied on the way. What is in it at first is left over from earlier use. It is gone when
// its region is given back. `client` may be NULL.
//
// Returns 0, or a negative error number: -EINVAL for no bytes, -EIO if there is no memory.
int dap_allocate(dap_client *client,
                 size_t length,
                 void **pointer,
                 dap_region **region);

// Gives a region back: registered memory is the program's own again, and memory that the library
// gave out is gone.
//
// Returns 0, or a negative error number: -EBUSY while a call or an operation uses it, up to when
// its completion is taken; -ETIMEDOUT if a server that was lost over a transfer might still reach
// registered memory: the handle is gone then, and the memory must be left alone.
int dap_deregister(dap_region *region);

// Makes a completion group. Operations of any session of the client can be collected in it.
// `client` may be NULL.
//
// Returns 0, or a negative error number.
int dap_group_create(dap_client *client,
                     dap_group **group);

// Gives a group back.
//
// Returns 0, or a negative error number: -EBUSY if ends of operations were not taken.
int dap_group_release(dap_group *group);

// Waits until `count` operations of a group have ended, or all that were submitted to it, or
// `timeout_ms` milliseconds are over, which may be 0 or DAP_FOREVER. Takes the ends of up to
// `capacity` operations, which is at least `count`, in the order in which they were noticed.
// Signals do not end it.
//
// Returns how many were taken, fewer than `count` if the time was over or there were no more, or
// a negative error number. An operation that has failed is not a failure of this call.
int64_t dap_wait(dap_group *group,
                 size_t count,
                 int64_t timeout_ms,
                 dap_completion *completions,
                 size_t capacity);

// Gives an operation up. One that has not gone out ends with -ECANCELED; one that is under way
// goes on, and then ends so. Its end is taken as any other.
//
// Returns 0, or a negative error number: -ENOENT if it has ended already.
int dap_cancel(dap_group *group,
               uint64_t operation);

// Has a request of a batch that was submitted with a latency done at once. Other operations are
// never held up.
//
// Returns 0, or a negative error number: -ENOENT if it has ended already, or the server has not
// taken it yet.
int dap_expedite(dap_group *group,
                 uint64_t operation);

// Submits a read from `offset` on into `count` pieces of memory, at most 1024, one behind the
// other. The memory belongs to the operation until its end is taken by dap_wait. The end is
// collected in `group`, and hands `context` back. Puts the operation's number into `operation`,
// unless that is NULL.
//
// Returns 0, or a negative error number: then nothing is under way.
int dap_read_async(dap_file *file,
                   const dap_memory *memory,
                   size_t count,
                   uint64_t offset,
                   dap_group *group,
                   void *context,
                   uint64_t *operation);

// Submits a write of `count` pieces of memory, at most 1024, one behind the other, from `offset`
// on; `stability` is DAP_UNSTABLE, DAP_DATA_SYNC or DAP_FILE_SYNC. Otherwise as dap_read_async:
// without a region handle, too, the memory belongs to the operation until its end is taken.
//
// Returns 0, or a negative error number: then nothing is under way.
int dap_write_async(dap_file *file,
                    const dap_memory *memory,
                    size_t count,
                    uint64_t offset,
                    uint32_t stability,
                    dap_group *group,
                    void *context,
                    uint64_t *operation);

// Submits what dap_fsync does: everything written, whose end was taken before, comes to stable
// storage.
//
// Returns 0, or a negative error number: then nothing is under way.
int dap_fsync_async(dap_file *file,
                    dap_group *group,
                    void *context,
                    uint64_t *operation);

// Has `count` requests done, at most 4096, and waits for all of them. There is no order between
// them; what was written is on stable storage then. Each request's `result` says how it ended.
//
// Returns how many ended well, or a negative error number: then nothing was asked for. If some
// have not, dap_error_text tells of the first.
int64_t dap_batch(dap_session *session,
                  dap_batch_request *requests,
                  size_t count);

// Submits `count` requests, at most 4096, as one batch: each is an operation of its own, whose
// end is collected in `group`. The server may take `latency_us` microseconds to do what lies
// together in one go, and while it has nothing better to do; it tells of so many ends at once as
// `completions` says, 0 for all of the batch together. dap_expedite has a single one done at
// once. What was written is on stable storage when its end is told. Each request's `operation`
// is its number.
//
// Returns 0, or a negative error number: then nothing is under way.
int dap_batch_submit(dap_session *session,
                     dap_batch_request *requests,
                     size_t count,
                     uint64_t latency_us,
                     uint32_t completions,
                     dap_group *group);

// Attributes of the object at a path; a symbolic link at its end is followed.
//
// Returns 0, or a negative error number.
int dap_stat(dap_session *session, const char *path, dap_attributes *attributes);

// Attributes of the object at a path, be it a symbolic link.
//
// Returns 0, or a negative error number.
int dap_lstat(dap_session *session, const char *path, dap_attributes *attributes);

// Which of the rights `wanted`, of DAP_ACCESS_..., this session has on the object at a path.
//
// Returns those that it has, or a negative error number.
int dap_access(dap_session *session,
               const char *path,
               uint32_t wanted);

// The file system that a path is in.
//
// Returns 0, or a negative error number.
int dap_statfs(dap_session *session, const char *path, dap_filesystem *filesystem);

// Makes a directory.
//
// Returns 0, or a negative error number.
int dap_mkdir(dap_session *session, const char *path, uint32_t mode);

// Makes a named pipe.
//
// Returns 0, or a negative error number.
int dap_mkfifo(dap_session *session, const char *path, uint32_t mode);

// Removes a name of anything but a directory.
//
// Returns 0, or a negative error number: -EISDIR for a directory.
int dap_unlink(dap_session *session, const char *path);

// Removes an empty directory.
//
// Returns 0, or a negative error number: -ENOTDIR for anything else, -ENOTEMPTY.
int dap_rmdir(dap_session *session, const char *path);

// Renames, replacing what is there.
//
// Returns 0, or a negative error number.
int dap_rename(dap_session *session, const char *path, const char *new_path);

// Gives the object at `path` another name; a symbolic link is not followed.
//
// Returns 0, or a negative error number.
int dap_link(dap_session *session, const char *path, const char *new_path);

// Makes a symbolic link at `path` that says `text`.
//
// Returns 0, or a negative error number.
int dap_symlink(dap_session *session, const char *text, const char *path);

// Puts what a symbolic link says into `buffer`, as much as fits, with a NUL at its end.
//
// Returns the length it has without the NUL, or a negative error number.
int64_t dap_readlink(dap_session *session, const char *path, char *buffer, size_t size);

// Sets attributes of the object at a path; a symbolic link at its end is followed, unless the
// flags say DAP_NO_FOLLOW.
//
// Returns 0, or a negative error number.
int dap_setattr(dap_session *session,
                const char *path,
                const dap_changes *changes);

// Sets attributes of an open file.
//
// Returns 0, or a negative error number.
int dap_fsetattr(dap_file *file, const dap_changes *changes);

// Sets the permissions; a symbolic link is followed.
//
// Returns 0, or a negative error number.
int dap_chmod(dap_session *session, const char *path, uint32_t mode);

// Sets owner and group, of which 4294967295, that is (uint32_t)-1, is left as it is; a symbolic
// link is followed.
//
// Returns 0, or a negative error number.
int dap_chown(dap_session *session,
              const char *path,
              uint32_t uid,
              uint32_t gid);

// Sets the times of the last read and of the last change of data; NULL is the server's present
// time. A symbolic link is followed.
//
// Returns 0, or a negative error number.
int dap_utimens(dap_session *session,
                const char *path,
                const dap_time *accessed,
                const dap_time *modified);

// Cuts or extends the file at a path; a symbolic link is followed.
//
// Returns 0, or a negative error number.
int dap_truncate(dap_session *session, const char *path, uint64_t size);

// Reads the directory at a path, with the attributes of all that is in it.
//
// Returns 0, or a negative error number.
int dap_opendir(dap_session *session, const char *path, dap_directory **directory);

// The next entry of a directory, in the server's order; "." and ".." are not among them.
//
// Returns 1, or 0 if there is none any more, or a negative error number.
int dap_readdir(dap_directory *directory, dap_entry *entry);

// Gives a directory back.
//
// Returns 0, or -EBADF.
int dap_closedir(dap_directory *directory);

// Locks `length` bytes at `offset`, or DAP_TO_END: `kind` is DAP_LOCK_SHARED or
// DAP_LOCK_EXCLUSIVE, `options` are DAP_LOCK_PERSIST, DAP_LOCK_AUTO_RECOVERY and DAP_LOCK_REPAIR.
// Locks are mandatory: they keep reads and writes of all other opens out. They end with their
// open. Waits for `timeout_ms` milliseconds, 0 for not at all, or DAP_FOREVER; those who came
// before are served first. If somebody else's lock stands in the way, `holder` says whose, unless
// it is NULL.
//
// Returns 0, or a negative error number: -EAGAIN if it is held by somebody else and there was no
// time to wait, -ETIMEDOUT if it still was at the end of the time, -EDEADLK if somebody it would
// wait for waits for it, -EUCLEAN for a broken lock, which DAP_LOCK_REPAIR takes over.
int dap_lock(dap_file *file,
             uint32_t kind,
             uint64_t offset,
             uint64_t length,
             uint32_t options,
             int64_t timeout_ms,
             dap_lock_holder *holder);

// Whose lock would stand in the way of one, without taking any.
//
// Returns 1 if there is one, which `holder` tells unless it is NULL, 0 if there is none, or a
// negative error number.
int dap_lock_test(dap_file *file,
                  uint32_t kind,
                  uint64_t offset,
                  uint64_t length,
                  dap_lock_holder *holder);

// Gives up whatever this open has locked in a range.
//
// Returns 0, or a negative error number.
int dap_unlock(dap_file *file, uint64_t offset, uint64_t length);

// Has everything rolled back that was changed in a range under locks with DAP_LOCK_AUTO_RECOVERY.
// They stay held.
//
// Returns 0, or a negative error number.
int dap_lock_abort(dap_file *file,
                   uint64_t offset,
                   uint64_t length);

// Changes who may reach a file, or the file system that a path is in: `object` is DAP_FENCE_FILE
// or DAP_FENCE_FILE_SYSTEM, `change` one of DAP_FENCE_SET, DAP_FENCE_ADD and DAP_FENCE_REMOVE, and
// there are `count` names at `fence_ids`, such as were given to dap_connect. Returns when the
// change holds: whatever those who are left out had under way has ended.
//
// Returns 0, or a negative error number: -EPERM unless this user owns the file, or is trusted;
// -EINVAL to remove names where there is no fence, or all of them.
int dap_fence(dap_session *session,
              const char *path,
              uint32_t object,
              uint32_t change,
              const char *const *fence_ids,
              size_t count);

// Puts the names of those who may reach a file, or the file system that a path is in, into
// `buffer`, each with a NUL at its end, if all of them fit. Everybody may if there are none.
//
// Returns the bytes that they take, or a negative error number: -ERANGE if they take more than
// `size`.
int64_t dap_fence_list(dap_session *session,
                       const char *path,
                       uint32_t object,
                       char *buffer,
                       size_t size);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DAFS_H */

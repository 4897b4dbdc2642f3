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

// A timeout without a limit.
#define DAP_FOREVER -1

// The range up to the end of a file, even if the file grows.
#define DAP_TO_END UINT64_MAX

// Use shared memory only.
#define DAP_CONNECT_SHARED_MEMORY 1

// Use only TCP to connect.
#define DAP_CONNECT_TCP 2

// Use checksums on every message and all data.
#define DAP_CONNECT_CHECKSUMS 4

// Use a CRC on iWARP frames.
#define DAP_CONNECT_CRC 8

// End the session with its connection instead of reconnecting.
#define DAP_CONNECT_NO_RECOVERY 16

// Make the server keep replies in case a reply is lost, even without recovery.
#define DAP_CONNECT_RESPONSE_CACHE 32

// Ask the server for delegations, which allow this client to cache read data.
#define DAP_CONNECT_DELEGATIONS 64

// No authentication. Over shared memory the kernel vouches for the user.
#define DAP_AUTH_NONE 0

// A user name and a password, in clear text.
#define DAP_AUTH_PASSWORD 1

// Authenticate with Kerberos only.
#define DAP_AUTH_KERBEROS 2

// The strongest method that both the server and this program support.
#define DAP_AUTH_AUTOMATIC 3

// Open the file for reading.
#define DAP_READ 1

// Open the file for writing.
#define DAP_WRITE 2

// Create the file if it does not exist.
#define DAP_CREATE 4

// Create the file, which must not exist.
#define DAP_EXCLUSIVE 8

// Truncate the file to zero bytes.
#define DAP_TRUNCATE 16

// Create a file without a name in the file system of the directory at the path. The file exists as
// long as it is open.
#define DAP_NAMELESS 32

// While the file is open, deny opens for reading by others.
#define DAP_DENY_READ 1

// While the file is open, deny opens for writing by others.
#define DAP_DENY_WRITE 2

// Deny opens that do not give the same key.
#define DAP_SHARE_KEY 4

// While the file is open, deny other clients the removal of its name.
#define DAP_KEEP_NAME 8

// No information on the order of accesses.
#define DAP_PATTERN_NORMAL 0

// Accesses are in random order.
#define DAP_PATTERN_RANDOM 1

// Accesses have increasing offsets.
#define DAP_PATTERN_SEQUENTIAL 2

// The range will be needed soon.
#define DAP_PATTERN_WILL_NEED 3

// The range will not be needed soon.
#define DAP_PATTERN_DONT_NEED 4

// The server should fetch the range now.
#define DAP_HINT_PREFETCH 1

// A server restart may lose the written data until dap_fsync.
#define DAP_UNSTABLE 0

// The written data is durable, with the attributes needed to read it.
#define DAP_DATA_SYNC 1

// The written data and all attributes are durable.
#define DAP_FILE_SYNC 2

// The file ends where the read ended, so that a read from there would return no bytes.
#define DAP_END_OF_FILE 1

// Set the permissions to `mode`.
#define DAP_SET_MODE 1

// Set the owner to `uid`.
#define DAP_SET_UID 2

// Set the group to `gid`.
#define DAP_SET_GID 4

// Set the size to `file_size`, by truncating or extending the file.
#define DAP_SET_SIZE 8

// Set the time of the last read to `accessed`.
#define DAP_SET_ACCESSED 16

// Set the time of the last change of data to `modified`.
#define DAP_SET_MODIFIED 32

// Set the time of the last read to the server's current time.
#define DAP_SET_ACCESSED_NOW 64

// Set the time of the last change of data to the server's current time.
#define DAP_SET_MODIFIED_NOW 128

// Do not follow a symbolic link at the end of the path.
#define DAP_NO_FOLLOW 256

// The right to read data, or to list a directory.
#define DAP_ACCESS_READ 1

// The right to look up names in a directory.
#define DAP_ACCESS_LOOKUP 2

// The right to change existing data or entries.
#define DAP_ACCESS_MODIFY 4

// The right to add data or entries.
#define DAP_ACCESS_EXTEND 8

// The right to remove names from a directory.
#define DAP_ACCESS_DELETE 16

// The right to execute the file, or to search the directory.
#define DAP_ACCESS_EXECUTE 32

// A lock that excludes writers, but allows other shared locks.
#define DAP_LOCK_SHARED 0

// A lock that excludes all other locks, readers and writers.
#define DAP_LOCK_EXCLUSIVE 1

// If the owner of the lock fails, the lock becomes broken instead of being released.
#define DAP_LOCK_PERSIST 2

// If the owner of the lock fails, the server rolls back the changes made under the lock.
#define DAP_LOCK_AUTO_RECOVERY 4

// Take over a broken lock. The caller must have checked and repaired the data.
#define DAP_LOCK_REPAIR 8

// A fence around one file.
#define DAP_FENCE_FILE 0

// A fence around the file system that contains a path.
#define DAP_FENCE_FILE_SYSTEM 1

// Allow only the named clients to access the object. With no names, the fence is removed.
#define DAP_FENCE_SET 0

// Allow the named clients to access the object, in addition to those already allowed.
#define DAP_FENCE_ADD 1

// No longer allow the named clients to access the object.
#define DAP_FENCE_REMOVE 2

// A client: sessions, memory and completion groups that belong together, with the lock that its
// threads share. NULL means the default client of the process, which is created when it is first
// needed.
typedef struct dap_client dap_client;

// A directory that is being read.
typedef struct dap_directory dap_directory;

// An open file of a session.
typedef struct dap_file dap_file;

// A completion group, which collects the completions of operations.
typedef struct dap_group dap_group;

// A region of registered memory.
typedef struct dap_region dap_region;

// A session with a server.
typedef struct dap_session dap_session;

// Options of a client. Zero means the default.
typedef struct {
    // The size of this struct: sizeof (dap_client_options).
    size_t size;
    // The longest time to poll before sleeping, in microseconds plus one: 0 for the default of 50
    // microseconds, 1 for never. With more than the default, a socket is polled as long as the
    // client waits for a reply.
    uint32_t spin_us_plus_1;
    // If not 0, a synchronous call that gets large memory without a region handle registers this
    // memory with an RDMA device while the call runs, instead of copying the data.
    uint32_t lend;
} dap_client_options;

// The question to an authentication callback.
typedef struct {
    // The server's name, as in the URL.
    const char *server;
    // The user in the URL, or NULL.
    const char *user;
    // The number of the attempt, from 1.
    uint32_t attempt;
    // The reason why the previous attempt was refused; NULL for the first attempt.
    const char *refusal;
} dap_auth_question;

// The answer of an authentication callback, with NULL for unused fields. Texts are copied when the
// callback returns.
typedef struct {
    // The method, one of DAP_AUTH_...
    uint32_t method;
    // For a password: the user name; NULL for the user in the URL.
    const char *user;
    // For a password: the password.
    const char *password;
    // For Kerberos: the service; NULL for dafs@ and the server's host.
    const char *service;
    // For Kerberos: the ticket cache; NULL for the user's default.
    const char *cache;
    // For Kerberos: a client keytab to use instead of a cache.
    const char *keytab;
} dap_auth_answer;

// A callback that chooses how to authenticate. The callback is called when connecting, and again
// each time the server has refused the previous answer. It returns 0, or a negative error number,
// with which the connection attempt then fails. It must return: it must neither throw an exception
// nor jump out.
typedef int (*dap_authenticate)(void *context,
                                const dap_auth_question *question,
                                dap_auth_answer *answer);

// Options of a session. Zero and NULL mean the default.
typedef struct {
    // The size of this struct: sizeof (dap_connect_options).
    size_t size;
    // A combination of DAP_CONNECT_...
    uint32_t flags;
    // The maximum number of outstanding requests; 0 for the default of 64.
    uint32_t credits;
    // The name of this client across connections; NULL for a random name.
    const char *client_name;
    // The fence identity of this client.
    const char *fence_id;
    // The longest silence of the server while a call waits for it, in milliseconds; 0 for the
    // default, DAP_FOREVER for no limit.
    int64_t answer_timeout_ms;
    // The time for which a session tries to reconnect, in milliseconds; 0 for the default of two
    // minutes.
    int64_t recovery_timeout_ms;
    // The authentication callback; NULL to use the user and password in the URL, or none.
    dap_authenticate authenticate;
    // The first argument of `authenticate`.
    void *authenticate_context;
    // For dafs+tls: a file with the authorities that sign server certificates.
    const char *tls_authorities;
    // For dafs+tls: a file with this program's certificate, for servers that ask for one.
    const char *tls_certificate;
    // For dafs+tls: a file with the key of that certificate.
    const char *tls_key;
    // For dafs+tls: the name in the server's certificate; NULL for the host in the URL.
    const char *tls_name;
} dap_connect_options;

// Options of an open. Zero means the default.
typedef struct {
    // The size of this struct: sizeof (dap_open_options).
    size_t size;
    // A combination of DAP_DENY_..., DAP_SHARE_KEY and DAP_KEEP_NAME.
    uint32_t sharing;
    // One of DAP_PATTERN_...: the expected use of the whole file.
    uint32_t pattern;
    // The key for DAP_SHARE_KEY.
    uint64_t key;
    // DAP_HINT_PREFETCH in bit 0. Bits 1 to 3 and 4 to 6 are the likelihood of reading and
    // writing, from 1 to 7, or 0 for unknown.
    uint32_t hint;
    // Reserved, and must be 0.
    uint32_t reserved;
} dap_open_options;

// A time since 1970-01-01 00:00 UTC.
typedef struct {
    // The number of whole seconds.
    int64_t seconds;
    // The number of nanoseconds, below 1,000,000,000.
    uint32_t nanoseconds;
    // Reserved, and must be 0.
    uint32_t reserved;
} dap_time;

// The attributes of an object.
typedef struct {
    // The type and permissions, as in struct stat.
    uint32_t mode;
    // The number of hard links.
    uint32_t link_count;
    // The user id of the owner; 4294967295 if the server's name for the owner is not a number.
    uint32_t uid;
    // The group id; 4294967295 if the server's name for the group is not a number.
    uint32_t gid;
    // The size in bytes.
    uint64_t size;
    // The allocated storage in bytes.
    uint64_t space_used;
    // The inode number, unique in the file system.
    uint64_t file_id;
    // A value that differs after every change of the object.
    uint64_t change;
    // The time of the last read.
    dap_time accessed;
    // The time of the last change of data.
    dap_time modified;
    // The time of the last change of data or attributes.
    dap_time changed;
} dap_attributes;

// A memory descriptor. Without a region handle, the bytes are copied once through registered
// memory of the library.
typedef struct {
    // The address of the first byte, which is in the region if there is one.
    void *pointer;
    // The length in bytes.
    size_t length;
    // The region that contains the memory, or NULL.
    dap_region *region;
} dap_memory;

// The completion of an operation.
typedef struct {
    // The number of the operation.
    uint64_t operation;
    // The value of `context` that was given when the operation was submitted.
    void *context;
    // The number of bytes transferred, or a negative error number.
    int64_t result;
    // The flags: DAP_END_OF_FILE or 0.
    uint32_t flags;
    // Reserved, and always 0.
    uint32_t reserved;
    // The error text, valid until this thread waits for completions again; NULL if there is no
    // error.
    const char *text;
} dap_completion;

// A range of a file.
typedef struct {
    // The offset of the first byte.
    uint64_t offset;
    // The length in bytes, below 4 GiB.
    uint64_t length;
} dap_range;

// A request of a batch: several ranges of a file, and several pieces of memory with the same total
// length. There can be at most 64 ranges and 64 pieces.
typedef struct {
    // The file of the request.
    dap_file *file;
    // The direction: DAP_READ or DAP_WRITE.
    uint32_t direction;
    // Reserved, and must be 0.
    uint32_t reserved;
    // The ranges of the file.
    const dap_range *ranges;
    // The number of ranges.
    size_t range_count;
    // The pieces of memory.
    const dap_memory *memory;
    // The number of pieces of memory.
    size_t memory_count;
    // A value of the caller, which is returned with the completion.
    void *context;
    // Set by dap_batch_submit: the number of the operation.
    uint64_t operation;
    // Set by dap_batch: the number of bytes transferred, or a negative error number.
    int64_t result;
} dap_batch_request;

// Information on a file system.
typedef struct {
    // Total space in bytes.
    uint64_t space_total;
    // Free space in bytes.
    uint64_t space_free;
    // Space that this user may still use, in bytes.
    uint64_t space_available;
    // Total number of inodes.
    uint64_t files_total;
    // Number of free inodes.
    uint64_t files_free;
    // Largest file size in bytes.
    uint64_t file_size_max;
    // Longest name in bytes.
    uint32_t name_bytes_max;
    // Maximum number of hard links to an object.
    uint32_t link_count_max;
    // The time for which the server keeps the opens and locks of a silent client, in seconds.
    uint32_t lease_seconds;
    // Reserved, and always 0.
    uint32_t reserved;
} dap_filesystem;

// The attributes to set. Either all of them are set or none.
typedef struct {
    // The size of this struct: sizeof (dap_changes).
    size_t size;
    // A combination of DAP_SET_... and DAP_NO_FOLLOW.
    uint32_t flags;
    // The new permissions of the object.
    uint32_t mode;
    // The new owner's user id.
    uint32_t uid;
    // The new group's id.
    uint32_t gid;
    // The size in bytes.
    uint64_t file_size;
    // The time of the last read.
    dap_time accessed;
    // The time of the last change of data.
    dap_time modified;
} dap_changes;

// An entry of a directory.
typedef struct {
    // The name, valid until the next dap_readdir or dap_closedir of this directory.
    const char *name;
    // The attributes of the object, if `has_attributes` is not 0. They are missing if the object
    // was removed.
    dap_attributes attributes;
    // Not 0 if `attributes` is valid.
    uint32_t has_attributes;
    // Reserved, and always 0.
    uint32_t reserved;
} dap_entry;

// A lock that conflicts with a request.
typedef struct {
    // The kind of lock: DAP_LOCK_SHARED or DAP_LOCK_EXCLUSIVE.
    uint32_t kind;
    // Reserved, and always 0.
    uint32_t reserved;
    // The offset of the first locked byte.
    uint64_t offset;
    // The number of locked bytes, or DAP_TO_END.
    uint64_t length;
} dap_lock_holder;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the error text of the last failed call of this thread, or an empty text if no call has
// failed. The text remains valid until the next call of this thread that fails.
const char *dap_error_text(void);

// Returns the version of the library, such as "0.1.0".
const char *dap_version(void);

// Creates a client. Sessions of different clients share no lock, and each client has its own
// protection domain. Use one client per server if no server may access memory meant for another,
// or one per thread. `options` may be NULL.
//
// Returns 0, or a negative error number: -EINVAL, -EMFILE, -ENOMEM.
int dap_client_create(const dap_client_options *options,
                      dap_client **client);

// Releases a client. Objects that belong to it remain valid until they are released themselves.
//
// Returns 0, or -EBADF.
int dap_client_release(dap_client *client);

// Connects to the server of a URL: dafs://[user[:password]@]host[:port]/path, dafs+tls://...,
// dafs+verbs://... or dafs+shm:///socket!/path. A server on this host is reached over shared
// memory automatically. Calls of the session take absolute paths, which start at the server's
// root. Paths without a leading slash are relative to the path of the URL. `client` and `options`
// may be NULL.
//
// A session that loses its connection reconnects automatically, and operations in flight continue:
// callers only notice a pause. If the session cannot reconnect in time, it ends, and all its calls
// fail with -ECONNRESET.
//
// Returns 0, or a negative error number: -EINVAL for an invalid URL or invalid options,
// -ECONNREFUSED if no server listens there or the host name is unknown, another number of
// connect(2) such as -ETIMEDOUT or -EHOSTUNREACH, -EACCES or -EPERM if the server refuses this
// program.
int dap_connect(dap_client *client,
                const char *url,
                const dap_connect_options *options,
                dap_session **session);

// Ends a session and disconnects. Open files of the session are closed; operations in flight fail.
// The handle becomes invalid whatever is returned. Handles of files and of other objects of the
// session must still be released.
//
// Returns 0, or a negative error number: -ECONNRESET if the session had already ended.
int dap_disconnect(dap_session *session);

// Sends an empty request and waits for its reply, to check that the connection works.
//
// Returns 0, or a negative error number.
int dap_ping(dap_session *session);

// Stores the address of the server that the session uses in `buffer`, such as tcp:127.0.0.1:2050
// or shm:/run/dafs/2050.sock. The text is truncated to `size` bytes, including a NUL at its end.
// The address may change when the session reconnects.
//
// Returns the length of the whole address without the NUL, or a negative error number.
int64_t dap_session_address(dap_session *session,
                            char *buffer,
                            size_t size);

// Opens a file. `flags` are DAP_READ, DAP_WRITE, DAP_CREATE, DAP_EXCLUSIVE, DAP_TRUNCATE and
// DAP_NAMELESS; `mode` is the mode of a new file. `options` may be NULL. Symbolic links are
// followed.
//
// Returns 0, or a negative error number: -EINVAL for invalid flags or options, -ETXTBSY if a share
// reservation of another open denies access, -EBUSY if other opens use another key, or an error of
// open(2).
int dap_open(dap_session *session,
             const char *path,
             uint32_t flags,
             uint32_t mode,
             const dap_open_options *options,
             dap_file **file);

// Tells the server how a range will be used. `pattern` is one of DAP_PATTERN_..., `hint` is as in
// dap_open_options, and `length` is below 4 GiB or DAP_TO_END.
//
// Returns 0, or a negative error number.
int dap_hint(dap_file *file,
             uint64_t offset,
             uint64_t length,
             uint32_t pattern,
             uint32_t hint);

// Stores the attributes of an open file in `attributes`.
//
// Returns 0, or a negative error number.
int dap_fstat(dap_file *file, dap_attributes *attributes);

// Truncates or extends an open file.
//
// Returns 0, or a negative error number.
int dap_ftruncate(dap_file *file, uint64_t size);

// Flushes all written data of a file to stable storage.
//
// Returns 0, or a negative error number: -EIO if the server has lost earlier data, or the error of
// the most recent write if that write was short.
int dap_fsync(dap_file *file);

// Appends to a file, atomically and durably. Appends of other clients at the same time do not
// overlap the appended data. Stores the offset of the appended data in `offset`, unless that is
// NULL.
//
// Returns the number of bytes appended, which is always `length`, or a negative error number:
// -EFBIG if `length` is more than the server appends in one request.
int64_t dap_append(dap_file *file,
                   const void *buffer,
                   size_t length,
                   uint64_t *offset);

// Closes a file. Local processes on the server's host then see the written data. The handle
// becomes invalid whatever is returned. If another thread is in a call with the file, or
// operations with the file are in flight, the file is closed after they end, and errors of that
// close are not reported.
//
// Returns 0, or a negative error number: -EIO if the server has lost written data that was not on
// stable storage, or the error of the most recent write if that write was short.
int dap_close(dap_file *file);

// Reads `length` bytes at `offset` into memory that need not be registered.
//
// Returns the number of bytes read, which is smaller than `length` only at the end of the file or
// if a later part failed, or a negative error number.
int64_t dap_pread(dap_file *file,
                  void *buffer,
                  size_t length,
                  uint64_t offset);

// Writes `length` bytes at `offset` from memory that need not be registered. Until dap_fsync, a
// server restart may lose the data.
//
// Returns the number of bytes written, or a negative error number. The number is smaller than
// `length` only if a later part failed; the next write, dap_fsync or dap_close reports the error.
int64_t dap_pwrite(dap_file *file,
                   const void *buffer,
                   size_t length,
                   uint64_t offset);

// Reads from `offset` into `count` pieces of memory, at most 1024, which are filled one after the
// other.
//
// Returns the same values as dap_pread.
int64_t dap_preadv(dap_file *file,
                   const dap_memory *memory,
                   size_t count,
                   uint64_t offset);

// Writes `count` pieces of memory, at most 1024, one after the other, at `offset`.
//
// Returns the same values as dap_pwrite.
int64_t dap_pwritev(dap_file *file,
                    const dap_memory *memory,
                    size_t count,
                    uint64_t offset);

// Registers memory of the program. The program must not free the memory until the region is
// released. If a device or the kernel can access the memory, transfers do not copy the data.
// `client` may be NULL.
//
// Returns 0, or a negative error number: -EINVAL for an impossible `length`, such as 0;
// -ENOBUFS for too many regions.
int dap_register(dap_client *client,
                 void *pointer,
                 size_t length,
                 dap_region **region);

// Allocates `length` bytes of registered memory. A server on this host can map the memory, so that
// transfers copy nothing. The memory may contain data of earlier uses. It is freed when its region
// is released. `client` may be NULL.
//
// Returns 0, or a negative error number: -EINVAL if `length` is 0, -ENOMEM if there is no
// memory.
int dap_allocate(dap_client *client,
                 size_t length,
                 void **pointer,
                 dap_region **region);

// Releases a region. Registered memory then belongs to the program alone again, and memory that
// the library allocated is freed.
//
// Returns 0, or a negative error number: -EBUSY while a call uses the region, or an operation
// whose completion was not returned; -ETIMEDOUT if a server that was lost during a transfer might
// still access registered memory. After -ETIMEDOUT the handle is invalid, and the memory must not
// be reused.
int dap_deregister(dap_region *region);

// Creates a completion group. The group can collect operations of all sessions of the client.
// `client` may be NULL.
//
// Returns 0, or a negative error number.
int dap_group_create(dap_client *client,
                     dap_group **group);

// Releases a completion group.
//
// Returns 0, or a negative error number: -EBUSY if completions were not returned yet.
int dap_group_release(dap_group *group);

// Waits until `count` operations of a group have completed, or until all operations in the group
// have, or until `timeout_ms` milliseconds have passed. The timeout may be 0 or DAP_FOREVER.
// Stores at most `capacity` completions, in the order in which the library has noticed them;
// `capacity` must be at least `count`. Signals do not end the wait.
//
// Returns the number of completions, which is smaller than `count` if the time has passed or no
// more operations are in flight, or a negative error number. A failed operation is not a failure
// of this call.
int64_t dap_wait(dap_group *group,
                 size_t count,
                 int64_t timeout_ms,
                 dap_completion *completions,
                 size_t capacity);

// Cancels an operation. An operation that was not sent yet ends with -ECANCELED. An operation in
// flight first runs to its end, and then also reports -ECANCELED. The completion must be collected
// as usual.
//
// Returns 0, or a negative error number: -ENOENT if the operation has already ended.
int dap_cancel(dap_group *group,
               uint64_t operation);

// Makes the server immediately execute a request that was submitted in a batch with a latency.
// Other operations are never delayed.
//
// Returns 0, or a negative error number: -ENOENT if the operation has already ended, or if the
// server has not received it yet.
int dap_expedite(dap_group *group,
                 uint64_t operation);

// Submits a read from `offset` into `count` pieces of memory, at most 1024, which are filled one
// after the other. The memory belongs to the operation until dap_wait has returned its completion.
// The completion goes to `group` and carries `context`. Stores the operation's number in
// `operation`, unless that is NULL.
//
// Returns 0, or a negative error number; on an error nothing is in flight.
int dap_read_async(dap_file *file,
                   const dap_memory *memory,
                   size_t count,
                   uint64_t offset,
                   dap_group *group,
                   void *context,
                   uint64_t *operation);

// Submits a write of `count` pieces of memory, at most 1024, one after the other, at `offset`.
// `stability` is DAP_UNSTABLE, DAP_DATA_SYNC or DAP_FILE_SYNC. The other arguments are those of
// dap_read_async. Even without a region handle, the memory belongs to the operation until dap_wait
// has returned its completion.
//
// Returns 0, or a negative error number; on an error nothing is in flight.
int dap_write_async(dap_file *file,
                    const dap_memory *memory,
                    size_t count,
                    uint64_t offset,
                    uint32_t stability,
                    dap_group *group,
                    void *context,
                    uint64_t *operation);

// Submits the operation of dap_fsync. It flushes to stable storage the data of all writes whose
// completions have already been returned.
//
// Returns 0, or a negative error number; on an error nothing is in flight.
int dap_fsync_async(dap_file *file,
                    dap_group *group,
                    void *context,
                    uint64_t *operation);

// Executes `count` requests, at most 4096, and waits for all of them. The server may execute them
// in any order. When the call returns, written data is on stable storage. The `result` of each
// request is its number of bytes or its negative error number.
//
// Returns the number of requests that succeeded, or a negative error number if no request was
// sent. If some requests failed, dap_error_text describes the first failure.
int64_t dap_batch(dap_session *session,
                  dap_batch_request *requests,
                  size_t count);

// Submits `count` requests, at most 4096, as one batch. Each request is an operation of its own,
// whose completion goes to `group`. The server may delay a request for up to `latency_us`
// microseconds, or longer while it is busy, to execute adjacent requests together. The server
// reports completions in groups of `completions`, or, if that is 0, all completions of the batch
// together. dap_expedite makes the server execute a single request immediately. When the
// completion of a write is returned, its data is on stable storage. The number of each operation
// is stored in the `operation` of its request.
//
// Returns 0, or a negative error number; on an error nothing is in flight.
int dap_batch_submit(dap_session *session,
                     dap_batch_request *requests,
                     size_t count,
                     uint64_t latency_us,
                     uint32_t completions,
                     dap_group *group);

// Stores the attributes of the object at a path in `attributes`. A symbolic link at the end of the
// path is followed.
//
// Returns 0, or a negative error number.
int dap_stat(dap_session *session,
             const char *path,
             dap_attributes *attributes);

// Stores the attributes of the object at a path in `attributes`. A symbolic link at the end of the
// path is not followed.
//
// Returns 0, or a negative error number.
int dap_lstat(dap_session *session,
              const char *path,
              dap_attributes *attributes);

// Checks the rights of this session to the object at a path. `wanted` is a combination of
// DAP_ACCESS_...
//
// Returns the subset of `wanted` that is granted, or a negative error number.
int dap_access(dap_session *session, const char *path, uint32_t wanted);

// Stores information about the file system that contains a path in `filesystem`.
//
// Returns 0, or a negative error number.
int dap_statfs(dap_session *session, const char *path, dap_filesystem *filesystem);

// Creates a directory.
//
// Returns 0, or a negative error number.
int dap_mkdir(dap_session *session, const char *path, uint32_t mode);

// Creates a named pipe.
//
// Returns 0, or a negative error number.
int dap_mkfifo(dap_session *session, const char *path, uint32_t mode);

// Removes the name of an object that is not a directory.
//
// Returns 0, or a negative error number: -EISDIR for a directory.
int dap_unlink(dap_session *session, const char *path);

// Removes an empty directory.
//
// Returns 0, or a negative error number: -ENOTDIR for another object, -ENOTEMPTY if the directory
// is not empty.
int dap_rmdir(dap_session *session,
              const char *path);

// Renames an object. An existing object with the new name is replaced.
//
// Returns 0, or a negative error number.
int dap_rename(dap_session *session, const char *path, const char *new_path);

// Makes a hard link to the object at `path`. A symbolic link is not followed.
//
// Returns 0, or a negative error number.
int dap_link(dap_session *session, const char *path, const char *new_path);

// Makes a symbolic link at `path` with the text `text`.
//
// Returns 0, or a negative error number.
int dap_symlink(dap_session *session, const char *text, const char *path);

// Stores the text of a symbolic link in `buffer`. The text is truncated to `size` bytes, including
// a NUL at its end.
//
// Returns the length of the whole text without the NUL, or a negative error number.
int64_t dap_readlink(dap_session *session,
                     const char *path,
                     char *buffer,
                     size_t size);

// Sets attributes of the object at a path. A symbolic link at the end of the path is followed,
// unless the flags contain DAP_NO_FOLLOW.
//
// Returns 0, or a negative error number.
int dap_setattr(dap_session *session,
                const char *path,
                const dap_changes *changes);

// Sets attributes of an open file.
//
// Returns 0, or a negative error number.
int dap_fsetattr(dap_file *file, const dap_changes *changes);

// Sets the permissions of an object. A symbolic link is followed.
//
// Returns 0, or a negative error number.
int dap_chmod(dap_session *session, const char *path, uint32_t mode);

// Sets the owner and the group of an object. The value 4294967295, that is (uint32_t)-1, leaves
// the owner or the group unchanged. A symbolic link is followed.
//
// Returns 0, or a negative error number.
int dap_chown(dap_session *session,
              const char *path,
              uint32_t uid,
              uint32_t gid);

// Sets the times of the last read and of the last change of data of an object. NULL for a time
// means the server's current time. A symbolic link is followed.
//
// Returns 0, or a negative error number.
int dap_utimens(dap_session *session,
                const char *path,
                const dap_time *accessed,
                const dap_time *modified);

// Truncates or extends the file at a path. A symbolic link is followed.
//
// Returns 0, or a negative error number.
int dap_truncate(dap_session *session, const char *path, uint64_t size);

// Reads the directory at a path, with the attributes of its entries.
//
// Returns 0, or a negative error number.
int dap_opendir(dap_session *session, const char *path, dap_directory **directory);

// Stores the next entry of a directory in `entry`. Entries come in the server's order, without "."
// and "..".
//
// Returns 1, or 0 if there are no more entries, or a negative error number.
int dap_readdir(dap_directory *directory,
                dap_entry *entry);

// Releases a directory listing.
//
// Returns 0, or -EBADF.
int dap_closedir(dap_directory *directory);

// Locks `length` bytes at `offset`; `length` may be DAP_TO_END. `kind` is DAP_LOCK_SHARED or
// DAP_LOCK_EXCLUSIVE, and `options` are DAP_LOCK_PERSIST, DAP_LOCK_AUTO_RECOVERY and
// DAP_LOCK_REPAIR. Locks are mandatory: they exclude reads and writes through all other opens. A
// lock ends with its open. The call waits for up to `timeout_ms` milliseconds, which may be 0 or
// DAP_FOREVER; earlier waiters get the lock first. If another lock conflicts, it is described in
// `holder`, unless that is NULL.
//
// Returns 0, or a negative error number: -EAGAIN if another open holds a conflicting lock and the
// timeout is 0, -ETIMEDOUT if the lock was still held at the end of the timeout, -EDEADLK if
// waiting would be a deadlock, -EUCLEAN for a broken lock, which DAP_LOCK_REPAIR takes over.
int dap_lock(dap_file *file,
             uint32_t kind,
             uint64_t offset,
             uint64_t length,
             uint32_t options,
             int64_t timeout_ms,
             dap_lock_holder *holder);

// Tests whether a lock would conflict with another lock, without taking it. A conflicting lock is
// described in `holder`, unless that is NULL.
//
// Returns 1 if there is a conflict, 0 if there is none, or a negative error number.
int dap_lock_test(dap_file *file,
                  uint32_t kind,
                  uint64_t offset,
                  uint64_t length,
                  dap_lock_holder *holder);

// Releases all locks of this open in a range.
//
// Returns 0, or a negative error number.
int dap_unlock(dap_file *file, uint64_t offset, uint64_t length);

// Rolls back all changes that were made in a range under locks with DAP_LOCK_AUTO_RECOVERY. The
// locks stay held.
//
// Returns 0, or a negative error number.
int dap_lock_abort(dap_file *file,
                   uint64_t offset,
                   uint64_t length);

// Changes the list of clients that may access a file, or the file system that contains a path.
// `object` is DAP_FENCE_FILE or DAP_FENCE_FILE_SYSTEM, `change` is DAP_FENCE_SET, DAP_FENCE_ADD or
// DAP_FENCE_REMOVE, and `fence_ids` points to `count` names, as given to dap_connect. Returns when
// the change is in force and all requests in flight of excluded clients have ended.
//
// Returns 0, or a negative error number: -EPERM unless this user owns the file or is trusted;
// -EINVAL for DAP_FENCE_REMOVE if there is no fence, or if no name would remain.
int dap_fence(dap_session *session,
              const char *path,
              uint32_t object,
              uint32_t change,
              const char *const *fence_ids,
              size_t count);

// Stores the names of the clients that may access a file, or the file system that contains a path,
// in `buffer`, each with a NUL at its end, if all of them fit. An empty list means that there is
// no fence, so that all clients may access the object.
//
// Returns the size of the list in bytes, or a negative error number: -ERANGE if the list is larger
// than `size`.
int64_t dap_fence_list(dap_session *session,
                       const char *path,
                       uint32_t object,
                       char *buffer,
                       size_t size);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DAFS_H */

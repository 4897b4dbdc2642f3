/* What is wrong is refused, and told: errors URL */
#include "example.h"

#include <errno.h>

/* The last call has failed so, and its text has this in it. */
#define REFUSED(call, number, text)                                                       \
    do {                                                                                  \
        CHECK((call) == -(number));                                                       \
        CHECK(strstr(dap_error_text(), (text)) != NULL);                                  \
    } while (0)

int main(int count, char **arguments) {
    CHECK(count == 2);
    dap_session *session = NULL;
    dap_file *file = NULL, *garbage = (dap_file *)(size_t)0x1234;
    dap_connect_options options;
    memset(&options, 0, sizeof options);
    REFUSED(dap_connect(NULL, "http://nowhere/", NULL, &session), EINVAL, "not a DAFS URL");
    REFUSED(dap_connect(NULL, NULL, NULL, &session), EFAULT, "url is NULL");
    REFUSED(dap_connect(NULL, arguments[1], NULL, NULL), EFAULT, "session is NULL");
    REFUSED(dap_connect(NULL, arguments[1], &options, &session), EINVAL, "sizeof");
    options.size = sizeof options;
    options.flags = 0x80000001u;
    REFUSED(dap_connect(NULL, arguments[1], &options, &session), EINVAL, "0x80000000");
    options.flags = DAP_CONNECT_TCP | DAP_CONNECT_SHARED_MEMORY;
    REFUSED(dap_connect(NULL, arguments[1], &options, &session), EINVAL, "exclude");
    options.flags = 0;
    options.answer_timeout_ms = -5;
    REFUSED(dap_connect(NULL, arguments[1], &options, &session), EINVAL, "answer_timeout_ms -5");
    REFUSED(dap_connect(NULL, "dafs://127.0.0.1:1/", NULL, &session), ECONNREFUSED, "127.0.0.1");
    options.answer_timeout_ms = 0;
    options.tls_authorities = "/no/such/file";
    REFUSED(dap_connect(NULL, arguments[1], &options, &session), ENOENT, "/no/such/file");
    REFUSED(dap_ping(NULL), EBADF, "NULL");

    MUST(dap_connect(NULL, arguments[1], NULL, &session));
    REFUSED(dap_open(session, "/x", 0, 0644, NULL, &file), EINVAL, "neither");
    REFUSED(dap_open(session, "/x", DAP_READ | 0x4000, 0, NULL, &file), EINVAL, "0x4000");
    REFUSED(dap_open(session, "/x", DAP_READ | DAP_TRUNCATE, 0, NULL, &file), EINVAL, "TRUNCATE");
    REFUSED(dap_open(session, "/x", DAP_READ, 010000, NULL, &file), EINVAL, "mode");
    REFUSED(dap_open(session, "/x", DAP_READ, 0, NULL, &file), ENOENT, "/x");
    REFUSED(dap_open(session, "", DAP_READ, 0, NULL, &file), ENOENT, "empty");
    REFUSED(dap_open(session, "/\xff", DAP_READ, 0, NULL, &file), ENOENT, "/\\xff");
    REFUSED(dap_open(session, "/", DAP_READ, 0, NULL, &file), EISDIR, "/");
    dap_open_options opening;
    memset(&opening, 0, sizeof opening);
    opening.size = sizeof opening;
    opening.pattern = 9;
    REFUSED(dap_open(session, "/x", DAP_READ, 0, &opening, &file), EINVAL, "pattern 9");
    opening.pattern = 0;
    opening.sharing = 0x100;
    REFUSED(dap_open(session, "/x", DAP_READ, 0, &opening, &file), EINVAL, "sharing");

    MUST(dap_open(session, "/x", DAP_READ | DAP_WRITE | DAP_CREATE, 0644, NULL, &file));
    char byte = 'x';
    REFUSED(dap_pread((dap_file *)session, &byte, 1, 0), EBADF, "this is a dap_session");
    REFUSED(dap_pread(garbage, &byte, 1, 0), EBADF, "closed or invalid");
    REFUSED(dap_pread(file, NULL, 1, 0), EFAULT, "NULL");
    REFUSED(dap_pread(file, &byte, (size_t)-1, 0), EINVAL, "memory");
    CHECK(dap_pread(file, NULL, 0, 0) == 0);
    CHECK(dap_pread(file, &byte, 1, 0) == 0);
    REFUSED(dap_preadv(file, NULL, 2, 0), EFAULT, "memory");
    REFUSED(dap_preadv(file, NULL, 1025, 0), EINVAL, "1024");
    REFUSED(dap_lock(file, 7, 0, 1, 0, 0, NULL), EINVAL, "lock kind 7");
    REFUSED(dap_lock(file, DAP_LOCK_SHARED, 0, 1, 1, 0, NULL), EINVAL, "options");
    REFUSED(dap_fstat(file, NULL), EFAULT, "attributes");
    dap_changes changes;
    memset(&changes, 0, sizeof changes);
    changes.size = sizeof changes;
    changes.flags = 0x10000;
    REFUSED(dap_fsetattr(file, &changes), EINVAL, "0x10000");
    changes.flags = DAP_SET_MODIFIED;
    changes.modified.nanoseconds = 1000000000;
    REFUSED(dap_fsetattr(file, &changes), EINVAL, "nanoseconds");

    char own[64];
    dap_region *region;
    REFUSED(dap_register(NULL, own, (size_t)1 << 63, &region), EINVAL, "at this address");
    MUST(dap_register(NULL, own, sizeof own, &region));
    dap_memory outside = {own + 60, 5, region};
    REFUSED(dap_preadv(file, &outside, 1, 0), EINVAL, "not within its region");
    dap_client *stranger;
    MUST(dap_client_create(NULL, &stranger));
    dap_group *strange;
    MUST(dap_group_create(stranger, &strange));
    dap_memory inside = {own, 5, region};
    REFUSED(dap_read_async(file, &inside, 1, 0, strange, NULL, NULL), EINVAL, "another client");
    REFUSED(dap_read_async(file, &inside, 1, 0, NULL, NULL, NULL), EBADF, "dap_group");
    REFUSED(dap_write_async(file, &inside, 1, 0, 9, strange, NULL, NULL), EINVAL, "stability 9");
    dap_completion completion;
    REFUSED(dap_wait(strange, 2, 0, &completion, 1), EINVAL, "room");
    CHECK(MUST(dap_wait(strange, 1, 0, &completion, 1)) == 0);
    MUST(dap_group_release(strange));
    MUST(dap_client_release(stranger));
    MUST(dap_deregister(region));
    REFUSED(dap_preadv(file, &inside, 1, 0), EBADF, "dap_region");

    MUST(dap_close(file));
    REFUSED(dap_close(file), EBADF, "closed");
    REFUSED(dap_pread(file, &byte, 1, 0), EBADF, "closed");
    MUST(dap_unlink(session, "/x"));
    MUST(dap_disconnect(session));
    REFUSED(dap_disconnect(session), EBADF, "closed");
    return 0;
}

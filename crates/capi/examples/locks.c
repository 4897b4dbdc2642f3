/* A checkpoint that is there whole or not at all, and locks between programs: locks URL */
#include "example.h"

#include <errno.h>

static dap_session *connect_to(const char *url) {
    dap_session *session;
    MUST(dap_connect(NULL, url, NULL, &session));
    return session;
}

static dap_file *open_in(dap_session *session) {
    dap_file *file;
    MUST(dap_open(session, "/state", DAP_READ | DAP_WRITE | DAP_CREATE, 0644, NULL, &file));
    return file;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    dap_session *one = connect_to(arguments[1]), *two = connect_to(arguments[1]);
    dap_file *mine = open_in(one), *theirs = open_in(two);

    MUST(dap_lock(mine, DAP_LOCK_EXCLUSIVE, 0, DAP_TO_END, 0, 0, NULL));
    dap_lock_holder holder;
    CHECK(dap_lock(theirs, DAP_LOCK_SHARED, 10, 10, 0, 0, &holder) == -EAGAIN);
    CHECK(holder.kind == DAP_LOCK_EXCLUSIVE && holder.offset == 0 && holder.length == DAP_TO_END);
    CHECK(dap_lock(theirs, DAP_LOCK_SHARED, 10, 10, 0, 30, &holder) == -ETIMEDOUT);
    CHECK(MUST(dap_lock_test(theirs, DAP_LOCK_SHARED, 10, 10, &holder)) == 1);
    MUST(dap_unlock(mine, 0, DAP_TO_END));
    CHECK(MUST(dap_lock_test(theirs, DAP_LOCK_SHARED, 10, 10, NULL)) == 0);
    MUST(dap_lock(theirs, DAP_LOCK_SHARED, 10, 10, 0, DAP_FOREVER, NULL));
    MUST(dap_lock(mine, DAP_LOCK_SHARED, 0, 100, 0, DAP_FOREVER, NULL));
    MUST(dap_unlock(mine, 0, 100));
    MUST(dap_unlock(theirs, 10, 10));

    /* What is written under a lock with auto-recovery is all there after the unlock, and none of
     * it if this program, its network or the server fails before, or gives it up. */
    MUST(dap_pwrite(mine, "old state", 9, 0));
    MUST(dap_fsync(mine));
    MUST(dap_lock(mine, DAP_LOCK_EXCLUSIVE, 0, DAP_TO_END, DAP_LOCK_AUTO_RECOVERY, 0, NULL));
    MUST(dap_pwrite(mine, "NEW", 3, 0));
    MUST(dap_lock_abort(mine, 0, DAP_TO_END));
    char text[16];
    CHECK(MUST(dap_pread(mine, text, sizeof text, 0)) == 9 && memcmp(text, "old state", 9) == 0);
    MUST(dap_pwrite(mine, "NEW state", 9, 0));
    MUST(dap_unlock(mine, 0, DAP_TO_END));
    CHECK(MUST(dap_pread(theirs, text, sizeof text, 0)) == 9);
    CHECK(memcmp(text, "NEW state", 9) == 0);

    /* Reservations and keys. */
    dap_open_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.sharing = DAP_SHARE_KEY | DAP_DENY_WRITE;
    options.pattern = DAP_PATTERN_RANDOM;
    options.key = 0x5eed;
    dap_file *kept, *other;
    MUST(dap_open(one, "/kept", DAP_WRITE | DAP_CREATE, 0600, &options, &kept));
    CHECK(dap_open(two, "/kept", DAP_WRITE, 0, NULL, &other) < 0);
    printf("kept out, as it should be: %s\n", dap_error_text());
    MUST(dap_close(kept));
    MUST(dap_open(two, "/kept", DAP_WRITE, 0, NULL, &other));
    MUST(dap_close(other));

    MUST(dap_close(mine));
    MUST(dap_close(theirs));
    MUST(dap_disconnect(one));
    MUST(dap_disconnect(two));
    return 0;
}

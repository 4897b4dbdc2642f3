/* A disk that is full, and has room again: full URL */
#include "example.h"

#include <errno.h>

static char bytes[1 << 20];

int main(int count, char **arguments) {
    CHECK(count == 2);
    dap_session *session;
    dap_file *file;
    MUST(dap_connect(NULL, arguments[1], NULL, &session));
    MUST(dap_open(session, "/x", DAP_WRITE | DAP_CREATE, 0644, NULL, &file));
    /* The server keeps what it is given for a while, and finds out when it puts it away: by then
     * it may have to say of bytes of before that they are lost, which is EIO. */
    long long result = 0;
    for (uint64_t at = 0; result != -ENOSPC; at += sizeof bytes) {
        CHECK(at < 64 * sizeof bytes);
        result = dap_pwrite(file, bytes, sizeof bytes, at);
        if (result >= 0) result = dap_fsync(file);
        CHECK(result == 0 || result == -ENOSPC || result == -EIO);
    }
    CHECK(strlen(dap_error_text()) > 0);
    /* What could not be kept is told once more at the end. */
    dap_close(file);
    MUST(dap_unlink(session, "/x"));

    /* One that comes back short is told by what follows, as is one whose bytes found no room when
     * the server put them away. */
    static char much[8 << 20];
    MUST(dap_open(session, "/z", DAP_WRITE | DAP_CREATE, 0644, NULL, &file));
    result = dap_pwrite(file, much, sizeof much, 0);
    CHECK(result > 0 || result == -ENOSPC || result == -EIO);
    if (result > 0) {
        result = dap_fsync(file);
        CHECK(result == -ENOSPC || result == -EIO);
    }
    dap_close(file);
    MUST(dap_unlink(session, "/z"));

    MUST(dap_open(session, "/y", DAP_WRITE | DAP_CREATE, 0644, NULL, &file));
    MUST(dap_pwrite(file, "there is room", 13, 0));
    MUST(dap_fsync(file));
    MUST(dap_close(file));
    MUST(dap_disconnect(session));
    return 0;
}

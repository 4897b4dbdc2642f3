/* Keeping a member of a cluster out: fence URL */
#include "example.h"

#include <errno.h>

static dap_session *connect_as(const char *url, const char *fence_id) {
    dap_connect_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.fence_id = fence_id;
    dap_session *session;
    MUST(dap_connect(NULL, url, &options, &session));
    return session;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    dap_session *one = connect_as(arguments[1], "node-1");
    dap_session *two = connect_as(arguments[1], "node-2");
    dap_file *mine, *theirs;
    MUST(dap_open(one, "/shared", DAP_READ | DAP_WRITE | DAP_CREATE, 0644, NULL, &mine));
    MUST(dap_open(two, "/shared", DAP_READ | DAP_WRITE, 0, NULL, &theirs));

    const char *both[] = {"node-1", "node-2"};
    MUST(dap_fence(one, "/shared", DAP_FENCE_FILE, DAP_FENCE_SET, both, 2));
    MUST(dap_pwrite(theirs, "a", 1, 0));
    /* node-2 is silent: before its work is taken over, it must be kept from doing more. */
    MUST(dap_fence(one, "/shared", DAP_FENCE_FILE, DAP_FENCE_REMOVE, &both[1], 1));
    CHECK(dap_pwrite(theirs, "b", 1, 0) == -EACCES);
    printf("kept out, as it should be: %s\n", dap_error_text());
    MUST(dap_pwrite(mine, "c", 1, 0));

    char names[64];
    long long length = MUST(dap_fence_list(one, "/shared", DAP_FENCE_FILE, names, sizeof names));
    CHECK(length == 7 && strcmp(names, "node-1") == 0);
    MUST(dap_fence(one, "/shared", DAP_FENCE_FILE, DAP_FENCE_SET, NULL, 0));
    MUST(dap_pwrite(theirs, "d", 1, 0));

    MUST(dap_close(mine));
    MUST(dap_close(theirs));
    MUST(dap_disconnect(one));
    MUST(dap_disconnect(two));
    return 0;
}

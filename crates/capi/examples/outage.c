/* A server that goes, and comes back: outage URL. Each line that is read lets it go on. */
#include "example.h"

#include <errno.h>
#include <pthread.h>

/* Says what is to happen, and waits until somebody has seen to it. */
static void stage(const char *what) {
    char line[16];
    printf("%s\n", what);
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
}

/* Waits for the server. */
static void *look(void *session) {
    dap_attributes found;
    MUST(dap_stat(session, "/log", &found));
    CHECK(found.size >= 6);
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    dap_session *session, *frail;
    MUST(dap_connect(NULL, arguments[1], NULL, &session));
    dap_connect_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = DAP_CONNECT_NO_RECOVERY;
    MUST(dap_connect(NULL, arguments[1], &options, &frail));
    dap_file *file, *lost;
    MUST(dap_open(session, "/log", DAP_READ | DAP_WRITE | DAP_CREATE, 0644, NULL, &file));
    MUST(dap_open(frail, "/log", DAP_READ, 0, NULL, &lost));
    MUST(dap_lock(file, DAP_LOCK_SHARED, 0, DAP_TO_END, 0, 0, NULL));
    MUST(dap_pwrite(file, "before", 6, 0));
    MUST(dap_fsync(file));

    stage("stop the server");
    /* A session that does not come back says so, at every call from then on. */
    char text[16];
    CHECK(dap_pread(lost, text, sizeof text, 0) == -ECONNRESET);
    CHECK(strlen(dap_error_text()) > 0 && dap_ping(frail) == -ECONNRESET);
    CHECK(dap_disconnect(frail) == -ECONNRESET);
    dap_close(lost);
    /* One that comes back has its operations wait, by whatever thread, and no other thread for
     * those: it goes on. */
    pthread_t looking[2];
    for (int number = 0; number < 2; number++) {
        CHECK(pthread_create(&looking[number], NULL, look, session) == 0);
    }
    for (int round = 0; round < 1000; round++) {
        CHECK(MUST(dap_session_address(session, text, sizeof text)) > 0);
    }
    dap_group *group;
    MUST(dap_group_create(NULL, &group));
    dap_memory memory = {text, sizeof text, NULL};
    MUST(dap_read_async(file, &memory, 1, 0, group, NULL, NULL));
    dap_completion completion;
    CHECK(MUST(dap_wait(group, 1, 50, &completion, 1)) == 0);

    stage("start it again");
    CHECK(MUST(dap_wait(group, 1, DAP_FOREVER, &completion, 1)) == 1);
    CHECK(completion.result == 6 && memcmp(text, "before", 6) == 0);
    for (int number = 0; number < 2; number++) CHECK(pthread_join(looking[number], NULL) == 0);
    /* The open and the lock were taken back. */
    CHECK(MUST(dap_pwrite(file, "after", 5, 6)) == 5);
    MUST(dap_fsync(file));
    MUST(dap_unlock(file, 0, DAP_TO_END));
    MUST(dap_group_release(group));
    MUST(dap_close(file));
    MUST(dap_disconnect(session));
    return 0;
}

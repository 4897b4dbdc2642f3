/* A program that forks while another thread of it is in calls: fork_busy URL */
#include "example.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 8 };

static atomic_int is_over;

/* Another thread of the parent's is in a call at the moment of the fork, most of the time. */
static void *keep_reading(void *argument) {
    char text[6];
    while (!is_over) {
        CHECK(MUST(dap_pread(argument, text, sizeof text, 0)) == 6);
    }
    return NULL;
}

static void in_child(const char *url, dap_session *session, dap_file *file, dap_group *group) {
    /* What the parent has is refused, with a text. */
    char text[8];
    CHECK(dap_pread(file, text, sizeof text, 0) == -EOWNERDEAD);
    CHECK(strstr(dap_error_text(), "fork") != NULL);
    CHECK(dap_ping(session) == -EOWNERDEAD);
    dap_completion completion;
    CHECK(dap_wait(group, 1, DAP_FOREVER, &completion, 1) == -EOWNERDEAD);
    CHECK(dap_close(file) == -EOWNERDEAD && dap_disconnect(session) == -EOWNERDEAD);

    /* A session of its own does. */
    MUST(dap_connect(NULL, url, NULL, &session));
    MUST(dap_open(session, "/family", DAP_READ | DAP_WRITE, 0, NULL, &file));
    CHECK(MUST(dap_pread(file, text, 6, 0)) == 6 && memcmp(text, "parent", 6) == 0);
    CHECK(MUST(dap_pwrite(file, "child ", 6, 6)) == 6);
    MUST(dap_close(file));
    MUST(dap_disconnect(session));
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    dap_session *session;
    MUST(dap_connect(NULL, arguments[1], NULL, &session));
    dap_file *file;
    MUST(dap_open(session, "/family", DAP_READ | DAP_WRITE | DAP_CREATE, 0644, NULL, &file));
    CHECK(MUST(dap_pwrite(file, "parent", 6, 0)) == 6);
    dap_group *group;
    MUST(dap_group_create(NULL, &group));

    pthread_t reader;
    CHECK(pthread_create(&reader, NULL, keep_reading, file) == 0);
    for (int number = 0; number < CHILDREN; number++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            in_child(arguments[1], session, file, group);
            return 0;
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    is_over = 1;
    CHECK(pthread_join(reader, NULL) == 0);

    /* The parent has noticed nothing of it. */
    char text[16];
    CHECK(MUST(dap_pread(file, text, sizeof text, 0)) == 12);
    CHECK(memcmp(text, "parentchild ", 12) == 0);
    MUST(dap_group_release(group));
    MUST(dap_close(file));
    MUST(dap_disconnect(session));
    return 0;
}

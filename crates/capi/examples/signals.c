/* Ctrl-C while a program waits: signals URL. It stops when a line can be read. */
#include "example.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static dap_file *held;

/* Signals that do not end a wait are noted here. */
static void handle(int number) {
    static const char text[] = "interrupted\n";
    (void)number;
    if (write(STDOUT_FILENO, text, sizeof text - 1) < 0) {
        _exit(3);
    }
}

static void *release_when_told(void *argument) {
    char byte;
    CHECK(read(STDIN_FILENO, &byte, 1) == 1);
    MUST(dap_unlock(held, 0, DAP_TO_END));
    return argument;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    dap_session *session;
    MUST(dap_connect(NULL, arguments[1], NULL, &session));
    dap_file *file;
    MUST(dap_open(session, "/x", DAP_READ | DAP_WRITE | DAP_CREATE, 0644, NULL, &held));
    MUST(dap_open(session, "/x", DAP_READ | DAP_WRITE, 0, NULL, &file));
    MUST(dap_lock(held, DAP_LOCK_EXCLUSIVE, 0, DAP_TO_END, 0, 0, NULL));

    /* The thread that releases the lock gets no signals: this one does. */
    sigset_t interrupt, before;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    CHECK(pthread_sigmask(SIG_BLOCK, &interrupt, &before) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, release_when_told, NULL) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    CHECK(sigaction(SIGINT, &action, NULL) == 0);

    printf("waiting\n");
    fflush(stdout);
    MUST(dap_lock(file, DAP_LOCK_EXCLUSIVE, 0, DAP_TO_END, 0, DAP_FOREVER, NULL));
    CHECK(pthread_join(thread, NULL) == 0);
    MUST(dap_close(file));
    MUST(dap_close(held));
    MUST(dap_disconnect(session));
    return 0;
}

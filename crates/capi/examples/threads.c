/* Threads that share a session: threads URL */
#include "example.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 200, BLOCK = 512 };

static dap_session *session;
static dap_file *shared;

static void *work(void *argument) {
    int number = (int)(size_t)argument;
    char name[32], block[BLOCK], read[BLOCK];
    snprintf(name, sizeof name, "/own-%d", number);
    dap_file *own;
    MUST(dap_open(session, name, DAP_READ | DAP_WRITE | DAP_CREATE, 0644, NULL, &own));
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t offset = (uint64_t)(round * THREADS + number) * BLOCK;
        memset(block, number * 50 + round % 50, BLOCK);
        CHECK(MUST(dap_pwrite(shared, block, BLOCK, offset)) == BLOCK);
        CHECK(MUST(dap_pwrite(own, block, BLOCK, 0)) == BLOCK);
        CHECK(MUST(dap_pread(shared, read, BLOCK, offset)) == BLOCK);
        CHECK(memcmp(block, read, BLOCK) == 0);
    }
    MUST(dap_close(own));
    /* The text of a failure is this thread's own. */
    CHECK(dap_unlink(session, "/nothing") < 0);
    CHECK(strstr(dap_error_text(), "/nothing") != NULL);
    return NULL;
}

/* Waits for a lock that the main thread holds; the others go on meanwhile. */
static void *wait_for_lock(void *argument) {
    dap_file *file;
    MUST(dap_open(session, "/shared", DAP_READ | DAP_WRITE, 0, NULL, &file));
    MUST(dap_lock(file, DAP_LOCK_EXCLUSIVE, 0, DAP_TO_END, 0, DAP_FOREVER, NULL));
    MUST(dap_close(file));
    return argument;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    MUST(dap_connect(NULL, arguments[1], NULL, &session));
    MUST(dap_open(session, "/shared", DAP_READ | DAP_WRITE | DAP_CREATE, 0644, NULL, &shared));
    pthread_t threads[THREADS], waiting;
    MUST(dap_lock(shared, DAP_LOCK_EXCLUSIVE, 0, DAP_TO_END, 0, 0, NULL));
    CHECK(pthread_create(&waiting, NULL, wait_for_lock, NULL) == 0);
    for (size_t number = 0; number < THREADS; number++) {
        CHECK(pthread_create(&threads[number], NULL, work, (void *)number) == 0);
    }
    for (int number = 0; number < THREADS; number++) {
        CHECK(pthread_join(threads[number], NULL) == 0);
    }
    MUST(dap_unlock(shared, 0, DAP_TO_END));
    CHECK(pthread_join(waiting, NULL) == 0);
    dap_attributes attributes;
    MUST(dap_fstat(shared, &attributes));
    CHECK(attributes.size == THREADS * ROUNDS * BLOCK);
    MUST(dap_close(shared));
    MUST(dap_disconnect(session));
    return 0;
}

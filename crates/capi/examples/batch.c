/* Scattered reads and writes in a few messages: batch URL */
#include "example.h"

#include <errno.h>

enum { PIECES = 16, PIECE = 1000 };

int main(int count, char **arguments) {
    CHECK(count == 2);
    dap_session *session;
    MUST(dap_connect(NULL, arguments[1], NULL, &session));
    dap_file *file;
    MUST(dap_open(session, "/scattered", DAP_READ | DAP_WRITE | DAP_CREATE, 0644, NULL, &file));

    /* Each piece goes to two places of the file that are far from each other. */
    static char pieces[PIECES][PIECE];
    dap_range ranges[PIECES][2];
    dap_memory memory[PIECES];
    dap_batch_request requests[PIECES];
    memset(requests, 0, sizeof requests);
    for (int index = 0; index < PIECES; index++) {
        memset(pieces[index], 'a' + index, PIECE);
        ranges[index][0].offset = (uint64_t)index * 300;
        ranges[index][0].length = 300;
        ranges[index][1].offset = (uint64_t)(1000 - index) * 700;
        ranges[index][1].length = 700;
        memory[index].pointer = pieces[index];
        memory[index].length = PIECE;
        memory[index].region = NULL;
        requests[index].file = file;
        requests[index].direction = DAP_WRITE;
        requests[index].ranges = ranges[index];
        requests[index].range_count = 2;
        requests[index].memory = &memory[index];
        requests[index].memory_count = 1;
        requests[index].context = pieces[index];
    }
    CHECK(MUST(dap_batch(session, requests, PIECES)) == PIECES);
    for (int index = 0; index < PIECES; index++) {
        CHECK(requests[index].result == PIECE);
    }

    /* Read back as one batch that the server may take its time with, and hurried. */
    dap_group *group;
    MUST(dap_group_create(NULL, &group));
    memset(pieces, 0, sizeof pieces);
    for (int index = 0; index < PIECES; index++) {
        requests[index].direction = DAP_READ;
    }
    const uint64_t hour_us = 3600000000u;
    MUST(dap_batch_submit(session, requests, PIECES, hour_us, 1, group));
    for (int index = 0; index < PIECES; index++) {
        int hurried = dap_expedite(group, requests[index].operation);
        CHECK(hurried == 0 || hurried == -ENOENT);
    }
    dap_completion completions[PIECES];
    CHECK(MUST(dap_wait(group, PIECES, DAP_FOREVER, completions, PIECES)) == PIECES);
    for (int index = 0; index < PIECES; index++) {
        CHECK(completions[index].result == PIECE);
        CHECK(completions[index].context != NULL);
        for (int byte = 0; byte < PIECE; byte++) {
            CHECK(pieces[index][byte] == 'a' + index);
        }
    }

    /* One is given up. It ends all the same, and says so. */
    MUST(dap_batch_submit(session, requests, 1, hour_us, 0, group));
    MUST(dap_cancel(group, requests[0].operation));
    CHECK(MUST(dap_wait(group, 1, DAP_FOREVER, completions, 1)) == 1);
    CHECK(completions[0].result == -ECANCELED);

    /* Bytes of the file and of memory must be as many. */
    ranges[0][0].length = 1;
    CHECK(dap_batch(session, requests, PIECES) == -EINVAL);
    printf("refused, as it should be: %s\n", dap_error_text());

    MUST(dap_group_release(group));
    MUST(dap_close(file));
    MUST(dap_disconnect(session));
    return 0;
}

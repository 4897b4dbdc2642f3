/* Many transfers in flight on one thread: async URL */
#include "example.h"

#include <errno.h>

enum { BLOCK = 4096, BLOCKS = 32 };

int main(int count, char **arguments) {
    CHECK(count == 2);
    dap_client *client;
    MUST(dap_client_create(NULL, &client));
    dap_session *session;
    MUST(dap_connect(client, arguments[1], NULL, &session));
    dap_file *file;
    MUST(dap_open(session, "/blocks", DAP_READ | DAP_WRITE | DAP_CREATE | DAP_TRUNCATE, 0644,
                  NULL, &file));
    dap_group *group;
    MUST(dap_group_create(client, &group));

    /* Memory of the library's, which the server writes straight into; memory of the program's,
     * registered; and memory that was not, which is copied once. */
    void *given;
    dap_region *given_region, *own_region;
    MUST(dap_allocate(client, BLOCK * BLOCKS, &given, &given_region));
    unsigned char *own = malloc(BLOCK * BLOCKS), *plain = malloc(BLOCK * BLOCKS);
    CHECK(own != NULL && plain != NULL);
    memset(own, 0, BLOCK * BLOCKS);
    memset(plain, 0, BLOCK * BLOCKS);
    MUST(dap_register(client, own, BLOCK * BLOCKS, &own_region));

    for (int block = 0; block < BLOCKS; block++) {
        memset((char *)given + block * BLOCK, block + 1, BLOCK);
        dap_memory memory = {(char *)given + block * BLOCK, BLOCK, given_region};
        MUST(dap_write_async(file, &memory, 1, (uint64_t)block * BLOCK, DAP_UNSTABLE, group, NULL,
                             NULL));
    }
    dap_completion completions[BLOCKS];
    CHECK(MUST(dap_wait(group, BLOCKS, DAP_FOREVER, completions, BLOCKS)) == BLOCKS);
    for (int block = 0; block < BLOCKS; block++) {
        CHECK(completions[block].result == BLOCK && completions[block].text == NULL);
    }
    uint64_t number;
    MUST(dap_fsync_async(file, group, &number, &number));
    CHECK(MUST(dap_wait(group, 1, DAP_FOREVER, completions, BLOCKS)) == 1);
    CHECK(completions[0].operation == number && completions[0].context == &number);
    CHECK(completions[0].result == 0);

    /* Each block is read three times; what comes first is looked at first. */
    unsigned char *places[] = {given, own, plain};
    dap_region *regions[] = {given_region, own_region, NULL};
    memset(given, 0, BLOCK * BLOCKS);
    for (int block = 0; block < BLOCKS; block++) {
        for (int kind = 0; kind < 3; kind++) {
            unsigned char *place = places[kind] + block * BLOCK;
            dap_memory halves[] = {{place, BLOCK / 2, regions[kind]},
                                   {place + BLOCK / 2, BLOCK / 2, regions[kind]}};
            MUST(dap_read_async(file, halves, 2, (uint64_t)block * BLOCK, group, place, NULL));
        }
    }
    CHECK(dap_group_release(group) == -EBUSY);
    CHECK(dap_deregister(own_region) == -EBUSY);
    int left = 3 * BLOCKS;
    while (left > 0) {
        long long ended = MUST(dap_wait(group, 8, 10000, completions, BLOCKS));
        CHECK(ended > 0);
        for (int index = 0; index < ended; index++) {
            const unsigned char *place = completions[index].context;
            CHECK(completions[index].result == BLOCK);
            for (int byte = 1; byte < BLOCK; byte++) {
                CHECK(place[byte] == place[0] && place[0] != 0);
            }
        }
        left -= (int)ended;
    }
    for (int block = 0; block < BLOCKS; block++) {
        for (int kind = 0; kind < 3; kind++) {
            CHECK(places[kind][block * BLOCK] == block + 1);
        }
    }
    /* Nothing is under way: nobody waits for ever. */
    CHECK(MUST(dap_wait(group, 1, DAP_FOREVER, completions, BLOCKS)) == 0);

    /* The end of the file, and a failure. */
    dap_memory memory = {plain, BLOCK, NULL};
    MUST(dap_read_async(file, &memory, 1, BLOCK * BLOCKS - 10, group, NULL, NULL));
    CHECK(MUST(dap_wait(group, 1, DAP_FOREVER, completions, 1)) == 1);
    CHECK(completions[0].result == 10 && (completions[0].flags & DAP_END_OF_FILE) != 0);
    dap_file *reader;
    MUST(dap_open(session, "/blocks", DAP_READ, 0, NULL, &reader));
    MUST(dap_write_async(reader, &memory, 1, 0, DAP_FILE_SYNC, group, NULL, &number));
    CHECK(MUST(dap_wait(group, 1, DAP_FOREVER, completions, 1)) == 1);
    CHECK(completions[0].operation == number && completions[0].result < 0);
    printf("refused, as it should be: %s\n", completions[0].text);
    CHECK(dap_cancel(group, number) == -ENOENT);

    MUST(dap_close(reader));
    MUST(dap_group_release(group));
    MUST(dap_deregister(own_region));
    MUST(dap_deregister(given_region));
    free(own);
    free(plain);
    MUST(dap_close(file));
    MUST(dap_disconnect(session));
    MUST(dap_client_release(client));
    return 0;
}

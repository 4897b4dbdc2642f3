/* The script of crates/dat/examples/peer/script.rs over the kernel's verbs.
 *
 *   verbs target ADDRESS PORT [depth=N]          serves one driver
 *   verbs driver ADDRESS PORT SCENE [depth=N]    is one
 *
 * Scenes: everything, and each offence by name. The exit status is 0 if all went as it must:
 * for an offence, if the connection ended. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    main_bytes = 1 << 20,
    spare_bytes = 4096,
    slot_bytes = 64 << 10,
    slots = 16,
    reads = 48,
    remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
};

struct info {
    uint64_t address;
    uint32_t key;
    uint32_t length;
} __attribute__((packed));

static struct rdma_cm_id *id;
static char *inbox, *outbox, *memory, *spare;
static struct ibv_mr *inbox_region, *outbox_region, *memory_region, *spare_region;
static struct info main_info, spare_info;

/* Ends the program: what failed, and why if the system says. */
static void fail(const char *what)
{
    printf("verbs: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *must(void *result, const char *what)
{
    if (!result)
        fail(what);
    return result;
}

static void check(int result, const char *what)
{
    if (result)
        fail(what);
}

static void post_slot(uint64_t slot)
{
    char *at = inbox + slot * slot_bytes;
    check(rdma_post_recv(id, (void *)slot, at, slot_bytes, inbox_region), "post a receive");
}

/* Memory of the connection, and its receives. */
static void prepare(void)
{
    inbox = must(calloc(slots, slot_bytes), "memory");
    outbox = must(calloc(1, slot_bytes), "memory");
    memory = must(calloc(1, main_bytes), "memory");
    spare = must(calloc(1, spare_bytes), "memory");
    struct ibv_pd *pd = id->pd;
    inbox_region = must(ibv_reg_mr(pd, inbox, slots * slot_bytes, remote), "register");
    outbox_region = must(ibv_reg_mr(pd, outbox, slot_bytes, remote), "register");
    memory_region = must(ibv_reg_mr(pd, memory, main_bytes, remote), "register");
    spare_region = must(ibv_reg_mr(pd, spare, spare_bytes, remote), "register");
    for (uint64_t slot = 0; slot < slots; slot++)
        post_slot(slot);
}

/* The next completion of a queue; 0 if it says that the connection has ended. */
static int completion(int received, struct ibv_wc *wc)
{
    int got = received ? rdma_get_recv_comp(id, wc) : rdma_get_send_comp(id, wc);
    if (got < 0)
        fail("completion");
    return wc->status == IBV_WC_SUCCESS;
}

/* Posts one piece of work on the send queue. */
static void post(enum ibv_wr_opcode opcode, void *local, uint32_t length, struct ibv_mr *region,
                 uint64_t address, uint32_t key)
{
    struct ibv_sge piece = {(uintptr_t)local, length, region->lkey};
    struct ibv_send_wr work = {.sg_list = &piece, .num_sge = length ? 1 : 0, .opcode = opcode};
    struct ibv_send_wr *bad;
    work.send_flags = IBV_SEND_SIGNALED;
    work.wr.rdma.remote_addr = address;
    /* libsiw takes the key to be invalidated from here, too. */
    work.wr.rdma.rkey = key;
    if (opcode == IBV_WR_SEND_WITH_INV)
        work.invalidate_rkey = key;
    check(ibv_post_send(id->qp, &work, &bad), "post");
}

static int finish(int count)
{
    struct ibv_wc wc;
    while (count--)
        if (!completion(0, &wc))
            return 0;
    return 1;
}

static int send_from(enum ibv_wr_opcode opcode, const void *bytes, uint32_t length, uint32_t key)
{
    memcpy(outbox, bytes, length);
    post(opcode, outbox, length, outbox_region, 0, key);
    return finish(1);
}

/* The next message: where it is, or 0 if the connection has ended. */
static char *receive(uint32_t *length)
{
    static char copy[slot_bytes];
    struct ibv_wc wc;
    if (!completion(1, &wc))
        return 0;
    memcpy(copy, inbox + wc.wr_id * slot_bytes, wc.byte_len);
    *length = wc.byte_len;
    if (wc.wc_flags & IBV_WC_WITH_INV)
        printf("invalidated: 1\n");
    post_slot(wc.wr_id);
    return copy;
}

static void pattern(char *into, size_t length, size_t seed)
{
    for (size_t at = 0; at < length; at++)
        into[at] = (at * 31 + at / 251 + seed) % 253;
}

static void wanted(int is_so, const char *what, uint32_t number)
{
    if (is_so)
        return;
    printf("verbs: not as it must be: %s, %u\n", what, number);
    exit(1);
}

static void echo(const char *bytes, uint32_t length)
{
    uint32_t back = 0;
    wanted(send_from(IBV_WR_SEND, bytes, length, 0), "a message is sent", length);
    char *answer = receive(&back);
    wanted(answer && back == length && !memcmp(answer, bytes, length), "it comes back", length);
}

static void write_and_read(uint32_t length)
{
    char *expected = must(malloc(main_bytes), "memory");
    pattern(expected, length, length + 1);
    memcpy(memory, expected, length);
    post(IBV_WR_RDMA_WRITE, memory, length, memory_region, main_info.address, main_info.key);
    wanted(finish(1), "a write is done", length);
    memset(memory, 0, main_bytes);
    post(IBV_WR_RDMA_READ, memory, length, memory_region, main_info.address, main_info.key);
    wanted(finish(1), "a read is done", length);
    wanted(!memcmp(memory, expected, length), "what was written is read", length);
    free(expected);
}

static void many_reads(void)
{
    uint32_t length = main_bytes / reads;
    char *expected = must(malloc(main_bytes), "memory");
    pattern(expected, main_bytes, 7);
    memcpy(memory, expected, main_bytes);
    post(IBV_WR_RDMA_WRITE, memory, main_bytes, memory_region, main_info.address, main_info.key);
    wanted(finish(1), "a write is done", main_bytes);
    memset(memory, 0, main_bytes);
    for (uint32_t at = 0; at < reads; at++)
        post(IBV_WR_RDMA_READ, memory + at * length, length, memory_region,
             main_info.address + at * length, main_info.key);
    wanted(finish(reads), "many reads are done", reads);
    wanted(!memcmp(memory, expected, length * reads), "many reads at once", reads);
}

static void invalidate(uint32_t key)
{
    uint32_t length = 0;
    wanted(send_from(IBV_WR_SEND_WITH_INV, "invalidate", 10, key), "an invalidation is sent", key);
    wanted(receive(&length) != 0, "it is answered", key);
}

static void everything(void)
{
    static const uint32_t sends[] = {0, 1, 3, 17, 1440, 4096, 65000, slot_bytes};
    static const uint32_t writes[] = {0, 1, 3, 17, 1441, 4096, 65537, main_bytes};
    static char bytes[slot_bytes];
    for (int at = 0; at < 8; at++) {
        pattern(bytes, sends[at], sends[at]);
        echo(bytes, sends[at]);
    }
    for (int at = 0; at < 8; at++)
        write_and_read(writes[at]);
    many_reads();
    invalidate(spare_info.key);
}

/* Does what must end the connection, and waits for that. */
static void offend(const char *scene)
{
    uint64_t address = main_info.address;
    uint32_t wrong = main_info.key ^ 0xff00, length;
    if (!strcmp(scene, "write-stag"))
        post(IBV_WR_RDMA_WRITE, memory, 64, memory_region, address, wrong);
    else if (!strcmp(scene, "write-bounds"))
        post(IBV_WR_RDMA_WRITE, memory, main_bytes, memory_region, address + 1, main_info.key);
    else if (!strcmp(scene, "read-stag"))
        post(IBV_WR_RDMA_READ, memory, 64, memory_region, address, wrong);
    else if (!strcmp(scene, "read-bounds"))
        post(IBV_WR_RDMA_READ, memory, main_bytes, memory_region, address + 1, main_info.key);
    else if (!strcmp(scene, "write-invalidated")) {
        invalidate(spare_info.key);
        post(IBV_WR_RDMA_WRITE, memory, 64, memory_region, spare_info.address, spare_info.key);
    } else if (!strcmp(scene, "send-stag"))
        post(IBV_WR_SEND_WITH_INV, outbox, 10, outbox_region, 0, wrong);
    else if (!strcmp(scene, "send-long")) {
        /* Longer than any receive of the other side. */
        post(IBV_WR_SEND, memory, slot_bytes + 1, memory_region, 0, 0);
    } else
        wanted(0, scene, 0);
    wanted(receive(&length) == 0, "the connection ends", 0);
}

static void drive(const char *scene)
{
    uint32_t length = 0;
    wanted(send_from(IBV_WR_SEND, "hello", 5, 0), "a hello is sent", 0);
    char *infos = receive(&length);
    wanted(infos && length == 2 * sizeof main_info, "two buffers are told of", length);
    memcpy(&main_info, infos, sizeof main_info);
    memcpy(&spare_info, infos + sizeof main_info, sizeof spare_info);
    main_info.address = be64toh(main_info.address), main_info.key = be32toh(main_info.key);
    spare_info.address = be64toh(spare_info.address), spare_info.key = be32toh(spare_info.key);
    if (!strcmp(scene, "everything")) {
        everything();
        rdma_disconnect(id);
        printf("everything done\n");
        return;
    }
    echo("still here", 10);
    offend(scene);
    printf("ended\n");
}

/* siw flushes what is posted when the application disconnects, too, and not before that if it
 * was a read that it has refused. */
static void *disconnect_with_peer(void *nothing)
{
    struct rdma_cm_event *event;
    while (!rdma_get_cm_event(id->channel, &event)) {
        enum rdma_cm_event_type what = event->event;
        rdma_ack_cm_event(event);
        if (what == RDMA_CM_EVENT_DISCONNECTED)
            break;
    }
    rdma_disconnect(id);
    return nothing;
}

static void serve(void)
{
    pthread_t thread;
    check(pthread_create(&thread, 0, disconnect_with_peer, 0), "thread");
    struct info infos[2] = {
        {htobe64((uintptr_t)memory), htobe32(memory_region->rkey), htobe32(main_bytes)},
        {htobe64((uintptr_t)spare), htobe32(spare_region->rkey), htobe32(spare_bytes)},
    };
    uint32_t length = 0;
    int served = 0;
    for (char *message; (message = receive(&length)); served++)
        if (!(served ? send_from(IBV_WR_SEND, message, length, 0)
                     : send_from(IBV_WR_SEND, infos, sizeof infos, 0)))
            break;
    printf("ended after %d messages\n", served);
}

int main(int count, char **words)
{
    if (count < 4)
        return 2;
    int listens = !strcmp(words[1], "target"), depth = 4;
    for (int at = 4; at < count; at++)
        sscanf(words[at], "depth=%d", &depth);
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
    hints.ai_flags = listens ? RAI_PASSIVE : 0;
    check(rdma_getaddrinfo(words[2], words[3], &hints, &found), "address");
    struct ibv_qp_init_attr attributes = {.sq_sig_all = 1};
    attributes.cap = (struct ibv_qp_cap){2 * reads, 2 * slots, 1, 1, 0};
    struct rdma_conn_param terms = {.responder_resources = depth, .initiator_depth = depth};
    setvbuf(stdout, 0, _IOLBF, 0);
    check(rdma_create_ep(&id, found, 0, &attributes), "endpoint");
    if (listens) {
        struct rdma_cm_id *listener = id;
        check(rdma_listen(listener, 4), "listen");
        printf("listening\n");
        check(rdma_get_request(listener, &id), "request");
    }
    prepare();
    check(listens ? rdma_accept(id, &terms) : rdma_connect(id, &terms), "connect");
    printf("connected\n");
    if (listens)
        serve();
    else
        drive(count > 4 ? words[4] : "everything");
    return 0;
}

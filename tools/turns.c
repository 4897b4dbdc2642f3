/*
 * How long each thread of a program over TCP takes from the return of the recvmsg that brings
 * bytes to the next call of sendmsg: what it computes for one message, without the way there and
 * back. Times are of the processor's time stamp counter, so that a hundredth of a microsecond can
 * be told; x86-64 only.
 *
 *     cc -O2 -shared -fPIC -o target/turns.so tools/turns.c
 *     LD_PRELOAD=target/turns.so target/release/examples/chain_cost --only-chained
 *
 * One line for each thread that has sent more than a thousand messages, on stderr: the turn, the
 * sendmsg and the recvmsg that a tenth and a half are faster than, in microseconds.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { BUCKETS = 1024, BUCKET_TICKS = 46, THREADS = 64 };

struct thread {
    int id;
    uint64_t brought; /* when recvmsg last brought something */
    long sent;
    uint32_t turns[BUCKETS], sends[BUCKETS], receives[BUCKETS];
};

static struct thread threads[THREADS + 1];
static int thread_count;
static __thread struct thread *own;
static ssize_t (*receive)(int, struct msghdr *, int);
static ssize_t (*transmit)(int, const struct msghdr *, int);
static uint64_t first_tick;
static struct timespec first_time;

__attribute__((constructor)) static void begin(void)
{
    receive = dlsym(RTLD_NEXT, "recvmsg");
    transmit = dlsym(RTLD_NEXT, "sendmsg");
    clock_gettime(CLOCK_MONOTONIC, &first_time);
    first_tick = __rdtsc();
}

static struct thread *mine(void)
{
    if (!own) {
        int place = __sync_fetch_and_add(&thread_count, 1);
        own = &threads[place < THREADS ? place : THREADS];
        own->id = gettid();
    }
    return own;
}

static void count(uint32_t *buckets, uint64_t ticks)
{
    uint64_t bucket = ticks / BUCKET_TICKS;
    buckets[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
}

ssize_t recvmsg(int socket, struct msghdr *message, int flags)
{
    uint64_t begun = __rdtsc();
    ssize_t length = receive(socket, message, flags);
    if (length > 0) {
        struct thread *thread = mine();
        thread->brought = __rdtsc();
        count(thread->receives, thread->brought - begun);
    }
    return length;
}

ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
    uint64_t begun = __rdtsc();
    ssize_t length = transmit(socket, message, flags);
    struct thread *thread = mine();
    count(thread->sends, __rdtsc() - begun);
    if (thread->brought) {
        count(thread->turns, begun - thread->brought);
        thread->brought = 0;
    }
    thread->sent++;
    return length;
}

/* The upper end of the bucket that this part of all is below. */
static double part(const uint32_t *buckets, double part, double tick_us)
{
    double all = 0, seen = 0;
    int bucket = 0;
    for (int i = 0; i < BUCKETS; i++)
        all += buckets[i];
    while (bucket < BUCKETS - 1 && (seen += buckets[bucket]) < part * all)
        bucket++;
    return (bucket + 1) * BUCKET_TICKS * tick_us;
}

__attribute__((destructor)) static void report(void)
{
    struct timespec now;
    uint64_t ticks = __rdtsc() - first_tick;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double us = (now.tv_sec - first_time.tv_sec) * 1e6 + (now.tv_nsec - first_time.tv_nsec) / 1e3;
    double tick = us / ticks;
    for (int i = 0; i < thread_count && i < THREADS; i++) {
        struct thread *t = &threads[i];
        if (t->sent > 1000)
            fprintf(stderr,
                    "thread %d, %ld sent: turn %.2f %.2f  sendmsg %.2f %.2f  recvmsg %.2f %.2f\n",
                    t->id, t->sent, part(t->turns, .1, tick), part(t->turns, .5, tick),
                    part(t->sends, .1, tick), part(t->sends, .5, tick),
                    part(t->receives, .1, tick), part(t->receives, .5, tick));
    }
}

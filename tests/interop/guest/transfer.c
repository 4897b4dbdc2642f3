// Writes or reads files as iozone does, and says what that costs the whole machine.
//
//   transfer write|read DIRECTORY THREADS FILE_BYTES RECORD_BYTES [direct]
//       Each thread has a file of its own, and goes through it once, record by record. `read` needs
//       the files that `write` with the same words has made, and does not find them in its cache.
//   transfer idle SECONDS
//       What the machine does meanwhile.
//
// Prints: seconds, bytes, CPU seconds of all processors that are accounted to something (interrupts
// too), and CPU seconds that are not idle.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 64, ALIGNMENT = 4096 };

struct task {
    pthread_t thread;
    int file, number;
    char *record;
};

static struct task tasks[THREADS_MAX];
static size_t file_bytes, record_bytes;
static int is_write;
static pthread_barrier_t start;

static void die(const char *what) {
    fprintf(stderr, "transfer: %s: %s\n", what, strerror(errno));
    exit(1);
}

// What the machine has done since it was started, in seconds of processors.
struct usage {
    double at, busy, idle;
};

// The idle time to the nanosecond, which is possible if there is one processor, because it is not idle now.
static double idle_of_one(void) {
    unsigned long long sum = 0, one;
    char line[200];
    FILE *file = fopen("/proc/timer_list", "r");
    if (!file) die("/proc/timer_list");
    while (fgets(line, sizeof line, file))
        if (sscanf(line, " .idle_sleeptime : %llu", &one) == 1 ||
            sscanf(line, " .iowait_sleeptime: %llu", &one) == 1)
            sum += one;
    fclose(file);
    return (double)sum / 1e9;
}

static struct usage usage(void) {
    // user nice system idle iowait irq softirq steal
    unsigned long long ticks[8];
    struct timespec now;
    struct usage usage = {0};
    FILE *file = fopen("/proc/stat", "r");
    if (!file || fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", ticks, ticks + 1, ticks + 2,
                        ticks + 3, ticks + 4, ticks + 5, ticks + 6, ticks + 7) != 8)
        die("/proc/stat");
    fclose(file);
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (int i = 0; i < 8; i++) {
        if (i == 3 || i == 4) usage.idle += (double)ticks[i];
        else usage.busy += (double)ticks[i];
    }
    double hertz = (double)sysconf(_SC_CLK_TCK);
    usage.busy /= hertz;
    usage.idle /= hertz;
    if (sysconf(_SC_NPROCESSORS_ONLN) == 1) usage.idle = idle_of_one();
    usage.at = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    return usage;
}

static void report(struct usage before, double bytes) {
    struct usage after = usage();
    double seconds = after.at - before.at;
    double all = seconds * (double)sysconf(_SC_NPROCESSORS_ONLN);
    printf("%.4f %.0f %.2f %.4f\n", seconds, bytes, after.busy - before.busy,
           all - (after.idle - before.idle));
}

// What a record begins with: its file, and its place.
static void mark(uint64_t head[2], int number, size_t at) {
    head[0] = 0x7265636f72640000u + (uint64_t)number;
    head[1] = at;
}

static void *run(void *argument) {
    struct task *task = argument;
    uint64_t head[2];
    pthread_barrier_wait(&start);
    for (size_t at = 0; at < file_bytes; at += record_bytes) {
        mark(head, task->number, at);
        if (is_write) {
            memcpy(task->record, head, sizeof head);
            if (pwrite(task->file, task->record, record_bytes, (off_t)at) != (ssize_t)record_bytes)
                die("write");
        } else {
            if (pread(task->file, task->record, record_bytes, (off_t)at) != (ssize_t)record_bytes)
                die("read");
            if (memcmp(task->record, head, sizeof head)) die("a record is another one");
        }
    }
    if (is_write && fsync(task->file)) die("fsync");
    return NULL;
}

static void prepare(struct task *task, const char *directory, int number, int is_direct) {
    char name[300];
    snprintf(name, sizeof name, "%s/file.%d", directory, number);
    int flags = (is_write ? O_WRONLY | O_CREAT : O_RDONLY) | (is_direct ? O_DIRECT : 0);
    task->number = number;
    if ((task->file = open(name, flags, 0644)) < 0) die(name);
    errno = posix_fadvise(task->file, 0, 0, POSIX_FADV_DONTNEED);
    if (errno) die("fadvise");
    if (posix_memalign((void **)&task->record, ALIGNMENT, record_bytes)) die("memory");
    memset(task->record, number + 1, record_bytes);
}

int main(int count, char **words) {
    if (count == 3 && !strcmp(words[1], "idle")) {
        struct usage before = usage();
        sleep((unsigned)atoi(words[2]));
        report(before, 0);
        return 0;
    }
    if (count < 6) return 2;
    int threads = atoi(words[3]);
    is_write = !strcmp(words[1], "write");
    file_bytes = (size_t)atoll(words[4]);
    record_bytes = (size_t)atoll(words[5]);
    if (threads < 1 || threads > THREADS_MAX || !record_bytes || file_bytes % record_bytes) return 2;
    pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        prepare(tasks + i, words[2], i, count > 6 && !strcmp(words[6], "direct"));
        if (pthread_create(&tasks[i].thread, NULL, run, tasks + i)) die("thread");
    }
    struct usage before = usage();
    pthread_barrier_wait(&start);
    for (int i = 0; i < threads; i++) pthread_join(tasks[i].thread, NULL);
    report(before, (double)threads * (double)file_bytes);
    return 0;
}

// Writes and names that can be judged afterwards: what was acknowledged must be there, once.
//
//   records write DIRECTORY WRITER LOG STOP
//       Until a file STOP is there, writes records with fsync, and creates, links, renames and
//       removes names. Each change is in LOG before it begins, and again when it is done. A
//       change that fails, for example as if it had been done before, ends the program.
//   records check DIRECTORY WRITER LOG
//       Whether all that is done according to LOG is in the files, and nothing else.
//   records lock FILE START LENGTH [COMMAND...]
//       Runs a command under a lock by fcntl. Exits with 3 if another has it.
//
// A record says in its head whose it is and where, and how often its place was written. What
// follows its head is made from that. A place is not a multiple of a page, so that two writes
// often share one.
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES = 4, PLACE = 1000, PLACES_MAX = 20000, RUN_MAX = 64 };

struct head {
    char magic[8];
    uint32_t writer, file, place, version;
    uint64_t sum;
};

static uint32_t writer;
static FILE *log_file;
static uint64_t state = 1;

static uint32_t some(uint32_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static void die(const char *what, const char *name) {
    fprintf(stderr, "records: writer %u: %s %s: %s\n", writer, what, name, strerror(errno));
    exit(1);
}

static void make(char *at, uint32_t file, uint32_t place, uint32_t version) {
    struct head head = {"record\n", writer, file, place, version, 0};
    uint64_t x = ((uint64_t)writer << 48) ^ ((uint64_t)file << 40) ^ ((uint64_t)place << 20) ^ version;
    uint64_t sum = 14695981039346656037u;
    for (size_t i = sizeof head; i < PLACE; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        at[i] = (char)(x >> 56);
        sum = (sum ^ (unsigned char)at[i]) * 1099511628211u;
    }
    head.sum = sum;
    memcpy(at, &head, sizeof head);
}

static void note(const char *line) {
    if (fputs(line, log_file) < 0 || fflush(log_file)) die("log", "");
}

// ---- data -----------------------------------------------------------------------------------

static void write_some(int *files, uint32_t *ends, uint32_t *version) {
    static char bytes[RUN_MAX * PLACE];
    char line[80];
    uint32_t file = some(FILES), count = some(8) ? 1 + some(3) : RUN_MAX;
    uint32_t first = some(3) || !ends[file] ? ends[file] : some(ends[file]);
    if (first + count > PLACES_MAX) first = 0;
    ++*version;
    for (uint32_t i = 0; i < count; i++) make(bytes + i * PLACE, file, first + i, *version);
    snprintf(line, sizeof line, "try %u %u %u %u\n", file, first, count, *version);
    note(line);
    for (size_t done = 0; done < count * PLACE;) {
        ssize_t n = pwrite(files[file], bytes + done, count * PLACE - done,
                           (off_t)first * PLACE + (off_t)done);
        if (n <= 0) die("write", line);
        done += (size_t)n;
    }
    if (fsync(files[file])) die("fsync", line);
    memcpy(line, "did", 3);
    note(line);
    if (first + count > ends[file]) ends[file] = first + count;
}

// ---- names ----------------------------------------------------------------------------------

static void once(int result, int error_if_done_before, const char *what, const char *name) {
    if (result < 0) die(errno == error_if_done_before ? "this was done twice:" : what, name);
}

static void change_names(const char *directory, uint32_t number) {
    char dir[200], a[260], b[260], c[260], e[260], s[260], line[80];
    snprintf(dir, sizeof dir, "%s/w%u.names.%u", directory, writer, number);
    snprintf(a, sizeof a, "%s/a", dir), snprintf(b, sizeof b, "%s/b", dir);
    snprintf(c, sizeof c, "%s/c", dir), snprintf(e, sizeof e, "%s/e", dir);
    snprintf(s, sizeof s, "%s/s", dir);
    snprintf(line, sizeof line, "try names %u\n", number);
    note(line);
    once(mkdir(dir, 0755), EEXIST, "mkdir", dir);
    int file = open(a, O_CREAT | O_EXCL | O_WRONLY, 0644);
    once(file, EEXIST, "create", a);
    if (dprintf(file, "%u\n", number) < 2 || fsync(file) || close(file)) die("a", a);
    once(link(a, b), EEXIST, "link", b);
    once(rename(a, c), ENOENT, "rename", a);
    once(unlink(b), ENOENT, "unlink", b);
    once(symlink("c", s), EEXIST, "symlink", s);
    once(mkdir(e, 0700), EEXIST, "mkdir", e);
    once(rmdir(e), ENOENT, "rmdir", e);
    memcpy(line, "did", 3);
    note(line);
}

static int write_all(const char *directory, const char *log_name, const char *stop) {
    int files[FILES];
    uint32_t ends[FILES] = {0}, version = 0, number = 0;
    state += writer;
    if (!(log_file = fopen(log_name, "w"))) die("open", log_name);
    for (uint32_t i = 0; i < FILES; i++) {
        char name[260];
        snprintf(name, sizeof name, "%s/w%u.f%u", directory, writer, i);
        if ((files[i] = open(name, O_CREAT | O_RDWR, 0644)) < 0) die("open", name);
    }
    while (access(stop, F_OK)) {
        if (some(4)) write_some(files, ends, &version);
        else change_names(directory, number++);
    }
    for (uint32_t i = 0; i < FILES; i++)
        if (close(files[i])) die("close", directory);
    printf("writer %u: %u writes, %u changes of names\n", writer, version, number * 8);
    return 0;
}

// ---- judgement ------------------------------------------------------------------------------

static uint32_t done[FILES][PLACES_MAX], tried[FILES][PLACES_MAX];

static void check_file(const char *directory, uint32_t file) {
    char name[260], want[PLACE], got[PLACE];
    snprintf(name, sizeof name, "%s/w%u.f%u", directory, writer, file);
    int fd = open(name, O_RDONLY);
    if (fd < 0) die("open", name);
    for (uint32_t place = 0;; place++) {
        ssize_t n = read(fd, got, PLACE);
        if (n < 0) die("read", name);
        int must = place < PLACES_MAX && done[file][place];
        int may = place < PLACES_MAX && tried[file][place] > done[file][place];
        if (n == 0 && !must) break;
        uint32_t version = must ? done[file][place] : 0;
        make(want, file, place, version);
        if (n == PLACE && must && !memcmp(got, want, PLACE)) continue;
        if (may) continue;
        struct head *head = (struct head *)got;
        errno = 0;
        fprintf(stderr, "%s: record %u: %zd bytes, version %u instead of %u\n", name, place, n,
                n == PLACE ? head->version : 0, version);
        die("a record is not as written:", name);
    }
    close(fd);
}

static void check_names(const char *directory, uint32_t number) {
    char name[260], text[16], want[16];
    struct stat found;
    const char *gone[] = {"a", "b", "e"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s/w%u.names.%u/%s", directory, writer, number, gone[i]);
        if (!lstat(name, &found)) die("there is", name);
    }
    snprintf(name, sizeof name, "%s/w%u.names.%u/s", directory, writer, number);
    if (lstat(name, &found) || !S_ISLNK(found.st_mode)) die("link", name);
    snprintf(name, sizeof name, "%s/w%u.names.%u/c", directory, writer, number);
    if (stat(name, &found) || found.st_nlink != 1) die("there is not one", name);
    int fd = open(name, O_RDONLY);
    ssize_t n = read(fd, text, sizeof text);
    snprintf(want, sizeof want, "%u\n", number);
    if (n != (ssize_t)strlen(want) || memcmp(text, want, (size_t)n)) die("content of", name);
    close(fd);
}

static int check_all(const char *directory, const char *log_name) {
    char line[80], word[4];
    uint32_t file, first, count, version, number, records = 0, names = 0;
    FILE *log = fopen(log_name, "r");
    if (!log) die("open", log_name);
    while (fgets(line, sizeof line, log)) {
        if (sscanf(line, "%3s names %u", word, &number) == 2) {
            if (!strcmp(word, "did")) check_names(directory, number), names++;
        } else if (sscanf(line, "%3s %u %u %u %u", word, &file, &first, &count, &version) == 5) {
            for (uint32_t i = first; i < first + count; i++) {
                tried[file][i] = version;
                if (!strcmp(word, "did")) done[file][i] = version;
            }
        } else {
            die("log:", line);
        }
    }
    for (file = 0; file < FILES; file++) {
        for (uint32_t i = 0; i < PLACES_MAX; i++) records += done[file][i] != 0;
        check_file(directory, file);
    }
    printf("writer %u: %u records and %u directories are as written\n", writer, records, names);
    return 0;
}

static int lock(int count, char **words) {
    int file = open(words[0], O_RDWR | O_CREAT, 0644);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = atoll(words[1]),
                         .l_len = atoll(words[2])};
    int status = 0;
    if (file < 0) die("open", words[0]);
    if (fcntl(file, F_SETLK, &lock)) {
        if (errno == EAGAIN || errno == EACCES) return 3;
        die("lock", words[0]);
    }
    if (count > 3) {
        if (!fork()) {
            execvp(words[3], words + 3);
            die("run", words[3]);
        }
        wait(&status);
    }
    return status ? 1 : 0;
}

int main(int count, char **words) {
    if (count >= 5 && !strcmp(words[1], "lock")) return lock(count - 2, words + 2);
    if (count < 5) return 2;
    writer = (uint32_t)atoi(words[3]);
    if (!strcmp(words[1], "write") && count > 5) return write_all(words[2], words[4], words[5]);
    if (!strcmp(words[1], "check")) return check_all(words[2], words[4]);
    return 2;
}

/* Corners of what programs do with descriptors, by the calls of the C library alone. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                        \
    do {                                                                                   \
        if (!(what)) {                                                                     \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, strerror(errno)); \
            _exit(1);                                                                      \
        }                                                                                  \
    } while (0)

extern char **environ;

static int make(const char *path, const char *text) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

static int child_ends(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void copies_share_their_offset(void) {
    char b[8] = {0};
    int fd = make("/dafs/dup", "abcdefgh"), other = dup(fd), high;
    CHECK(other > fd && read(fd, b, 2) == 2 && read(other, b + 2, 2) == 2);
    CHECK(!memcmp(b, "abcd", 4));
    CHECK((high = fcntl(fd, F_DUPFD_CLOEXEC, 100)) >= 100);
    CHECK(fcntl(high, F_GETFD) == FD_CLOEXEC && fcntl(fd, F_GETFD) == 0);
    CHECK(close(fd) == 0 && read(high, b, 1) == 1 && b[0] == 'e');
    CHECK(read(fd, b, 1) == -1 && errno == EBADF);
    CHECK(dup2(other, 50) == 50 && lseek(50, 0, SEEK_CUR) == 5);
    CHECK(dup3(50, 50, 0) == -1 && errno == EINVAL);
    CHECK((fcntl(50, F_GETFL) & O_ACCMODE) == O_RDWR);
    CHECK(fcntl(50, F_SETFL, O_APPEND) == 0 && (fcntl(other, F_GETFL) & O_APPEND));
    CHECK(close(other) == 0 && close(high) == 0 && write(50, "!", 1) == 1);
    CHECK(lseek(50, 0, SEEK_CUR) == 9 && close(50) == 0 && close(50) == -1);
}

static void children_share_offsets_and_keep_files_without_names(void) {
    char b[8] = {0};
    int fd = make("/dafs/fork", "abcdefgh");
    CHECK(read(fd, b, 2) == 2);
    CHECK(unlink("/dafs/fork") == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(read(fd, b, 2) == 2 && !memcmp(b, "cd", 2));
        CHECK(pwrite(fd, "Z", 1, 7) == 1);
        _exit(3);
    }
    CHECK(child_ends(child) == 3);
    CHECK(read(fd, b, 4) == 4 && !memcmp(b, "efgZ", 4) && close(fd) == 0);
}

static void renamed_files_stay_open(void) {
    char b[4];
    int fd = make("/dafs/before", "text");
    CHECK(rename("/dafs/before", "/dafs/behind") == 0 && make("/dafs/before", "else") >= 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(pread(fd, b, 4, 0) == 4 && !memcmp(b, "text", 4));
        _exit(0);
    }
    CHECK(child_ends(child) == 0 && close(fd) == 0);
}

static void programs_inherit(const char *self) {
    int fd = make("/dafs/exec", "abcdefgh"), hidden = open("/dafs/exec", O_RDONLY | O_CLOEXEC);
    char b[2], number[16], other[16];
    CHECK(read(fd, b, 2) == 2);
    snprintf(number, sizeof number, "%d", fd);
    snprintf(other, sizeof other, "%d", hidden);
    pid_t child = vfork();
    if (child == 0) {
        execl(self, self, "child", number, other, (char *)0);
        _exit(9);
    }
    CHECK(child_ends(child) == 0 && lseek(fd, 0, SEEK_CUR) == 4);
    char *arguments[] = {(char *)self, "child", number, other, 0}, *bare[] = {"A=b", 0};
    CHECK(mkdir("/dafs/stood", 0755) == 0 && chdir("/dafs/stood") == 0);
    CHECK(system("test \"$(/bin/pwd)\" = /dafs/stood && echo x > made") == 0);
    CHECK(access("/dafs/stood/made", F_OK) == 0 && chdir("/tmp") == 0);
    CHECK(system("test \"$(/bin/pwd)\" = /tmp") == 0);
    lseek(fd, 2, SEEK_SET);
    CHECK(posix_spawn(&child, self, 0, 0, arguments, bare) == 0 && child_ends(child) == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == 4);
}

static int be_child(int fd, int hidden) {
    char b[2];
    CHECK(read(fd, b, 2) == 2 && !memcmp(b, "cd", 2));
    CHECK(read(hidden, b, 2) == -1 && errno == EBADF);
    CHECK(access("/dafs/exec", R_OK) == 0);
    return 0;
}

static void memory_is_mapped(void) {
    int fd = make("/dafs/map", "0123456789");
    char *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), b[10];
    CHECK(shared != MAP_FAILED && !memcmp(shared, "0123456789\0\0", 12));
    shared[3] = 'X';
    CHECK(msync(shared, 4096, MS_SYNC) == 0 && pread(fd, b, 10, 0) == 10 && b[3] == 'X');
    pid_t child = fork();
    if (child == 0) {
        shared[4] = 'Y';
        _exit(0);
    }
    CHECK(child_ends(child) == 0 && shared[4] == 'Y');
    CHECK(munmap(shared, 4096) == 0 && pread(fd, b, 10, 0) == 10 && b[4] == 'Y');
    char *private = mmap(0, 10, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(private != MAP_FAILED && private[4] == 'Y');
    private[4] = '4';
    CHECK(munmap(private, 10) == 0 && pread(fd, b, 10, 0) == 10 && b[4] == 'Y');
    int reader = open("/dafs/map", O_RDONLY);
    CHECK(mmap(0, 10, PROT_WRITE, MAP_SHARED, reader, 0) == MAP_FAILED && errno == EACCES);
    CHECK(mmap(0, 10, PROT_READ, MAP_SHARED, reader, 0) != MAP_FAILED);
    CHECK(mmap(0, 10, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENODEV);
}

static void closing_everything_leaves_the_session(void) {
    CHECK(make("/dafs/all", "x") >= 0);
    pid_t child = fork();
    if (child == 0) {
        struct stat st;
        CHECK(stat("/dafs/all", &st) == 0);
        for (int fd = 3; fd < 2000; fd++) close(fd);
        CHECK(stat("/dafs/all", &st) == 0 && st.st_size == 1);
        CHECK(close_range(3, ~0U, 0) == 0 && stat("/dafs/all", &st) == 0);
        closefrom(3);
        CHECK(stat("/dafs/all", &st) == 0 && open("/dafs/all", O_RDONLY) == 3);
        _exit(0);
    }
    CHECK(child_ends(child) == 0);
}

static void locks_are_seen_by_others(void) {
    int fd = make("/dafs/lock", "0123456789");
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 3};
    int turn[2];
    char b;
    CHECK(fcntl(fd, F_SETLK, &lock) == 0 && pipe(turn) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct flock asked = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};
        CHECK(fcntl(fd, F_GETLK, &asked) == 0 && asked.l_type == F_WRLCK);
        CHECK(asked.l_start == 2 && asked.l_len == 3);
        asked.l_type = F_WRLCK, asked.l_start = 0, asked.l_len = 0;
        CHECK(fcntl(fd, F_SETLK, &asked) == -1 && (errno == EAGAIN || errno == EACCES));
        asked.l_len = 2;
        CHECK(fcntl(fd, F_SETLK, &asked) == 0);
        CHECK(pread(fd, &b, 1, 3) == 1 && pwrite(fd, "w", 1, 3) == 1); /* only advisory */
        CHECK(write(turn[1], "t", 1) == 1);
        asked.l_start = 0, asked.l_len = 0;
        CHECK(fcntl(fd, F_SETLKW, &asked) == 0); /* until the parent lets go */
        _exit(0);
    }
    close(turn[1]);
    CHECK(read(turn[0], &b, 1) == 1);
    /* Any descriptor of the file that closes ends the locks; the child waits for that. */
    int other = open("/dafs/lock", O_RDONLY);
    CHECK(other >= 0 && close(other) == 0);
    CHECK(child_ends(child) == 0);
    int one = open("/dafs/lock", O_RDWR), two = open("/dafs/lock", O_RDWR);
    CHECK(flock(one, LOCK_EX) == 0 && flock(two, LOCK_SH | LOCK_NB) == -1 && errno == EWOULDBLOCK);
    CHECK(flock(one, LOCK_UN) == 0 && flock(two, LOCK_SH | LOCK_NB) == 0);
    CHECK(flock(one, LOCK_SH | LOCK_NB) == 0 && close(two) == 0 && flock(one, LOCK_EX | LOCK_NB) == 0);
    lock.l_pid = 0;
    CHECK(fcntl(one, F_OFD_SETLK, &lock) == 0);
    two = open("/dafs/lock", O_RDWR);
    CHECK(fcntl(two, F_OFD_SETLK, &lock) == -1 && errno == EAGAIN);
}

static void streams_are_streams(void) {
    FILE *f = fopen("/dafs/stream", "w+");
    char line[64];
    CHECK(f && fprintf(f, "one %d\ntwo\n", 1) == 10 && fileno(f) > 2);
    rewind(f);
    CHECK(fgets(line, sizeof line, f) && !strcmp(line, "one 1\n") && ftell(f) == 6);
    CHECK(fseek(f, -1, SEEK_END) == 0 && getc(f) == '\n' && getc(f) == EOF && fclose(f) == 0);
    f = fopen("/dafs/stream", "a");
    CHECK(f && fputs("three\n", f) >= 0 && fclose(f) == 0);
    int fd = open("/dafs/stream", O_RDONLY);
    f = fdopen(fd, "r");
    CHECK(f && fileno(f) == fd && fread(line, 1, 64, f) == 16 && feof(f) && fclose(f) == 0);
    CHECK(fcntl(fd, F_GETFD) == -1);
    CHECK(!fopen("/dafs/none", "r") && errno == ENOENT && !fopen("/dafs/none", "z"));
    int kept = dup(1);
    fd = open("/dafs/printed", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    fflush(stdout);
    CHECK(dup2(fd, 1) == 1);
    printf("to the file\n");
    fflush(stdout);
    CHECK(dup2(kept, 1) == 1);
    struct stat st;
    CHECK(stat("/dafs/printed", &st) == 0 && st.st_size == 12);
    CHECK(freopen("/dafs/printed", "a", stdout));
    printf("more\n");
    fflush(stdout);
    CHECK(stat("/dafs/printed", &st) == 0 && st.st_size == 17 && dup2(kept, 1) == 1);
}

static void octets_go_every_way(void) {
    char a[4], b[4];
    int fd = make("/dafs/vector", ""), to = make("/dafs/to", "");
    struct iovec two[] = {{"abc", 3}, {"def", 3}}, in[] = {{a, 4}, {b, 4}};
    CHECK(writev(fd, two, 2) == 6 && preadv(fd, in, 2, 0) == 6 && !memcmp(b, "ef", 2));
    CHECK(pwritev(fd, two, 1, 10) == 3 && lseek(fd, 0, SEEK_END) == 13);
    CHECK(pread(fd, a, 4, 6) == 4 && !memcmp(a, "\0\0\0\0", 4));
    off_t at = 0;
    CHECK(sendfile(to, fd, &at, 6) == 6 && at == 6);
    CHECK(copy_file_range(fd, &at, to, 0, 100, 0) == 7 && lseek(to, 0, SEEK_CUR) == 13);
    CHECK(ftruncate(to, 4) == 0 && lseek(to, 0, SEEK_END) == 4 && truncate("/dafs/to", 2) == 0);
    CHECK(posix_fallocate(to, 0, 9000) == 0 && lseek(to, 0, SEEK_END) == 9000);
    CHECK(lseek(to, -1, SEEK_SET) == -1 && errno == EINVAL && fsync(to) == 0);
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
    CHECK(poll(&p, 1, -1) == 1 && p.revents == (POLLIN | POLLOUT) && p.fd == fd);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    CHECK(select(fd + 1, &set, 0, 0, 0) == 1 && FD_ISSET(fd, &set) && !isatty(fd));
}

static void errors_are_the_kernels(void) {
    char b[8];
    CHECK(open("/dafs/none", O_RDONLY) == -1 && errno == ENOENT);
    CHECK(mkdir("/dafs/dir", 0755) == 0 && mkdir("/dafs/dir", 0755) == -1 && errno == EEXIST);
    CHECK(open("/dafs/dir", O_WRONLY) == -1 && errno == EISDIR);
    CHECK(open("/dafs/dup", O_RDONLY | O_DIRECTORY) == -1 && errno == ENOTDIR);
    CHECK(open("/dafs/dup/x", O_RDONLY) == -1 && errno == ENOTDIR);
    CHECK(open("/dafs/dup", O_CREAT | O_EXCL | O_RDWR, 0600) == -1 && errno == EEXIST);
    CHECK(unlink("/dafs/dir") == -1 && errno == EISDIR);
    CHECK(rmdir("/dafs/dup") == -1 && errno == ENOTDIR);
    CHECK(symlink("loop", "/dafs/loop") == 0 && open("/dafs/loop", O_RDONLY) == -1 && errno == ELOOP);
    CHECK(open("/dafs/loop", O_RDONLY | O_NOFOLLOW) == -1 && errno == ELOOP);
    CHECK(readlink("/dafs/loop", b, 2) == 2 && readlink("/dafs/dup", b, 8) == -1 && errno == EINVAL);
    int fd = open("/dafs/dup", O_RDONLY), directory = open("/dafs", O_RDONLY | O_DIRECTORY);
    CHECK(write(fd, b, 1) == -1 && errno == EBADF && ftruncate(fd, 1) == -1 && errno == EINVAL);
    CHECK(read(directory, b, 1) == -1 && errno == EISDIR);
    CHECK(rename("/dafs/dup", "/tmp/across") == -1 && errno == EXDEV);
    CHECK(link("/etc/passwd", "/dafs/across") == -1 && errno == EXDEV);
    CHECK(renameat2(AT_FDCWD, "/dafs/dup", directory, "to", RENAME_NOREPLACE) == -1 && errno == EEXIST);
    CHECK(faccessat(directory, "dup", R_OK | W_OK, 0) == 0 && mkdirat(directory, "dir/in", 0700) == 0);
    CHECK(unlinkat(directory, "dir", AT_REMOVEDIR) == -1 && errno == ENOTEMPTY);
    int inner = openat(directory, "dir", O_RDONLY | O_DIRECTORY);
    CHECK(unlinkat(inner, "in", AT_REMOVEDIR) == 0 && fchdir(inner) == 0 && !access("../dup", F_OK));
    CHECK(symlink("/etc/hostname", "/dafs/out") == 0 && symlink("/dafs/dup", "/dafs/absolute") == 0);
    CHECK(access("/dafs/absolute", R_OK) == 0 && access("/dafs/../etc/passwd", R_OK) == 0);
    CHECK(access("/dafs/out", F_OK) == access("/etc/hostname", F_OK) && chdir("/") == 0);
    char name[300];
    memset(name, 'n', sizeof name);
    memcpy(name, "/dafs/", 6);
    name[299] = 0;
    CHECK(open(name, O_RDONLY) == -1 && errno == ENAMETOOLONG);
    CHECK(open("/dafs/\xff", O_RDONLY) == -1 && errno == EILSEQ);
    char template[] = "/dafs/XXXXXX", other[] = "/dafs/dXXXXXX";
    CHECK(mkstemp(template) >= 0 && mkdtemp(other) && access(template, F_OK) == 0);
}

static void directories_are_listed(void) {
    CHECK(mkdir("/dafs/list", 0755) == 0);
    char path[64], *real;
    for (int i = 0; i < 300; i++) {
        snprintf(path, sizeof path, "/dafs/list/%d", i);
        CHECK(close(open(path, O_CREAT | O_WRONLY, 0600)) == 0);
    }
    DIR *d = opendir("/dafs/list");
    struct dirent *e;
    int count = 0, third = 0;
    long place = 0;
    CHECK(d && dirfd(d) > 2);
    while ((e = readdir(d))) {
        struct stat st;
        CHECK(fstatat(dirfd(d), e->d_name, &st, 0) == 0);
        CHECK(!strcmp(e->d_name, "..") || st.st_ino == e->d_ino);
        CHECK((e->d_type == DT_DIR) == S_ISDIR(st.st_mode));
        if (++count == 3) third = e->d_ino;
        if (count == 2) place = telldir(d);
    }
    seekdir(d, place);
    CHECK(count == 302 && (e = readdir(d)) && (int)e->d_ino == third);
    rewinddir(d);
    CHECK(readdir(d) && closedir(d) == 0);
    struct dirent **list;
    CHECK(scandir("/dafs/list", &list, 0, alphasort) == 302 && !strcmp(list[2]->d_name, "0"));
    d = opendir("/etc");
    CHECK(d && readdir(d) && closedir(d) == 0 && !opendir("/dafs/none") && errno == ENOENT);
    CHECK((real = realpath("/dafs/list/../list/./7", 0)) && !strcmp(real, "/dafs/list/7"));
}

static void *reads(void *argument) {
    int fd = *(int *)argument;
    char b;
    for (int i = 0; i < 500; i++) CHECK(pread(fd, &b, 1, i % 8) == 1 && b == "abcdefgh"[i % 8]);
    return 0;
}

static void threads_share_and_fork(void) {
    int fd = make("/dafs/threads", "abcdefgh");
    pthread_t all[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&all[i], 0, reads, &fd) == 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            char b;
            _exit(pread(fd, &b, 1, 3) == 1 && b == 'd' ? 0 : 1);
        }
        CHECK(child_ends(child) == 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(all[i], 0);
}

int main(int count, char **arguments) {
    if (count == 4) return be_child(atoi(arguments[2]), atoi(arguments[3]));
    copies_share_their_offset();
    children_share_offsets_and_keep_files_without_names();
    renamed_files_stay_open();
    programs_inherit(arguments[0]);
    memory_is_mapped();
    closing_everything_leaves_the_session();
    locks_are_seen_by_others();
    streams_are_streams();
    octets_go_every_way();
    errors_are_the_kernels();
    directories_are_listed();
    threads_share_and_fork();
    printf("all is well\n");
    return 0;
}

/* A program that knows nothing of servers: it does to a file what it is told, line by line, and
   says what came of it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void do_nothing(int number) { (void)number; }

static void say(long answer) {
    if (answer < 0) {
        printf("%s\n", strerrorname_np(errno));
    } else {
        printf("%ld\n", answer);
    }
}

int main(int count, char **arguments) {
    static char much[12 << 20];
    char line[64], bytes[8];
    struct stat status;
    struct sigaction handle = {.sa_handler = do_nothing, .sa_flags = SA_RESTART};
    setvbuf(stdout, 0, _IOLBF, 0);
    /* Whoever runs the tests behind a shell's back has it ignored. */
    signal(SIGINT, SIG_DFL);
    int fd = open(arguments[count - 1], O_RDWR | O_CREAT, 0644);
    say(fd < 0 ? -1 : 0);
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "handle\n")) say(sigaction(SIGINT, &handle, 0));
        if (!strcmp(line, "read\n")) say(pread(fd, bytes, sizeof bytes, 0));
        if (!strcmp(line, "write\n")) say(pwrite(fd, "12345678", 8, 0));
        if (!strcmp(line, "other\n")) say(pwrite(fd, "abcdefgh", 8, 0));
        if (!strcmp(line, "sync\n")) say(fsync(fd));
        if (!strcmp(line, "stat\n")) say(stat(arguments[count - 1], &status));
        if (!strcmp(line, "lock\n")) say(lockf(fd, F_TLOCK, 0));
        if (!strcmp(line, "close\n")) say(close(fd));
        if (!strcmp(line, "fill\n")) say(write(fd, much, sizeof much));
        if (!strcmp(line, "append\n")) {
            int end = open(arguments[count - 1], O_WRONLY | O_APPEND);
            say(write(end, much, sizeof much));
            say(write(end, much, sizeof much));
            close(end);
        }
    }
    return 0;
}

/* A program that uses a directory while signals come to it, whose handler does nothing and has not
   asked for SA_RESTART: on a local disk not one of these calls fails. It says "round" after each
   round, and which call failed with what. It ends when its input does. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <unistd.h>

static int failures;

static void do_nothing(int number) { (void)number; }

static long must(const char *what, long answer) {
    if (answer < 0) {
        printf("%s: %s\n", what, strerror(errno));
        failures++;
    }
    return answer;
}

#define MUST(call) must(#call, (call))

static void be(const char *what, int is_so) {
    if (!is_so) {
        printf("%s is not so\n", what);
        failures++;
    }
}

static void list(void) {
    int count = 0;
    DIR *directory = opendir(".");
    if (!directory) {
        MUST(-1);
        return;
    }
    errno = 0;
    for (struct dirent *entry; (entry = readdir(directory));) count += entry->d_name[0] != '.';
    be("the listing ends well", errno == 0);
    be("the file is listed", count > 0);
    MUST(closedir(directory));
}

static void round_of(int file, unsigned number) {
    static char bytes[8192], found[8192];
    struct stat status;
    struct statvfs room;
    long at = (long)(number % 64) * sizeof bytes;
    memset(bytes, (int)number, sizeof bytes);
    be("pwrite takes all", MUST(pwrite(file, bytes, sizeof bytes, at)) == sizeof bytes);
    if (number % 2) MUST(fdatasync(file)); else MUST(fsync(file));
    MUST(stat("file", &status));
    be("the file is as long as was written", status.st_size >= at + (long)sizeof bytes);
    MUST(fstat(file, &status));
    int other = MUST(open("file", O_RDONLY));
    if (other >= 0) {
        be("pread gives all", MUST(pread(other, found, sizeof found, at)) == sizeof found);
        be("pread gives what was written", !memcmp(bytes, found, sizeof found));
        MUST(close(other));
    }
    int new = MUST(open("new", O_WRONLY | O_CREAT | O_TRUNC, 0600));
    if (new >= 0) {
        be("write takes all", MUST(write(new, bytes, 100)) == 100);
        MUST(ftruncate(new, 50));
        MUST(fchmod(new, 0640));
        MUST(futimens(new, 0));
        MUST(close(new));
    }
    MUST(rename("new", "newer"));
    MUST(link("newer", "newest"));
    MUST(unlink("newer"));
    MUST(unlink("newest"));
    MUST(mkdir("directory", 0700));
    MUST(chmod("directory", 0750));
    MUST(rmdir("directory"));
    MUST(symlink("file", "link"));
    be("the link is as it was made", MUST(readlink("link", found, sizeof found)) == 4);
    MUST(unlink("link"));
    MUST(access("file", W_OK));
    MUST(statvfs(".", &room));
    list();
}

int main(int count, char **arguments) {
    struct sigaction handle = {.sa_handler = do_nothing};
    struct itimerval often = {{0, 5000}, {0, 5000}};
    struct pollfd input = {.fd = 0, .events = POLLIN};
    setvbuf(stdout, 0, _IOLBF, 0);
    if (count != 2 || chdir(arguments[1])) return 2;
    int file = open("file", O_RDWR | O_CREAT, 0644);
    if (file < 0) return 2;
    sigaction(SIGALRM, &handle, 0);
    setitimer(ITIMER_REAL, &often, 0);
    for (unsigned number = 0; failures < 10; number++) {
        round_of(file, number);
        printf("round\n");
        if (poll(&input, 1, 0) > 0) break;
    }
    MUST(close(file));
    return failures != 0;
}

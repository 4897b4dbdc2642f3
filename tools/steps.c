/*
 * How many instructions each function of a program at work takes, for machines whose processor
 * does not count them, as most virtual ones. One thread is stepped through; what it does by the
 * clock (a look every few milliseconds) is seen far too often then, and a copy by `rep movsb`
 * counts once for each byte. x86-64 only; may need root.
 *
 *     cc -O2 -o target/steps tools/steps.c
 *     nm -nC --defined-only target/release/dafs | grep -i ' t ' | target/steps THREAD 3000000
 *
 * One line for each function of the program that was there: instructions, calls that began at its
 * beginning, name. What is of other files, such as the C library, is one line.
 */
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FUNCTIONS_MAX = 1 << 17, LINE = 4096 };

struct function {
    uint64_t begin;
    long steps, calls;
    char *name;
};

static struct function functions[FUNCTIONS_MAX];
static int count;

static int more_steps(const void *a, const void *b)
{
    long left = ((const struct function *)a)->steps, right = ((const struct function *)b)->steps;
    return (left < right) - (left > right);
}

/* Where the program itself is in memory, from its first byte to its last. */
static int find(int thread, uint64_t *begin, uint64_t *end)
{
    char path[64], program[PATH_MAX], line[LINE];
    snprintf(path, sizeof path, "/proc/%d/exe", thread);
    ssize_t length = readlink(path, program, sizeof program - 1);
    snprintf(path, sizeof path, "/proc/%d/maps", thread);
    FILE *maps = fopen(path, "r");
    if (length < 0 || !maps) return -1;
    program[length] = 0;
    *begin = *end = 0;
    while (fgets(line, sizeof line, maps)) {
        uint64_t first, last;
        if (!strstr(line, program) || sscanf(line, "%" SCNx64 "-%" SCNx64, &first, &last) != 2)
            continue;
        if (!*begin) *begin = first;
        *end = last;
    }
    fclose(maps);
    return *begin ? 0 : -1;
}

static struct function *at(uint64_t address)
{
    int low = 0, high = count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (functions[middle].begin <= address) low = middle + 1;
        else high = middle;
    }
    return low ? &functions[low - 1] : NULL;
}

int main(int argument_count, char **arguments)
{
    char line[LINE];
    uint64_t begin, end;
    long elsewhere = 0;
    if (argument_count != 3) {
        fprintf(stderr, "steps: which thread, and how many instructions? Symbols on stdin\n");
        return 2;
    }
    int thread = atoi(arguments[1]), status, given = 0;
    long steps = atol(arguments[2]);
    while (count < FUNCTIONS_MAX && fgets(line, sizeof line, stdin)) {
        char *name = strchr(line, ' ');
        if (!name || strlen(name) < 4) continue;
        line[strcspn(line, "\n")] = 0;
        functions[count++] = (struct function){strtoull(line, NULL, 16), 0, 0, strdup(name + 3)};
    }
    if (find(thread, &begin, &end) || ptrace(PTRACE_ATTACH, thread, 0, 0)) {
        perror("steps: the thread cannot be stepped through");
        return 1;
    }
    waitpid(thread, &status, __WALL);
    for (; steps > 0; steps--) {
        struct user_regs_struct registers;
        if (ptrace(PTRACE_SINGLESTEP, thread, 0, given)) break;
        if (waitpid(thread, &status, __WALL) < 0 || !WIFSTOPPED(status)) break;
        given = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        if (ptrace(PTRACE_GETREGS, thread, 0, &registers)) break;
        struct function *of = NULL;
        if (registers.rip >= begin && registers.rip < end) of = at(registers.rip - begin);
        if (!of) {
            elsewhere++;
            continue;
        }
        of->steps++;
        of->calls += of->begin == registers.rip - begin;
    }
    ptrace(PTRACE_DETACH, thread, 0, 0);
    qsort(functions, count, sizeof *functions, more_steps);
    printf("%8ld          elsewhere\n", elsewhere);
    for (int index = 0; index < count && functions[index].steps; index++)
        printf("%8ld %8ld %s\n", functions[index].steps, functions[index].calls,
               functions[index].name);
    return 0;
}

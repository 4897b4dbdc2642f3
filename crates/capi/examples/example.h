/* What the examples have in common: a call that fails ends the program. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

/* For S_IFREG, fork and their like. */
#define _XOPEN_SOURCE 700

#include <dafs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Gives what a call returned, unless it is an error. */
static long long must(long long result, const char *what, int line) {
    if (result < 0) {
        fprintf(stderr, "line %d: %s: %s (%s)\n", line, what, dap_error_text(),
                strerror((int)-result));
        exit(1);
    }
    return result;
}
#define MUST(call) must((call), #call, __LINE__)

/* What must be so. */
#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: not so: %s; last error: %s\n", __FILE__, __LINE__,    \
                    #condition, dap_error_text());                                        \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#endif

/* Runs a program that can open no TCP socket: what it says over a network it says by verbs.
 *
 *   no_tcp COMMAND [ARGUMENT...] */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (yes), (no))
#define END_WITH(action) BPF_STMT(BPF_RET | BPF_K, (action))

/* Below the flags that share the argument with it. */
enum { type_mask = 0xf };

int main(int count, char **words)
{
    struct sock_filter rules[] = {
        LOAD(arch),
        IF(AUDIT_ARCH_X86_64, 0, 8),
        LOAD(nr),
        IF(SYS_socket, 0, 6),
        LOAD(args[0]),
        IF(AF_INET, 1, 0),
        IF(AF_INET6, 0, 3),
        LOAD(args[1]),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, type_mask),
        IF(SOCK_STREAM, 1, 0),
        END_WITH(SECCOMP_RET_ALLOW),
        END_WITH(SECCOMP_RET_ERRNO | EACCES),
    };
    struct sock_fprog program = { sizeof rules / sizeof *rules, rules };
    if (count < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("no_tcp");
        return 2;
    }
    execvp(words[1], words + 1);
    perror(words[1]);
    return 127;
}

/* Files and directories by the calls that wait: files URL */
#include "example.h"

#include <errno.h>
#include <sys/stat.h>

int main(int count, char **arguments) {
    CHECK(count == 2);
    dap_session *session;
    MUST(dap_connect(NULL, arguments[1], NULL, &session));
    char address[128];
    MUST(dap_session_address(session, address, sizeof address));
    printf("libdafs %s, connected to %s\n", dap_version(), address);
    MUST(dap_ping(session));

    /* A path that does not begin with a slash begins at the URL's path. */
    MUST(dap_mkdir(session, "project", 0755));
    dap_file *file;
    MUST(dap_open(session, "project/notes", DAP_READ | DAP_WRITE | DAP_CREATE | DAP_EXCLUSIVE,
                  0640, NULL, &file));
    CHECK(MUST(dap_pwrite(file, "hello, world\n", 13, 0)) == 13);
    uint64_t where;
    CHECK(MUST(dap_append(file, "and more\n", 9, &where)) == 9 && where == 13);
    MUST(dap_fsync(file));
    char text[64];
    CHECK(MUST(dap_pread(file, text, sizeof text, 7)) == 15);
    CHECK(memcmp(text, "world\nand more\n", 15) == 0);

    char first[5], second[64];
    dap_memory parts[] = {{first, sizeof first, NULL}, {second, sizeof second, NULL}};
    CHECK(MUST(dap_preadv(file, parts, 2, 0)) == 22);
    CHECK(memcmp(first, "hello", 5) == 0 && memcmp(second, ", world\n", 8) == 0);
    dap_memory turned[] = {{second, 1, NULL}, {first, 5, NULL}};
    CHECK(MUST(dap_pwritev(file, turned, 2, 0)) == 6);
    CHECK(MUST(dap_pread(file, text, 8, 0)) == 8 && memcmp(text, ",hello w", 8) == 0);

    dap_attributes attributes;
    MUST(dap_fstat(file, &attributes));
    CHECK(attributes.size == 22 && attributes.mode == (S_IFREG | 0640));
    MUST(dap_ftruncate(file, 5));
    MUST(dap_hint(file, 0, DAP_TO_END, DAP_PATTERN_SEQUENTIAL, 0));
    MUST(dap_close(file));

    MUST(dap_chmod(session, "project/notes", 0600));
    MUST(dap_chown(session, "project/notes", (uint32_t)-1, (uint32_t)-1));
    dap_time then = {1000000000, 5, 0};
    MUST(dap_utimens(session, "project/notes", &then, &then));
    MUST(dap_stat(session, "/project/notes", &attributes));
    CHECK(attributes.size == 5 && attributes.mode == (S_IFREG | 0600));
    CHECK(attributes.modified.seconds == then.seconds && attributes.modified.nanoseconds == 5);
    dap_changes changes;
    memset(&changes, 0, sizeof changes);
    changes.size = sizeof changes;
    changes.flags = DAP_SET_MODE | DAP_SET_SIZE | DAP_SET_MODIFIED_NOW;
    changes.mode = 0644;
    changes.file_size = 100;
    MUST(dap_setattr(session, "project/notes", &changes));
    MUST(dap_truncate(session, "project/notes", 3));
    CHECK(MUST(dap_access(session, "project", DAP_ACCESS_LOOKUP)) == DAP_ACCESS_LOOKUP);

    MUST(dap_symlink(session, "notes", "project/link"));
    CHECK(MUST(dap_readlink(session, "project/link", text, sizeof text)) == 5);
    CHECK(strcmp(text, "notes") == 0);
    MUST(dap_stat(session, "project/link", &attributes));
    CHECK(S_ISREG(attributes.mode) && attributes.size == 3);
    MUST(dap_lstat(session, "project/link", &attributes));
    CHECK(S_ISLNK(attributes.mode));
    MUST(dap_link(session, "project/notes", "project/other"));
    MUST(dap_rename(session, "project/other", "project/another"));
    MUST(dap_mkfifo(session, "project/pipe", 0600));

    dap_directory *directory;
    MUST(dap_opendir(session, "project", &directory));
    dap_entry entry;
    int entries = 0;
    while (MUST(dap_readdir(directory, &entry)) == 1) {
        CHECK(entry.has_attributes);
        printf("%o %5llu %s\n", (unsigned)entry.attributes.mode,
               (unsigned long long)entry.attributes.size, entry.name);
        entries++;
    }
    CHECK(entries == 4);
    MUST(dap_closedir(directory));

    CHECK(dap_rmdir(session, "project/notes") == -ENOTDIR);
    CHECK(dap_unlink(session, "project") == -EISDIR);
    CHECK(dap_rmdir(session, "project") == -ENOTEMPTY);
    CHECK(dap_unlink(session, "project/missing") == -ENOENT);
    CHECK(strstr(dap_error_text(), "/project/missing") != NULL);
    const char *names[] = {"notes", "link", "another", "pipe"};
    for (int index = 0; index < 4; index++) {
        char path[64];
        snprintf(path, sizeof path, "project/%s", names[index]);
        MUST(dap_unlink(session, path));
    }
    MUST(dap_rmdir(session, "project"));

    /* A file without a name is gone when it is closed. */
    MUST(dap_open(session, "/", DAP_READ | DAP_WRITE | DAP_NAMELESS, 0600, NULL, &file));
    CHECK(MUST(dap_pwrite(file, "scratch", 7, 0)) == 7);
    MUST(dap_close(file));

    dap_filesystem filesystem;
    MUST(dap_statfs(session, "/", &filesystem));
    CHECK(filesystem.space_total > 0 && filesystem.name_bytes_max >= 255);
    MUST(dap_disconnect(session));
    return 0;
}

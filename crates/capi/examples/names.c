/* Names of any bytes: made, listed, looked at, renamed, linked, led to and removed. */

#include <errno.h>

#include "example.h"

/* Whether a directory has exactly one entry, of this name. */
static int holds(dap_session *session, const char *path, const char *name) {
    dap_directory *directory;
    dap_entry entry;
    int count = 0, found = 0;
    MUST(dap_opendir(session, path, &directory));
    while (dap_readdir(directory, &entry) == 1) {
        count++;
        found += strcmp(entry.name, name) == 0 && entry.has_attributes;
    }
    MUST(dap_closedir(directory));
    return count == 1 && found == 1;
}

static void use(dap_session *session, const char *old, const char *fresh) {
    char from[600], to[600], text[600];
    dap_attributes attributes;
    dap_file *file;
    snprintf(from, sizeof from, "/names/%s", old);
    snprintf(to, sizeof to, "/names/%s", fresh);
    MUST(dap_open(session, from, DAP_WRITE | DAP_CREATE, 0644, NULL, &file));
    CHECK(dap_pwrite(file, "text", 4, 0) == 4);
    MUST(dap_close(file));
    CHECK(holds(session, "/names", old));
    MUST(dap_rename(session, from, to));
    CHECK(holds(session, "/names", fresh));
    MUST(dap_link(session, to, from));
    MUST(dap_unlink(session, to));
    MUST(dap_symlink(session, old, to));
    CHECK(dap_readlink(session, to, text, sizeof text) == (int64_t)strlen(old));
    CHECK(strcmp(text, old) == 0);
    MUST(dap_stat(session, to, &attributes));
    CHECK(attributes.size == 4);
    MUST(dap_unlink(session, from));
    MUST(dap_unlink(session, to));
    MUST(dap_mkdir(session, to, 0755));
    CHECK(holds(session, "/names", fresh));
    MUST(dap_rmdir(session, to));
}

int main(int count, char **arguments) {
    dap_session *session;
    char first[256], second[256];
    CHECK(count == 2);
    MUST(dap_connect(NULL, arguments[1], NULL, &session));
    MUST(dap_mkdir(session, "/names", 0755));
    /* Names of one byte, with the next; not all, for under valgrind each takes its time. */
    for (int byte = 1; byte < 255; byte += byte < 0x7e ? 20 : 7) {
        if (byte == '/' || byte + 1 == '/' || byte == '.' || byte + 1 == '.')
            continue;
        snprintf(first, sizeof first, "%c", byte);
        snprintf(second, sizeof second, "%c", byte + 1);
        use(session, first, second);
    }
    /* The longest ones, and what looks like an escape on the wire. */
    memset(first, 0xff, 255);
    first[255] = 0;
    use(session, first, "\xee\xbe\x80");
    use(session, "\xee\xbf\x83\xee\xbe\xa9", "\xc3\xa9");
    CHECK(dap_mkdir(session, "/names/none/\xe9", 0755) == -ENOENT);
    CHECK(strstr(dap_error_text(), "/names/none/\\xe9") != NULL);
    MUST(dap_rmdir(session, "/names"));
    MUST(dap_disconnect(session));
    return 0;
}

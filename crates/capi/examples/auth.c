/* Proving who this program is, by a callback: auth URL, whose user is ann */
#include "example.h"

#include <errno.h>

/* Asked again whenever what it answered was refused. */
static int authenticate(void *context, const dap_auth_question *question,
                        dap_auth_answer *answer) {
    const char *const *passwords = context;
    CHECK(question->user != NULL && strcmp(question->user, "ann") == 0);
    CHECK((question->attempt == 1) == (question->refusal == NULL));
    if (passwords[question->attempt - 1] == NULL) {
        return -EKEYREJECTED;
    }
    answer->method = DAP_AUTH_PASSWORD;
    answer->password = passwords[question->attempt - 1];
    return 0;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    const char *wrong[] = {"guess", NULL}, *right[] = {"guess", "ann's secret", NULL};
    dap_connect_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.authenticate = authenticate;
    options.authenticate_context = wrong;
    dap_session *session;
    CHECK(dap_connect(NULL, arguments[1], &options, &session) == -EKEYREJECTED);
    options.authenticate_context = right;
    MUST(dap_connect(NULL, arguments[1], &options, &session));
    MUST(dap_ping(session));
    MUST(dap_disconnect(session));
    return 0;
}

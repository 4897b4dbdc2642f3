// The same from C++: handles that give themselves back. raii URL
#include <dafs.h>

#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

// Gives what a call returned; throws if it failed.
std::int64_t must(std::int64_t result) {
    if (result < 0) {
        throw std::runtime_error(dap_error_text());
    }
    return result;
}

struct Close {
    void operator()(dap_session *session) const { dap_disconnect(session); }
    void operator()(dap_file *file) const { dap_close(file); }
};
using Session = std::unique_ptr<dap_session, Close>;
using File = std::unique_ptr<dap_file, Close>;

Session connect(const char *url) {
    dap_session *session = nullptr;
    must(dap_connect(nullptr, url, nullptr, &session));
    return Session(session);
}

File open(const Session &session, const char *path, std::uint32_t flags) {
    dap_file *file = nullptr;
    must(dap_open(session.get(), path, flags, 0644, nullptr, &file));
    return File(file);
}

void run(const char *url) {
    const Session session = connect(url);
    const File file = open(session, "/from-c++", DAP_READ | DAP_WRITE | DAP_CREATE);
    const std::string text = "written from C++";
    must(dap_pwrite(file.get(), text.data(), text.size(), 0));
    std::string read(64, '\0');
    read.resize(static_cast<std::size_t>(must(dap_pread(file.get(), &read[0], read.size(), 0))));
    if (read != text) {
        throw std::runtime_error("read " + read);
    }
    try {
        open(session, "/missing", DAP_READ);
    } catch (const std::runtime_error &error) {
        std::cout << "refused, as it should be: " << error.what() << '\n';
        return;
    }
    throw std::runtime_error("/missing is there");
}

} // namespace

int main(int count, char **arguments) {
    if (count != 2) {
        return 2;
    }
    try {
        run(arguments[1]);
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}

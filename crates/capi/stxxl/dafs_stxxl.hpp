// Files of a DAFS server for STXXL, over libdafs.
//
// A program gives such a file to a container, stxxl::vector<T> data(&file), or has STXXL use it
// as a disk, with a line disk=URL,SIZE,dafs of its configuration; the library libdafs_stxxl.so
// brings the word "dafs" to programs that know nothing of it (docs/extmem.md).
//
// Transfers are carried out by the thread that STXXL has for each queue, so that the program's
// own thread goes on meanwhile, as with files of the system. Any thread may use a file.

#ifndef DAFS_STXXL_HPP
#define DAFS_STXXL_HPP

#include <dafs.h>

#include <stxxl/bits/io/disk_queued_file.h>
#include <stxxl/bits/io/request.h>

#include <cstdint>
#include <memory>
#include <string>

namespace dafs {

// A file of a server, named by a URL such as dafs://host/path. The file alone uses its session.
class stxxl_file : public stxxl::disk_queued_file {
public:
    // Opens or makes it: `mode` is of stxxl::file::open_mode. DIRECT is meaningless here, since
    // nothing caches the file on this side; with SYNC, a write lasts when it is done. Throws
    // stxxl::io_error.
    stxxl_file(const std::string &url, int mode, int queue_id = DEFAULT_QUEUE,
               int allocator_id = NO_ALLOCATOR, unsigned int device_id = DEFAULT_DEVICE_ID)
        : file(device_id), disk_queued_file(queue_id, allocator_id), m_url(url),
          m_is_synchronous((mode & SYNC) != 0) {
        dap_session *session = nullptr;
        must(dap_connect(nullptr, url.c_str(), nullptr, &session), "connecting to");
        m_session.reset(session);
        dap_file *opened = nullptr;
        const std::string path = path_of(url);
        must(dap_open(session, path.c_str(), flags_of(mode), 0666, nullptr, &opened), "opening");
        m_file.reset(opened);
        if ((mode & (NO_LOCK | RDONLY)) == 0) {
            lock();
        }
    }

    void serve(void *buffer, offset_type offset, size_type bytes,
               stxxl::request::request_type type) override {
        const bool is_read = type == stxxl::request::READ;
        const std::int64_t moved = is_read ? dap_pread(m_file.get(), buffer, bytes, offset)
                                           : dap_pwrite(m_file.get(), buffer, bytes, offset);
        const char *doing = is_read ? "reading" : "writing";
        must(moved, doing);
        if (static_cast<size_type>(moved) != bytes) {
            throw stxxl::io_error(std::string(doing) + " " + m_url + ": moved " +
                                  std::to_string(moved) + " bytes of " + std::to_string(bytes) +
                                  " at " + std::to_string(offset));
        }
        if (!is_read && m_is_synchronous) {
            must(dap_fsync(m_file.get()), "syncing");
        }
    }

    void set_size(offset_type size) override {
        must(dap_ftruncate(m_file.get(), size), "setting the size of");
    }

    offset_type size() override {
        dap_attributes attributes = {};
        must(dap_fstat(m_file.get(), &attributes), "asking for the size of");
        return attributes.size;
    }

    // Keeps others out until it is closed: the server sees to it.
    void lock() override {
        must(dap_lock(m_file.get(), DAP_LOCK_EXCLUSIVE, 0, DAP_TO_END, 0, 0, nullptr), "locking");
    }

    // Takes the name away; the file is there until it is closed.
    void unlink() { must(dap_unlink(m_session.get(), path_of(m_url).c_str()), "removing"); }

    void close_remove() override {
        m_file.reset();
        unlink();
    }

    const char *io_type() const override { return "dafs"; }

private:
    struct Close {
        void operator()(dap_session *session) const { dap_disconnect(session); }
        void operator()(dap_file *file) const { dap_close(file); }
    };

    // The path in a URL, which the session takes from the server's root.
    static std::string path_of(const std::string &url) {
        const std::string shm = "dafs+shm://";
        const bool is_shm = url.compare(0, shm.size(), shm) == 0;
        const std::size_t host = url.find("://");
        const std::size_t at = is_shm ? url.find('!') : url.find('/', host + 3);
        if (host == std::string::npos || at == std::string::npos) {
            throw stxxl::io_error(url + " names no file; write dafs://host/path");
        }
        return decoded(url.substr(is_shm ? at + 1 : at));
    }

    // Without percent-encoding, as the library has it.
    static std::string decoded(const std::string &text) {
        std::string plain;
        for (std::size_t at = 0; at < text.size(); ++at) {
            int value = 0;
            if (text[at] == '%' && at + 2 < text.size() && digit(text[at + 1], value) &&
                digit(text[at + 2], value)) {
                plain.push_back(static_cast<char>(value));
                at += 2;
            } else {
                plain.push_back(text[at]);
            }
        }
        return plain;
    }

    static bool digit(char letter, int &value) {
        const std::string digits = "0123456789abcdef";
        const std::size_t found = digits.find(static_cast<char>(letter | 0x20));
        value = 16 * value + static_cast<int>(found);
        return found != std::string::npos;
    }

    static std::uint32_t flags_of(int mode) {
        std::uint32_t flags = DAP_READ;
        if ((mode & RDONLY) == 0) {
            flags |= DAP_WRITE;
        }
        if ((mode & CREAT) != 0) {
            flags |= DAP_CREATE;
        }
        if ((mode & TRUNC) != 0) {
            flags |= DAP_TRUNCATE;
        }
        return flags;
    }

    void must(std::int64_t result, const char *doing) const {
        if (result < 0) {
            throw stxxl::io_error(std::string(doing) + " " + m_url + ": " + dap_error_text());
        }
    }

    std::string m_url;
    bool m_is_synchronous;
    // Closed before the session ends.
    std::unique_ptr<dap_session, Close> m_session;
    std::unique_ptr<dap_file, Close> m_file;
};

} // namespace dafs

#endif

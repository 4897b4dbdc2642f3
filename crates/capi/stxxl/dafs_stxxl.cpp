// Brings disks of the kind "dafs" to programs that use STXXL: linked to a program in front of
// STXXL, or loaded with LD_PRELOAD, this takes the place of the function by which STXXL makes
// the files of its disks, and hands on to it whatever is of another kind.

#include "dafs_stxxl.hpp"

#include <stxxl/bits/io/create_file.h>
#include <stxxl/bits/mng/config.h>

#include <dlfcn.h>

#include <stdexcept>

namespace {

using Create = stxxl::file *(*)(stxxl::disk_config &, int, int);

// As the compiler names stxxl::create_file(disk_config &, int, int).
const char *const CREATE = "_ZN5stxxl11create_fileERNS_11disk_configEii";

stxxl::file *create_other(stxxl::disk_config &config, int mode, int allocator) {
    const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, CREATE));
    if (create == nullptr) {
        throw std::runtime_error("libdafs_stxxl finds no STXXL behind it; link it in front of "
                                 "-lstxxl");
    }
    return create(config, mode, allocator);
}

} // namespace

STXXL_BEGIN_NAMESPACE

file *create_file(disk_config &config, int mode, int allocator) {
    if (config.io_impl != "dafs") {
        return create_other(config, mode, allocator);
    }
    if (config.device_id == file::DEFAULT_DEVICE_ID) {
        config.device_id = config::get_instance()->get_next_device_id();
    } else {
        config::get_instance()->update_max_device_id(config.device_id);
    }
    // A queue for each disk, as STXXL does.
    if (config.queue == file::DEFAULT_QUEUE) {
        config.queue = static_cast<int>(config.device_id);
    }
    // As with files of the system, no other program may use it meanwhile.
    auto *opened = new dafs::stxxl_file(config.path, mode, config.queue, allocator,
                                        config.device_id);
    if (config.unlink_on_open) {
        opened->unlink();
    }
    return opened;
}

STXXL_END_NAMESPACE

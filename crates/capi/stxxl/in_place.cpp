// Sorts a file of 64-bit numbers on a server where it lies, with STXXL's own sort. in_place URL
#include "dafs_stxxl.hpp"

#include <stxxl/sort>
#include <stxxl/vector>

#include <cstdint>
#include <iostream>
#include <limits>

namespace {

struct Less {
    bool operator()(std::uint64_t left, std::uint64_t right) const { return left < right; }
    std::uint64_t min_value() const { return 0; }
    std::uint64_t max_value() const { return std::numeric_limits<std::uint64_t>::max(); }
};

using Numbers = stxxl::VECTOR_GENERATOR<std::uint64_t, 2, 4, 256 * 1024>::result;

} // namespace

int main(int count, char **arguments) {
    if (count != 2) {
        return 2;
    }
    try {
        dafs::stxxl_file file(arguments[1], stxxl::file::RDWR);
        Numbers numbers(&file);
        stxxl::sort(numbers.begin(), numbers.end(), Less(), 4 * 1024 * 1024);
        numbers.flush();
        std::cout << "sorted " << numbers.size() << '\n';
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}

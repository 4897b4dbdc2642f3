// A program that uses STXXL and knows nothing of DAFS: sorts more numbers than its memory holds on
// whatever disks its configuration names (STXXLCFG). sorts COUNT
#include <stxxl/sort>
#include <stxxl/vector>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>

namespace {

// The numbers of a generator that any program has (splitmix64).
std::uint64_t number(std::uint64_t index) {
    std::uint64_t mixed = (index + 1) * 0x9e3779b97f4a7c15U;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
    return mixed ^ (mixed >> 31);
}

struct Less {
    bool operator()(std::uint64_t left, std::uint64_t right) const { return left < right; }
    std::uint64_t min_value() const { return 0; }
    std::uint64_t max_value() const { return std::numeric_limits<std::uint64_t>::max(); }
};

// Small blocks, so that there are many.
using Numbers = stxxl::VECTOR_GENERATOR<std::uint64_t, 2, 4, 256 * 1024>::result;

} // namespace

int main(int count, char **arguments) {
    if (count != 2) {
        return 2;
    }
    const std::uint64_t length = std::strtoull(arguments[1], nullptr, 10);
    Numbers numbers;
    std::uint64_t sum = 0;
    for (std::uint64_t index = 0; index < length; ++index) {
        numbers.push_back(number(index));
        sum += number(index);
    }
    stxxl::sort(numbers.begin(), numbers.end(), Less(), 4 * 1024 * 1024);
    std::uint64_t before = 0;
    std::uint64_t sorted = 0;
    for (const std::uint64_t value : Numbers::bufreader_type(numbers)) {
        if (value < before) {
            std::cerr << "out of order\n";
            return 1;
        }
        before = value;
        sorted += value;
    }
    if (sorted != sum) {
        std::cerr << "other numbers than before\n";
        return 1;
    }
    std::cout << "sorted " << length << '\n';
    return 0;
}

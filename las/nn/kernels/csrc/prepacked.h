// Panels of the weights of a model, kept from one call to the next: while it decodes, each call of a layer would copy the
// same weights again.

#pragma once

#include <cstdint>
#include <tuple>
#include <typeindex>
#include <typeinfo>

#include "products.h"

// The weights of one model, by the memory that they are in.
class PrepackedWeights {
  public:
    // Memory whose numbers stay what they are.
    struct Range {
        const char* first;
        int64_t bytes;
    };

    PrepackedWeights(const Range* ranges, int64_t count) : ranges(ranges, ranges + count) {}

    // Those that the calls of this thread use; null for none.
    static PrepackedWeights*& used() {
        static thread_local PrepackedWeights* weights = nullptr;
        return weights;
    }

    bool hold(const void* values) const {
        const char* at = static_cast<const char*>(values);
        return std::any_of(ranges.begin(), ranges.end(),
                           [=](const Range& range) { return range.first <= at && at < range.first + range.bytes; });
    }

    // What `make` makes of a matrix [inner, columns]: at the first call for it, it is made.
    template <class Weight, class T, class MakeWeight>
    std::shared_ptr<const Weight> find(const Matrix<T>& of, int inner, int columns, MakeWeight make) {
        const std::lock_guard<std::mutex> lock(mutex);
        auto& kept = panels[{of.values, of.row, of.column, inner, columns, typeid(Weight)}];
        if (!kept) kept = make();
        return std::static_pointer_cast<const Weight>(kept);
    }

  private:
    using Key = std::tuple<const void*, int64_t, int64_t, int, int, std::type_index>;

    const std::vector<Range> ranges;
    std::mutex mutex;
    std::map<Key, std::shared_ptr<const void>> panels;
};

// The panels of a matrix [inner, columns]; make(inner, columns) makes empty ones.
template <class T, class Make>
auto panels_of(const Matrix<T>& from, int inner, int columns, Make make, int64_t threads) {
    using Weight = decltype(make(0, 0));
    const auto copied = [&] {
        auto panels = std::make_shared<Weight>(make(inner, columns));
        in_team(threads, [&](Team team) { panels->copy(from, team); });
        return std::shared_ptr<const Weight>(panels);
    };
    PrepackedWeights* weights = PrepackedWeights::used();
    return weights && weights->hold(from.values) ? weights->find<Weight>(from, inner, columns, copied) : copied();
}

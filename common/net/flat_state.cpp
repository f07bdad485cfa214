#include "common/net/flat_state.h"

namespace pushpull {

FlatState flatten(GatheredState gathered) {
  FlatState out;
  out.step = gathered.step;
  out.updates = gathered.updates;
  std::vector<std::vector<float>*> vectors{&out.weights};
  if (!gathered.slices.empty()) out.slots.resize(gathered.slices.front().size() - 1);
  for (std::vector<float>& slot : out.slots) vectors.push_back(&slot);
  size_t total = 0;
  for (const auto& slice : gathered.slices) total += slice.front().float_count();
  for (std::vector<float>* vector : vectors) vector->reserve(total);
  for (auto& slice : gathered.slices) {
    for (size_t v = 0; v < vectors.size(); ++v) {
      const float* first = slice[v].floats();
      vectors[v]->insert(vectors[v]->end(), first, first + slice[v].float_count());
    }
    slice.clear();  // so that memory never holds two whole copies
  }
  return out;
}

}  // namespace pushpull

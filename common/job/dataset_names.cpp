#include "common/job/dataset_names.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

namespace pushpull {

namespace {

// open_dataset (datasets/dataset.cpp) opens them.
constexpr std::array kDatasetNames = {
    DatasetName{"dummy", "generated images", false, true},
    DatasetName{"dummy-qa", "generated questions", false, true},
    DatasetName{"digits", "8x8, shipped", false, true},
    DatasetName{"idx", "MNIST's format", true, true},
    DatasetName{"qa", "questions in safetensors", true, true},
    DatasetName{"text", "a text", true, false},
};

// Returns the texts of all rows: "a, b or c".
template <class Text>
std::string list_datasets(Text text) {
  std::string out;
  for (size_t i = 0; i < kDatasetNames.size(); ++i) {
    if (i > 0) out += i + 1 < kDatasetNames.size() ? ", " : " or ";
    out += text(kDatasetNames[i]);
  }
  return out;
}

}  // namespace

const DatasetName* find_dataset_name(const std::string& name) {
  const auto* const found = std::ranges::find_if(
      kDatasetNames, [&](const DatasetName& dataset) { return name == dataset.name; });
  return found == kDatasetNames.end() ? nullptr : found;
}

std::string dataset_names() {
  return list_datasets([](const DatasetName& dataset) { return std::string(dataset.name); });
}

std::string dataset_help() {
  return list_datasets([](const DatasetName& dataset) {
    return std::string(dataset.name) + " (" + dataset.about + ")";
  });
}

}  // namespace pushpull

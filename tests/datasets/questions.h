// Questions read from a dataset, for tests.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "datasets/dataset.h"

namespace pushpull {

struct Question {
  std::vector<int32_t> ids;
  std::vector<int32_t> mask;
  std::vector<int32_t> types;
  int32_t start = 0;
  int32_t end = 0;
  float start_position = 0.0F;
  float end_position = 0.0F;
  int32_t kind = 0;

  friend bool operator==(const Question&, const Question&) = default;
};

inline std::vector<Question> read_questions(const Dataset& data, Split split,
                                            const std::vector<int64_t>& indices) {
  const FieldTable& table = data.fields();
  const BatchLayout layout(table, std::ssize(indices));
  std::vector<float> block(layout.words());
  data.read({split, 0, indices, layout}, block.data());
  const int64_t sequence = table.fields.at(0).size();
  const auto floats = [&](const char* name) {
    return block.data() + layout.offset(table.find(name).value());
  };
  std::vector<Question> out;
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto tokens = [&](const char* name) {
      const int32_t* begin = as_ints(floats(name)) + static_cast<int64_t>(i) * sequence;
      return std::vector<int32_t>(begin, begin + sequence);
    };
    out.push_back({tokens("ids"), tokens("mask"), tokens("types"), as_ints(floats("start"))[i],
                   as_ints(floats("end"))[i], floats("start-position")[i],
                   floats("end-position")[i], as_ints(floats("class"))[i]});
  }
  return out;
}

inline std::vector<Question> read_questions(const Dataset& data, Split split) {
  std::vector<int64_t> indices(static_cast<size_t>(data.size(split)));
  std::iota(indices.begin(), indices.end(), 0);
  return read_questions(data, split, indices);
}

}  // namespace pushpull

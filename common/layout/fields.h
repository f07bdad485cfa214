// The fields of a sample (pixels, label, ids, mask, ...) by name, type and shape, and where a
// micro-batch keeps them: in one block of memory. Plain data; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace pushpull {

// A micro-batch of samples as a model receives it. Views only; any thread.
struct Samples {
  // -1 in an evaluation.
  int64_t step = -1;
  // Of the step; in an evaluation the chunk.
  int64_t micro_batch = -1;
  // In the split. The padding of an evaluation's last chunk has none.
  std::span<const int64_t> indices;
  // All fields, see BatchLayout. Empty if the model reads the data itself.
  std::span<const float> block;
  // The epoch that the step belongs to; 0 in an evaluation.
  int64_t epoch = 0;
  // True only if the weights are those of the previous call of the model.
  bool same_weights = false;
};

enum class FieldType { kFloat, kInt };  // f32, i32

struct FieldInfo {
  std::string name;
  FieldType type = FieldType::kFloat;
  std::vector<int64_t> shape;  // of one sample, C order; empty for a single number
  // kInt: values are in [least, limit).
  int64_t least = 0;
  int64_t limit = 0;

  // Returns the elements of one sample.
  int64_t size() const;

  friend bool operator==(const FieldInfo&, const FieldInfo&) = default;
};

struct FieldTable {
  std::vector<FieldInfo> fields;

  // Returns the index of the field of this name, or nothing if there is none.
  std::optional<size_t> find(const std::string& name) const;
  // Returns the names, separated by commas, for messages.
  std::string names() const;

  friend bool operator==(const FieldTable&, const FieldTable&) = default;
};

// Returns the fields of images with one label each.
//   shape: channels, height, width.
FieldTable image_fields(const std::vector<int64_t>& shape, int64_t classes);

// The target of a place that does not count.
inline constexpr int32_t kNoTarget = -1;

// Returns the fields of windows of a text: `ids`, and `target`, the token after each of them or
// kNoTarget.
//   sequence: tokens of a window; vocabulary: ids are below it.
FieldTable token_fields(int64_t sequence, int64_t vocabulary);

// Returns the fields of questions about a text, in one sequence: `ids`; `mask`, 0 at padding;
// `types`, 0 in the question and 1 in the text; `start` and `end`, the answer's first and last token
// or kNoTarget for both; `start-position` and `end-position`, the same as parts of the length, 0
// without an answer; and `class`, the kind of answer.
//   sequence: tokens of a sample; vocabulary: ids are below it.
FieldTable question_fields(int64_t sequence, int64_t vocabulary, int64_t classes);
// Returns the value of `start-position` for the place `start`, and the same for the end.
float question_position(int32_t place, int64_t sequence);

// Where the fields of a micro-batch are in its block: field by field, each [samples, shape] in C
// order. An element of any type has 4 bytes, a *word*. A field begins at a multiple of 256 bytes.
class BatchLayout {
 public:
  BatchLayout(const FieldTable& fields, int64_t samples);

  // Returns the size of the block, in words.
  size_t words() const { return words_; }
  // Returns the first word of a field.
  size_t offset(size_t field) const { return offsets_.at(field); }
  // Returns the elements of a field, in all samples.
  size_t size(size_t field) const { return sizes_.at(field); }
  size_t fields() const { return offsets_.size(); }
  int64_t samples() const { return samples_; }

 private:
  int64_t samples_;
  std::vector<size_t> offsets_;
  std::vector<size_t> sizes_;
  size_t words_ = 0;
};

// Views of an integer field in a block.
static_assert(sizeof(float) == sizeof(int32_t));
inline int32_t* as_ints(float* words) { return reinterpret_cast<int32_t*>(words); }
inline const int32_t* as_ints(const float* words) {
  return reinterpret_cast<const int32_t*>(words);
}

}  // namespace pushpull

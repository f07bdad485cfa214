#include "common/layout/fields.h"

#include "common/base/error.h"

namespace pushpull {

int64_t FieldInfo::size() const {
  int64_t elements = 1;
  for (const int64_t d : shape) elements *= d;
  return elements;
}

std::optional<size_t> FieldTable::find(const std::string& name) const {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].name == name) return i;
  }
  return std::nullopt;
}

std::string FieldTable::names() const {
  std::string out;
  for (const FieldInfo& field : fields) out += (out.empty() ? "" : ", ") + field.name;
  return out;
}

FieldTable image_fields(const std::vector<int64_t>& shape, int64_t classes) {
  return {{{"pixels", FieldType::kFloat, shape, 0, 0}, {"label", FieldType::kInt, {}, 0, classes}}};
}

FieldTable token_fields(int64_t sequence, int64_t vocabulary) {
  return {{{"ids", FieldType::kInt, {sequence}, 0, vocabulary},
           {"target", FieldType::kInt, {sequence}, kNoTarget, vocabulary}}};
}

FieldTable question_fields(int64_t sequence, int64_t vocabulary, int64_t classes) {
  return {{{"ids", FieldType::kInt, {sequence}, 0, vocabulary},
           {"mask", FieldType::kInt, {sequence}, 0, 2},
           {"types", FieldType::kInt, {sequence}, 0, 2},
           {"start", FieldType::kInt, {}, kNoTarget, sequence},
           {"end", FieldType::kInt, {}, kNoTarget, sequence},
           {"start-position", FieldType::kFloat, {}, 0, 0},
           {"end-position", FieldType::kFloat, {}, 0, 0},
           {"class", FieldType::kInt, {}, 0, classes}}};
}

float question_position(int32_t place, int64_t sequence) {
  if (place == kNoTarget || sequence == 1) return 0.0F;
  return static_cast<float>(place) / static_cast<float>(sequence - 1);
}

BatchLayout::BatchLayout(const FieldTable& fields, int64_t samples) : samples_(samples) {
  constexpr size_t kAlignment = 256 / sizeof(float);
  PP_ASSERT(samples >= 0);
  for (const FieldInfo& field : fields.fields) {
    offsets_.push_back((words_ + kAlignment - 1) / kAlignment * kAlignment);
    sizes_.push_back(static_cast<size_t>(samples * field.size()));
    words_ = offsets_.back() + sizes_.back();
  }
}

}  // namespace pushpull

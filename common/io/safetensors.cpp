#include "common/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/base/error.h"

namespace pushpull {
namespace {

using Json = nlohmann::json;

// A SAX parser: nlohmann calls one function per token; `place_` is the position in
//    {"__metadata__": {key: string}, name: {"dtype": "F32", "shape": [..], "data_offsets": [b, e]}}
// A function that returns false stops the parse; `problem_` holds the reason.
class HeaderParser : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderParser(const char* dtype) : dtype_(dtype) {}

  SafetensorsHeader header;

  const std::string& problem() const { return problem_; }

  bool start_object(size_t /*elements*/) override {
    if (place_ == Place::kStart) return enter(Place::kRoot);
    if (place_ != Place::kRoot) return fail("an object in an unexpected place");
    if (name_ == "__metadata__") return enter(Place::kMetadata);
    entry_ = {};
    offsets_.clear();
    fields_.clear();
    return enter(Place::kTensor);
  }

  bool key(string_t& text) override {
    if (place_ == Place::kRoot) {
      name_ = text;
      const bool fresh = name_ == "__metadata__" ? !std::exchange(metadata_seen_, true)
                                                 : !header.tensors.contains(name_);
      return fresh || fail("the name appears twice");
    }
    field_ = text;
    if (place_ == Place::kMetadata) {
      return !header.metadata.contains(field_) ||
             fail("key " + quote_name(field_) + " appears twice");
    }
    if (field_ != "dtype" && field_ != "shape" && field_ != "data_offsets") {
      return fail("unknown field " + quote_name(field_));
    }
    return fields_.insert(field_).second || fail("field " + field_ + " appears twice");
  }

  bool string(string_t& text) override {
    if (place_ == Place::kMetadata) {
      header.metadata[field_] = text;
      return true;
    }
    if (place_ != Place::kTensor || field_ != "dtype") return fail("a string instead of a value");
    return text == dtype_ ||
           fail("dtype is " + quote_name(text) + ", only " + dtype_ + " is supported");
  }

  bool start_array(size_t /*elements*/) override {
    if (place_ != Place::kTensor || field_ == "dtype") return fail("a list in an unexpected place");
    return enter(field_ == "shape" ? Place::kShape : Place::kOffsets);
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return fail("a dimension is over 2^63");
      }
      entry_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ != Place::kOffsets) return fail("a number in an unexpected place");
    offsets_.push_back(value);
    return offsets_.size() <= 2 || fail("data_offsets must be [begin, end]");
  }

  bool end_array() override { return enter(Place::kTensor); }

  bool end_object() override {
    if (place_ == Place::kRoot) return enter(Place::kEnd);
    if (place_ == Place::kTensor && !finish_tensor()) return false;
    return enter(Place::kRoot);
  }

  bool null() override { return fail("null instead of a value"); }
  bool boolean(bool /*value*/) override { return fail("true or false instead of a value"); }
  bool number_integer(number_integer_t value) override {
    return fail("negative number " + std::to_string(value));
  }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    return fail("number " + quote_name(text) + " is not a whole number");
  }
  bool binary(binary_t& /*value*/) override { return fail("binary value"); }

  bool parse_error(size_t position, const std::string& /*token*/,
                   const Json::exception& /*why*/) override {
    problem_ = "the header is not JSON at its byte " + std::to_string(position);
    return false;
  }

 private:
  enum class Place { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets, kEnd };

  bool enter(Place place) {
    place_ = place;
    return true;
  }

  bool fail(const std::string& why) {
    problem_ = place_ == Place::kStart ? why : "tensor " + quote_name(name_) + ": " + why;
    return false;
  }

  bool finish_tensor() {
    if (fields_.size() != 3) return fail("dtype, shape or data_offsets is missing");
    if (offsets_.size() != 2) return fail("data_offsets must be [begin, end]");
    uint64_t bytes = 4;
    for (const int64_t d : entry_.shape) {
      if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(d), &bytes) || bytes >> 62 != 0) {
        return fail("the shape has over 2^62 bytes");
      }
    }
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    if (entry_.end < entry_.begin || entry_.end - entry_.begin != bytes) {
      return fail("the shape needs " + std::to_string(bytes) + " bytes, data_offsets are [" +
                  std::to_string(entry_.begin) + ", " + std::to_string(entry_.end) + "]");
    }
    header.tensors.emplace(name_, std::move(entry_));
    return true;
  }

  const std::string dtype_;
  Place place_ = Place::kStart;
  std::string name_;   // tensor name or "__metadata__"
  std::string field_;  // field of the tensor, or key of the metadata
  std::set<std::string> fields_;
  std::vector<uint64_t> offsets_;
  SafetensorsHeader::Entry entry_;
  bool metadata_seen_ = false;
  std::string problem_;
};

}  // namespace

void throw_safetensors_error(const std::string& path, const std::string& reason) {
  throw Error(ErrorCode::kData, "[safetensors] " + path + ": " + reason);
}

std::string quote_name(const std::string& name) {
  constexpr size_t kLongest = 100;
  const std::string text =
      Json(name.substr(0, kLongest)).dump(-1, ' ', true, Json::error_handler_t::replace);
  return name.size() <= kLongest ? text : text + "...";
}

SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& path,
                                           const char* dtype) {
  HeaderParser parser(dtype);
  if (!Json::sax_parse(json, &parser)) throw_safetensors_error(path, parser.problem());
  return std::move(parser.header);
}

static_assert(std::endian::native == std::endian::little, "tensors are stored as they lie");

namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's limit

std::string header_json(std::span<const NamedTensor> tensors,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string> names;
  uint64_t begin = 0;
  for (const NamedTensor& tensor : tensors) {
    int64_t count = 1;
    for (const int64_t d : tensor.shape) count *= d;
    PP_ASSERT(count >= 0 && static_cast<size_t>(count) == tensor.data.size());
    PP_ASSERT(tensor.name != "__metadata__" && names.insert(tensor.name).second);
    const uint64_t end = begin + tensor.data.size_bytes();
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // aligns the data
  PP_ASSERT(text.size() <= kMaxHeaderBytes);
  return text;
}

// Checks that the tensors are contiguous and fill the data: no byte is shared or unaccounted for.
void check_layout(const SafetensorsHeader& header, uint64_t data_bytes, const std::string& path) {
  using Named = const std::pair<const std::string, SafetensorsHeader::Entry>*;
  std::vector<Named> by_place;
  for (const auto& named : header.tensors) by_place.push_back(&named);
  std::sort(by_place.begin(), by_place.end(), [](Named a, Named b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  uint64_t covered = 0;
  for (const Named named : by_place) {
    const auto& [name, entry] = *named;
    if (entry.begin != covered) {
      throw_safetensors_error(path, "tensor " + quote_name(name) + " begins at byte " +
                                        std::to_string(entry.begin) + " of the data, but " +
                                        std::to_string(covered) + " are covered before it");
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    throw_safetensors_error(path, std::string(covered > data_bytes ? "truncated" : "too long") +
                                      ": the tensors need " + std::to_string(covered) +
                                      " bytes of data, the file has " + std::to_string(data_bytes));
  }
}

// Reads a file whose tensors all have the elements T.
template <class T>
TensorFile<T> read_tensors(const std::string& path, const char* dtype) {
  static_assert(sizeof(T) == 4);
  InputFile input(path);
  uint64_t header_bytes = 0;
  if (input.size_bytes() < sizeof(header_bytes)) {
    throw_safetensors_error(
        path, "not a safetensors file: only " + std::to_string(input.size_bytes()) + " bytes");
  }
  input.read(std::as_writable_bytes(std::span(&header_bytes, 1)));
  const uint64_t after_length = input.size_bytes() - sizeof(header_bytes);
  if (header_bytes > kMaxHeaderBytes) {
    throw_safetensors_error(path, "not a safetensors file: a header of " +
                                      std::to_string(header_bytes) + " bytes, at most " +
                                      std::to_string(kMaxHeaderBytes) + " are allowed");
  }
  if (header_bytes > after_length) {
    throw_safetensors_error(path, "truncated or not a safetensors file: a header of " +
                                      std::to_string(header_bytes) + " bytes, only " +
                                      std::to_string(after_length) + " follow");
  }
  std::string json(header_bytes, '\0');
  input.read(std::as_writable_bytes(std::span(json)));
  if (!json.starts_with('{')) {
    throw_safetensors_error(path, "not a safetensors file: the header does not begin with {");
  }
  SafetensorsHeader header = parse_safetensors_header(json, path, dtype);
  const uint64_t data_bytes = after_length - header_bytes;
  check_layout(header, data_bytes, path);

  TensorFile<T> file;
  file.metadata = std::move(header.metadata);
  for (auto& [name, entry] : header.tensors) {
    file.tensors[name] = {std::move(entry.shape), entry.begin / sizeof(T),
                          (entry.end - entry.begin) / sizeof(T)};
  }
  file.data.resize(data_bytes / sizeof(T));
  input.read(std::as_writable_bytes(std::span(file.data)));
  return file;
}

}  // namespace

FileDigest write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata) {
  const std::string header = header_json(tensors, metadata);
  const uint64_t header_bytes = header.size();
  OutputFile file(path);
  file.write(std::as_bytes(std::span(&header_bytes, 1)));
  file.write(std::as_bytes(std::span(header)));
  for (const NamedTensor& tensor : tensors) file.write(std::as_bytes(tensor.data));
  return file.finish();
}

SafetensorsFile read_safetensors(const std::string& path) {
  return read_tensors<float>(path, "F32");
}

IntTensorFile read_int_tensors(const std::string& path) {
  return read_tensors<int32_t>(path, "I32");
}

}  // namespace pushpull

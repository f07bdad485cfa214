#include "common/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/base/error.h"
#include "common/base/parse_json.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

using Json = nlohmann::json;

// Returns the size of an element, or 0 for an unknown type.
uint64_t bytes_of(std::string_view dtype) {
  static const std::map<std::string_view, uint64_t> kBytes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},   {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I16", 2},
      {"U16", 2},  {"F16", 2}, {"BF16", 2}, {"I32", 4},     {"U32", 4},     {"F32", 4},
      {"I64", 8},  {"U64", 8}, {"F64", 8},  {"C64", 8}};
  const auto found = kBytes.find(dtype);
  return found == kBytes.end() ? 0 : found->second;
}

// A SAX parser: nlohmann calls one function per token; `place_` is the position in
//    {"__metadata__": {key: string}, name: {"dtype": "F32", "shape": [..], "data_offsets": [b, e]}}
// A function that returns false stops the parse; `problem_` holds the reason.
class HeaderParser : public nlohmann::json_sax<Json> {
 public:
  // dtype: "": any.
  explicit HeaderParser(std::string dtype) : dtype_(std::move(dtype)) {}

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
    entry_.dtype = text;
    return dtype_.empty() || text == dtype_ ||
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
    // The size of an unknown dtype is not checked: a later version of the format may have it.
    const uint64_t element = bytes_of(entry_.dtype);
    uint64_t bytes = std::max<uint64_t>(element, 1);
    for (const int64_t d : entry_.shape) {
      if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(d), &bytes) || bytes >> 62 != 0) {
        return fail("the shape has over 2^62 bytes");
      }
    }
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    const bool is_backwards = entry_.end < entry_.begin;
    if (is_backwards || (element > 0 && entry_.end - entry_.begin != bytes)) {
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
  HeaderParser parser(dtype == nullptr ? "" : dtype);
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

// Reads the header, after which the input is at the data.
//   dtype: as parse_safetensors_header.
SafetensorsHeader read_header(InputFile& input, const std::string& path, const char* dtype) {
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
  check_layout(header, after_length - header_bytes, path);
  return header;
}

// Reads a file whose tensors all have the elements T.
template <class T>
TensorFile<T> read_tensors(const std::string& path, const char* dtype) {
  static_assert(sizeof(T) == 4);
  InputFile input(path);
  SafetensorsHeader header = read_header(input, path, dtype);
  TensorFile<T> file;
  uint64_t data_bytes = 0;
  file.metadata = std::move(header.metadata);
  for (auto& [name, entry] : header.tensors) {
    file.tensors[name] = {std::move(entry.shape), entry.begin / sizeof(T),
                          (entry.end - entry.begin) / sizeof(T)};
    data_bytes = std::max(data_bytes, entry.end);
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

namespace {

float half_to_float(uint16_t bits) {
  const int exponent = (bits >> 10U) & 0x1F;
  const auto fraction = static_cast<float>(bits & 0x3FFU);
  const float sign = (bits & 0x8000U) != 0 ? -1.0F : 1.0F;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent == 0x1F) {
    return fraction == 0.0F ? sign * std::numeric_limits<float>::infinity()
                            : std::numeric_limits<float>::quiet_NaN();
  }
  return sign * std::ldexp(fraction + 1024.0F, exponent - 25);
}

// Appends the elements of `bytes`, each of which `convert` makes from an Element.
template <class Element, class Convert>
void append_as_floats(std::span<const std::byte> bytes, std::vector<float>& to,
                      const Convert& convert) {
  for (; !bytes.empty(); bytes = bytes.subspan(sizeof(Element))) {
    Element element{};
    std::memcpy(&element, bytes.data(), sizeof(Element));
    to.push_back(convert(element));
  }
}

// Appends a tensor's floats. Returns false if its type is none of floats.
bool append_floats(const std::string& dtype, std::span<const std::byte> bytes,
                   std::vector<float>& to) {
  if (dtype == "F32") {
    append_as_floats<float>(bytes, to, [](float x) { return x; });
  } else if (dtype == "F16") {
    append_as_floats<uint16_t>(bytes, to, half_to_float);
  } else if (dtype == "BF16") {
    append_as_floats<uint16_t>(bytes, to,
                               [](uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16U); });
  } else if (dtype == "F64") {
    append_as_floats<double>(bytes, to, [](double x) { return static_cast<float>(x); });
  } else {
    return false;
  }
  return true;
}

// Adds the tensors of a file.
void add_pretrained(const std::string& path, PretrainedFile& out) {
  InputFile input(path);
  const SafetensorsHeader header = read_header(input, path, nullptr);
  std::map<uint64_t, const std::pair<const std::string, SafetensorsHeader::Entry>*>
      by_place;  // empty ones need no reading
  for (const auto& named : header.tensors) {
    const auto& [name, entry] = named;
    if (out.floats.tensors.contains(name) || out.skipped.contains(name)) {
      throw_safetensors_error(
          path, "tensor " + quote_name(name) + " is in another file of the index, too");
    }
    if (entry.end > entry.begin) {
      by_place[entry.begin] = &named;
    } else {
      out.skipped[name] = "empty";
    }
  }
  std::vector<std::byte> bytes;
  for (const auto& [begin, named] : by_place) {  // without gaps, as read_header has checked
    const auto& [name, entry] = *named;
    bytes.resize(entry.end - entry.begin);
    input.read(bytes);
    const size_t first = out.floats.data.size();
    if (append_floats(entry.dtype, bytes, out.floats.data)) {
      out.floats.tensors[name] = {entry.shape, first, out.floats.data.size() - first};
    } else {
      out.skipped[name] = entry.dtype;
    }
  }
}

// Returns the files of an index, without their folder.
std::set<std::string> files_of_index(const std::string& path) {
  constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;
  const nlohmann::json index = parse_json(read_text_file(path, kMaxIndexBytes));
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw_safetensors_error(path, "not an index: expected {\"weight_map\": {tensor: file}}");
  }
  std::set<std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos || !is_plain_text(name)) {
      throw_safetensors_error(path, "tensor " + quote_name(tensor) + " is in " +
                                        printable(file.is_string() ? name : file.dump()) +
                                        ": expected the name of a file in the same folder");
    }
    files.insert(name);
  }
  return files;
}

}  // namespace

PretrainedFile read_pretrained(const std::string& path) {
  PretrainedFile out;
  if (!path.ends_with(".json")) {
    add_pretrained(path, out);
    return out;
  }
  for (const std::string& file : files_of_index(path)) {
    add_pretrained((std::filesystem::path(path).parent_path() / file).string(), out);
  }
  return out;
}

IntTensorFile read_int_tensors(const std::string& path) {
  return read_tensors<int32_t>(path, "I32");
}

}  // namespace pushpull

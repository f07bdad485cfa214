#include "common/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/base/error.h"
#include "common/io/safetensors_header.h"

namespace pushpull {

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

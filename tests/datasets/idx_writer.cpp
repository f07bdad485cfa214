#include "tests/datasets/idx_writer.h"

#include <zlib.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace pushpull {

std::string idx_bytes(const std::vector<uint32_t>& dims, const std::string& values) {
  std::string bytes = {'\0', '\0', '\x08', static_cast<char>(dims.size())};
  for (const uint32_t dim : dims) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(dim >> shift);
  }
  return bytes + values;
}

std::string gzip_bytes(const std::string& plain) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  std::string packed(deflateBound(&stream, plain.size()), '\0');
  std::string source = plain;
  stream.next_in = reinterpret_cast<Bytef*>(source.data());
  stream.avail_in = static_cast<uInt>(source.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("deflate");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

TestFolder::TestFolder() {
  std::string name = std::filesystem::temp_directory_path() / "pushpull-test-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
  path_ = name;
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void TestFolder::write(const std::string& name, const std::string& bytes) const {
  write_bytes(file(name), bytes);
}

void TestFolder::remove(const std::string& name) const { std::filesystem::remove(file(name)); }

void TestFolder::write_small(const std::string& ending) const {
  const auto put = [&](const std::string& stem, uint32_t samples) {
    std::string pixels;
    std::string labels;
    for (uint32_t i = 0; i < samples * 6; ++i) pixels += static_cast<char>(i);
    for (uint32_t i = 0; i < samples; ++i) labels += static_cast<char>(i % 3);
    const std::string images = idx_bytes({samples, 2, 3}, pixels);
    const std::string names = idx_bytes({samples}, labels);
    const bool gzip = ending == ".gz";
    write(stem + "-images-idx3-ubyte" + ending, gzip ? gzip_bytes(images) : images);
    write(stem + "-labels-idx1-ubyte" + ending, gzip ? gzip_bytes(names) : names);
  };
  put("train", 6);
  put("t10k", 3);
}

}  // namespace pushpull

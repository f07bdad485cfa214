#include "datasets/idx_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <vector>

#include "common/base/error.h"

namespace pushpull {
namespace {

constexpr size_t kInputBytes = size_t{64} << 10;
constexpr int kGzipOnly = 16 + MAX_WBITS;  // zlib: requires a gzip header, verifies the checksum

class PlainSource final : public ByteSource {
 public:
  PlainSource(std::istream& in, const std::string& name) : in_(in), name_(name) {}

  size_t read(std::span<uint8_t> out) override {
    in_.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
    if (in_.bad()) {
      throw Error(ErrorCode::kData, "[data] " + name_ + ": reading failed; check disk and mount");
    }
    return static_cast<size_t>(in_.gcount());
  }

 private:
  std::istream& in_;
  const std::string& name_;
};

// A gzip file is one or more members, each with its own checksum at the end.
class GzipSource final : public ByteSource {
 public:
  GzipSource(std::istream& in, const std::string& name)
      : file_(in, name), name_(name), input_(kInputBytes) {
    if (inflateInit2(&zlib_, kGzipOnly) != Z_OK) {
      throw Error(ErrorCode::kFailed, "[data] " + name_ + ": zlib does not start (no memory?)");
    }
  }
  ~GzipSource() override { inflateEnd(&zlib_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  size_t read(std::span<uint8_t> out) override {
    zlib_.next_out = out.data();
    zlib_.avail_out = static_cast<uInt>(out.size());
    while (zlib_.avail_out > 0 && next_input()) {
      const int result = inflate(&zlib_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        in_member_ = false;
      } else if (result != Z_OK) {
        fail(zlib_.msg != nullptr ? zlib_.msg : zError(result));
      }
    }
    return out.size() - zlib_.avail_out;
  }

 private:
  // Reads input if none is left. Returns false at the end of the file, which must be the end of a
  // member.
  bool next_input() {
    if (zlib_.avail_in == 0) {
      zlib_.next_in = input_.data();
      zlib_.avail_in = static_cast<uInt>(file_.read(input_));
    }
    if (zlib_.avail_in == 0) {
      if (in_member_ || !any_member_) fail("it ends early");
      return false;
    }
    if (!in_member_) {
      if (any_member_) inflateReset(&zlib_);
      in_member_ = any_member_ = true;
    }
    return true;
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorCode::kData, "[data] " + name_ + ": expected whole gzip data, got damage (" +
                                      why +
                                      "); copy or download it again, or remove .gz from its name "
                                      "if it is not compressed");
  }

  PlainSource file_;
  const std::string& name_;
  std::vector<uint8_t> input_;
  z_stream zlib_{};
  bool in_member_ = false;
  bool any_member_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> plain_source(std::istream& in, const std::string& name) {
  return std::make_unique<PlainSource>(in, name);
}

std::unique_ptr<ByteSource> gzip_source(std::istream& in, const std::string& name) {
  return std::make_unique<GzipSource>(in, name);
}

namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr size_t kMaxRank = 4;
constexpr size_t kFirstChunkBytes = size_t{64} << 10;
constexpr size_t kLargestChunkBytes = size_t{1} << 30;  // zlib counts in 32 bits

[[noreturn]] void refuse_file(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kData, "[data] " + name + ": " + why);
}

struct Header {
  std::vector<int64_t> dims;
  uint64_t header_bytes = 0;
  uint64_t payload_bytes = 0;
};

size_t read_magic(ByteSource& source, const std::string& name) {
  std::array<uint8_t, 4> magic{};
  const size_t got = source.read(magic);
  if (got == 0) refuse_file(name, "expected an IDX file, got no bytes; copy or download it again");
  if (got < magic.size()) {
    refuse_file(name, "expected an IDX header of at least 8 bytes, got " + std::to_string(got) +
                          " bytes; copy or download it again");
  }
  if (magic[0] != 0 || magic[1] != 0) {
    std::array<char, 16> seen{};
    std::snprintf(seen.data(), seen.size(), "%02x%02x%02x%02x", magic[0], magic[1], magic[2],
                  magic[3]);
    const bool gzip = magic[0] == 0x1f && magic[1] == 0x8b;
    refuse_file(name, std::string("expected an IDX file (first bytes 0000), got ") + seen.data() +
                          (gzip ? "; this is gzip data: give its name the ending .gz"
                                : "; copy or download it again"));
  }
  if (magic[2] != kUnsignedByte) {
    refuse_file(name, "expected unsigned bytes (IDX type 8), got IDX type " +
                          std::to_string(magic[2]) + "; convert it to unsigned bytes");
  }
  if (magic[3] < 1 || magic[3] > kMaxRank) {
    refuse_file(name, "expected 1 to 4 dimensions, got " + std::to_string(magic[3]) +
                          "; convert it to N, NxHxW or NxCxHxW");
  }
  return magic[3];
}

Header read_header(ByteSource& source, const std::string& name) {
  Header header;
  const size_t rank = read_magic(source, name);
  std::array<uint8_t, 4 * kMaxRank> raw{};
  header.header_bytes = 4 + 4 * rank;
  const size_t got = source.read(std::span(raw).first(4 * rank));
  if (got < 4 * rank) {
    refuse_file(name, "expected an IDX header of " + std::to_string(header.header_bytes) +
                          " bytes, got " + std::to_string(4 + got) + "; copy or download it again");
  }
  header.payload_bytes = 1;
  bool fits = true;
  for (size_t d = 0; d < rank; ++d) {
    uint32_t dim = 0;
    for (size_t b = 0; b < 4; ++b) dim = (dim << 8) | raw[4 * d + b];
    header.dims.push_back(dim);
    fits =
        fits && !__builtin_mul_overflow(header.payload_bytes, uint64_t{dim}, &header.payload_bytes);
  }
  if (std::count(header.dims.begin(), header.dims.end(), 0) > 0) {
    refuse_file(name, "expected dimensions of at least 1, got " + dims_text(header.dims) +
                          "; the file holds no sample");
  }
  if (!fits || header.payload_bytes > uint64_t{1} << 62) {
    refuse_file(name, "expected dimensions that a file can hold, got " + dims_text(header.dims) +
                          "; copy or download it again");
  }
  return header;
}

[[noreturn]] void fail_size(const Header& header, const std::string& got, const std::string& name) {
  refuse_file(name, "expected " + std::to_string(header.header_bytes + header.payload_bytes) +
                        " bytes by its header (" + dims_text(header.dims) + "), got " + got +
                        "; copy or download it again");
}

// The buffer grows with the data: sizes stated by a forged header are never allocated.
std::vector<uint8_t> read_payload(ByteSource& source, const Header& header,
                                  const std::string& name) {
  std::vector<uint8_t> data;
  while (data.size() < header.payload_bytes) {
    const size_t before = data.size();
    const size_t chunk = std::clamp(before, kFirstChunkBytes, kLargestChunkBytes);
    const auto want = static_cast<size_t>(std::min<uint64_t>(chunk, header.payload_bytes - before));
    data.resize(before + want);
    const size_t got = source.read(std::span(data).subspan(before));
    if (got < want) {
      fail_size(header, std::to_string(header.header_bytes + before + got), name);
    }
  }
  std::array<uint8_t, 1> beyond{};
  if (source.read(beyond) > 0) fail_size(header, "more", name);
  data.shrink_to_fit();
  return data;
}

}  // namespace

std::string dims_text(const std::vector<int64_t>& dims) {
  std::string text;
  for (const int64_t dim : dims) {
    if (!text.empty()) text += 'x';
    text += std::to_string(dim);
  }
  return text;
}

IdxArray parse_idx(std::istream& in, uint64_t file_bytes, bool gzip, const std::string& name) {
  const std::unique_ptr<ByteSource> source = gzip ? gzip_source(in, name) : plain_source(in, name);
  Header header = read_header(*source, name);
  if (!gzip && header.header_bytes + header.payload_bytes != file_bytes) {
    fail_size(header, std::to_string(file_bytes), name);
  }
  std::vector<uint8_t> data = read_payload(*source, header, name);
  return {std::move(header.dims), std::move(data)};
}

IdxArray read_idx(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) refuse_file(path, "no such file; check data-dir");
  if (!std::filesystem::is_regular_file(status)) {
    refuse_file(path, "expected a file, got a folder or device; check data-dir");
  }
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (error || !in) {
    refuse_file(path, std::string("cannot be opened (") + std::strerror(errno) +
                          "); check its permissions");
  }
  return parse_idx(in, bytes, path.ends_with(".gz"), path);
}

}  // namespace pushpull

#include "datasets/byte_source.h"

#include <zlib.h>

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

}  // namespace pushpull

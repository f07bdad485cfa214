#include "datasets/image_file.h"

// jpeglib.h uses size_t and FILE without declaring them.
#include <cstdio>
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on
#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {

bool can_decode_images(std::string& /*why*/) { return true; }

namespace {

// Both libraries report errors by a function that must not return: it jumps back into the function
// that has called setjmp. No object with a destructor lives in the frames between.

constexpr size_t kWhyBytes = 256;
using Why = std::array<char, kWhyBytes>;

void set_why(Why& why, const char* text) { std::snprintf(why.data(), why.size(), "%s", text); }

// Sets `why` if an image is too large.
bool fits(int64_t height, int64_t width, Why& why) {
  if (height > 0 && width > 0 && height <= kMaxImageSide && width <= kMaxImageSide &&
      height * width <= kMaxImagePixels) {
    return true;
  }
  std::snprintf(why.data(), why.size(),
                "%lld x %lld pixels; expected at most %lld on a side and %lld together",
                static_cast<long long>(width), static_cast<long long>(height),
                static_cast<long long>(kMaxImageSide), static_cast<long long>(kMaxImagePixels));
  return false;
}

struct PngState {
  std::span<const std::byte> left;
  Why why{};
  std::jmp_buf back{};
};

[[noreturn]] void png_failed(png_structp png, png_const_charp text) {
  auto* state = static_cast<PngState*>(png_get_error_ptr(png));
  set_why(state->why, text);
  std::longjmp(state->back, 1);
}

void png_warned(png_structp /*png*/, png_const_charp /*text*/) {}

void read_png_bytes(png_structp png, png_bytep to, size_t bytes) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (bytes > state->left.size()) png_error(png, "the file ends early");
  std::memcpy(to, state->left.data(), bytes);
  state->left = state->left.subspan(bytes);
}

// Returns false, with state.why, if the image cannot be decoded.
bool run_png(png_structp png, png_infop info, PngState& state, ByteImage& image) {
  if (setjmp(state.back) != 0) return false;  // NOLINT(cert-err52-cpp): libpng's interface
  png_set_read_fn(png, &state, read_png_bytes);
  png_set_user_limits(png, kMaxImageSide, kMaxImageSide);
  png_read_info(png, info);
  const png_uint_32 height = png_get_image_height(png, info);
  const png_uint_32 width = png_get_image_width(png, info);
  if (!fits(height, width, state.why)) return false;
  png_set_expand(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  const int channels = png_get_channels(png, info);
  const size_t row_bytes = png_get_rowbytes(png, info);
  if ((channels != 1 && channels != 3) || row_bytes != size_t{width} * channels) {
    set_why(state.why, "a kind of pixels that has no meaning here");
    return false;
  }
  image.height = height;
  image.width = width;
  image.channels = channels;
  image.pixels.resize(row_bytes * height);
  for (int pass = 0; pass < passes; ++pass) {
    for (png_uint_32 y = 0; y < height; ++y) {
      png_read_row(png, image.pixels.data() + y * row_bytes, nullptr);
    }
  }
  png_read_end(png, nullptr);
  return true;
}

// Destroys what libpng has made, also if memory runs out.
struct PngReader {
  png_structp png;
  png_infop info = nullptr;

  explicit PngReader(PngState& state)
      : png(png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, png_failed, png_warned)) {
    if (png != nullptr) info = png_create_info_struct(png);
  }
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
};

bool decode_png(std::span<const std::byte> file, ByteImage& image, Why& why) {
  PngState state{.left = file};
  const PngReader reader(state);
  const bool done = reader.info != nullptr && run_png(reader.png, reader.info, state, image);
  why = state.why;
  return done;
}

struct JpegState {
  jpeg_error_mgr errors{};  // the first member: libjpeg knows its address alone
  jpeg_decompress_struct info{};
  Why why{};
  std::jmp_buf back{};
};

[[noreturn]] void jpeg_failed(j_common_ptr info) {
  auto* state = reinterpret_cast<JpegState*>(info->err);
  std::array<char, JMSG_LENGTH_MAX> text{};
  info->err->format_message(info, text.data());
  set_why(state->why, text.data());
  std::longjmp(state->back, 1);
}

// Warnings after which libjpeg would make up pixels are errors. It reads on well after others, such as
// bytes between segments.
void jpeg_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC:
    case JWRN_ARITH_BAD_CODE:
      jpeg_failed(info);
    default:
      return;
  }
}

// Returns false, with state.why, if the image cannot be decoded.
bool run_jpeg(JpegState& state, std::span<const std::byte> file, ByteImage& image) {
  jpeg_decompress_struct& info = state.info;
  if (setjmp(state.back) != 0) return false;  // NOLINT(cert-err52-cpp): libjpeg's interface
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&info, TRUE);
  if (!fits(info.image_height, info.image_width, state.why)) return false;
  const bool grey = info.jpeg_color_space == JCS_GRAYSCALE;
  if (!grey && info.jpeg_color_space != JCS_YCbCr && info.jpeg_color_space != JCS_RGB) {
    set_why(state.why, "its colours are not grey, RGB or YCbCr (perhaps CMYK): save it as RGB");
    return false;
  }
  info.out_color_space = grey ? JCS_GRAYSCALE : JCS_RGB;
  info.dct_method = JDCT_ISLOW;
  info.do_fancy_upsampling = TRUE;
  jpeg_start_decompress(&info);
  image.height = info.output_height;
  image.width = info.output_width;
  image.channels = info.output_components;
  const size_t row_bytes = size_t{info.output_width} * static_cast<size_t>(info.output_components);
  image.pixels.resize(row_bytes * info.output_height);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = image.pixels.data() + info.output_scanline * row_bytes;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  return true;
}

bool decode_jpeg(std::span<const std::byte> file, ByteImage& image, Why& why) {
  JpegState state;
  state.info.err = jpeg_std_error(&state.errors);
  state.errors.error_exit = jpeg_failed;
  state.errors.emit_message = jpeg_message;
  const struct Destroy {
    jpeg_decompress_struct& info;
    ~Destroy() { jpeg_destroy_decompress(&info); }
  } destroy{state.info};
  const bool done = run_jpeg(state, file, image);
  why = state.why;
  return done;
}

bool begins_with(std::span<const std::byte> file, std::initializer_list<int> bytes) {
  return file.size() >= bytes.size() &&
         std::equal(bytes.begin(), bytes.end(), file.begin(),
                    [](int wanted, std::byte is) { return static_cast<std::byte>(wanted) == is; });
}

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kData, "[data] " + name + ": " + why);
}

}  // namespace

ByteImage decode_image(std::span<const std::byte> file, const std::string& name) {
  const bool png = begins_with(file, {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'});
  if (!png && !begins_with(file, {0xff, 0xd8, 0xff})) {
    refuse(name, "expected a PNG or JPEG image, got other bytes (" + std::to_string(file.size()) +
                     " of them); convert it, or move it out of the folder");
  }
  ByteImage image;
  Why why{};
  if (!(png ? decode_png(file, image, why) : decode_jpeg(file, image, why))) {
    refuse(name, std::string(png ? "this PNG" : "this JPEG") +
                     " cannot be read: " + printable(why.data()) + "; replace or remove it");
  }
  return image;
}

}  // namespace pushpull

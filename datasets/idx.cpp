// Folders of four IDX files: MNIST and its relatives, and `digits`.
#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "datasets/dataset.h"
#include "datasets/idx_file.h"
#include "datasets/image_set.h"

namespace pushpull {
namespace {

namespace fs = std::filesystem;

constexpr int kWhiteOfBytes = 255;
constexpr int kWhiteOfDigits = 16;

[[noreturn]] void fail(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kData, "[data] " + name + ": " + why);
}

struct SplitFiles {
  std::string images_path;
  std::string labels_path;
  IdxArray images;
  IdxArray labels;
};

std::string find_file(const std::string& dir, const std::string& stem, bool images) {
  const std::vector<std::string> kinds =
      images ? std::vector<std::string>{"idx3", "idx4"} : std::vector<std::string>{"idx1"};
  std::error_code ignored;
  for (const char* ending : {"", ".gz"}) {
    for (const std::string& kind : kinds) {
      for (const char* joint : {"-", "."}) {
        const fs::path path =
            fs::path(dir) /
            std::string(stem).append(joint).append(kind).append("-ubyte").append(ending);
        if (fs::exists(path, ignored)) return path.string();
      }
    }
  }
  fail((fs::path(dir) / (stem + "-" + kinds.front() + "-ubyte")).string(),
       "no such file, nor with .gz, nor as " + stem + "." + kinds.front() +
           "-ubyte; put it there or point data-dir at the folder that holds it");
}

SplitFiles read_split(const std::string& dir, const std::string& name) {
  SplitFiles split;
  split.images_path = find_file(dir, name + "-images", true);
  split.labels_path = find_file(dir, name + "-labels", false);
  split.images = read_idx(split.images_path);
  split.labels = read_idx(split.labels_path);
  const std::vector<int64_t>& dims = split.images.dims;
  if (dims.size() < 3) {
    fail(split.images_path, "expected images NxHxW or NxCxHxW, got " + dims_text(dims) +
                                "; is this another file under this name?");
  }
  if (split.labels.dims.size() != 1) {
    fail(split.labels_path, "expected labels of 1 dimension, got " + dims_text(split.labels.dims) +
                                "; is this another file under this name?");
  }
  if (split.labels.dims[0] != dims[0]) {
    fail(split.labels_path, "expected " + std::to_string(dims[0]) + " labels, as many as " +
                                split.images_path + " has images, got " +
                                std::to_string(split.labels.dims[0]) +
                                "; take both files from one dataset");
  }
  return split;
}

InputShape shape_of(const std::vector<int64_t>& dims) {
  if (dims.size() == 3) return {1, dims[1], dims[2]};
  return {dims[1], dims[2], dims[3]};
}

std::string image_text(const InputShape& shape) {
  return dims_text({shape.channels, shape.height, shape.width});
}

int64_t count_classes(const SplitFiles& train, const SplitFiles& test) {
  const int classes = 1 + *std::max_element(train.labels.data.begin(), train.labels.data.end());
  if (classes < 2) {
    fail(train.labels_path,
         "expected labels of at least 2 classes, got only label 0; there is nothing to learn");
  }
  for (size_t i = 0; i < test.labels.data.size(); ++i) {
    if (test.labels.data[i] >= classes) {
      fail(test.labels_path, "expected labels below " + std::to_string(classes) +
                                 ", the classes of " + train.labels_path + ", got " +
                                 std::to_string(test.labels.data[i]) + " at sample " +
                                 std::to_string(i) + "; take both files from one dataset");
    }
  }
  return classes;
}

void check_pixels(const SplitFiles& split, int white) {
  const auto above = std::find_if(split.images.data.begin(), split.images.data.end(),
                                  [white](uint8_t pixel) { return pixel > white; });
  if (above != split.images.data.end()) {
    fail(split.images_path, "expected pixels of at most " + std::to_string(white) + ", got " +
                                std::to_string(*above) + "; install the shipped file again");
  }
}

// Keeps the first `samples` and releases the rest of the memory.
ImageSplit cut(SplitFiles split, int64_t samples, int64_t sample_bytes) {
  ImageSplit result{std::move(split.images.data), std::move(split.labels.data)};
  result.pixels.resize(static_cast<size_t>(samples * sample_bytes));
  result.labels.resize(static_cast<size_t>(samples));
  result.pixels.shrink_to_fit();
  result.labels.shrink_to_fit();
  return result;
}

std::unique_ptr<Dataset> open_folder(const Job& job, const std::string& dir, int white) {
  std::error_code ignored;
  if (!fs::is_directory(dir, ignored)) {
    fail(dir, "no such folder; point data-dir at the folder that holds train-images-idx3-ubyte");
  }
  SplitFiles train = read_split(dir, "train");
  SplitFiles test = read_split(dir, "t10k");
  const InputShape shape = shape_of(train.images.dims);
  if (shape_of(test.images.dims) != shape) {
    fail(test.images_path,
         "expected images of " + image_text(shape) + ", as in " + train.images_path + ", got " +
             image_text(shape_of(test.images.dims)) + "; take both files from one dataset");
  }
  const int64_t classes = count_classes(train, test);
  check_pixels(train, white);
  check_pixels(test, white);
  const int64_t train_samples =
      take_samples("train-samples", job.train_samples, train.labels.dims[0]);
  const int64_t test_samples = take_samples("test-samples", job.test_samples, test.labels.dims[0]);
  return std::make_unique<ImageSet>(cut(std::move(train), train_samples, shape.size()),
                                    cut(std::move(test), test_samples, shape.size()), shape,
                                    classes, static_cast<float>(white));
}

}  // namespace

std::unique_ptr<Dataset> open_idx(const Job& job, const std::string& dir) {
  return open_folder(job, dir, kWhiteOfBytes);
}

std::unique_ptr<Dataset> open_digits(const Job& job, const std::string& dir) {
  return open_folder(job, dir, kWhiteOfDigits);
}

}  // namespace pushpull

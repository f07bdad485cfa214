#include "datasets/folder_set.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/io/file.h"
#include "datasets/digest.h"
#include "datasets/image_file.h"
#include "datasets/image_fit.h"

namespace pushpull {
namespace {

namespace fs = std::filesystem;

constexpr float kBrightest = 255.0F;
constexpr int kMostFolders = 32;  // one inside the other; a link to a folder around it has no end

[[noreturn]] void refuse_path(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kData, "[data] " + path + ": " + why);
}

struct ImagePath {
  std::string folder;  // relative to that of the split
  std::string name;
  uint64_t bytes = 0;
  friend bool operator<(const ImagePath& a, const ImagePath& b) {
    return std::tie(a.folder, a.name) < std::tie(b.folder, b.name);
  }
};

enum class Ending {
  kRead,
  kOther,
  kNone
};  // of a file's name: an image that is read, another image

Ending ending_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return Ending::kNone;
  std::string ending = name.substr(dot + 1);
  std::ranges::transform(ending, ending.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (ending == "png" || ending == "jpg" || ending == "jpeg") return Ending::kRead;
  // those that ImageFolder reads, too
  constexpr std::array kOthers = {"ppm", "bmp", "pgm", "tif", "tiff", "webp"};
  return std::ranges::find(kOthers, ending) == kOthers.end() ? Ending::kNone : Ending::kOther;
}

// Adds the images of `top`/`folder` and below it. Follows links.
void add_images(const fs::path& top, const std::string& folder, int depth,
                std::vector<ImagePath>& images) {
  const std::string path = (top / folder).string();
  if (depth > kMostFolders) refuse_path(path, "more than 32 folders, one inside the other");
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::error_code unknown;
    if (at->is_directory(unknown)) {
      add_images(top, folder + "/" + name, depth + 1, images);
      continue;
    }
    const Ending ending = ending_of(name);
    if (ending == Ending::kNone) continue;
    const std::string file = at->path().string();
    if (ending == Ending::kOther)
      refuse_path(file, "expected PNG or JPEG; convert it or remove it");
    const uintmax_t bytes = at->file_size(unknown);
    if (unknown) refuse_path(file, "cannot be read: " + unknown.message());
    images.push_back({folder, name, bytes});
  }
  if (error) refuse_path(path, "cannot be listed: " + error.message());
}

// The samples of a split, class by class.
struct FolderSplit {
  std::string folder;            // with a slash at its end
  std::string paths;             // relative to it, one after the other
  std::vector<size_t> ends;      // of each path
  std::vector<int32_t> classes;  // of each sample
  std::vector<uint64_t> bytes;   // of each file, until they are in the digest

  int64_t size() const { return std::ssize(classes); }
  std::string path(int64_t sample) const {
    const auto n = static_cast<size_t>(sample);
    const size_t begin = n == 0 ? 0 : ends[n - 1];
    return folder + paths.substr(begin, ends[n] - begin);
  }
};

std::vector<std::string> names_of_folders(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    std::error_code unknown;
    if (at->is_directory(unknown)) names.push_back(at->path().filename().string());
  }
  if (error) refuse_path(path, "cannot be listed: " + error.message());
  std::ranges::sort(names);
  return names;
}

//   numbers: of the classes, by name.
FolderSplit list_split(const std::string& folder, const std::map<std::string, int32_t>& numbers) {
  FolderSplit split;
  split.folder = folder + "/";
  for (const std::string& name : names_of_folders(folder)) {
    const auto number = numbers.find(name);
    if (number == numbers.end()) {
      refuse_path(folder + "/" + name,
                  "this class has no folder in train; add it there or remove it here");
    }
    std::vector<ImagePath> images;
    add_images(folder, name, 1, images);
    if (images.empty()) {
      refuse_path(folder + "/" + name,
                  "expected images of this class (.png, .jpg, .jpeg), got none");
    }
    std::ranges::sort(images, std::less{});
    for (const ImagePath& image : images) {
      split.paths.append(image.folder).append("/").append(image.name);
      split.ends.push_back(split.paths.size());
      split.classes.push_back(number->second);
      split.bytes.push_back(image.bytes);
    }
  }
  if (split.classes.empty()) {
    refuse_path(folder, "expected a folder for each class, with images in it, got none");
  }
  return split;
}

class FolderSet final : public Dataset {
 public:
  FolderSet(FolderSplit train, FolderSplit test, const InputShape& input, int64_t classes,
            std::string digest)
      : train_(std::move(train)),
        test_(std::move(test)),
        input_(input),
        fields_(image_fields({input.channels, input.height, input.width}, classes)),
        digest_(std::move(digest)) {}

  int64_t size(Split split) const override { return samples_of(split).size(); }
  const FieldTable& fields() const override { return fields_; }
  const std::string& digest() const override { return digest_; }
  std::span<const int32_t> classes() const override { return train_.classes; }
  bool decodes() const override { return true; }
  void read(const Request& request, float* block) const override;

 private:
  const FolderSplit& samples_of(Split split) const {
    return split == Split::kTrain ? train_ : test_;
  }

  FolderSplit train_;
  FolderSplit test_;
  InputShape input_;
  FieldTable fields_;
  std::string digest_;
};

ByteImage read_image(const std::string& path) {
  InputFile file(path);
  if (file.size_bytes() > static_cast<uint64_t>(kMaxImageFileBytes)) {
    refuse_path(path, "expected at most " + std::to_string(kMaxImageFileBytes) + " bytes, got " +
                          std::to_string(file.size_bytes()));
  }
  std::vector<std::byte> bytes(file.size_bytes());
  file.read(bytes);
  return decode_image(bytes, path);
}

void FolderSet::read(const Request& request, float* block) const {
  const FolderSplit& split = samples_of(request.split);
  float* images = block + request.layout.offset(0);
  int32_t* labels = as_ints(block + request.layout.offset(1));
  for (size_t k = 0; k < request.indices.size(); ++k) {
    const int64_t sample = request.indices[k];
    PP_ASSERT(sample >= 0 && sample < split.size());
    labels[k] = split.classes[static_cast<size_t>(sample)];
    const std::vector<uint8_t> pixels = fit_image(read_image(split.path(sample)), input_);
    float* image = images + static_cast<int64_t>(k) * input_.size();
    // divided, as in ImageSet
    for (size_t i = 0; i < pixels.size(); ++i)
      image[i] = static_cast<float>(pixels[i]) / kBrightest;
  }
}

// Keeps the first samples, and adds them to the digest.
void keep_first(const char* key, int64_t wanted, FolderSplit& split, Digest& digest) {
  const auto samples = static_cast<size_t>(take_samples(key, wanted, split.size()));
  split.ends.resize(samples);
  split.classes.resize(samples);
  split.paths.resize(split.ends.back());
  digest.add(std::to_string(samples));
  for (size_t i = 0; i < samples; ++i) {
    const size_t begin = i == 0 ? 0 : split.ends[i - 1];
    digest.add(split.paths.substr(begin, split.ends[i] - begin));
    digest.add(std::to_string(split.bytes[i]));
  }
  split.bytes = {};
}

std::string test_folder(const std::string& dir) {
  std::error_code ignored;
  for (const char* name : {"test", "val"}) {
    if (fs::is_directory(fs::path(dir) / name, ignored)) return dir + "/" + name;
  }
  refuse_path(dir,
              "expected the folders train and test (or val), each with a folder for each class; "
              "point data-dir at the folder that holds them");
}

}  // namespace

std::unique_ptr<Dataset> open_folder_set(const Job& job, const std::string& dir) {
  std::string why;
  if (!can_decode_images(why)) throw Error(ErrorCode::kUsage, "[data] dataset = folder: " + why);
  if (job.input.channels != 1 && job.input.channels != 3) {
    throw Error(ErrorCode::kUsage,
                "[data] folder: input: expected 1 channel (grey) or 3 (colours), got " +
                    std::to_string(job.input.channels) + "; set input = 3x224x224, for example");
  }
  const std::string test_dir = test_folder(dir);
  const std::string train_dir = dir + "/train";
  std::error_code ignored;
  if (!fs::is_directory(train_dir, ignored)) refuse_path(train_dir, "no such folder");
  std::map<std::string, int32_t> numbers;
  for (const std::string& name : names_of_folders(train_dir)) {
    numbers.emplace(name, static_cast<int32_t>(numbers.size()));
  }
  if (numbers.size() < 2) {
    refuse_path(train_dir, "expected a folder for each class, at least 2, got " +
                               std::to_string(numbers.size()));
  }
  FolderSplit train = list_split(train_dir, numbers);
  FolderSplit test = list_split(test_dir, numbers);
  Digest digest;
  for (const auto& [name, number] : numbers) digest.add(name);
  for (const int64_t side : {job.input.channels, job.input.height, job.input.width}) {
    digest.add(std::to_string(side));
  }
  keep_first("train-samples", job.train_samples, train, digest);
  keep_first("test-samples", job.test_samples, test, digest);
  return std::make_unique<FolderSet>(std::move(train), std::move(test), job.input,
                                     std::ssize(numbers), digest.hex());
}

}  // namespace pushpull

// Opens the binary files of CIFAR-10. ImageSet reads their samples.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/io/file.h"
#include "datasets/dataset.h"
#include "datasets/image_set.h"

namespace pushpull {

namespace {

constexpr InputShape kShape{3, 32, 32};
constexpr int64_t kImageBytes = 3 * 32 * 32;
constexpr int64_t kRecordBytes = 1 + kImageBytes;
constexpr int64_t kClassesOfCifar10 = 10;
constexpr int kTrainingFiles = 5;
constexpr float kWhite = 255.0F;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kData, "[data] " + path + ": " + why);
}

// Appends the records of a file.
void read_records(const std::string& path, ImageSplit& out) {
  InputFile file(path);
  const auto bytes = static_cast<int64_t>(file.size_bytes());
  if (bytes == 0 || bytes % kRecordBytes != 0) {
    refuse(path, "expected records of " + std::to_string(kRecordBytes) + " bytes, got " +
                     std::to_string(bytes) + " bytes, which end in record " +
                     std::to_string(bytes / kRecordBytes) + "; copy the file again");
  }
  std::vector<uint8_t> record(static_cast<size_t>(kRecordBytes));
  for (int64_t n = 0; n < bytes / kRecordBytes; ++n) {
    file.read(std::as_writable_bytes(std::span(record)));
    if (record[0] >= kClassesOfCifar10) {
      refuse(path, "record " + std::to_string(n) + ": expected a label from 0 to 9, got " +
                       std::to_string(record[0]) +
                       "; take the binary version of CIFAR-10 (CIFAR-100 has other records)");
    }
    out.labels.push_back(record[0]);
    out.pixels.insert(out.pixels.end(), record.begin() + 1, record.end());
  }
}

// Keeps the first samples and releases the rest of the memory.
void keep_first(const char* key, int64_t wanted, ImageSplit& split) {
  const int64_t samples = take_samples(key, wanted, std::ssize(split.labels));
  split.labels.resize(static_cast<size_t>(samples));
  split.pixels.resize(static_cast<size_t>(samples * kImageBytes));
  split.labels.shrink_to_fit();
  split.pixels.shrink_to_fit();
}

}  // namespace

std::unique_ptr<Dataset> open_cifar10(const Job& job, const std::string& dir) {
  const std::filesystem::path folder = dir;
  ImageSplit train;
  ImageSplit test;
  for (int n = 1; n <= kTrainingFiles; ++n) {
    read_records((folder / ("data_batch_" + std::to_string(n) + ".bin")).string(), train);
  }
  read_records((folder / "test_batch.bin").string(), test);
  keep_first("train-samples", job.train_samples, train);
  keep_first("test-samples", job.test_samples, test);
  return std::make_unique<ImageSet>(std::move(train), std::move(test), kShape, kClassesOfCifar10,
                                    kWhite);
}

}  // namespace pushpull

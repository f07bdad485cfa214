#include "datasets/dataset.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/job/job.h"
#include "datasets/dummy.h"
#include "datasets/folder_set.h"
#include "datasets/image_set.h"
#include "datasets/question_set.h"
#include "datasets/text_set.h"

namespace pushpull {

namespace {

namespace fs = std::filesystem;

std::string find_digits() {
  std::error_code ignored;
  std::vector<fs::path> places;
  // getenv is safe: no thread has been started yet
  if (const char* share = std::getenv("PUSHPULL_SHARE"); share != nullptr && *share != '\0') {
    places.push_back(fs::path(share) / "digits");
  }
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  if (!program.empty()) {
    places.push_back(fs::path(program_folder_of(program.string())).parent_path() / "share" /
                     "pushpull" / "digits");
  }
  places.push_back(fs::path(PUSHPULL_SOURCE_DIR) / "datasets" / "digits");
  std::string tried;
  for (const fs::path& place : places) {
    if (fs::is_directory(place, ignored)) return place.string();
    tried += (tried.empty() ? "" : ", ") + place.string();
  }
  throw Error(ErrorCode::kData, "[data] digits: no such folder: " + tried +
                                    "; set PUSHPULL_SHARE to the folder that holds digits");
}

// Returns the absolute path of the files. Throws Error(kUsage) if the job names none.
std::string path_of_data(const Job& job, const std::string& data_dir) {
  const std::string& path = data_dir.empty() ? job.data_dir : data_dir;
  std::error_code unknown;  // the working directory is gone
  const fs::path whole = fs::absolute(path, unknown);
  if (!path.empty()) return unknown ? path : whole.lexically_normal().string();
  throw Error(ErrorCode::kUsage, "[data] data-dir: expected the path of the files of dataset " +
                                     job.dataset + ", got nothing; set data-dir, or dataset = " +
                                     "digits, dummy or dummy-qa, which need none");
}

}  // namespace

std::unique_ptr<Dataset> open_dataset(const Job& job, const std::string& data_dir,
                                      const std::string& tokenizer) {
  if (job.dataset == "dummy") return std::make_unique<Dummy>(job);
  if (job.dataset == "dummy-qa") return std::make_unique<DummyQa>(job);
  if (job.dataset == "digits") return open_digits(job, find_digits());
  if (job.dataset == "cifar10") return open_cifar10(job, path_of_data(job, data_dir));
  if (job.dataset == "idx") return open_idx(job, path_of_data(job, data_dir));
  if (job.dataset == "folder") return open_folder_set(job, path_of_data(job, data_dir));
  if (job.dataset == "qa") return open_qa(job, path_of_data(job, data_dir));
  if (job.dataset == "text") return open_text(job, path_of_data(job, data_dir), tokenizer);
  throw Error(ErrorCode::kUsage, "[data] dataset: expected " + dataset_names() + ", got \"" +
                                     job.dataset + "\"; change dataset");
}

namespace {

constexpr int64_t kDefaultTrainSamples = 4096;
constexpr int64_t kDefaultTestSamples = 1024;
// Samples have 32-bit numbers; the test split starts here.
constexpr uint32_t kFirstTestNumber = uint32_t{1} << 31;
constexpr int64_t kMaxGenerated = int64_t{1} << 31;

}  // namespace

int64_t take_samples(const char* key, int64_t wanted, int64_t available) {
  if (wanted < 0 || wanted > available) {
    throw Error(ErrorCode::kUsage, std::string("[data] ") + key + ": expected at most " +
                                       std::to_string(available) + ", the size of the split, got " +
                                       std::to_string(wanted) +
                                       "; lower it, set 0 for all, or take another dataset");
  }
  return wanted == 0 ? available : wanted;
}

int64_t check_generated(const char* dataset, const char* key, int64_t value, int64_t least,
                        int64_t most) {
  if (value >= least && value <= most) return value;
  throw Error(ErrorCode::kUsage, std::string("[data] ") + dataset + ": " + key + ": expected " +
                                     std::to_string(least) + " to " + std::to_string(most) +
                                     ", got " + std::to_string(value) + "; change " + key);
}

GeneratedSizes generated_sizes(const char* dataset, const Job& job) {
  const auto size = [&](const char* key, int64_t wanted, int64_t otherwise) {
    return check_generated(dataset, key, wanted == 0 ? otherwise : wanted, 1, kMaxGenerated);
  };
  return {size("train-samples", job.train_samples, kDefaultTrainSamples),
          size("test-samples", job.test_samples, kDefaultTestSamples)};
}

uint32_t generated_number(Split split, int64_t sample) {
  PP_ASSERT(sample >= 0 && sample < kMaxGenerated);
  return (split == Split::kTest ? kFirstTestNumber : 0) + static_cast<uint32_t>(sample);
}

}  // namespace pushpull

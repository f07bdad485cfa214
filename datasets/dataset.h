// Datasets: classification samples, read by index in any order and from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace pushpull {

struct InputShape;
struct Job;

class Dataset {
 public:
  virtual ~Dataset() = default;

  // Returns the number of samples, limited by train-samples and test-samples of the job.
  virtual int64_t train_size() const = 0;
  virtual int64_t test_size() const = 0;
  virtual InputShape input() const = 0;
  virtual int64_t classes() const = 0;

  // Returns a hash, in hexadecimal, of everything that a run reads: both splits, labels and pixels.
  // It must be equal in all workers of a job.
  virtual const std::string& digest() const = 0;

  // Copies the samples with these indices. Thread-safe.
  //   images: [indices.size(), C, H, W] f32 in 0..1.
  //   labels: [indices.size()].
  // An index out of range is a programming error (PP_ASSERT).
  virtual void read_train(std::span<const int64_t> indices, float* images,
                          int32_t* labels) const = 0;
  virtual void read_test(std::span<const int64_t> indices, float* images,
                         int32_t* labels) const = 0;
};

// Opens job.dataset. `digits` ships with the program: it is searched in $PUSHPULL_SHARE, then in
// ../share/pushpull relative to the folder of the program, then in the source tree of the build.
//   data_dir: overrides job.data_dir, the folder of `idx`, unless empty.
// Throws Error(kUsage) for an unknown dataset or a key that does not fit, and Error(kData) naming
// the file and the problem.
std::unique_ptr<Dataset> open_dataset(const Job& job, const std::string& data_dir = "");

}  // namespace pushpull

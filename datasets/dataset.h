// Datasets: samples of named fields, read by index in any order and from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/layout/fields.h"

namespace pushpull {

struct Job;
class Tokenizer;

enum class Split { kTrain, kTest };

class Dataset {
 public:
  virtual ~Dataset() = default;

  // Returns the number of samples, limited by train-samples and test-samples of the job.
  virtual int64_t size(Split split) const = 0;
  // Returns the fields of a sample. Image datasets have `pixels` ([C, H, W] in 0..1) and `label`.
  virtual const FieldTable& fields() const = 0;

  // Returns a hash, in hexadecimal, of everything that a run reads: all fields of both splits.
  // It must be equal in all workers of a job.
  virtual const std::string& digest() const = 0;

  // Returns the class of each training sample if it is known without reading them, else nothing.
  virtual std::span<const int32_t> classes() const { return {}; }

  // Returns whether reading a sample takes long, as decoding does: then threads of the loader do it.
  virtual bool decodes() const { return false; }

  // Returns the tokenizer that has made the ids, or null if the samples are not text.
  virtual const Tokenizer* tokenizer() const { return nullptr; }

  struct Request {
    Split split = Split::kTrain;
    int64_t epoch = 0;                 // kTrain: of the step that the samples are for
    std::span<const int64_t> indices;  // at most layout.samples()
    const BatchLayout& layout;         // of fields()
  };
  // Copies the samples with these indices into `block` (layout.words() words), from its first
  // sample on; the rest of the block is left as it is. Integers are within their field's range.
  // Thread-safe. An index out of range is a programming error (PP_ASSERT).
  virtual void read(const Request& request, float* block) const = 0;

  // Of data sets without fields, whose program knows its samples:
  // Returns true if each epoch has the training samples in their order, whatever the job says.
  virtual bool in_order() const { return false; }
  // Returns the weight of each training sample for sampler = weighted, or nothing.
  virtual std::span<const double> sample_weights() const { return {}; }

  // Samples that the model will probably get soon. Views: copy the indices.
  struct Announcement {
    Split split = Split::kTrain;
    int64_t step = -1;         // -1 in an evaluation
    int64_t micro_batch = -1;  // of the step; in an evaluation the chunk
    int64_t epoch = 0;
    std::span<const int64_t> indices;
  };
  // Announces samples in the order of their use; some more than once. Only data sets without fields
  // are told, which read samples by themselves. The trainer's thread.
  virtual void announce(const Announcement& /*soon*/) const {}
};

// Opens job.dataset. `digits` ships with the program: it is searched in $PUSHPULL_SHARE, then in
// ../share/pushpull relative to the folder of the program, then in the source tree of the build.
//   data_dir: overrides job.data_dir, the files of a dataset that has files, unless empty.
//   tokenizer: of `text`, as tokenizer.json, in place of the job's, unless empty.
// Throws Error(kUsage) for an unknown dataset or a key that does not fit, and Error(kData) naming
// the file and the problem.
std::unique_ptr<Dataset> open_dataset(const Job& job, const std::string& data_dir = "",
                                      const std::string& tokenizer = "");

// How many samples a split has, and the numbers of generated samples. Any thread.

// Returns the samples to use of a split that has `available`: `wanted`, or all if it is 0. Throws
// Error(kUsage), which names `key` and both numbers, if there are fewer.
int64_t take_samples(const char* key, int64_t wanted, int64_t available);

// Returns `value`. Throws Error(kUsage), which names dataset, key and value, if it is not between
// `least` and `most`.
int64_t check_generated(const char* dataset, const char* key, int64_t value, int64_t least,
                        int64_t most);

struct GeneratedSizes {
  int64_t train;
  int64_t test;
};

// Returns train-samples and test-samples of the job; in place of 0, 4096 and 1024. Throws
// Error(kUsage), which names the key, if a number is too large.
GeneratedSizes generated_sizes(const char* dataset, const Job& job);

// Returns the number of a sample, which is different in the two splits.
//   sample: in the split, below its size.
uint32_t generated_number(Split split, int64_t sample);

}  // namespace pushpull

// Invented data sets, which need no files: classes of images, and questions on texts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "datasets/dataset.h"

namespace pushpull {

struct Job;

// `dummy`: generated images that can be learned, so that a run needs no data and its loss must
// fall. Constant after construction; thread-safe.
//
// Each class has a *pattern*: a coarse grid of random numbers, stretched over the image. A sample
// is its class's pattern plus uniform noise, a pure function of (seed, sample). Larger images have
// weaker patterns, so that every shape is about equally hard.
class Dummy final : public Dataset {
 public:
  // Reads input, classes, seed, train_samples (default: 4096) and test_samples (default: 1024) of
  // the job. Throws Error(kUsage), which names the key that does not fit.
  explicit Dummy(const Job& job);

  int64_t size(Split split) const override {
    return split == Split::kTrain ? sizes_.train : sizes_.test;
  }
  const FieldTable& fields() const override { return fields_; }
  const std::string& digest() const override { return digest_; }
  void read(const Request& request, float* block) const override;

 private:
  // One cell of the pattern covers a run of pixels in a row.
  struct Grid {
    int64_t channels;
    int64_t height;
    int64_t width;
    int64_t size() const { return channels * height * width; }
  };

  void make_patterns();
  void make_cache();
  int32_t label_of(uint32_t sample) const;
  void make_sample(uint32_t sample, float* image, int32_t* label) const;

  uint64_t seed_;
  InputShape input_;
  int64_t classes_;
  FieldTable fields_;
  GeneratedSizes sizes_;
  std::string digest_;
  Grid grid_;
  float noise_share_ = 0.0F;
  std::vector<float> patterns_;      // [classes, grid], each in ±pattern share / 2
  std::vector<float> cache_images_;  // [samples, C, H, W]; empty if too large
  std::vector<int32_t> cache_labels_;
};

// `dummy-qa`: generated questions with planted answers, so that question answering can be learned
// without files. Constant after construction; thread-safe.
//
// Ids: 0 padding, 1 the beginning ([CLS]), 2 the separator ([SEP]), 3 to 6 *kinds*, then the *opening
// markers* of K *topics*, then their *closing markers*, then *words*. K is 8, or a third of the ids
// from 7 on if that is less. With T = sequence a sample is
//
//     [CLS] kind topic topic... [SEP] context... [SEP] padding...
//
// The question repeats its topic's opening marker 2 to T / 8 times, at most 61. If it has an
// answer, the context contains the topic's opening marker once and its closing marker once, at most
// kMaxAnswer tokens apart: they are the first and the last token of the answer. A quarter of the
// other tokens of the context are markers of other topics, the rest is words. An eighth of the
// questions has no answer: their context has no marker of the topic, and start and end are
// kNoTarget. The class is 0 for a question without an answer; else it is 1 to 4 by the kind. A half
// of the kinds is the first one, a quarter the second, an eighth each of the others. So question
// and context together give the answer, and neither alone.
class DummyQa final : public Dataset {
 public:
  static constexpr int64_t kClasses = 5;
  static constexpr int64_t kMaxAnswer = 8;

  // Reads sequence (at least 16), vocab (at least 16; default: 1024), seed, train_samples (default:
  // 4096) and test_samples (default: 1024) of the job. Throws Error(kUsage), which names the key
  // that does not fit.
  explicit DummyQa(const Job& job);

  int64_t size(Split split) const override {
    return split == Split::kTrain ? sizes_.train : sizes_.test;
  }
  const FieldTable& fields() const override { return fields_; }
  const std::string& digest() const override { return digest_; }
  void read(const Request& request, float* block) const override;

 private:
  // The fields of one sample in a block.
  struct Sample {
    int32_t* ids;
    int32_t* mask;
    int32_t* types;
    int32_t& start;
    int32_t& end;
    float& start_position;
    float& end_position;
    int32_t& kind;  // the field `class`
  };
  class Draws;

  void make_sample(uint32_t number, const Sample& out) const;
  // Writes a context without answer.
  void fill_context(Draws& draws, int64_t topic, int32_t* begin, const int32_t* end) const;

  uint64_t seed_;
  int64_t sequence_;
  int64_t vocabulary_;
  int64_t topics_;
  FieldTable fields_;
  GeneratedSizes sizes_;
  std::string digest_;
};

}  // namespace pushpull

#include "datasets/dummy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/job/job.h"
#include "datasets/digest.h"

namespace pushpull {

namespace {

constexpr int64_t kMaxElements = int64_t{1} << 28;
constexpr int64_t kMaxClasses = 65536;
// Limits of a pattern's grid: at most 16 KiB per class.
constexpr int64_t kGridChannels = 64;
constexpr int64_t kGridSide = 8;
// Generating noise costs more than copying, so a small training split is generated once.
constexpr int64_t kCacheBytes = int64_t{64} << 20;
// Distance of two patterns, in standard deviations of the noise along their difference: about one
// sample in a hundred is closer to one of the nine wrong classes.
constexpr double kSeparation = 6.0;
constexpr double kLargestShare = 0.5;

int64_t checked(const char* key, int64_t value, int64_t least, int64_t most) {
  return check_generated("dummy", key, value, least, most);
}

InputShape checked(const InputShape& input) {
  checked("input", input.channels, 1, kMaxElements);
  checked("input", input.height, 1, kMaxElements / input.channels);
  checked("input", input.width, 1, kMaxElements / input.channels / input.height);
  return input;
}

}  // namespace

Dummy::Dummy(const Job& job)
    : seed_(job.seed),
      input_(checked(job.input)),
      classes_(checked("classes", job.classes, 2, kMaxClasses)),
      fields_(image_fields({input_.channels, input_.height, input_.width}, classes_)),
      sizes_(generated_sizes("dummy", job)),
      grid_{std::min(kGridChannels, input_.channels), std::min(kGridSide, input_.height),
            std::min(kGridSide, input_.width)} {
  Digest digest;
  digest.add(std::string("dummy 1"));  // raise the number when the samples change
  digest.add(std::to_string(seed_));
  for (const int64_t value :
       {input_.channels, input_.height, input_.width, classes_, sizes_.train, sizes_.test}) {
    digest.add(std::to_string(value));
  }
  digest_ = digest.hex();
  make_patterns();
  make_cache();
}

void Dummy::make_patterns() {
  // Two patterns differ by share * sqrt(2 size v). The noise along that line has the standard
  // deviation (1 - share) * sqrt(v), where v = 1/12 is the variance of U(-0.5, 0.5). Solved for
  // their ratio:
  const double odds = kSeparation / std::sqrt(2.0 * static_cast<double>(input_.size()));
  const double share = std::min(odds / (1.0 + odds), kLargestShare);
  noise_share_ = static_cast<float>(1.0 - share);
  const auto cells = static_cast<uint64_t>(grid_.size());
  patterns_.resize(static_cast<size_t>(classes_) * cells);
  for (int64_t k = 0; k < classes_; ++k) {
    fill_uniform(seed_, RandomStream::kDummyTeacher, static_cast<uint32_t>(k), 0,
                 static_cast<float>(share / 2.0), cells,
                 patterns_.data() + static_cast<uint64_t>(k) * cells);
  }
}

void Dummy::make_cache() {
  const auto sample_bytes = static_cast<int64_t>(sizeof(float)) * input_.size();
  if (sizes_.train > kCacheBytes / sample_bytes) return;
  std::vector<float> images(static_cast<size_t>(sizes_.train * input_.size()));
  std::vector<int32_t> labels(static_cast<size_t>(sizes_.train));
  for (int64_t n = 0; n < sizes_.train; ++n) {
    make_sample(static_cast<uint32_t>(n), images.data() + n * input_.size(), &labels[n]);
  }
  cache_images_ = std::move(images);
  cache_labels_ = std::move(labels);
}

int32_t Dummy::label_of(uint32_t sample) const {
  // the random number after those of the pixels
  const uint32_t word =
      philox(seed_, RandomStream::kDummyData, sample, static_cast<uint64_t>(input_.size()))[0];
  return static_cast<int32_t>((uint64_t{word} * static_cast<uint64_t>(classes_)) >> 32);
}

void Dummy::make_sample(uint32_t sample, float* image, int32_t* label) const {
  *label = label_of(sample);
  fill_uniform(seed_, RandomStream::kDummyData, sample, 0, noise_share_ / 2.0F,
               static_cast<uint64_t>(input_.size()), image);
  const float* pattern = patterns_.data() + *label * grid_.size();
  for (int64_t c = 0; c < input_.channels; ++c) {
    for (int64_t y = 0; y < input_.height; ++y) {
      const int64_t row =
          (c % grid_.channels * grid_.height + y * grid_.height / input_.height) * grid_.width;
      // cell by cell, so that the inner loop adds a constant
      for (int64_t g = 0; g < grid_.width; ++g) {
        const float level = 0.5F + pattern[row + g];
        const int64_t begin = g * input_.width / grid_.width;
        const int64_t end = (g + 1) * input_.width / grid_.width;
        for (int64_t x = begin; x < end; ++x) image[x] = std::clamp(image[x] + level, 0.0F, 1.0F);
      }
      image += input_.width;
    }
  }
}

void Dummy::read(const Request& request, float* block) const {
  float* image = block + request.layout.offset(0);
  int32_t* label = as_ints(block + request.layout.offset(1));
  const bool train = request.split == Split::kTrain;
  for (const int64_t sample : request.indices) {
    PP_ASSERT(sample >= 0 && sample < size(request.split));
    if (!train || cache_labels_.empty()) {
      make_sample(generated_number(request.split, sample), image, label);
    } else {
      std::copy_n(cache_images_.data() + sample * input_.size(), input_.size(), image);
      *label = cache_labels_[static_cast<size_t>(sample)];
    }
    image += input_.size();
    ++label;
  }
}

namespace {

constexpr int32_t kBeginning = 1;
constexpr int32_t kSeparator = 2;
constexpr int64_t kFirstKind = 3;
constexpr int64_t kKinds = DummyQa::kClasses - 1;
constexpr int64_t kFirstOpening = kFirstKind + kKinds;
constexpr int64_t kMostTopics = 8;
constexpr int64_t kLeastVocabulary = 16;  // 3 topics and 3 words
constexpr int64_t kMostVocabulary = 1'000'000;
constexpr int64_t kDefaultVocabularyOfQuestions = 1024;
constexpr int64_t kLeastSequence = 16;
constexpr int64_t kMostSequence = 32'768;
// The topic in a question. 64 tokens in all with [CLS], kind and [SEP].
constexpr int64_t kLeastRepetitions = 2;
constexpr int64_t kMostRepetitions = 61;

}  // namespace

// The random words of one sample, in order.
class DummyQa::Draws {
 public:
  Draws(uint64_t seed, uint32_t sample) : seed_(seed), sample_(sample) {}

  uint32_t word() {
    if (next_ == words_.size()) {
      words_ = philox(seed_, RandomStream::kDummyQa, sample_, counter_++);
      next_ = 0;
    }
    return words_[next_++];
  }
  // Returns a number from 0 to n - 1.
  int64_t below(int64_t n) {
    return static_cast<int64_t>((uint64_t{word()} * static_cast<uint64_t>(n)) >> 32U);
  }

 private:
  uint64_t seed_;
  uint32_t sample_;
  uint64_t counter_ = 0;
  std::array<uint32_t, 4> words_{};
  size_t next_ = 4;
};

DummyQa::DummyQa(const Job& job)
    : seed_(job.seed),
      sequence_(
          check_generated("dummy-qa", "sequence", job.sequence, kLeastSequence, kMostSequence)),
      vocabulary_(check_generated("dummy-qa", "vocab",
                                  job.vocab == 0 ? kDefaultVocabularyOfQuestions : job.vocab,
                                  kLeastVocabulary, kMostVocabulary)),
      topics_(std::min(kMostTopics, (vocabulary_ - kFirstOpening) / 3)),
      fields_(question_fields(sequence_, vocabulary_, kClasses)),
      sizes_(generated_sizes("dummy-qa", job)) {
  Digest digest;
  digest.add(std::string("dummy-qa 1"));  // raise the number when the samples change
  digest.add(std::to_string(seed_));
  for (const int64_t value : {sequence_, vocabulary_, sizes_.train, sizes_.test}) {
    digest.add(std::to_string(value));
  }
  digest_ = digest.hex();
}

void DummyQa::fill_context(Draws& draws, int64_t topic, int32_t* begin, const int32_t* end) const {
  const int64_t first_word = kFirstOpening + 2 * topics_;
  for (int32_t* id = begin; id != end; ++id) {
    const uint32_t word = draws.word();
    const bool is_marker = word >> 30U == 0;
    const int64_t choices = is_marker ? 2 * (topics_ - 1) : vocabulary_ - first_word;
    auto choice = static_cast<int64_t>(
        (uint64_t{word & 0x3FFFFFFFU} * static_cast<uint64_t>(choices)) >> 30U);
    if (is_marker && choice >= topic) ++choice;            // the opening marker of the topic
    if (is_marker && choice >= topic + topics_) ++choice;  // its closing marker
    *id = static_cast<int32_t>((is_marker ? kFirstOpening : first_word) + choice);
  }
}

void DummyQa::make_sample(uint32_t number, const Sample& out) const {
  Draws draws(seed_, number);
  const int64_t topic = draws.below(topics_);
  const int64_t kind = std::min<int64_t>(std::countl_zero(draws.word()), kKinds - 1);
  int32_t* next = out.ids;
  *next++ = kBeginning;
  *next++ = static_cast<int32_t>(kFirstKind + kind);
  const int64_t most = std::min(sequence_ / 8, kMostRepetitions);
  const int64_t repetitions = kLeastRepetitions + draws.below(most - kLeastRepetitions + 1);
  next = std::fill_n(next, repetitions, static_cast<int32_t>(kFirstOpening + topic));
  *next++ = kSeparator;
  const int64_t context = next - out.ids;
  const int64_t room = sequence_ - context - 1;
  const int64_t tokens = room - draws.below(room / 2 + 1);
  fill_context(draws, topic, next, next + tokens);
  const bool has_answer = draws.below(8) > 0;
  const int64_t length = std::min(2 + draws.below(kMaxAnswer - 1), tokens);
  const int64_t begin = draws.below(tokens - length + 1);
  out.start = out.end = kNoTarget;
  out.kind = 0;
  if (has_answer) {
    next[begin] = static_cast<int32_t>(kFirstOpening + topic);
    next[begin + length - 1] = static_cast<int32_t>(kFirstOpening + topics_ + topic);
    out.start = static_cast<int32_t>(context + begin);
    out.end = static_cast<int32_t>(context + begin + length - 1);
    out.kind = static_cast<int32_t>(1 + kind);
  }
  out.start_position = question_position(out.start, sequence_);
  out.end_position = question_position(out.end, sequence_);
  next[tokens] = kSeparator;
  const int64_t all = context + tokens + 1;
  std::fill(out.ids + all, out.ids + sequence_, 0);
  std::fill(std::fill_n(out.mask, all, 1), out.mask + sequence_, 0);
  std::fill(out.types, out.types + sequence_, 0);
  std::fill(out.types + context, out.types + all, 1);
}

void DummyQa::read(const Request& request, float* block) const {
  const auto floats = [&](size_t field) { return block + request.layout.offset(field); };
  const auto ints = [&](size_t field) { return as_ints(floats(field)); };
  for (size_t i = 0; i < request.indices.size(); ++i) {
    const int64_t sample = request.indices[i];
    PP_ASSERT(sample >= 0 && sample < size(request.split));
    const auto tokens = static_cast<int64_t>(i) * sequence_;
    make_sample(generated_number(request.split, sample),
                {ints(0) + tokens, ints(1) + tokens, ints(2) + tokens, ints(3)[i], ints(4)[i],
                 floats(5)[i], floats(6)[i], ints(7)[i]});
  }
}

}  // namespace pushpull

#include "datasets/dummy_qa.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/job/job.h"
#include "datasets/digest.h"

namespace pushpull {

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

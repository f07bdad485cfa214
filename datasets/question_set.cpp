#include "datasets/question_set.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/io/safetensors.h"
#include "common/job/job.h"
#include "common/layout/tensor_table.h"
#include "datasets/dataset.h"
#include "datasets/digest.h"

namespace pushpull {

namespace {

constexpr int64_t kDefaultClasses = 5;  // of the Natural Questions: none, long, short, yes, no
constexpr int64_t kMaxVocabularyOfFile = 1'000'000;
constexpr int64_t kMaxClassesOfFile = 65'536;

// Limits of the values in the files.
struct Bounds {
  int64_t sequence;
  int64_t vocabulary;
  int64_t classes;
};

// One file, with its path for messages.
class QuestionFile {
 public:
  explicit QuestionFile(std::string path)
      : path_(std::move(path)), file_(read_int_tensors(path_)) {}

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::kData, "[data] " + path_ + ": " + why);
  }

  const std::string& path() const { return path_; }
  bool has_class() const { return file_.tensors.contains("class"); }
  int64_t samples() const { return shape_of("start").at(0); }

  // Returns the number of this name in the metadata, or nothing. Refuses one that is not in 1..most.
  std::optional<int64_t> number(const std::string& name, int64_t most) const {
    const auto found = file_.metadata.find(name);
    if (found == file_.metadata.end()) return std::nullopt;
    const std::optional<int64_t> value = parse_int64(found->second);
    if (value && *value >= 1 && *value <= most) return value;
    refuse("metadata " + name + ": expected a number from 1 to " + std::to_string(most) + ", got " +
           printable(found->second));
  }

  // Checks names and shapes of the tensors.
  void check_tensors(int64_t sequence) const {
    for (const auto& [name, entry] : file_.tensors) {
      constexpr const char* kNames = "ids, mask, types, start, end and class";
      if (name == "ids" || name == "mask" || name == "types" || name == "start" || name == "end" ||
          name == "class") {
        continue;
      }
      refuse("expected the tensors " + std::string(kNames) + ", got " + printable(name));
    }
    const std::vector<int64_t>& starts = shape_of("start");
    if (starts.size() != 1 || starts[0] == 0) refuse_shape("start", "[N] with N at least 1");
    const std::string rows = std::to_string(starts[0]);
    for (const char* name : {"end", "class"}) {
      if (std::string(name) == "class" && !has_class()) continue;
      if (shape_of(name) != starts) refuse_shape(name, "[" + rows + "], as start");
    }
    for (const char* name : {"ids", "mask", "types"}) {
      const std::vector<int64_t>& shape = shape_of(name);
      if (shape == std::vector<int64_t>{starts[0], sequence}) continue;
      if (shape.size() == 2 && shape[0] == starts[0]) {
        refuse(std::string(name) + ": expected records of " + std::to_string(sequence) +
               " tokens, the key sequence, got " + std::to_string(shape[1]) +
               "; set sequence = " + std::to_string(shape[1]) + ", or write the files again");
      }
      refuse_shape(name,
                   "[" + rows + ", " + std::to_string(sequence) + "], as many records as start");
    }
  }

  // Returns the first `samples` records, checked.
  QuestionSplit take(int64_t samples, const Bounds& bounds) const;

 private:
  const std::vector<int64_t>& shape_of(const std::string& name) const {
    const auto found = file_.tensors.find(name);
    if (found == file_.tensors.end()) refuse("expected a tensor " + name + ", got none");
    return found->second.shape;
  }

  [[noreturn]] void refuse_shape(const std::string& name, const std::string& expected) const {
    refuse(name + ": expected the shape " + expected + ", got " + shape_text(shape_of(name)));
  }

  std::span<const int32_t> values(const std::string& name) const {
    const auto& entry = file_.tensors.at(name);
    return std::span(file_.data).subspan(entry.first, entry.count);
  }

  // Refuses a value of a record that is not in [least, limit).
  void check_value(int64_t record, const char* name, int64_t value, int64_t least,
                   int64_t limit) const {
    if (value >= least && value < limit) return;
    refuse_record(record, std::string(name) + ": expected " + std::to_string(least) + " to " +
                              std::to_string(limit - 1) + ", got " + std::to_string(value));
  }

  [[noreturn]] void refuse_record(int64_t record, const std::string& why) const {
    refuse("record " + std::to_string(record) + ": " + why);
  }

  void take_tokens(int64_t record, const Bounds& bounds, QuestionSplit& out) const;
  void take_answer(int64_t record, const Bounds& bounds, QuestionSplit& out) const;

  std::string path_;
  IntTensorFile file_;
};

void QuestionFile::take_tokens(int64_t record, const Bounds& bounds, QuestionSplit& out) const {
  const auto row = [&](const char* name) {
    return values(name).subspan(static_cast<size_t>(record * bounds.sequence),
                                static_cast<size_t>(bounds.sequence));
  };
  const std::span<const int32_t> ids = row("ids");
  const std::span<const int32_t> mask = row("mask");
  const std::span<const int32_t> types = row("types");
  for (size_t i = 0; i < ids.size(); ++i) {
    check_value(record, "ids", ids[i], 0, bounds.vocabulary);
    check_value(record, "mask", mask[i], 0, 2);
    check_value(record, "types", types[i], 0, 2);
    out.ids.push_back(ids[i]);
    out.flags.push_back(static_cast<uint8_t>((mask[i] == 1 ? QuestionSplit::kReal : 0) |
                                             (types[i] == 1 ? QuestionSplit::kContext : 0)));
  }
  if (std::ranges::find(mask, 1) == mask.end()) {
    refuse_record(record, "mask: expected at least one 1, got only 0");
  }
}

void QuestionFile::take_answer(int64_t record, const Bounds& bounds, QuestionSplit& out) const {
  const auto at = static_cast<size_t>(record);
  const int32_t start = values("start")[at];
  const int32_t end = values("end")[at];
  check_value(record, "start", start, kNoTarget, bounds.sequence);
  check_value(record, "end", end, kNoTarget, bounds.sequence);
  if ((start == kNoTarget) != (end == kNoTarget)) {
    refuse_record(record, "expected start and end, or -1 for both, got start " +
                              std::to_string(start) + " and end " + std::to_string(end));
  }
  if (end < start) {
    refuse_record(record, "end: expected at least start, " + std::to_string(start) + ", got " +
                              std::to_string(end));
  }
  for (const int32_t place : {start, end}) {
    const auto token = static_cast<size_t>(record * bounds.sequence + place);
    if (place != kNoTarget && (out.flags[token] & QuestionSplit::kReal) == 0) {
      refuse_record(record, "expected an answer where mask is 1, got " +
                                std::string(place == start ? "start " : "end ") +
                                std::to_string(place) + ", where it is 0");
    }
  }
  const int32_t kind = has_class() ? values("class")[at] : start == kNoTarget ? 0 : 1;
  check_value(record, "class", kind, 0, bounds.classes);
  out.start.push_back(start);
  out.end.push_back(end);
  out.kind.push_back(kind);
}

QuestionSplit QuestionFile::take(int64_t samples, const Bounds& bounds) const {
  QuestionSplit out;
  const auto tokens = static_cast<size_t>(samples * bounds.sequence);
  out.ids.reserve(tokens);
  out.flags.reserve(tokens);
  for (int64_t record = 0; record < samples; ++record) {
    take_tokens(record, bounds, out);
    take_answer(record, bounds, out);
  }
  return out;
}

// Returns the vocabulary of the job, or else of the file.
int64_t vocabulary_of(const Job& job, const QuestionFile& train) {
  if (job.vocab > 0) return job.vocab;
  const std::optional<int64_t> vocabulary = train.number("vocab", kMaxVocabularyOfFile);
  if (vocabulary) return *vocabulary;
  train.refuse("expected the number of tokens as metadata vocab, got none; set the key vocab");
}

}  // namespace

QuestionSet::QuestionSet(QuestionSplit train, QuestionSplit test, int64_t sequence,
                         int64_t vocabulary, int64_t classes)
    : train_(std::move(train)),
      test_(std::move(test)),
      sequence_(sequence),
      fields_(question_fields(sequence, vocabulary, classes)) {
  Digest digest;
  digest.add(std::string("qa 1"));  // raise the number when the samples change
  for (const int64_t value : {sequence, vocabulary, classes}) digest.add(std::to_string(value));
  for (const QuestionSplit* split : {&train_, &test_}) {
    digest.add(std::to_string(split->start.size()));
    digest.add(std::as_bytes(std::span(split->ids)));
    digest.add(std::as_bytes(std::span(split->flags)));
    digest.add(std::as_bytes(std::span(split->start)));
    digest.add(std::as_bytes(std::span(split->end)));
    digest.add(std::as_bytes(std::span(split->kind)));
  }
  digest_ = digest.hex();
}

void QuestionSet::read(const Request& request, float* block) const {
  const QuestionSplit& split = samples_of(request.split);
  const auto floats = [&](size_t field) { return block + request.layout.offset(field); };
  const auto ints = [&](size_t field) { return as_ints(floats(field)); };
  for (size_t i = 0; i < request.indices.size(); ++i) {
    const int64_t sample = request.indices[i];
    PP_ASSERT(sample >= 0 && sample < size(request.split));
    const int64_t from = sample * sequence_;
    const int64_t to = static_cast<int64_t>(i) * sequence_;
    std::copy_n(split.ids.data() + from, sequence_, ints(0) + to);
    for (int64_t t = 0; t < sequence_; ++t) {
      const uint8_t flags = split.flags[static_cast<size_t>(from + t)];
      ints(1)[to + t] = (flags & QuestionSplit::kReal) != 0 ? 1 : 0;
      ints(2)[to + t] = (flags & QuestionSplit::kContext) != 0 ? 1 : 0;
    }
    const auto at = static_cast<size_t>(sample);
    ints(3)[i] = split.start[at];
    ints(4)[i] = split.end[at];
    floats(5)[i] = question_position(split.start[at], sequence_);
    floats(6)[i] = question_position(split.end[at], sequence_);
    ints(7)[i] = split.kind[at];
  }
}

std::unique_ptr<Dataset> open_qa(const Job& job, const std::string& dir) {
  const auto path = [&](const char* name) { return (std::filesystem::path(dir) / name).string(); };
  const QuestionFile train(path("train.safetensors"));
  const QuestionFile test(path("test.safetensors"));
  const Bounds bounds{
      .sequence = job.sequence,
      .vocabulary = vocabulary_of(job, train),
      .classes = train.number("classes", kMaxClassesOfFile).value_or(kDefaultClasses)};
  train.check_tensors(bounds.sequence);
  test.check_tensors(bounds.sequence);
  if (train.has_class() != test.has_class()) {
    test.refuse(std::string("expected ") + (train.has_class() ? "a" : "no") + " tensor class, as " +
                train.path() + ", got " + (test.has_class() ? "one" : "none"));
  }
  const int64_t train_samples = take_samples("train-samples", job.train_samples, train.samples());
  const int64_t test_samples = take_samples("test-samples", job.test_samples, test.samples());
  return std::make_unique<QuestionSet>(train.take(train_samples, bounds),
                                       test.take(test_samples, bounds), bounds.sequence,
                                       bounds.vocabulary, bounds.classes);
}

}  // namespace pushpull

#include "datasets/text_set.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/io/checkpoint.h"
#include "common/io/file.h"
#include "common/job/job.h"
#include "datasets/byte_bpe.h"
#include "datasets/digest.h"
#include "datasets/tokenizer.h"
#include "datasets/tokenizer_json.h"
#include "datasets/utf8.h"

namespace pushpull {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxTextBytes = uint64_t{4} << 30;

[[noreturn]] void refuse_text(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kData, "[data] " + path + ": " + why);
}

std::vector<std::string> files_of(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) refuse_text(path, "no such file or folder; check data-dir");
  if (!fs::is_directory(status)) return {path};
  std::vector<std::string> files;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".txt") files.push_back(entry->path().string());
  }
  if (error) refuse_text(path, "cannot be listed (" + error.message() + "); check its permissions");
  if (files.empty()) {
    refuse_text(path, "expected files whose names end in .txt, got none; check data-dir");
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::string TextSource::place(size_t offset) const {
  const auto next = std::upper_bound(
      files.begin(), files.end(), offset,
      [](size_t wanted, const TextSource::File& file) { return wanted < file.begin; });
  PP_ASSERT(next != files.begin());
  const File& file = *std::prev(next);
  const auto line = 1 + std::count(text.begin() + static_cast<int64_t>(file.begin),
                                   text.begin() + static_cast<int64_t>(offset), '\n');
  return file.path + ": byte " + std::to_string(offset - file.begin) + " (line " +
         std::to_string(line) + ")";
}

TextSource read_text_source(const std::string& path) {
  TextSource source;
  for (const std::string& name : files_of(path)) {
    InputFile file(name);
    const size_t before = source.text.size();
    if (file.size_bytes() > kMaxTextBytes - before) {
      refuse_text(name, "expected at most " + std::to_string(kMaxTextBytes) +
                            " bytes of text together, got " +
                            std::to_string(before + file.size_bytes()) + "; take a part of it");
    }
    source.files.push_back({name, before});
    source.text.resize(before + file.size_bytes());
    file.read(std::as_writable_bytes(std::span(source.text).subspan(before)));
    // A character does not go on in the next file.
    const std::string_view added = std::string_view(source.text).substr(before);
    if (const std::optional<size_t> invalid = find_invalid_utf8(added)) {
      throw Error(ErrorCode::kData, "[data] " + source.place(before + *invalid) + ": " +
                                        expected_at(added, *invalid));
    }
  }
  if (source.text.empty()) refuse_text(path, "expected text, got no bytes; check data-dir");
  return source;
}

namespace {

constexpr int64_t kDefaultVocabulary = 1024;  // of a trained BPE

// Returns the samples to use of `available`: `wanted`, or all if it is 0.
int64_t windows_to_use(const char* key, int64_t wanted, int64_t available) {
  if (wanted > available) {
    throw Error(ErrorCode::kUsage, std::string("[data] ") + key + ": expected at most " +
                                       std::to_string(available) +
                                       ", the windows of the text, got " + std::to_string(wanted) +
                                       "; lower it or sequence, or set 0 for all");
  }
  return wanted == 0 ? available : wanted;
}

[[noreturn]] void refuse_short(const std::string& name, const std::string& part, int64_t least,
                               int64_t tokens) {
  throw Error(ErrorCode::kData, "[data] " + name + ": expected at least " + std::to_string(least) +
                                    " tokens in " + part + ", got " + std::to_string(tokens) +
                                    "; lower sequence or take a longer text");
}

// Returns the bytes of the text that train: nine tenths of its characters.
size_t train_bytes(std::string_view text) {
  return offset_of_code_point(text, count_code_points(text) * 9 / 10);
}

std::unique_ptr<Tokenizer> train_tokenizer(const Job& job, std::string_view text) {
  if (job.tokenizer == "char") return CharTokenizer::of(text);
  const int64_t vocabulary = job.vocab == 0 ? kDefaultVocabulary : job.vocab;
  if (vocabulary < kLeastBpeVocabulary) {
    throw Error(ErrorCode::kUsage, "[data] vocab: expected at least " +
                                       std::to_string(kLeastBpeVocabulary) +
                                       " (256 bytes and a merge) for tokenizer = bpe, got " +
                                       std::to_string(vocabulary) + "; raise it, or set 0 for " +
                                       std::to_string(kDefaultVocabulary));
  }
  return std::make_unique<ByteBpe>(train_byte_bpe(text.substr(0, train_bytes(text)), vocabulary));
}

std::unique_ptr<Tokenizer> read_tokenizer_of(const Job& job) {
  std::unique_ptr<Tokenizer> tokenizer = read_tokenizer(job.tokenizer_file);
  if (tokenizer->kind() != job.tokenizer) {
    throw Error(ErrorCode::kUsage, "[data] " + job.tokenizer_file + ": expected a tokenizer of " +
                                       "kind " + job.tokenizer + ", as the key tokenizer, got " +
                                       tokenizer->kind() +
                                       "; set tokenizer = " + tokenizer->kind());
  }
  return tokenizer;
}

// Returns the text of tokenizer.json, which checkpoints contain.
std::string checked_json(const Tokenizer& tokenizer) {
  std::string json = tokenizer.to_json();
  if (json.size() <= kMaxTokenizerBytes) return json;
  throw Error(ErrorCode::kData, "[data] the tokenizer: expected at most " +
                                    std::to_string(kMaxTokenizerBytes) +
                                    " bytes as tokenizer.json, which checkpoints contain, got " +
                                    std::to_string(json.size()) + "; take a smaller vocabulary");
}

// Returns the ids of a part of the text.
std::vector<int32_t> encode_part(const TextSource& source, size_t begin, size_t end,
                                 const Tokenizer& tokenizer) {
  const std::string_view part = std::string_view(source.text).substr(begin, end - begin);
  std::vector<int32_t> ids;
  const std::optional<size_t> stop = tokenizer.try_encode(part, ids);
  if (!stop) return ids;
  throw Error(ErrorCode::kData,
              "[data] " + source.place(begin + *stop) + ": " + expected_at(part, *stop));
}

}  // namespace

TextSet::TextSet(const Job& job, std::unique_ptr<Tokenizer> tokenizer, std::vector<int32_t> train,
                 std::vector<int32_t> test, const std::string& name)
    : tokenizer_(std::move(tokenizer)),
      train_(std::move(train)),
      test_(std::move(test)),
      seed_(job.seed),
      shuffle_(job.shuffle),
      sequence_(job.sequence) {
  PP_ASSERT(sequence_ > 0);
  const int64_t tokens = std::ssize(train_);
  // The largest shift leaves room for this many windows, and for the target of the last token.
  const int64_t windows = tokens / sequence_ - 1;
  if (windows < 1) refuse_short(name, "its first nine tenths", 2 * sequence_, tokens);
  const int64_t targets = std::ssize(test_) - 1;
  if (targets < 1) refuse_short(name, "its last tenth", 2, std::ssize(test_));
  train_size_ = windows_to_use("train-samples", job.train_samples, windows);
  test_size_ =
      windows_to_use("test-samples", job.test_samples, (targets + sequence_ - 1) / sequence_);
  const int64_t vocabulary = tokenizer_->size();
  fields_ = token_fields(sequence_, vocabulary);
  Digest digest;
  digest.add(std::string("text 1"));  // raise the number when the samples change
  for (const int64_t number : {sequence_, train_size_, test_size_, tokens, targets}) {
    digest.add(std::to_string(number));
  }
  digest.add(checked_json(*tokenizer_));
  digest.add(std::as_bytes(std::span(train_)));
  digest.add(std::as_bytes(std::span(test_)));
  digest_ = digest.hex();
}

int64_t TextSet::shift_of(int64_t epoch) const {
  if (!shuffle_) return 0;
  const uint32_t word = philox(seed_, RandomStream::kTextShift, static_cast<uint32_t>(epoch), 0)[0];
  return static_cast<int64_t>((uint64_t{word} * static_cast<uint64_t>(sequence_)) >> 32U);
}

void TextSet::read(const Request& request, float* block) const {
  int32_t* ids = as_ints(block + request.layout.offset(0));
  int32_t* targets = as_ints(block + request.layout.offset(1));
  const bool train = request.split == Split::kTrain;
  const std::vector<int32_t>& tokens = train ? train_ : test_;
  const int64_t shift = train ? shift_of(request.epoch) : 0;
  for (const int64_t sample : request.indices) {
    PP_ASSERT(sample >= 0 && sample < size(request.split));
    const int32_t* first = tokens.data() + shift + sample * sequence_;
    const int64_t left = std::ssize(tokens) - 1 - shift - sample * sequence_;
    const int64_t count = std::min(sequence_, left);  // of tokens with a target
    std::fill_n(std::copy_n(first, count, ids), sequence_ - count, 0);
    std::fill_n(std::copy_n(first + 1, count, targets), sequence_ - count, kNoTarget);
    ids += sequence_;
    targets += sequence_;
  }
}

std::unique_ptr<Dataset> open_text(const Job& job, const std::string& path,
                                   const std::string& tokenizer) {
  const TextSource source = read_text_source(path);
  std::unique_ptr<Tokenizer> made =
      !tokenizer.empty()            ? tokenizer_from_json(tokenizer, "the given tokenizer")
      : !job.tokenizer_file.empty() ? read_tokenizer_of(job)
                                    : train_tokenizer(job, source.text);
  const size_t cut = train_bytes(source.text);
  std::vector<int32_t> train = encode_part(source, 0, cut, *made);
  std::vector<int32_t> test = encode_part(source, cut, source.text.size(), *made);
  return std::make_unique<TextSet>(job, std::move(made), std::move(train), std::move(test), path);
}

}  // namespace pushpull

// `text`: windows of consecutive tokens, each with the tokens that follow one place later. The first
// nine tenths of the characters train, the rest tests. Constant after construction; thread-safe.
//
// T = sequence. A training sample k of an epoch with shift s is tokens [s + k T, s + k T + T); its
// targets are the tokens one place later. The shift, from 0 to T - 1, is drawn from (seed, epoch),
// so that words do not always stand at the same place of a window; without `shuffle` it is 0. The
// number of samples is the largest that every shift permits. Test samples tile the test part once.
// The last one may end early: the rest of its ids is 0, and the rest of its targets kNoTarget, which
// a head ignores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "datasets/tokenizer.h"

namespace pushpull {

// The text of a run: a file, or the .txt files of a folder one after the other. Plain data; any
// thread.
struct TextSource {
  struct File {
    std::string path;
    size_t begin = 0;  // offset of its first byte in `text`
  };

  std::string text;  // UTF-8, not empty
  std::vector<File> files;

  // Returns "PATH: byte 17 (line 2)" for an offset in `text`, for messages.
  std::string place(size_t offset) const;
};

// Reads the file `path`, or the files in the folder `path` whose names end in .txt, in the order of
// their names. Bytes are taken as they are: a line may end in \r\n. At most 4 GiB. Throws Error(kData),
// which names the file, the byte and the problem.
TextSource read_text_source(const std::string& path);

struct Job;

class TextSet final : public Dataset {
 public:
  // Reads sequence, seed, shuffle, train-samples and test-samples of the job.
  //   train, test: ids of the tokenizer.
  //   name: of the text, for messages.
  // Throws Error(kData) if a part is too short for a window, and Error(kUsage) if it has fewer
  // samples than the job wants.
  TextSet(const Job& job, std::unique_ptr<Tokenizer> tokenizer, std::vector<int32_t> train,
          std::vector<int32_t> test, const std::string& name);

  int64_t size(Split split) const override {
    return split == Split::kTrain ? train_size_ : test_size_;
  }
  const FieldTable& fields() const override { return fields_; }
  const std::string& digest() const override { return digest_; }
  const Tokenizer* tokenizer() const override { return tokenizer_.get(); }
  void read(const Request& request, float* block) const override;

 private:
  // Returns the first token of sample 0.
  int64_t shift_of(int64_t epoch) const;

  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<int32_t> train_;
  std::vector<int32_t> test_;
  uint64_t seed_;
  bool shuffle_;
  int64_t sequence_;
  int64_t train_size_ = 0;
  int64_t test_size_ = 0;
  FieldTable fields_;
  std::string digest_;
};

// Opens the text at `path`. The tokenizer is read from `tokenizer`, the text of a tokenizer.json; or,
// if that is empty, from the job's tokenizer-file; or made from the text. Called by open_dataset.
// Throws Error(kData) and Error(kUsage), which name file, place and problem.
std::unique_ptr<Dataset> open_text(const Job& job, const std::string& path,
                                   const std::string& tokenizer);

}  // namespace pushpull

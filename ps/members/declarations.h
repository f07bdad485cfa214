// The model and the data of the job as its workers declare them: the first declaration is kept, and
// later ones must agree with it. In a later term of the run the first one must agree with that of
// the earlier terms. If the workers' programs have divided the model, the first declaration of each
// stage is kept, and the model is the tensors of all stages, one after the other. Part of the
// coordinator's state machine. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/layout/metric.h"
#include "common/layout/tensor_table.h"
#include "common/net/message.h"

namespace pushpull {

// The declaration with which a run first trained. Later terms of the run accept no other one.
// OUT/term.json holds it, without the numerics, for a coordinator that starts again. Plain data.
struct EarlierDeclaration {
  std::string model_sha256;  // of tensors and heads, in hex
  int64_t train_samples = 0;
  int64_t test_samples = 0;
  std::string data_digest;
  // Nothing: not compared. A coordinator that starts again may be on another host than before, with
  // its workers, and goes on as a resume does.
  std::optional<std::string> numerics;

  friend bool operator==(const EarlierDeclaration&, const EarlierDeclaration&) = default;
};

struct Job;

// The declaration of the first worker, or of the first one of each stage.
struct Declaration {
  TensorTable table;
  std::vector<HeadInfo> heads;
  int64_t train_samples = 0;
  int64_t test_samples = 0;
  std::string data_digest;
  std::string numerics;
  std::vector<std::string> other_numerics =
      {};                    // of later workers, where the job takes them; the first 16
  std::string choices;       // GPU algorithms; "" if there are none
  std::string tokenizer;     // tokenizer.json; "" if the data are no text
  bool own_weights = false;  // workers have initial weights of their own
  // The summary shows those of this worker; other workers may have others.
  int64_t arena_bytes = 0;
  int64_t slots = 0;

  friend bool operator==(const Declaration&, const Declaration&) = default;
};

// Returns the form in which later terms of the run compare this declaration.
EarlierDeclaration earlier_form(const Declaration& declaration);

class Declarations {
 public:
  //   earlier: of the run's earlier terms, if some term has trained.
  explicit Declarations(const Job& job, std::optional<EarlierDeclaration> earlier = {});

  // Compares the first declaration with that of the earlier terms, keeps it, and compares any later
  // one with it. Returns the difference, or "" if there is none. Throws Error(kProtocol) if the declaration is malformed, Error(kUsage) if job
  // and data do not fit together.
  std::string take(const wire::Declare& declare);
  // Returns a warning if this worker's numerics differ from the first worker's, the job allows
  // that, and the run could otherwise be repeated bit by bit. Returns "" if there is nothing to
  // warn of.
  std::string other_bits(const std::string& member, const wire::Declare& declare) const;
  // Forgets what only workers that are gone have declared.
  //   stages: declared by those that are left; of the whole model: 0.
  void keep(const std::set<int>& stages);
  // Replaces the algorithms by those of the checkpoint that a resumed run starts from.
  void set_choices(const std::string& choices) { first_.choices = choices; }

  // Returns true if the whole model is declared.
  bool complete() const { return std::ssize(parts_) == stages_; }
  // Returns true if each worker declares a stage of the model.
  bool by_stage() const { return stages_ > 1; }
  // Without tensors before `complete`.
  const Declaration& first() const { return first_; }
  // Returns the algorithms that all workers must use, or "" if each worker may choose its own
  // because kinds of devices may differ.
  std::string shared_choices() const { return same_bits_ ? first_.choices : ""; }

 private:
  // The part of a declaration that only the workers of one stage share.
  struct Part {
    TensorTable table;
    std::string digest;  // see wire::OwnStage
  };
  using Parts = std::map<int, Part>;  // by stage; the whole model is one

  static TensorTable joined(const Parts& parts);

  std::string add(int stage, Part part, const Declaration& got);
  // Return the difference from the declaration of the job, or "" if there is none.
  //   model: the difference of the models.
  std::string difference_of_division(const wire::Declare& declare) const;
  std::string difference_from_parts(int stage, const Part& got) const;
  std::string difference_from_first(const std::string& of_part, const Declaration& got) const;
  std::string difference_from_earlier(const Declaration& got) const;
  std::string difference_from(const EarlierDeclaration& want, const std::string& model,
                              const Declaration& got) const;
  void note_numerics(const std::string& numerics);
  std::string difference_of_data(const EarlierDeclaration& want, const Declaration& got) const;

  const Job& job_;
  const int64_t stages_;  // that workers declare one by one; 1: each declares the whole model
  const std::optional<EarlierDeclaration> earlier_;
  const bool same_bits_;  // all members must have the same numerics
  const bool would_be_repeatable_;
  Parts parts_;
  Declaration first_;
};

}  // namespace pushpull

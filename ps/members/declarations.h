// The model and the data of the job as its workers declare them: the first declaration holds, later
// ones must agree with it. Part of the coordinator's state machine; one thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/job/job.h"
#include "common/layout/tensor_table.h"
#include "common/net/message.h"

namespace pushpull {

// The declaration of the first worker.
struct Declaration {
  TensorTable table;
  int64_t train_samples = 0;
  int64_t test_samples = 0;
  std::string data_digest;
  std::string numerics;
  std::string choices;  // of GPU algorithms; "": none to choose
};

class Declarations {
 public:
  explicit Declarations(const Job& job);

  // Takes the first one, compares any other with it. Returns how this one differs; "": it fits.
  // Throws Error(kProtocol) for a declaration that no worker can mean, Error(kUsage) where job and
  // data do not fit together.
  std::string take(const wire::Declare& declare);
  // A line for people where this worker computes with other bits than the first one and the job
  // allows it, but would repeat otherwise; "": nothing to say.
  std::string other_bits(const std::string& member, const wire::Declare& declare) const;
  // Nobody is left who has declared: the next one is the first.
  void forget();
  // A resumed run goes on with the algorithms of its checkpoint.
  void set_choices(const std::string& choices) { first_.choices = choices; }

  bool any() const { return any_; }
  const Declaration& first() const { return first_; }
  // The algorithms that all workers must use; "": each chooses its own, since another kind of
  // device may compute.
  std::string shared_choices() const { return same_bits_ ? first_.choices : ""; }

 private:
  std::string difference_from_first(const wire::Declare& declare) const;

  const Job& job_;
  const bool same_bits_;  // all members must compute the same bits
  const bool would_be_repeatable_;
  bool any_ = false;
  Declaration first_;
};

}  // namespace pushpull

// Takes the weights that a run starts from from a worker, or from one of each stage if workers have
// declared stages, if the workers have initial weights of their own: asks for them in parts, repeats
// unanswered requests, and begins again with another worker if that one is gone. Part of the coordinator's state machine. The caller passes the time.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/io/sha256.h"
#include "common/layout/fixed_tree.h"
#include "common/layout/tensor_table.h"
#include "common/net/message.h"
#include "common/net/refusals.h"
#include "ps/members/membership.h"
#include "ps/server/outgoing.h"

namespace pushpull {

class OwnWeights {
 public:
  // slice_bytes: of the job; a part has at most as many bytes, and 64 KiB.
  explicit OwnWeights(int64_t slice_bytes);

  // Begins to take the weights of a model.
  void begin(const TensorTable& table);
  // Returns the requests that are due, to the worker with the lowest rank that has declared the
  // model, or its stage. Keeps to that worker while it is a member, and begins again with another one
  // if it is not.
  std::vector<Outgoing> ask(int64_t now_ms, const Membership& members);
  // Takes a part. Ignores one that has arrived before.
  //   from: the member that the message names; null if there is none.
  Checked take(int64_t now_ms, const MemberInfo* from, const Message& message);

  // Returns true once all weights have arrived. `error` is set if some of them are not finite: the
  // run cannot start.
  bool complete() const { return table_.total > 0 && hashed_ == table_.total; }
  const std::optional<Error>& error() const { return error_; }
  // Returns the elements that have arrived, without gaps. For deadlines.
  int64_t arrived() const { return hashed_; }
  // Returns the name of the worker that was asked last: "worker 0 (host, pid 123)"; "" before that.
  const std::string& giver() const { return giver_name_; }
  // Call each once, when the weights are complete.
  std::vector<float> take_weights() { return std::move(weights_); }
  std::string sha256() { return hash_->hex(); }

 private:
  struct Request {
    int64_t first_ms = 0;  // first sent
    int64_t sent_ms = 0;   // last sent
  };

  // The elements that one worker gives: all, or those of a stage.
  const Range& section() const { return sections_[section_]; }
  bool ask_from(const Membership& members);
  void restart();
  int64_t count_at(int64_t offset) const;
  void send(const PeerId& giver, int64_t offset, std::vector<Outgoing>& out) const;
  void pace(int64_t answered_after_ms);
  void check_finite(int64_t offset, int64_t count);
  void hash_arrived();

  const int64_t part_;  // elements of a request, at most
  TensorTable table_;
  std::vector<Range> sections_;
  size_t section_ = 0;         // that is being taken
  uint64_t giver_ = 0;         // incarnation of the worker that is asked
  std::set<uint64_t> givers_;  // those of earlier sections
  std::string giver_name_;
  std::vector<float> weights_;
  std::map<int64_t, Request> open_;  // unanswered, by offset
  int64_t next_ = 0;                 // no request has asked for elements from here on
  int64_t window_ = 1;               // requests that may be open
  int64_t repeat_ms_ = 0;            // after which a request is repeated
  int64_t hashed_ = 0;               // elements that are in hash_: all before the first gap
  std::optional<Sha256> hash_;
  std::optional<Error> error_;
};

}  // namespace pushpull

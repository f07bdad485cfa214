// The nonces of connections that a listener has admitted, so that a proof that was heard on the way
// admits no second connection. Keeps the newest `most`. One thread.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <unordered_set>

namespace pushpull {

class UsedNonces {
 public:
  explicit UsedNonces(size_t most = 65'536) : most_(most) {}

  // Returns false if `nonce` was added before and is still kept.
  bool add(const std::string& nonce) {
    if (!known_.insert(nonce).second) return false;
    order_.push_back(nonce);
    if (order_.size() <= most_) return true;
    known_.erase(order_.front());
    order_.pop_front();
    return true;
  }

 private:
  const size_t most_;
  std::unordered_set<std::string> known_;
  std::deque<std::string> order_;  // oldest first
};

}  // namespace pushpull

// allreduce:gloo. The ring of Gloo (github.com/facebookincubator/gloo), the library under PyTorch's
// DDP on CPUs, as the reference that `ring` is measured against. Gloo opens its own connections;
// their addresses are exchanged over ours.
#include <gloo/allreduce.h>
#include <gloo/common/error.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>

#include "common/base/error.h"
#include "common/net/address.h"
#include "worker/all_reduce/collective.h"

namespace pushpull {

namespace {

// Gloo's rendezvous: all workers can get a value that one of them sets. Each key contains its
// worker's rank.
class PeerStore : public ::gloo::rendezvous::Store {
 public:
  explicit PeerStore(Peers& peers)
      : peers_(peers), missing_(static_cast<size_t>(peers.size()), 1) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    values_[key] = data;
    for (int r = 0; r < peers_.size(); ++r) {
      if (r != peers_.rank())
        peers_.send_text(r, key + '\n' + std::string(data.begin(), data.end()));
    }
  }
  std::vector<char> get(const std::string& key) override {
    wait({key});
    return values_.at(key);
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) {
      while (!values_.contains(key)) take(peers_.receive_text(missing_));
    }
  }
  // receive_text has its own deadline
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& /*timeout*/) override {
    wait(keys);
  }

 private:
  void take(const Peers::Text& message) {
    const std::string& text = message.text;
    const size_t end = text.find('\n');
    if (end == std::string::npos) {
      peers_.refuse(message);
      return;
    }
    values_[text.substr(0, end)].assign(text.begin() + static_cast<std::ptrdiff_t>(end) + 1,
                                        text.end());
  }

  Peers& peers_;
  const std::vector<int64_t> missing_;
  std::map<std::string, std::vector<char>> values_;
};

class Gloo : public Collective {
 public:
  Gloo(Peers& peers, double timeout_s) : peers_(peers), timeout_s_(timeout_s) {}

  void sum(int64_t operation, const std::vector<SumPart>& parts, int64_t elements,
           const SumTarget& target) override;
  void abort() override;

 private:
  void connect();
  void reduce(const std::vector<SumPart>& parts, int64_t elements, float* out);
  void count(int64_t elements);

  // Long, because other workers may compute for any time. A lost worker closes its connections, or
  // the coordinator finds it and `abort` ends the wait. PyTorch has the same limit.
  static constexpr std::chrono::minutes kLimit{30};

  Peers& peers_;
  const double timeout_s_;
  int64_t operation_ = 0;
  std::mutex mutex_;  // guards context_ and aborted_
  std::shared_ptr<::gloo::rendezvous::Context> context_;
  bool aborted_ = false;
};

void Gloo::connect() {
  ::gloo::transport::tcp::attr attr(parse_address(peers_.endpoint(), "listen").host.c_str());
  std::shared_ptr<::gloo::transport::Device> device = ::gloo::transport::tcp::CreateDevice(attr);
  auto context = std::make_shared<::gloo::rendezvous::Context>(peers_.rank(), peers_.size());
  context->setTimeout(std::chrono::milliseconds(static_cast<int64_t>(timeout_s_ * 1000)));
  PeerStore store(peers_);
  context->connectFullMesh(store, device);
  const std::lock_guard lock(mutex_);
  if (aborted_) throw JobOver{};
  context_ = std::move(context);
}

void Gloo::reduce(const std::vector<SumPart>& parts, int64_t elements, float* out) {
  ::gloo::AllreduceOptions options(context_);
  const auto count = static_cast<size_t>(elements);
  if (parts.size() == 1) {
    options.setInput(const_cast<float*>(parts[0].floats), count);
  } else {
    add_floats(parts[0].floats, parts[1].floats, elements, out);
    for (size_t i = 2; i < parts.size(); ++i) add_floats(out, parts[i].floats, elements, out);
  }
  options.setOutput(out, count);
  void (*add)(void*, const void*, const void*, size_t) = &::gloo::sum<float>;
  options.setReduceFunction(add);
  options.setAlgorithm(::gloo::AllreduceOptions::Algorithm::RING);
  options.setTag(static_cast<uint32_t>(operation_));
  options.setTimeout(kLimit);
  ::gloo::allreduce(options);
}

// Gloo does not report its traffic: counts the bytes that the algorithm must move.
void Gloo::count(int64_t elements) {
  const int n = peers_.size();
  const int64_t bytes = int64_t{2} * (n - 1) * elements * 4 / n;
  peers_.count_bytes(bytes, bytes);
}

void Gloo::sum(int64_t operation, const std::vector<SumPart>& parts, int64_t elements,
               const SumTarget& target) {
  PP_ASSERT(!parts.empty() && elements > 0);
  operation_ = operation;
  peers_.begin(operation);
  if (peers_.size() == 1 && parts.size() == 1) {
    std::copy_n(parts[0].floats, elements, target.floats);
    return;
  }
  try {
    if (peers_.size() > 1 && !context_) connect();
    reduce(parts, elements, target.floats);
  } catch (const ::gloo::Exception& e) {
    peers_.wait_for_the_coordinator();
    throw Error(ErrorCode::kUnreachable,
                "[all-reduce] Gloo in operation " + std::to_string(operation) + ": " + e.what());
  }
  count(elements);
}

void Gloo::abort() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(aborted_, true) || !context_) return;
  context_->closeConnections();
}

}  // namespace

bool has_gloo() { return true; }

std::unique_ptr<Collective> make_gloo(Peers& peers, double timeout_s) {
  return std::make_unique<Gloo>(peers, timeout_s);
}

}  // namespace pushpull

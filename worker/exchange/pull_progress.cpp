#include "worker/exchange/pull_progress.h"

#include <algorithm>

namespace pushpull {

namespace {

constexpr int kMostMissing = 4096;  // slices named in one repeated pull

}  // namespace

PullProgress::PullProgress(const ConnectionMap& connections, WeightsBuffer& weights)
    : connections_(connections),
      weights_(weights),
      servers_(static_cast<size_t>(connections.servers())) {}

void PullProgress::begin(const PullAim& aim) {
  aim_ = aim;
  weights_.expect();
  for (int server = 0; server < connections_.servers(); ++server) {
    servers_[static_cast<size_t>(server)] = {static_cast<int>(connections_.slices(server).size()),
                                             -1, aim.at_barrier};
  }
}

PullProgress::Taken PullProgress::take(int server, const wire::Weights& weights,
                                       const std::vector<Payload>& payloads, bool in_place) {
  Server& from = servers_[static_cast<size_t>(server)];
  Taken taken = kNone;
  for (int i = 0; i < weights.slices_size(); ++i) {
    const wire::SliceVersion& entry = weights.slices(i);
    const Payload& payload = payloads[static_cast<size_t>(i)];
    if (!is_of_use(server, entry, payload)) continue;
    if (!weights_.place(entry.slice(), entry.version(), payload, in_place)) return kApart;
    taken = kSome;
    from.at_barrier = from.at_barrier && weights.at_barrier();
    --from.missing;
  }
  return taken;
}

bool PullProgress::is_of_use(int server, const wire::SliceVersion& entry, const Payload& payload) {
  const SliceMap& map = connections_.map();
  if (entry.slice() < 0 || entry.slice() >= map.slices()) return false;
  if (map.server_of(entry.slice()) != server || entry.version() < 0) return false;
  if (!weights_.fits(entry.slice(), payload)) return false;
  if (aim_.versions == PullAim::kPerServer && !is_one_version(server, entry.version())) {
    return false;
  }
  if (weights_.has(entry.slice())) return false;
  return aim_.versions != PullAim::kExact || entry.version() == aim_.clock;
}

// A push must be able to say what it was computed on, so all slices of a server are of one version.
// If the answer to a repeated pull brings a newer version than the rest of the answer before, that
// rest is forgotten.
bool PullProgress::is_one_version(int server, int64_t version) {
  Server& from = servers_[static_cast<size_t>(server)];
  if (version == from.version) return true;
  // complete, or overtaken on its way
  if (from.missing == 0 || version < from.version) return false;
  const std::vector<int>& slices = connections_.slices(server);
  for (const int slice : slices) weights_.forget(slice);
  from = {static_cast<int>(slices.size()), version, aim_.at_barrier};
  return true;
}

void PullProgress::put_missing(int server, int connection, wire::Pull* pull) const {
  pull->clear_missing();
  for (const int slice : connections_.slices(server)) {
    if (connections_.of_slice(slice) != connection || weights_.has(slice)) continue;
    if (pull->missing_size() == kMostMissing) break;
    pull->add_missing(slice);
  }
}

bool PullProgress::at_barrier() const {
  if (!aim_.at_barrier) return false;
  for (int server = 0; server < connections_.servers(); ++server) {
    if (!connections_.slices(server).empty() && !at(server).at_barrier) return false;
  }
  return true;
}

}  // namespace pushpull

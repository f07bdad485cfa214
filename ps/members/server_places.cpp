#include "ps/members/server_places.h"

#include <algorithm>

#include "common/job/job.h"

namespace pushpull {

ServerPlaces::ServerPlaces(const Job& job, int servers, const Membership& members)
    : job_(job), places_(static_cast<size_t>(servers)) {
  for (int rank = 0; rank < servers; ++rank) {
    places_[static_cast<size_t>(rank)].port =
        members.find_rank(wire::ROLE_SERVER, rank)->data_port();
  }
}

void ServerPlaces::copied(int64_t step, int64_t updates) {
  copied_step_ = step;
  copied_updates_ = updates;
}

bool ServerPlaces::any_absent() const {
  return std::any_of(places_.begin(), places_.end(), [](const Place& p) { return p.absent; });
}

bool ServerPlaces::lost_worker(int64_t floor) {
  lost_pushes_ = std::max(lost_pushes_, floor);
  return !any_absent() && copied_step_ >= replayed_;
}

bool ServerPlaces::lost_server(int64_t now_ms, int rank, int64_t floor) {
  const bool kept = job_.copy_distance() > 0 && copied_step_ >= 0 && copied_step_ > lost_pushes_;
  Place& place = places_[static_cast<size_t>(rank)];
  place.gone = rank == 0 || !kept;
  if (place.gone) return false;
  if (!place.absent) place.since_ms = now_ms;
  place.absent = true;
  place.newcomer = 0;
  replayed_ = std::max(replayed_, floor + 1);
  return true;
}

std::optional<int> ServerPlaces::take_joined(const Membership& members) {
  for (size_t rank = 0; rank < places_.size(); ++rank) {
    Place& place = places_[rank];
    if (!place.absent || place.newcomer != 0) continue;
    const MemberInfo* const server = members.find_rank(wire::ROLE_SERVER, static_cast<int>(rank));
    if (server == nullptr) continue;
    place.newcomer = server->incarnation;
    place.new_port = server->data_port();
    place.from_step = copied_step_;
    place.from_updates = copied_updates_;
    return static_cast<int>(rank);
  }
  return std::nullopt;
}

void ServerPlaces::loaded(uint64_t incarnation) {
  for (Place& place : places_) {
    if (!place.absent || place.newcomer != incarnation) continue;
    place.absent = false;
    ++place.life;
    ++recovered_;
    place.port = place.new_port;
  }
}

std::string ServerPlaces::overdue(int64_t now_ms) const {
  const auto timeout_ms = static_cast<int64_t>(job_.replacement_timeout_s * 1000);
  for (size_t rank = 0; rank < places_.size(); ++rank) {
    const Place& place = places_[rank];
    if (!place.absent || now_ms - place.since_ms <= timeout_ms) continue;
    return "[job] " +
           std::string(place.newcomer == 0 ? "no server has taken the place of server "
                                           : "no weights could be loaded into the new server ") +
           std::to_string(rank) + " within replacement-timeout = " + seconds_text(timeout_ms) +
           " s";
  }
  return "";
}

bool ServerPlaces::is_settled(const MemberInfo& server) const {
  if (server.rank < 0) return true;
  const Place& place = places_[static_cast<size_t>(server.rank)];
  return !place.absent || place.newcomer == server.incarnation;
}

void ServerPlaces::add_to_state(wire::State* state) const {
  for (const Place& place : places_) {
    state->add_data_endpoints(place.port.endpoint);
    state->add_data_listeners(place.port.listener);
  }
  for (size_t rank = 0; rank < places_.size(); ++rank) {
    const bool lost = places_[rank].absent || places_[rank].gone;
    if (lost) state->mutable_places()->add_absent(static_cast<int32_t>(rank));
  }
  if (job_.copy_distance() == 0) return;
  wire::Places* const out = state->mutable_places();
  for (const Place& place : places_) out->add_lives(place.life);
  out->set_copied_step(std::max<int64_t>(copied_step_, 0));
}

void ServerPlaces::add_start_to(wire::State* state, const MemberInfo& server) const {
  if (server.rank < 0) return;
  const Place& place = places_[static_cast<size_t>(server.rank)];
  if (place.newcomer != server.incarnation) return;
  state->set_start_step(place.from_step);
  state->set_updates(place.from_updates);
  state->set_load(true);
  state->mutable_places()->set_replays(true);
}

}  // namespace pushpull

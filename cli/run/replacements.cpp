#include "cli/run/replacements.h"

#include <algorithm>
#include <utility>

namespace pushpull {

void Replacements::started(size_t slot) {
  Slot& of = all_[slot];
  of.given_up = false;
  of.ended_well = false;
  of.kill_ms.reset();
  of.pending.reset();
}

bool Replacements::ended(size_t slot, const Ending& ending, int64_t now_ms) {
  Slot& of = all_[slot];
  of.kill_ms.reset();
  const bool asked = ending.was_asked_for();
  if (of.given_up || (ending.signal != 0 && !asked)) return true;
  const int64_t wait_ms = asked ? options_.together_ms : options_.report_ms;
  of.pending = {slot, ending, now_ms + wait_ms, asked};
  return false;
}

bool Replacements::ended_well(size_t slot) {
  forget(slot);
  all_[slot].ended_well = true;
  return all_[slot].given_up;
}

std::optional<Replacements::Pending> Replacements::given_up(size_t slot, bool alive,
                                                            int64_t now_ms) {
  Slot& of = all_[slot];
  of.given_up = true;
  if (alive) of.kill_ms = now_ms + options_.leave_ms;
  if (of.ended_well) return Pending{.slot = slot, .ending = {}};
  return std::exchange(of.pending, std::nullopt);
}

std::string Replacements::count(size_t slot) {
  return "starting a replacement, " + std::to_string(++all_[slot].made) + " of at most " +
         std::to_string(options_.most);
}

std::optional<size_t> Replacements::take_kill(int64_t now_ms) {
  for (size_t slot = 0; slot < all_.size(); ++slot) {
    if (!all_[slot].kill_ms || now_ms < *all_[slot].kill_ms) continue;
    all_[slot].kill_ms.reset();
    return slot;
  }
  return std::nullopt;
}

std::optional<Replacements::Pending> Replacements::take_due(int64_t now_ms) {
  for (Slot& of : all_) {
    if (of.pending && now_ms >= of.pending->until_ms) {
      return std::exchange(of.pending, std::nullopt);
    }
  }
  return std::nullopt;
}

std::vector<Replacements::Pending> Replacements::take_all() {
  std::vector<Pending> out;
  for (Slot& of : all_) {
    if (of.pending) out.push_back(*std::exchange(of.pending, std::nullopt));
  }
  return out;
}

std::vector<size_t> Replacements::replaced_from(size_t first) const {
  std::vector<size_t> out;
  for (size_t slot = first; slot < all_.size(); ++slot) {
    if (any(slot)) out.push_back(slot);
  }
  return out;
}

bool Replacements::pending() const {
  return std::any_of(all_.begin(), all_.end(),
                     [](const Slot& of) { return of.pending.has_value(); });
}

std::optional<int64_t> Replacements::deadline_ms(std::optional<int64_t> other_ms) const {
  std::optional<int64_t> first = other_ms;
  const auto add = [&first](int64_t ms) { first = std::min(first.value_or(ms), ms); };
  for (const Slot& of : all_) {
    if (of.kill_ms) add(*of.kill_ms);
    if (of.pending) add(of.pending->until_ms);
  }
  return first;
}

}  // namespace pushpull

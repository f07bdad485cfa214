#include "cli/status/top_job.h"

#include <utility>

#include "common/base/text.h"

namespace pushpull {

namespace {

using nlohmann::ordered_json;

constexpr int64_t kSilentMs = 3'000;  // without an answer, before users are told
constexpr int64_t kGiveUpMs = 5'000;
constexpr int64_t kNewsMs = 30'000;  // how long users can read it

// Returns what has changed between two answers, or "".
std::string change_between(const ordered_json& before, const ordered_json& now) {
  const auto coordinator = [](const ordered_json& d) {
    return d.value("host", "") + ", pid " + std::to_string(d.value("pid", int64_t{0}));
  };
  if (coordinator(before) != coordinator(now)) {
    return "the coordinator has been restarted: now " + coordinator(now) + ", before " +
           coordinator(before);
  }
  if (before.value("run", "") == now.value("run", "")) return "";
  return "a server was lost: the job has gone back to a checkpoint, as run " + now.value("run", "");
}

bool is_over(const std::optional<ordered_json>& document) {
  if (!document) return false;
  const std::string phase = document->value("phase", "");
  return phase == "finishing" || phase == "finished" || phase == "failed";
}

}  // namespace

bool TopJob::ask(int64_t now_ms) {
  if (asked_ms_ || now_ms < next_ms_) return false;
  asked_ms_ = now_ms;
  if (silent_since_ms_ < 0) silent_since_ms_ = now_ms;
  return true;
}

bool TopJob::give_up(int64_t now_ms) {
  if (!asked_ms_ || now_ms - *asked_ms_ < kGiveUpMs) return false;
  asked_ms_.reset();
  next_ms_ = now_ms;
  return true;
}

void TopJob::answered(int64_t now_ms, ordered_json document) {
  asked_ms_.reset();
  next_ms_ = now_ms + interval_ms_;
  silent_since_ms_ = now_ms;
  why_.clear();
  if (document_) {
    if (const std::string news = change_between(*document_, document); !news.empty()) {
      news_ = news;
      news_ms_ = now_ms;
    }
  }
  document_ = std::move(document);
}

void TopJob::failed(int64_t now_ms, const std::string& why) {
  asked_ms_.reset();
  next_ms_ = now_ms + interval_ms_;
  why_ = why;
}

std::string TopJob::trouble(int64_t now_ms) const {
  if (!why_.empty()) return why_ + "; asking again";
  const int64_t silent_ms = silent_since_ms_ < 0 ? 0 : now_ms - silent_since_ms_;
  if (silent_ms - (document_ ? interval_ms_ : 0) >= kSilentMs) {
    return "no answer for " + clock_text(static_cast<double>(silent_ms) / 1000.0) +
           (is_over(document_) ? ": the job has ended"
            : document_        ? ": the coordinator is gone or restarting"
                               : ": no coordinator there yet") +
           "; asking again";
  }
  return !news_.empty() && now_ms - news_ms_ < kNewsMs ? news_ : "";
}

}  // namespace pushpull

#include "ps/report/transfer_watch.h"

#include <utility>

#include "common/base/error.h"
#include "ps/members/membership.h"

namespace pushpull {

namespace {

constexpr int64_t kNoticeAfterMs = 10'000;
constexpr int64_t kNoticeIntervalMs = 30'000;
constexpr int64_t kMinBytesPerMs = 10'000;

}  // namespace

TransferWatch::TransferWatch(double timeout_s, std::string tag)
    : timeout_ms_(static_cast<int64_t>(timeout_s * 1000)), tag_(std::move(tag)) {}

void TransferWatch::running(int64_t now_ms, const std::string& what, int64_t moved, int64_t bytes) {
  if (what == what_ && moved == moved_) return;
  what_ = what;
  moved_ = moved;
  since_ms_ = now_ms;
  allowance_ms_ = bytes / kMinBytesPerMs;
  notice_ms_ = -1;
}

std::string TransferWatch::text(int64_t now_ms) const {
  return "server 0 has waited " + seconds_text(waited_ms(now_ms)) + " s for " + what_;
}

std::optional<std::string> TransferWatch::take_notice(int64_t now_ms) {
  if (what_.empty() || waited_ms(now_ms) <= kNoticeAfterMs + allowance_ms_) return std::nullopt;
  if (notice_ms_ >= 0 && now_ms - notice_ms_ < kNoticeIntervalMs) return std::nullopt;
  notice_ms_ = now_ms;
  return text(now_ms);
}

bool TransferWatch::overdue(int64_t now_ms) const {
  return !what_.empty() && timeout_ms_ > 0 && waited_ms(now_ms) > timeout_ms_ + allowance_ms_;
}

std::string TransferWatch::overdue_text(int64_t now_ms) const {
  return tag_ + " " + text(now_ms) + " (progress-timeout = " + seconds_text(timeout_ms_) + ")";
}

FileStep FileWatch::end() {
  PP_ASSERT(step_);
  watch_.idle();
  return *std::exchange(step_, std::nullopt);
}

}  // namespace pushpull

#include "cli/link/link_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <string_view>

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

using Kind = LinkCommand::Kind;

constexpr int64_t kRoundUs = 50;
constexpr double kMaxDelayMs = 60'000;
constexpr double kMaxRateMbit = 1e6;
constexpr double kBucketSeconds = 0.01;
constexpr double kMinBucket = 16384;
constexpr size_t kMinBuffer = size_t{4} << 20;
constexpr size_t kMaxBuffer = size_t{256} << 20;
constexpr double kTenGigabit = 1.25e9;  // in bytes per second

// A command's word, its kind, and how many numbers follow.
struct Known {
  std::string_view word;
  Kind kind;
  size_t least;
  size_t most;
};
constexpr std::array<Known, 12> kKnown = {{{"delay", Kind::kDelay, 1, 2},
                                           {"rate", Kind::kRate, 1, 1},
                                           {"hold", Kind::kHold, 0, 0},
                                           {"release", Kind::kRelease, 0, 0},
                                           {"oneway", Kind::kOneway, 1, 1},
                                           {"drop", Kind::kDrop, 1, 1},
                                           {"reset", Kind::kReset, 0, 0},
                                           {"refuse", Kind::kRefuse, 0, 0},
                                           {"accept", Kind::kAccept, 0, 0},
                                           {"corrupt", Kind::kCorrupt, 1, 1},
                                           {"truncate", Kind::kTruncate, 0, 0},
                                           {"quit", Kind::kQuit, 0, 0}}};

Error unknown(const std::string& text) {
  return {ErrorCode::kUsage,
          "[proxy] '" + printable(text) +
              "' is not a command; known: delay MS [JITTER], rate MBIT, hold, release, "
              "oneway up|down, drop SECONDS, reset, refuse, accept, corrupt N, truncate, quit"};
}

double max_of(Kind kind) {
  switch (kind) {
    case Kind::kDelay:
      return kMaxDelayMs;
    case Kind::kRate:
      return kMaxRateMbit;
    case Kind::kDrop:
      return 3600;
    default:
      return 1e9;
  }
}

}  // namespace

LinkCommand parse_link_command(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) {
    words.push_back(word);
  }
  const auto* const known = std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& one) {
    return !words.empty() && one.word == words.front();
  });
  if (known == kKnown.end() || words.size() - 1 < known->least || words.size() - 1 > known->most) {
    throw unknown(text);
  }
  LinkCommand command{.kind = known->kind};
  if (command.kind == Kind::kOneway) {
    if (words[1] != "up" && words[1] != "down") {
      throw unknown(text);
    }
    command.way = words[1] == "up" ? Way::kUp : Way::kDown;
    return command;
  }
  for (size_t i = 1; i < words.size(); ++i) {
    const std::optional<double> value = parse_real(words[i]);
    const bool whole = command.kind != Kind::kCorrupt || (value && *value == std::floor(*value));
    if (!value || *value < 0 || *value > max_of(command.kind) || !whole) {
      throw Error(ErrorCode::kUsage, "[proxy] '" + printable(text) + "': " + printable(words[i]) +
                                         " must be a number from 0 to " +
                                         print_real(max_of(command.kind)));
    }
    (i == 1 ? command.value : command.jitter) = *value;
  }
  return command;
}

std::vector<TimedCommand> parse_link_script(const std::string& text) {
  std::vector<TimedCommand> script;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::string command(trim(std::string_view(line).substr(0, line.find('#'))));
    if (command.empty()) {
      continue;
    }
    const size_t space = command.find_first_of(" \t");
    const std::optional<double> at =
        command.front() == '+' && space != std::string::npos
            ? parse_real(std::string_view(command).substr(1, space - 1))
            : std::nullopt;
    if (!at || *at < 0 || *at > 1e6) {
      throw Error(ErrorCode::kUsage, "[proxy] script line '" + printable(line) +
                                         "': must be +SECONDS COMMAND, such as +2.5 hold");
    }
    const std::string rest = command.substr(space + 1);
    script.push_back({static_cast<int64_t>(*at * 1e6), parse_link_command(rest), rest});
  }
  std::stable_sort(script.begin(), script.end(),
                   [](const TimedCommand& a, const TimedCommand& b) { return a.at_us < b.at_us; });
  return script;
}

LinkModel::Then LinkModel::apply(const LinkCommand& command, int64_t now_us) {
  switch (command.kind) {
    case Kind::kDelay:
      delay_us_ = command.value * 1e3;
      jitter_us_ = command.jitter * 1e3;
      break;
    case Kind::kRate:
      rate_ = command.value * 1e6 / 8;
      buckets_ = {Bucket{0.0, now_us}, Bucket{0.0, now_us}};
      break;
    case Kind::kHold:
      open_ = {false, false};
      break;
    case Kind::kRelease:
      open_ = {true, true};
      drop_end_us_.reset();
      break;
    case Kind::kOneway:
      open_[static_cast<size_t>(command.way)] = false;
      break;
    case Kind::kDrop:
      open_ = {false, false};
      drop_end_us_ = now_us + static_cast<int64_t>(command.value * 1e6);
      break;
    case Kind::kReset:
      return Then::kResetAll;
    case Kind::kRefuse:
      refusing_ = true;
      return Then::kResetAll;
    case Kind::kAccept:
      refusing_ = false;
      break;
    case Kind::kCorrupt:
      corrupt_ = static_cast<uint64_t>(command.value);
      break;
    case Kind::kTruncate:
      truncate_ = true;
      break;
    case Kind::kQuit:
      return Then::kQuit;
  }
  return Then::kNothing;
}

LinkModel::Then LinkModel::tick(int64_t now_us) {
  if (!drop_end_us_ || now_us < *drop_end_us_) {
    return Then::kNothing;
  }
  drop_end_us_.reset();
  open_ = {true, true};
  return Then::kResetAll;
}

int64_t LinkModel::draw_delay_us() {
  double delay = delay_us_;
  if (jitter_us_ > 0) {
    delay += std::uniform_real_distribution<double>(-jitter_us_, jitter_us_)(random_);
  }
  return std::max<int64_t>(0, std::llround(delay));
}

size_t LinkModel::buffer_bytes() const {
  const double in_flight = (delay_us_ + jitter_us_) / 1e6 * kTenGigabit;
  return std::min(kMaxBuffer, kMinBuffer + static_cast<size_t>(in_flight));
}

double LinkModel::depth() const { return std::max(kMinBucket, rate_ * kBucketSeconds); }

// A piece has at least min(waiting, 16 KiB): a link does not send single bytes of a long message.
size_t LinkModel::allowance(Way way, size_t waiting, int64_t now_us) {
  if (rate_ == 0) {
    return waiting;
  }
  Bucket& bucket = buckets_[static_cast<size_t>(way)];
  const auto passed = static_cast<double>(now_us - bucket.filled_us);
  bucket.tokens = std::min(depth(), bucket.tokens + passed * rate_ / 1e6);
  bucket.filled_us = now_us;
  const double least = std::min(static_cast<double>(waiting), kMinBucket);
  // Times are whole microseconds; a missing fraction of a byte must not cost another turn.
  const auto whole = static_cast<size_t>(std::max(0.0, std::ceil(bucket.tokens - 0.5)));
  return static_cast<double>(whole) < std::floor(least) ? 0 : std::min(waiting, whole);
}

int64_t LinkModel::next_allowance_us(Way way, size_t waiting) const {
  const Bucket& bucket = buckets_[static_cast<size_t>(way)];
  const double lacking = std::min(static_cast<double>(waiting), kMinBucket) - bucket.tokens;
  return bucket.filled_us + static_cast<int64_t>(std::ceil(std::max(0.0, lacking) / rate_ * 1e6));
}

void LinkModel::sent(Way way, size_t bytes) {
  buckets_[static_cast<size_t>(way)].tokens -= static_cast<double>(bytes);
}

std::optional<size_t> LinkModel::draw_corrupt_bit(size_t bytes) {
  if (corrupt_ == 0 || bytes == 0) {
    return std::nullopt;
  }
  --corrupt_;
  return std::uniform_int_distribution<size_t>(0, bytes * 8 - 1)(random_);
}

int64_t DelayLine::due_time(int64_t now_us, int64_t delay_us) const {
  const int64_t rounded =
      delay_us == 0 ? now_us : (now_us + delay_us + kRoundUs - 1) / kRoundUs * kRoundUs;
  return std::max(last_due_us_, rounded);
}

void DelayLine::arrive(size_t bytes, int64_t now_us, int64_t delay_us) {
  // Without delay, all past entries merge into one, since they are due.
  last_due_us_ = due_time(now_us, delay_us);
  if (!marks_.empty() &&
      (marks_.back().due_us == last_due_us_ || (delay_us == 0 && marks_.back().due_us <= now_us))) {
    marks_.back().bytes += bytes;
  } else {
    marks_.push_back({last_due_us_, bytes});
  }
  waiting_ += bytes;
}

size_t DelayLine::due(int64_t now_us, size_t most) const {
  size_t bytes = 0;
  for (const Mark& mark : marks_) {
    if (mark.due_us > now_us || bytes >= most) {
      break;
    }
    bytes += mark.bytes;
  }
  return std::min(bytes, most);
}

std::optional<int64_t> DelayLine::next_us() const {
  return marks_.empty() ? std::nullopt : std::optional<int64_t>(marks_.front().due_us);
}

void DelayLine::leave(size_t bytes) {
  PP_ASSERT(bytes <= waiting_);
  waiting_ -= bytes;
  while (bytes > 0) {
    Mark& mark = marks_.front();
    const size_t part = std::min(bytes, mark.bytes);
    mark.bytes -= part;
    bytes -= part;
    if (mark.bytes == 0) {
      marks_.pop_front();
    }
  }
}

}  // namespace pushpull

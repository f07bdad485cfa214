// How a network link behaves, for the proxy that plays one: when which bytes may go on. A state
// machine without sockets or clock: time is an argument, in microseconds of a clock that never
// jumps. One thread.
//   up: from who connects to who listens; down: the way back.
// The set of commands is that of toxiproxy and tc-netem(8), as far as a proxy of TCP can have it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace pushpull {

enum class Way { kUp = 0, kDown = 1 };

struct LinkCommand {
  enum class Kind {
    kDelay,     // value, jitter: milliseconds, each way
    kRate,      // value: Mbit/s of all connections together, each way; 0: unlimited
    kHold,      // nothing goes on any more, connections stay: a partition
    kRelease,   // all goes on again
    kOneway,    // holds one way
    kDrop,      // value: seconds of hold, then reset and release
    kReset,     // RST to both ends of every connection
    kRefuse,    // that, and to every later connection at once
    kAccept,    // the end of refuse
    kCorrupt,   // value: how many of the next pieces that go on get one bit flipped
    kTruncate,  // half of the next piece goes on, then RST
    kQuit,
  };
  Kind kind = Kind::kQuit;
  double value = 0.0;
  double jitter = 0.0;
  Way way = Way::kUp;
};

// "delay 20 5", "oneway up", ... Throws Error(kUsage) naming the text and what is known.
LinkCommand parse_link_command(const std::string& text);

// A command and its time since the start.
struct TimedCommand {
  int64_t at_us = 0;
  LinkCommand command;
  std::string text;
};

// Lines "+SECONDS COMMAND"; # begins a comment. In the order of their times. Throws Error(kUsage)
// naming the line.
std::vector<TimedCommand> parse_link_script(const std::string& text);

// What all connections of a proxy share.
class LinkModel {
 public:
  explicit LinkModel(uint64_t seed) : random_(seed) {}

  enum class Then { kNothing, kResetAll, kQuit };
  Then apply(const LinkCommand& command, int64_t now_us);
  // What time brings: the end of `drop`.
  Then tick(int64_t now_us);
  std::optional<int64_t> next_tick_us() const { return drop_end_us_; }

  bool refusing() const { return refusing_; }
  bool open(Way way) const { return open_[static_cast<size_t>(way)]; }

  // The delay of bytes that come in now; 0: none.
  int64_t draw_delay_us();
  // The most that one direction of one connection holds before its sender has to wait: 4 MiB, and
  // what 10 Gbit/s carry in the time of delay and jitter, but not above 256 MiB.
  size_t buffer_bytes() const;

  // Bytes of the rate that may go now, of `waiting` that want to (a token bucket of 10 ms).
  size_t allowance(Way way, size_t waiting, int64_t now_us);
  // When more may go, where allowance() said 0.
  int64_t next_allowance_us(Way way, size_t waiting) const;
  void sent(Way way, size_t bytes);

  // The bit to flip in a piece that goes on now; empty: none.
  std::optional<size_t> draw_corrupt_bit(size_t bytes);
  bool take_truncation() { return std::exchange(truncate_, false); }

 private:
  struct Bucket {
    double tokens = 0.0;  // bytes
    int64_t filled_us = 0;
  };
  double depth() const;  // of a bucket, in bytes

  std::mt19937_64 random_;
  double delay_us_ = 0.0;
  double jitter_us_ = 0.0;
  double rate_ = 0.0;  // bytes a second; 0: unlimited
  std::array<Bucket, 2> buckets_;
  std::array<bool, 2> open_{true, true};
  bool refusing_ = false;
  bool truncate_ = false;
  uint64_t corrupt_ = 0;
  std::optional<int64_t> drop_end_us_;
};

// When the bytes in one direction of one connection are due. First in, first out, whatever jitter
// says. Times are rounded up to 50 us, so that many small messages need no mark each.
class DelayLine {
 public:
  void arrive(size_t bytes, int64_t now_us, int64_t delay_us);
  // Bytes that are due, or `most` where there are more.
  size_t due(int64_t now_us, size_t most) const;
  // When the first bytes are due; empty: there are none.
  std::optional<int64_t> next_us() const;
  void leave(size_t bytes);
  size_t waiting() const { return waiting_; }
  // When what comes now would be due.
  int64_t due_time(int64_t now_us, int64_t delay_us) const;

 private:
  struct Mark {
    int64_t due_us;
    size_t bytes;
  };
  std::deque<Mark> marks_;
  size_t waiting_ = 0;
  int64_t last_due_us_ = 0;
};

}  // namespace pushpull

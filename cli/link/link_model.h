// Models a network link for the proxy that emulates it: decides which bytes may pass when. A state
// machine without sockets or clock: time is an argument, in microseconds of a monotonic clock. One
// thread.
//   up: from the connecting to the listening side.
//   down: the opposite direction.
// The commands follow toxiproxy and tc-netem(8), as far as a TCP proxy can support them.
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
    kRate,      // value: Mbit/s of all connections together, each way; 0 = unlimited
    kHold,      // nothing passes, connections stay open: a partition
    kRelease,   // ends kHold
    kOneway,    // holds one direction
    kDrop,      // value: seconds of hold, then reset and release
    kReset,     // RST to both ends of every connection
    kRefuse,    // as kReset, and resets every later connection at once
    kAccept,    // ends kRefuse
    kCorrupt,   // value: number of next pieces in which one bit is flipped
    kTruncate,  // passes half of the next piece, then RST
    kQuit,
  };
  Kind kind = Kind::kQuit;
  double value = 0.0;
  double jitter = 0.0;
  Way way = Way::kUp;
};

// Parses "delay 20 5", "oneway up", ... Throws Error(kUsage) with the text and the known commands.
LinkCommand parse_link_command(const std::string& text);

// A command and its time since the proxy's start.
struct TimedCommand {
  int64_t at_us = 0;
  LinkCommand command;
  std::string text;
};

// Parses lines "+SECONDS COMMAND"; # starts a comment. Returns them sorted by time. Throws
// Error(kUsage) with the line.
std::vector<TimedCommand> parse_link_script(const std::string& text);

// The state shared by all connections of a proxy.
class LinkModel {
 public:
  explicit LinkModel(uint64_t seed) : random_(seed) {}

  enum class Then { kNothing, kResetAll, kQuit };
  Then apply(const LinkCommand& command, int64_t now_us);
  // Applies timed changes that are due: the end of `drop`.
  Then tick(int64_t now_us);
  std::optional<int64_t> next_tick_us() const { return drop_end_us_; }

  bool refusing() const { return refusing_; }
  bool open(Way way) const { return open_[static_cast<size_t>(way)]; }

  // Returns the delay of bytes that arrive now, in microseconds; 0 = none.
  int64_t draw_delay_us();
  // Returns how much one direction of a connection may buffer before its sender must wait: 4 MiB
  // plus the bytes that 10 Gbit/s carry during delay and jitter, at most 256 MiB.
  size_t buffer_bytes() const;

  // Returns how many of `waiting` bytes may pass now under the rate (a token bucket of 10 ms).
  size_t allowance(Way way, size_t waiting, int64_t now_us);
  // Returns when more bytes may pass. Call after allowance() returned 0.
  int64_t next_allowance_us(Way way, size_t waiting) const;
  void sent(Way way, size_t bytes);

  // Returns the bit to flip in a piece that passes now, or empty for none.
  std::optional<size_t> draw_corrupt_bit(size_t bytes);
  bool take_truncation() { return std::exchange(truncate_, false); }

 private:
  struct Bucket {
    double tokens = 0.0;  // in bytes
    int64_t filled_us = 0;
  };
  double depth() const;  // of a bucket, in bytes

  std::mt19937_64 random_;
  double delay_us_ = 0.0;
  double jitter_us_ = 0.0;
  double rate_ = 0.0;  // bytes per second; 0 = unlimited
  std::array<Bucket, 2> buckets_;
  std::array<bool, 2> open_{true, true};
  bool refusing_ = false;
  bool truncate_ = false;
  uint64_t corrupt_ = 0;
  std::optional<int64_t> drop_end_us_;
};

// The bytes of one direction of a connection, with the times when they are due. Strictly first in,
// first out, whatever the jitter. Times are rounded up to 50 us, so that many small messages share
// an entry.
class DelayLine {
 public:
  void arrive(size_t bytes, int64_t now_us, int64_t delay_us);
  // Returns the number of bytes that are due, at most `most`.
  size_t due(int64_t now_us, size_t most) const;
  // Returns when the first bytes are due, or empty if the queue is empty.
  std::optional<int64_t> next_us() const;
  void leave(size_t bytes);
  size_t waiting() const { return waiting_; }
  // Returns when bytes that arrive now would be due.
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

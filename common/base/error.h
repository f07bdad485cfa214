// The two kinds of failure: `Error` for external causes (input, peers, files), PP_ASSERT for bugs
// in pushpull. Any thread.
#pragma once

#include <stdexcept>
#include <string>

namespace pushpull {

// Each code is also the exit code of a program that ends with it (docs/exit-codes.md).
enum class ErrorCode {
  kFailed = 1,       // anything without a code of its own
  kUsage = 2,        // wrong flag, key or value; a retry never helps
  kData = 3,         // dataset or checkpoint file is missing, damaged or does not fit
  kUnreachable = 4,  // no answer before the deadline
  kPeerLost = 5,     // a member of the job died or fell silent
  kProtocol = 6,     // a peer's version, settings or bytes do not match
  kNotFinite = 7,    // a loss, gradient or weight is NaN or infinite
  kIo = 8,           // a file could not be written: disk full, permissions
  kDevice = 9,       // a GPU: missing, out of memory, or lost during the run. This host: too little
                     // memory, too few threads or descriptors
  kInternal = 70,    // a bug in pushpull
  kStopped = 75,     // no failure: a signal has stopped the job at a checkpoint; run it again
  kRefused = 77,     // no key, another key, or a role that may not do this
};

// Returns text such as "exit code 3 (data)", for the exit code of any program.
std::string code_text(int code);

// The text is one line: "[tag] the expected value, the actual one, the peer, and how to fix it".
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// Throws Error(kInternal) with file, line and condition.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

#define PP_ASSERT(condition) \
  ((condition) ? (void)0 : ::pushpull::assertion_failed(#condition, __FILE__, __LINE__))

}  // namespace pushpull

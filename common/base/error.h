// The two kinds of failure: `Error` for what the world does (input, peers, files), PP_ASSERT for
// our own mistakes. Any thread.
#pragma once

#include <stdexcept>
#include <string>

namespace pushpull {

// Each code is also the exit code of a program that ends with it; docs/exit-codes.md lists them.
enum class ErrorCode {
  kFailed = 1,       // anything without a code of its own
  kUsage = 2,        // flag, key or value; never worth a retry
  kData = 3,         // dataset or checkpoint file is missing, damaged or does not fit
  kUnreachable = 4,  // nobody answered before the deadline
  kPeerLost = 5,     // a member of the job died or fell silent
  kProtocol = 6,     // version, settings or bytes of a peer do not fit
  kNotFinite = 7,    // a loss, gradient or weight is NaN or infinite
  kIo = 8,           // a file could not be written: disk full, permissions
  kDevice = 9,       // a GPU: none there, no room in it, or lost during the run
  kInternal = 70,    // our mistake
};

// Text is one line: "[tag] what was expected, what was seen, who, and the way out".
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

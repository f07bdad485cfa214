// Explains a lack of memory, threads or descriptors in one line for users: what was asked for, what there is, and
// what to do. Any thread.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "common/base/error.h"

namespace pushpull {

// Returns the Error that users get for an exception: itself if it is one; Error(kDevice) if memory, a thread or a
// descriptor was refused, from the standard library or libzmq; else Error(kInternal) with its text.
Error error_of(const std::exception& error);

// Returns the same for memory, threads and descriptors, else nothing.
std::optional<Error> shortage_of(const std::exception& error);

// Throws Error(kDevice) if this process may not open so many files in all: libzmq ends the process when it needs
// one more.
//   who: for the message: "a worker".
void check_descriptors(int64_t needed, const std::string& who);

// Throws Error(kDevice) if so many threads more cannot be started, for the same reason. Starts and ends them.
void check_threads(int needed, const std::string& who);

}  // namespace pushpull

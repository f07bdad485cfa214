// Reads single variables of an environment for claims. A variable that is empty counts as absent.
// No I/O. Any thread.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "common/launch/claim.h"
#include "common/net/address.h"

namespace pushpull {

// Returns the first of the variables that is set.
std::optional<Found<std::string>> text_of(const Environment& environment,
                                          std::initializer_list<const char*> variables);
// The same for a whole number >= 0. Throws Error(kUsage) naming the variable for other text.
std::optional<Found<int64_t>> number_of(const Environment& environment,
                                        std::initializer_list<const char*> variables);
// The same for a port, 1 to 65535.
std::optional<Found<int64_t>> port_of(const Environment& environment,
                                      std::initializer_list<const char*> variables);
// The same for the name or address of a host; IPv6 may have brackets.
std::optional<Found<std::string>> host_of(const Environment& environment,
                                          std::initializer_list<const char*> variables);

// Returns `host` without brackets. Throws Error(kUsage) naming `variable` if it is no host.
std::string checked_host(const std::string& host, const std::string& variable);

// Parses tcp://HOST:PORT. Throws Error(kUsage) with the text `why` if it is none.
Address address_or_refuse(const std::string& text, const std::string& why);

// Throws Error(kUsage) with the tag of all errors here.
[[noreturn]] void refuse_launch(const std::string& text);

}  // namespace pushpull

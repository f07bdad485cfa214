// How users watch a run beside its files in --out. Plain data and one parser; any thread.
#pragma once

#include <optional>
#include <string>

#include "common/net/address.h"

namespace pushpull {

struct WatchOptions {
  std::string tensorboard_dir;            // folder for event files; "" for none
  std::optional<Address> metrics_listen;  // where HTTP serves /metrics and /status; none: nowhere
};

// Parses PORT, :PORT or HOST:PORT. Without a host the address is 127.0.0.1. Throws Error(kUsage)
// naming --metrics-listen.
Address parse_metrics_listen(const std::string& text);

}  // namespace pushpull

#include "ps/watch/watch_options.h"

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {

Address parse_metrics_listen(const std::string& text) {
  const size_t colon = text.rfind(':');
  std::string host_and_port = text;
  if (colon == std::string::npos) host_and_port = "127.0.0.1:" + text;
  if (colon == 0) host_and_port = "127.0.0.1" + text;
  try {
    return parse_address("tcp://" + host_and_port, "metrics-listen");
  } catch (const Error&) {
    throw Error(ErrorCode::kUsage, "[usage] --metrics-listen " + printable(text) +
                                       ": expected PORT or HOST:PORT, such as 9100 (on loopback) "
                                       "or 10.0.0.17:9100; port * picks a free one");
  }
}

}  // namespace pushpull

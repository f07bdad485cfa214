#include "common/launch/this_process.h"

#include <netdb.h>
#include <unistd.h>

#include <memory>

#include "common/base/process.h"

namespace pushpull {

Environment environment_of_this_process() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) {
      environment.try_emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return environment;
}

namespace {

std::string full_host_name() {
  std::string name = host_name();
  addrinfo hints{};
  hints.ai_flags = AI_CANONNAME;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return name;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  return list->ai_canonname != nullptr ? list->ai_canonname : name;
}

}  // namespace

Placement place_this_process(const LaunchFlags& flags) {
  const Environment environment = environment_of_this_process();
  const bool in_pod = environment.contains("JOB_COMPLETION_INDEX");
  return place_task(flags, read_claims(environment, in_pod ? full_host_name() : host_name()));
}

}  // namespace pushpull

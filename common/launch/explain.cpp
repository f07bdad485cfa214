#include "common/launch/explain.h"

#include <cstddef>

namespace pushpull {
namespace {

constexpr size_t kColumn = 14;  // where values begin

std::string row(const std::string& name, const std::string& value, const std::string& from) {
  return name + std::string(kColumn - name.size(), ' ') + value +
         (from.empty() ? "" : " (" + from + ")") + "\n";
}

std::string row(const std::string& name, const Found<int64_t>& value) {
  return row(name, std::to_string(value.value), value.from);
}

std::string role_name(TaskRole role) {
  switch (role) {
    case TaskRole::kWorker:
      return "worker";
    case TaskRole::kFirstServer:
      return "first server";
    case TaskRole::kServer:
      return "further server";
    case TaskRole::kNone:
      return "none";
  }
  return "";
}

std::string rank_of(const Placement& placement) {
  if (!placement.rank) return "";
  return std::to_string(placement.rank->value) +
         (placement.size ? " of " + std::to_string(placement.size->value) : "");
}

}  // namespace

std::string explain(const Placement& placement) {
  std::string text = row("launcher", placement.launcher, "");
  text += row("role", role_name(placement.role), placement.role_from);
  if (placement.rank) {
    const bool two = placement.size && placement.size->from != placement.rank->from;
    text += row("rank", rank_of(placement),
                placement.rank->from + (two ? ", " + placement.size->from : ""));
  }
  if (placement.local_rank) text += row("local rank", *placement.local_rank);
  text += row("first server", placement.address(),
              "host: " + placement.host.from + "; port: " + placement.port.from);
  if (placement.role != TaskRole::kWorker) {
    text += row("servers", placement.servers);
    text += placement.workers ? row("workers", *placement.workers)
                              : row("workers", "unknown", "give --workers");
  }
  for (const std::string& unused : placement.unused) text += row("not needed", unused, "");
  return text;
}

std::string summary_line(const Placement& placement) {
  return "--join auto: " + placement.launcher + (placement.rank ? ", rank " : "") +
         rank_of(placement) + ", first server at " + placement.address() +
         " (port: " + placement.port.from + ")";
}

}  // namespace pushpull

#include "cli/report/machine_info.h"

#include <gnu/libc-version.h>
#include <google/protobuf/stubs/common.h>
#include <oneapi/dnnl/dnnl.h>
#include <openssl/crypto.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string_view>

#include "common/base/process.h"
#include "common/base/text.h"
#include "common/host/cores.h"

namespace pushpull {
namespace {

std::string file_text(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string version(int major, int minor, int patch) {
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

std::map<std::string, std::string> libraries() {
  std::map<std::string, std::string> all;
  int major = 0;
  int minor = 0;
  int patch = 0;
  zmq_version(&major, &minor, &patch);
  all["libzmq"] = version(major, minor, patch);
  const dnnl_version_t* const dnnl = dnnl_version();
  all["oneDNN"] = version(dnnl->major, dnnl->minor, dnnl->patch);
  all["protobuf"] = google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION);
  all["OpenSSL"] = OpenSSL_version(OPENSSL_FULL_VERSION_STRING);
  all["glibc"] = gnu_get_libc_version();
  all["g++"] = __VERSION__;
  return all;
}

double own_seconds() {
  double seconds = 0.0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
      seconds += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    }
  }
  return seconds;
}

std::optional<double> other_seconds() {
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const std::optional<double> busy = busy_seconds(file_text("/proc/stat"), ticks);
  return busy ? std::optional(*busy - own_seconds()) : std::nullopt;
}

}  // namespace

OtherLoad::OtherLoad() : began_ms_(now_ms()), others_(other_seconds()) {}

std::optional<double> OtherLoad::cores() const {
  const std::optional<double> now = other_seconds();
  const int64_t passed_ms = now_ms() - began_ms_;
  if (!others_ || !now || passed_ms <= 0) return std::nullopt;
  // Ticks are coarse: within a short run the difference may be slightly negative.
  return std::max(0.0, (*now - *others_) / (static_cast<double>(passed_ms) / 1e3));
}

std::optional<double> busy_seconds(const std::string& stat, double ticks_per_second) {
  std::istringstream fields(stat);
  std::string name;
  // proc(5). Time of guests is also in user and nice.
  double user = 0.0, nice = 0.0, system = 0.0, idle = 0.0, iowait = 0.0, irq = 0.0, softirq = 0.0,
         steal = 0.0;
  fields >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  if (!fields || name != "cpu" || ticks_per_second <= 0.0) return std::nullopt;
  return (user + nice + system + irq + softirq + steal) / ticks_per_second;
}

std::string processor_name(const std::string& cpuinfo) {
  std::istringstream lines(cpuinfo);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (line.starts_with("model name") && colon != std::string::npos) {
      return std::string(trim(std::string_view(line).substr(colon + 1)));
    }
  }
  return "";
}

MachineInfo machine_info() {
  MachineInfo info;
  info.present = std::max(1, get_nprocs());
  info.cores = own_cores().count();
  info.congestion_control = first_line(file_text("/proc/sys/net/ipv4/tcp_congestion_control"));
  info.libraries = libraries();

  info.processor = processor_name(file_text("/proc/cpuinfo"));
  utsname kernel{};
  uname(&kernel);
  struct sysinfo memory {};
  sysinfo(&memory);
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  std::array<char, 32> gib{};
  std::snprintf(gib.data(), gib.size(), "%.1f GiB",
                static_cast<double>(memory.totalram) * memory.mem_unit / kGib);
  info.rest =
      std::string(gib.data()) + ", " + kernel.sysname + " " + kernel.release + " " + kernel.machine;
  return info;
}

std::string machine_text(const MachineInfo& info) {
  return (info.processor.empty() ? "unknown processor" : info.processor) + ", " +
         std::to_string(info.cores) + " of " + std::to_string(info.present) + " cores usable, " +
         info.rest;
}

}  // namespace pushpull

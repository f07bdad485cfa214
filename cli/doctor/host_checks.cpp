// Checks of this host: clock, limit of open files, shared memory, disk.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

#include "cli/doctor/checks.h"
#include "cli/doctor/within.h"
#include "common/base/process.h"
#include "common/base/unique_fd.h"
#include "common/net/tcp_socket.h"

namespace pushpull {

namespace {

constexpr double kClockSeconds = 1.0;              // smaller differences are not worth a warning
constexpr int64_t kSmallShm = int64_t{256} << 20;  // libraries need this much between a few
                                                   // processes
constexpr int64_t kLittleSpace = int64_t{1} << 30;
constexpr double kSlowDisk = 20e6;  // bytes per second
constexpr size_t kWritten = size_t{8} << 20;
constexpr double kDiskSeconds = 10.0;

struct Disk {
  int64_t free_bytes = 0;
  double bytes_per_second = 0.0;
  std::string why;  // why writing failed; "" = it succeeded
};

Disk try_disk(const std::string& folder) {
  struct statvfs space {};
  if (statvfs(folder.c_str(), &space) != 0) return {0, 0.0, errno_text()};
  Disk disk;
  disk.free_bytes = static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
  std::string path = folder + "/.pushpull-doctor-XXXXXX";
  const UniqueFd file(mkostemp(path.data(), O_CLOEXEC));
  if (file.get() < 0) return {disk.free_bytes, 0.0, errno_text()};
  unlink(path.c_str());  // the kernel removes the file when this process ends
  const std::vector<char> bytes(kWritten, 'p');
  const double begin_s = now_seconds();
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t written = write(file.get(), bytes.data() + done, bytes.size() - done);
    if (written < 0) return {disk.free_bytes, 0.0, errno_text()};
    done += static_cast<size_t>(written);
  }
  if (fsync(file.get()) != 0) return {disk.free_bytes, 0.0, errno_text()};
  disk.bytes_per_second = static_cast<double>(kWritten) / (now_seconds() - begin_s);
  return disk;
}

}  // namespace

std::string with_unit(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"bytes", "KB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; bytes >= 1000.0 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000.0;
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), bytes < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", bytes,
                kUnits.at(unit));
  return text.data();
}

std::string with_unit(int64_t bytes) { return with_unit(static_cast<double>(bytes)); }

Finding check_clock(int64_t theirs_ms, int64_t ours_ms, double round_trip_ms) {
  const double ahead_s = (static_cast<double>(theirs_ms - ours_ms) + round_trip_ms / 2.0) / 1000.0;
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), "the coordinator's is %.3f s %s this one (+- %.3f s)",
                std::abs(ahead_s), ahead_s < 0 ? "behind" : "ahead of", round_trip_ms / 2000.0);
  if (std::abs(ahead_s) - round_trip_ms / 2000.0 < kClockSeconds) return fine("clock", text.data());
  return warning("clock",
                 std::string(text.data()) +
                     "; training is not affected, but times in logs and traces do not match: "
                     "let NTP set both clocks");
}

Finding check_files(int64_t soft, int64_t hard, int64_t needed) {
  const std::string text = "ulimit -n is " + std::to_string(soft) + ", at most " +
                           std::to_string(hard) + "; a server of this job needs about " +
                           std::to_string(needed);
  // Programs raise their soft limit to the hard limit.
  if (hard >= needed) return fine("files", text);
  return warning("files", text + ": raise the hard limit (ulimit -Hn, /etc/security/limits.conf)");
}

Finding check_files_here(int64_t needed) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto number = [](rlim_t value) {
    return value > static_cast<rlim_t>(INT64_MAX) ? INT64_MAX : static_cast<int64_t>(value);
  };
  return check_files(number(limit.rlim_cur), number(limit.rlim_max), needed);
}

Finding check_shm(int64_t bytes, int64_t free_bytes) {
  const std::string text = with_unit(bytes) + ", " + with_unit(free_bytes) + " free";
  if (free_bytes >= kSmallShm) return fine("/dev/shm", text);
  return warning("/dev/shm", text +
                                 "; pushpull itself keeps no files there, but GPU libraries "
                                 "do: give a container more (docker --shm-size)");
}

Finding check_shm_here() {
  struct statvfs space {};
  if (statvfs("/dev/shm", &space) != 0) {
    return warning("/dev/shm", "cannot be examined: " + errno_text());
  }
  const auto block = static_cast<int64_t>(space.f_frsize);
  return check_shm(static_cast<int64_t>(space.f_blocks) * block,
                   static_cast<int64_t>(space.f_bavail) * block);
}

Finding check_disk(const std::string& folder, int64_t free_bytes, double bytes_per_second) {
  const std::string text = folder + ": " + with_unit(free_bytes) + " free, " +
                           with_unit(bytes_per_second) + "/s written through to the disk";
  if (free_bytes < kLittleSpace) {
    return warning("disk", text + "; checkpoints may not fit: make room, or set checkpoint-dir");
  }
  if (bytes_per_second >= kSlowDisk) return fine("disk", text);
  return warning("disk", text +
                             "; slow for checkpoints: write them rarely, or set checkpoint-dir "
                             "to a local disk");
}

Finding check_disk_here(const std::string& folder) {
  const auto disk = within<Disk>(kDiskSeconds, [folder] { return try_disk(folder); });
  if (!disk) {
    return warning("disk", folder + " did not take " + with_unit(static_cast<int64_t>(kWritten)) +
                               " within " + std::to_string(static_cast<int>(kDiskSeconds)) +
                               " s: the file system hangs, or is very slow");
  }
  if (!disk->why.empty()) {
    return warning("disk", folder + " cannot be written by this user: " + disk->why);
  }
  return check_disk(folder, disk->free_bytes, disk->bytes_per_second);
}

}  // namespace pushpull

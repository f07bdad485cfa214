#include "common/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "common/base/buffer_pool.h"
#include "common/base/error.h"

namespace pushpull {

// Guarded by `mutex`.
struct SegmentIndex::State {
  std::mutex mutex;
  std::map<const std::byte*, std::weak_ptr<const SharedMemory>, std::less<>> by_start;
};

SegmentIndex::SegmentIndex() : state_(std::make_shared<State>()) {}

std::shared_ptr<float[]> SegmentIndex::add(std::shared_ptr<const SharedMemory> segment) {
  auto* first = reinterpret_cast<float*>(segment->data());
  {
    const std::lock_guard lock(state_->mutex);
    state_->by_start[segment->data()] = segment;
  }
  return {first, [state = state_, held = std::move(segment)](float* returned) mutable {
            const std::lock_guard lock(state->mutex);
            state->by_start.erase(reinterpret_cast<const std::byte*>(returned));
            held.reset();  // not earlier: a new segment could get the same address at once
          }};
}

SegmentIndex::Place SegmentIndex::find(std::span<const std::byte> bytes) const {
  const std::lock_guard lock(state_->mutex);
  auto after = state_->by_start.upper_bound(bytes.data());
  if (after == state_->by_start.begin()) return {};
  const auto& [start, held] = *--after;
  std::shared_ptr<const SharedMemory> segment = held.lock();
  if (!segment) return {};
  const std::byte* end = start + segment->bytes();
  if (!std::less_equal<>()(bytes.data() + bytes.size(), end)) return {};
  return {std::move(segment), bytes.data() - start};
}

namespace {

constexpr size_t kPage = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr char kName[] = "pushpull";  // shown in /proc/PID/maps; need not be unique

[[noreturn]] void fail_allocation(size_t bytes, const std::string& why) {
  throw Error(ErrorCode::kFailed, "[shm] " + std::to_string(bytes) +
                                      " bytes of shared memory cannot be allocated: " + why +
                                      "; transport = tcp needs no shared memory");
}

// Growing a file beyond this limit raises a signal that ends the process.
void check_file_limit(size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < bytes) {
    fail_allocation(
        bytes, "files are limited to " + std::to_string(limit.rlim_cur) + " bytes (ulimit -f)");
  }
}

// Allocating more pages than are free would not fail: the kernel would kill a process, maybe
// another one.
void check_free_memory(size_t bytes) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    size_t kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %zu kB", &kib) != 1) continue;
    if (bytes / 1024 >= kib)
      fail_allocation(bytes, std::to_string(kib) + " KiB of memory are free");
    return;
  }
}

// Returns "/proc/12/fd/34", for messages.
std::string path_of(const wire::Segment& segment) {
  return "/proc/" + std::to_string(segment.pid()) + "/fd/" + std::to_string(segment.fd());
}

[[noreturn]] void refuse(const wire::Segment& segment, const std::string& why) {
  throw Error(ErrorCode::kProtocol, "[shm] " + path_of(segment) + " " + why);
}

std::string last_error_text() { return std::strerror(errno); }

// Checks the link's name first: opening another kind of file, such as a device or a pipe, could
// have side effects.
UniqueFd open_segment(const wire::Segment& segment) {
  if (segment.pid() <= 0 || segment.fd() < 0) refuse(segment, "names no file");
  const std::string path = path_of(segment);
  std::array<char, 64> target{};
  if (readlink(path.c_str(), target.data(), target.size() - 1) < 0) {
    refuse(segment, "cannot be inspected: " + last_error_text());
  }
  const std::string memfd = std::string("/memfd:") + kName;
  if (std::string(target.data()).rfind(memfd, 0) != 0) refuse(segment, "is not shared memory");
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd.get() < 0) refuse(segment, "cannot be opened: " + last_error_text());
  return fd;
}

void check(const wire::Segment& segment, int fd) {
  struct stat file {};
  if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) refuse(segment, "is not a regular file");
  if (file.st_uid != geteuid()) refuse(segment, "belongs to another user");
  if (file.st_size != segment.bytes()) {
    refuse(segment, "has " + std::to_string(file.st_size) + " bytes, but the peer announced " +
                        std::to_string(segment.bytes()));
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) refuse(segment, "is not sealed");
  std::array<char, Segment::kTokenBytes> token{};
  const auto at = file.st_size - static_cast<off_t>(token.size());
  if (pread(fd, token.data(), token.size(), at) != static_cast<ssize_t>(token.size()) ||
      segment.token() != std::string(token.data(), token.size())) {
    refuse(segment, "is not the memory that was announced");
  }
}

}  // namespace

std::string fresh_token() {
  std::string token(Segment::kTokenBytes, '\0');
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    throw Error(ErrorCode::kFailed, "[shm] the system has no random bytes");
  }
  return token;
}

std::string host_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  struct stat pids {};
  struct stat net {};
  if (boot.empty() || stat("/proc/self/ns/pid", &pids) != 0) return "";
  if (stat("/proc/self/ns/net", &net) != 0) return "";
  return boot + " " + std::to_string(pids.st_ino) + " " + std::to_string(geteuid()) + " " +
         std::to_string(net.st_ino);
}

std::string host_difference(const std::string& theirs, const std::string& ours) {
  if (theirs.empty() || ours.empty()) return "the system does not say which host this is";
  const auto words = [](const std::string& text) {
    std::istringstream in(text);
    std::array<std::string, 4> out;
    for (std::string& word : out) in >> word;
    return out;
  };
  const auto a = words(theirs);
  const auto b = words(ours);
  if (a[0] != b[0]) return "it is on another host";
  if (a[1] != b[1]) return "it is in another container (process id namespace)";
  if (a[2] != b[2]) return "it runs as another user";
  // a network namespace is a container or an emulated host, with traffic meant for its own link
  if (a[3] != b[3]) return "it has another network (network namespace)";
  return "";
}

MappedPages::~MappedPages() {
  if (first_ != nullptr) munmap(first_, bytes_);
}

MappedPages::MappedPages(MappedPages&& other) noexcept
    : first_(std::exchange(other.first_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Segment::Segment(size_t bytes)
    : fd_(memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING)), pages_([&] {
        if (fd_.get() < 0) fail_allocation(bytes, last_error_text());
        const size_t all = (bytes + kTokenBytes + kPage - 1) / kPage * kPage;
        check_file_limit(all);
        check_free_memory(all);
        if (fchmod(fd_.get(), 0600) != 0) fail_allocation(bytes, last_error_text());
        // allocates all pages now, so that a shortage of memory fails here and not at a later
        // access
        if (fallocate(fd_.get(), 0, 0, static_cast<off_t>(all)) != 0) {
          fail_allocation(bytes, last_error_text());
        }
        void* first =
            mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_.get(), 0);
        if (first == MAP_FAILED) fail_allocation(bytes, last_error_text());
        return MappedPages(first, all);
      }()) {
  const std::string token = fresh_token();
  std::memcpy(data() + this->bytes(), token.data(), token.size());
  // forbids later writable mappings in other processes; Linux before 5.1 lacks this seal
  fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  if (fcntl(fd_.get(), F_ADD_SEALS, kSeals) != 0) fail_allocation(bytes, last_error_text());
  description_.set_pid(getpid());
  description_.set_fd(fd_.get());
  description_.set_bytes(static_cast<int64_t>(pages_.bytes()));
  description_.set_token(token);
}

Mapping::Mapping(const wire::Segment& segment, int64_t max_bytes, const PagesMapped& mapped)
    : pages_([&] {
        if (segment.bytes() <= static_cast<int64_t>(Segment::kTokenBytes) ||
            segment.bytes() > max_bytes) {
          refuse(segment, "has " + std::to_string(segment.bytes()) + " bytes, at most " +
                              std::to_string(max_bytes) + " are expected");
        }
        if (segment.token().size() != Segment::kTokenBytes)
          refuse(segment, "came without its token");
        const UniqueFd fd = open_segment(segment);
        check(segment, fd.get());
        const auto bytes = static_cast<size_t>(segment.bytes());
        // pages are mapped when they are first read: those that a worker of a group does not need count
        // as memory of others
        void* first = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
        if (first == MAP_FAILED) refuse(segment, "cannot be mapped: " + last_error_text());
        return MappedPages(first, bytes);
      }()),
      kept_(mapped ? mapped(pages_.first(), pages_.bytes()) : nullptr) {}

namespace {

class DeviceSegment : public SharedMemory {
 public:
  DeviceSegment(device::Device& device, size_t bytes) {
    std::string handle;
    memory_ = device.allocate_shared(bytes, handle);
    // the device may allocate more than requested, and the handle exposes all of it
    description_.set_bytes(static_cast<int64_t>(bytes));
    description_.set_token(fresh_token());
    description_.set_device(device.id());
    description_.set_handle(std::move(handle));
  }

  std::byte* data() const override { return static_cast<std::byte*>(memory_.data()); }
  size_t bytes() const override { return static_cast<size_t>(description_.bytes()); }
  const wire::Segment& description() const override { return description_; }

 private:
  device::Memory memory_;
  wire::Segment description_;
};

}  // namespace

DevicePool::DevicePool(std::shared_ptr<device::Device> device,
                       std::function<void(const std::string&)> failed)
    : device_(std::move(device)), failed_(std::move(failed)) {}

// If memory cannot be shared, private memory may still be available; if not, the second allocation
// throws.
std::shared_ptr<float[]> DevicePool::get(size_t floats) {
  const size_t bytes = floats * sizeof(float);
  try {
    return index_.add(std::make_shared<const DeviceSegment>(*device_, bytes));
  } catch (const Error& e) {
    auto memory = std::make_shared<device::Memory>(device_->allocate(bytes));
    std::call_once(reported_, failed_, e.what());
    return {memory, memory->floats()};
  }
}

SegmentPool::SegmentPool(std::function<void(const std::string&)> failed)
    : failed_(std::move(failed)) {}

std::shared_ptr<float[]> SegmentPool::get(size_t floats) {
  try {
    return index_.add(std::make_shared<const Segment>(floats * sizeof(float)));
  } catch (const Error& e) {
    std::call_once(reported_, failed_, e.what());
    return heap_floats(floats);
  }
}

}  // namespace pushpull

#include "tests/cuda_on_host/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cuda_on_host {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kFile = size_t{1} << 42;  // bytes of addresses; pages are allocated on first touch
constexpr int kFill = 0xff;                // NaN
constexpr size_t kFillWhole = size_t{1} << 20;

size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// The contents of a handle.
struct Shared {
  uint64_t token[2];
  int32_t process;
  int32_t file;
  uint64_t offset;
  uint64_t page_bytes;
  uint64_t bytes;
};
static_assert(sizeof(Shared) <= sizeof(cudaIpcMemHandle_t));

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::abort();
}

// The range is at most a page plus alignment.
bool is_filled(const std::byte* first, const std::byte* last) {
  static const std::vector<std::byte> pattern(2 * kPage, std::byte{kFill});
  return std::memcmp(first, pattern.data(), static_cast<size_t>(last - first)) == 0;
}

}  // namespace

Arena::Arena() : file_(memfd_create("cuda_on_host", MFD_CLOEXEC)) {
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(kFile)) != 0 ||
      getrandom(token_, sizeof token_, 0) != sizeof token_ ||
      pwrite(file_, token_, sizeof token_, 0) != sizeof token_) {
    give_up("cuda_on_host: the device's memory");
  }
  void* const all = mmap(nullptr, kFile, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (all == MAP_FAILED) give_up("cuda_on_host: the device's addresses");
  pages_ = static_cast<std::byte*>(all);
  next_ = kPage;  // after the token
}

void* Arena::allocate(size_t bytes) {
  if (bytes > kTotal || used_ + rounded(bytes, kAlign) > kTotal) return nullptr;
  const size_t page_bytes = rounded(rounded(bytes, kAlign), kPage);
  if (next_ + kPage + page_bytes > kFile) return nullptr;
  std::byte* const pages = pages_ + next_ + kPage;
  next_ += kPage + page_bytes;
  if (mprotect(pages, page_bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
  std::byte* const end = pages + page_bytes;
  std::byte* const first = end - rounded(bytes, kAlign);
  // large memory stays zero, which costs nothing
  if (page_bytes <= kFillWhole) {
    std::memset(pages, kFill, page_bytes);
  } else {
    std::memset(pages, kFill, static_cast<size_t>(first - pages));
    std::memset(first + bytes, kFill, static_cast<size_t>(end - first) - bytes);
  }
  mprotect(pages, page_bytes, PROT_NONE);
  all_[reinterpret_cast<uintptr_t>(first)] = {bytes, pages, page_bytes, false, false};
  open_.reserve(all_.size());
  used_ += rounded(bytes, kAlign);
  return first;
}

cudaError_t Arena::free(void* first) {
  const auto found = all_.find(reinterpret_cast<uintptr_t>(first));
  if (found == all_.end() || found->second.is_foreign) return cudaErrorInvalidValue;
  const Allocation& of = found->second;
  mprotect(of.pages, of.page_bytes, PROT_NONE);
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, of.pages - pages_,
            static_cast<off_t>(of.page_bytes));
  used_ -= rounded(of.bytes, kAlign);
  all_.erase(found);
  return cudaSuccess;
}

const Arena::Allocation* Arena::find(const void* first, size_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(first);
  auto found = all_.upper_bound(address);
  if (found == all_.begin()) return nullptr;
  --found;
  const size_t offset = address - found->first;
  if (offset > found->second.bytes || bytes > found->second.bytes - offset) return nullptr;
  // one past the end belongs to no allocation
  return offset == found->second.bytes && bytes == 0 ? nullptr : &found->second;
}

void Arena::set(void* first, int value, size_t bytes) {
  auto* const begin = static_cast<std::byte*>(first);
  std::byte* const end = begin + bytes;
  const auto page_up = [&](std::byte* at) {
    return pages_ + rounded(static_cast<size_t>(at - pages_), kPage);
  };
  const bool ours = begin >= pages_ && begin < pages_ + kFile;
  if (!ours || value != 0 || bytes < kFillWhole) {
    std::memset(first, value, bytes);
    return;
  }
  std::byte* const inner = page_up(begin);
  std::byte* const inner_end = page_up(end) - (page_up(end) == end ? 0 : kPage);
  std::memset(begin, value, static_cast<size_t>(inner - begin));
  std::memset(inner_end, value, static_cast<size_t>(end - inner_end));
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, inner - pages_, inner_end - inner);
}

std::string Arena::beside(uintptr_t first, const Allocation& of) {
  const auto* const begin = reinterpret_cast<const std::byte*>(first);
  const std::string whose = " an allocation of " + std::to_string(of.bytes) + " bytes";
  if (!is_filled(begin + of.bytes, of.pages + of.page_bytes)) return "a write behind" + whose;
  if (!is_filled(of.pages, begin)) return "a write in front of" + whose;
  return {};
}

bool Arena::open_at(const void* address) {
  const auto* const at = static_cast<const std::byte*>(address);
  // an allocation begins less than a page after the beginning of its pages
  auto found = all_.upper_bound(reinterpret_cast<uintptr_t>(address) + kPage);
  for (int i = 0; i < 2 && found != all_.begin(); ++i) {
    --found;
    Allocation& of = found->second;
    if (at < of.pages || at >= of.pages + of.page_bytes) continue;
    if (of.is_open || mprotect(of.pages, of.page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
    of.is_open = true;
    open_.push_back(found->first);
    return true;
  }
  return false;
}

std::string Arena::shut() {
  std::string wrong;
  for (const uintptr_t first : open_) {
    Allocation& of = all_.at(first);
    if (!of.is_foreign && wrong.empty()) wrong = beside(first, of);
    of.is_open = false;
    mprotect(of.pages, of.page_bytes, PROT_NONE);
  }
  open_.clear();
  return wrong;
}

std::string Arena::about(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  if (at < pages_ || at >= pages_ + kFile) return "is no memory of the device";
  auto found = all_.upper_bound(reinterpret_cast<uintptr_t>(address));
  if (found == all_.begin()) return "is of no allocation, or of one that was freed";
  --found;
  const size_t offset = reinterpret_cast<uintptr_t>(address) - found->first;
  return "is " + std::to_string(offset) + " bytes behind the begin of an allocation of " +
         std::to_string(found->second.bytes) + ", or of one that was freed";
}

cudaError_t Arena::share(const void* first, cudaIpcMemHandle_t& handle) const {
  const auto found = all_.find(reinterpret_cast<uintptr_t>(first));
  if (found == all_.end() || found->second.is_foreign) return cudaErrorInvalidValue;
  const Allocation& of = found->second;
  const Shared shared{
      {token_[0], token_[1]}, getpid(), file_, static_cast<uint64_t>(of.pages - pages_),
      of.page_bytes,          of.bytes};
  handle = {};
  std::memcpy(&handle, &shared, sizeof shared);
  return cudaSuccess;
}

cudaError_t Arena::open(const cudaIpcMemHandle_t& handle, void*& first) {
  Shared shared{};
  std::memcpy(&shared, &handle, sizeof shared);
  // a process may only open other processes' memory
  if (std::equal(token_, token_ + 2, shared.token)) return cudaErrorDeviceUninitialized;
  const std::string path =
      "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return cudaErrorInvalidResourceHandle;
  uint64_t token[2]{};
  const bool is_it = pread(file, token, sizeof token, 0) == sizeof token &&
                     std::equal(token, token + 2, shared.token);
  void* pages = MAP_FAILED;
  if (is_it && shared.bytes <= shared.page_bytes && shared.page_bytes <= kTotal &&
      shared.offset < kFile) {
    pages = mmap(nullptr, shared.page_bytes, PROT_NONE, MAP_SHARED, file,
                 static_cast<off_t>(shared.offset));
  }
  ::close(file);
  if (pages == MAP_FAILED) return cudaErrorInvalidResourceHandle;
  auto* const begin = static_cast<std::byte*>(pages);
  first = begin + shared.page_bytes - rounded(shared.bytes, kAlign);
  all_[reinterpret_cast<uintptr_t>(first)] = {shared.bytes, begin, shared.page_bytes, true, false};
  open_.reserve(all_.size());
  return cudaSuccess;
}

cudaError_t Arena::close(void* first) {
  const auto found = all_.find(reinterpret_cast<uintptr_t>(first));
  if (found == all_.end() || !found->second.is_foreign) return cudaErrorInvalidValue;
  munmap(found->second.pages, found->second.page_bytes);
  all_.erase(found);
  return cudaSuccess;
}

}  // namespace cuda_on_host

#include "tests/device/fake_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "common/base/error.h"
#include "common/base/process.h"

namespace pushpull::device {

namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kPage = 4096;  // the unit of mapping
constexpr int kNaNByte = 0xff;  // NaN as float, double, bf16 and fp16

// Written at the end of a shared block while it is allocated.
using Token = uint64_t;

// Memory::Free gets an address only.
std::mutex all_mutex;
std::map<const std::byte*, std::shared_ptr<FakeMemory>>& owners() {
  static std::map<const std::byte*, std::shared_ptr<FakeMemory>> of_block;
  return of_block;
}

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

int make_file(size_t bytes) {
  const int fd = memfd_create("pushpull-fake-device", MFD_CLOEXEC);
  PP_ASSERT(fd >= 0);
  PP_ASSERT(ftruncate(fd, static_cast<off_t>(bytes)) == 0);
  return fd;
}

}  // namespace

FakePages::FakePages(int fd, size_t offset, size_t bytes, int protection)
    : bytes_(bytes), protection_(protection) {
  void* pages = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, fd, static_cast<off_t>(offset));
  PP_ASSERT(pages != MAP_FAILED);
  first_ = static_cast<std::byte*>(pages);
}

FakePages::~FakePages() { munmap(first_, bytes_); }

bool FakePages::holds(const void* first, size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(first);
  return begin >= first_ && begin + bytes <= first_ + bytes_;
}

void FakePages::protect(int protection) { PP_ASSERT(mprotect(first_, bytes_, protection) == 0); }

FakePages::Open::Open(std::shared_ptr<FakePages> pages) : pages_(std::move(pages)) {
  const std::lock_guard lock(pages_->mutex_);
  if (pages_->open_++ == 0) pages_->protect(pages_->protection_);
}

FakePages::Open::~Open() {
  const std::lock_guard lock(pages_->mutex_);
  if (--pages_->open_ == 0) pages_->protect(PROT_NONE);
}

FakeMemory::FakeMemory(std::string name, size_t bytes)
    : name_(std::move(name)),
      file_(make_file(round_up(bytes, kPage))),
      pages_(std::make_shared<FakePages>(file_.get(), 0, bytes, PROT_READ | PROT_WRITE)) {}

std::byte* FakeMemory::take(size_t bytes, size_t alignment) {
  const size_t size = round_up(std::max<size_t>(bytes, 1), alignment);
  size_t offset = 0;
  {
    const std::lock_guard lock(mutex_);
    size_t taken = 0;
    for (const auto& [begin, length] : used_) {
      if (begin >= offset + size) break;
      offset = round_up(begin + length, alignment);
    }
    for (const auto& [begin, length] : used_) taken += length;
    if (offset + size > pages_->bytes()) {
      throw Error(ErrorCode::kDevice,
                  "[device] " + name_ + " has no room for " + std::to_string(bytes) +
                      " more bytes: " + std::to_string(pages_->bytes() - taken) + " of " +
                      std::to_string(pages_->bytes()) + " are free");
    }
    used_.emplace(offset, size);
  }
  std::byte* block = pages_->first() + offset;
  const FakePages::Open opened(pages_);
  std::memset(block, 0, size);
  return block;
}

Memory FakeMemory::own(std::byte* block, size_t bytes) {
  const std::lock_guard lock(all_mutex);
  owners().emplace(block, shared_from_this());
  return {block, bytes, &FakeMemory::free};
}

Memory FakeMemory::allocate(size_t bytes) { return own(take(bytes, kAlignment), bytes); }

Memory FakeMemory::allocate_shared(size_t bytes, std::string& handle) {
  const size_t size = round_up(bytes + sizeof(Token), kPage);
  std::byte* block = take(size, kPage);
  const Token token = random_id();
  const FakePages::Open opened(pages_);
  std::memcpy(block + size - sizeof token, &token, sizeof token);
  handle = name_ + " " + std::to_string(getpid()) + " " + std::to_string(file_.get()) + " " +
           std::to_string(block - pages_->first()) + " " + std::to_string(size) + " " +
           std::to_string(token);
  return own(block, bytes);
}

bool FakeMemory::spoil(void* first, size_t bytes) {
  std::shared_ptr<FakeMemory> owner;
  {
    const std::lock_guard lock(all_mutex);
    const auto found = owners().find(static_cast<const std::byte*>(first));
    if (found == owners().end()) return false;
    owner = found->second;
  }
  const FakePages::Open opened(owner->pages_);
  std::memset(first, kNaNByte, bytes);
  return true;
}

void FakeMemory::free(void* first) {
  auto* block = static_cast<std::byte*>(first);
  std::shared_ptr<FakeMemory> owner;
  {
    const std::lock_guard lock(all_mutex);
    owner = std::move(owners().extract(block).mapped());
  }
  const auto offset = static_cast<size_t>(block - owner->pages_->first());
  const FakePages::Open opened(owner->pages_);
  const std::lock_guard lock(owner->mutex_);
  std::memset(block, kNaNByte, owner->used_.extract(offset).mapped());
}

std::shared_ptr<FakePages> open_fake(const std::string& name, const std::string& handle,
                                     size_t bytes) {
  std::istringstream text(handle);
  std::string device;
  int64_t pid = 0;
  int fd = -1;
  size_t offset = 0;
  size_t size = 0;
  Token token = 0;
  text >> device >> pid >> fd >> offset >> size >> token;
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kProtocol, "[device] " + name + " shares no such memory: " + why);
  };
  if (!text || device != name) refuse("the handle is not of this device");
  if (bytes + sizeof token > size || offset % kPage != 0) refuse("it has not so many bytes");
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0 ||
      offset + size > static_cast<size_t>(status.st_size)) {
    refuse("its process is gone");
  }
  auto pages = std::make_shared<FakePages>(file.get(), offset, size, PROT_READ);
  const FakePages::Open opened(pages);
  if (std::memcmp(pages->first() + size - sizeof token, &token, sizeof token) != 0) {
    refuse("it has been freed");
  }
  return pages;
}

}  // namespace pushpull::device

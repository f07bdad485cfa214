// Memory that one process writes and others of the same host and user read. A segment is an
// anonymous file (memfd_create, Linux) that its maker has mapped; others open it as
// /proc/PID/fd/FD. It has no name that could be guessed, squatted or left over: it is gone with the
// last process that maps it, however that ends. Sealed against resizing, so that no reader of it
// can be killed by SIGBUS. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/base/unique_fd.h"
#include "common/net/wire.pb.h"
#include "common/shm/segment_index.h"

namespace pushpull {

// What two processes must have in common to share memory: boot id, process id and
// network namespace, user.
// Empty where the system does not say.
std::string host_identity();
// Why two identities cannot share memory, of the other's side: "it is on another host". Empty: they
// can.
std::string host_difference(const std::string& theirs, const std::string& ours);

// Pages of a file in this process's address space.
class MappedPages {
 public:
  MappedPages() = default;
  MappedPages(void* first, size_t bytes) : first_(static_cast<std::byte*>(first)), bytes_(bytes) {}
  ~MappedPages();
  MappedPages(MappedPages&& other) noexcept;
  MappedPages& operator=(MappedPages&&) = delete;

  std::byte* first() const { return first_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* first_ = nullptr;
  size_t bytes_ = 0;
};

// Random bytes that tell one segment from another.
std::string fresh_token();

class Segment final : public SharedMemory {
 public:
  // At least `bytes` of memory, all of it there: zeros, on a page's start. Throws Error(kFailed)
  // with the size and the reason, also where the memory that is free is less.
  explicit Segment(size_t bytes);

  std::byte* data() const override { return pages_.first(); }
  // The file ends with the token.
  size_t bytes() const override { return pages_.bytes() - kTokenBytes; }
  const wire::Segment& description() const override { return description_; }

  static constexpr size_t kTokenBytes = 16;

 private:
  UniqueFd fd_;
  MappedPages pages_;
  wire::Segment description_;
};

// Told of pages that are mapped for reading: what it returns is kept until they go. For devices
// that copy from them. May be empty.
using PagesMapped = std::function<std::shared_ptr<void>(std::byte* first, size_t bytes)>;

// A segment of another process, for reading.
class Mapping {
 public:
  // Checks that it is a segment, ours to read, and the one that was announced, before anything of
  // it is mapped.
  //   most_bytes: larger files are refused.
  // Throws Error(kProtocol) that says what does not fit.
  Mapping(const wire::Segment& segment, int64_t most_bytes, const PagesMapped& mapped = {});

  std::span<const std::byte> bytes() const {
    return {pages_.first(), pages_.bytes() - Segment::kTokenBytes};
  }

 private:
  MappedPages pages_;
  std::shared_ptr<void> kept_;  // ends before the pages
};

}  // namespace pushpull

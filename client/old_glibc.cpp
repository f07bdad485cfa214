// Functions that glibc 2.17 lacks, for a bundled libpushpull.so (cmake/Bundle.cmake): our code and the static libraries
// in it were compiled with a newer glibc, and call them. They are private to the library: no other library gets them.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

constexpr size_t kMaxEntropy = 256;  // bytes; so many come at once, and no signal interrupts that
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kStep = kSecond / 10;
constexpr int kStatVersion = 1;  // the only layout of struct stat on x86-64

int64_t nanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }
int64_t now(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return nanoseconds(time);
}

// Waits as pthread_cond_clockwait, by the clock that users may set: glibc before 2.30 has no other wait. One wait is
// short, and its end counts as a spurious wake-up, so that a change of that clock shifts the deadline by 0.1 s at most.
int clockwait_by_steps(pthread_cond_t* changed, pthread_mutex_t* mutex, clockid_t clock,
                       const timespec* until) {
  const int64_t left = nanoseconds(*until) - now(clock);
  const int64_t end = now(CLOCK_REALTIME) + std::min(left, kStep);
  const timespec step = {end / kSecond, end % kSecond};
  const int result = pthread_cond_timedwait(changed, mutex, &step);
  return result == ETIMEDOUT && left > kStep ? 0 : result;
}
const auto glibc_clockwait =
    reinterpret_cast<decltype(&clockwait_by_steps)>(dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));

// Search of a loaded object by the address of its code.
struct Search {
  uintptr_t address;
  dl_find_object* result;
};
int contains(dl_phdr_info* object, size_t, void* data) {
  const Search& search = *static_cast<Search*>(data);
  bool found = false;
  search.result->dlfo_eh_frame = nullptr;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + part.p_vaddr;
    found = found || (part.p_type == PT_LOAD && search.address - begin < part.p_memsz);
    if (part.p_type == PT_GNU_EH_FRAME) {
      search.result->dlfo_eh_frame = reinterpret_cast<void*>(begin);
    }
  }
  return found ? 1 : 0;
}

}  // namespace

extern "C" {

// Boost's parse_environment reads this variable, in a way that only a program can (--wrap=environ). A worker in another
// program does not call that function. Our own code that lists variables reads __environ.
static char* no_variables[] = {nullptr};
char** __wrap_environ = no_variables;

// Since glibc 2.25 and 2.27: system calls of Linux 3.17, and a memset that no compiler leaves out.
ssize_t getrandom(void* bytes, size_t size, unsigned flags) {
  return syscall(SYS_getrandom, bytes, size, flags);
}
int getentropy(void* bytes, size_t size) {
  if (size > kMaxEntropy) {
    errno = EIO;
    return -1;
  }
  ssize_t read = -1;
  do read = getrandom(bytes, size, 0);
  while (read < 0 && errno == EINTR);
  return read == static_cast<ssize_t>(size) ? 0 : -1;
}
int memfd_create(const char* name, unsigned flags) noexcept {
  return static_cast<int>(syscall(SYS_memfd_create, name, flags));
}
void __explicit_bzero_chk(void* bytes, size_t size, size_t limit) noexcept {
  if (size > limit) std::abort();
  std::memset(bytes, 0, size);
  asm volatile("" : : "r"(bytes) : "memory");
}

// Since glibc 2.30.
int pthread_cond_clockwait(pthread_cond_t* changed, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  return (glibc_clockwait != nullptr ? glibc_clockwait : clockwait_by_steps)(changed, mutex, clock,
                                                                             until);
}

// Since glibc 2.32. If true, libstdc++ counts references without regard to other threads.
char __libc_single_threaded = 0;

// Since glibc 2.32: the name of a signal. Without it, a message has the number.
const char* sigabbrev_np(int) noexcept { return nullptr; }

// Since glibc 2.33. Before, a header turned these into calls of the functions with two underscores.
int __xstat(int version, const char* path, struct stat* result);
int __lxstat(int version, const char* path, struct stat* result);
int __fxstat(int version, int file, struct stat* result);
int __fxstat64(int version, int file, struct stat64* result);
int __fxstatat(int version, int folder, const char* path, struct stat* result, int flags);

int stat(const char* path, struct stat* result) noexcept {
  return __xstat(kStatVersion, path, result);
}
int lstat(const char* path, struct stat* result) noexcept {
  return __lxstat(kStatVersion, path, result);
}
int fstat(int file, struct stat* result) noexcept { return __fxstat(kStatVersion, file, result); }
int fstat64(int file, struct stat64* result) noexcept {
  return __fxstat64(kStatVersion, file, result);
}
int fstatat(int folder, const char* path, struct stat* result, int flags) noexcept {
  return __fxstatat(kStatVersion, folder, path, result, flags);
}

// Since glibc 2.35: finds the table that libgcc unwinds the stack by, for exceptions. libgcc reads only dlfo_eh_frame.
int _dl_find_object(void* address, dl_find_object* result) noexcept {
  Search search = {reinterpret_cast<uintptr_t>(address), result};
  return dl_iterate_phdr(contains, &search) == 1 && result->dlfo_eh_frame != nullptr ? 0 : -1;
}
}

// Functions that glibc 2.17 lacks, for a bundled libpushpull.so (cmake/Bundle.cmake). The static libraries in it were
// compiled with a newer glibc and call these. They are private to the library, so that no other library gets them.
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

constexpr size_t kMaxEntropy = 256;
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kStep = kSecond / 10;

int64_t nanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }
int64_t now(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return nanoseconds(time);
}

int clockwait_by_steps(pthread_cond_t* changed, pthread_mutex_t* mutex, clockid_t clock,
                       const timespec* until) {
  const int64_t left = nanoseconds(*until) - now(clock);
  const int64_t end = now(CLOCK_REALTIME) + std::min(left, kStep);
  const timespec step = {end / kSecond, end % kSecond};
  const int result = pthread_cond_timedwait(changed, mutex, &step);
  return result == ETIMEDOUT && left > kStep ? 0 : result;
}

}  // namespace

extern "C" {

// Boost refers to it in parse_environment, in a way that suits programs only (--wrap=environ). A worker in another
// program does not call that function.
static char* no_variables[] = {nullptr};
char** __wrap_environ = no_variables;

// Since glibc 2.25 and 2.27: system calls of Linux 3.17, and a memset that no compiler leaves out.
ssize_t getrandom(void* bytes, size_t size, unsigned flags) {
  return syscall(SYS_getrandom, bytes, size, flags);
}
int getentropy(void* bytes, size_t size) {
  ssize_t done = -1;
  do
    done = getrandom(bytes, std::min(size, kMaxEntropy),
                     0);  // at most that many come at once, without a signal's break
  while (done < 0 && errno == EINTR);
  if (done >= 0 && static_cast<size_t>(done) != size) errno = EIO;
  return done >= 0 && static_cast<size_t>(done) == size ? 0 : -1;
}
int memfd_create(const char* name, unsigned flags) noexcept {
  return static_cast<int>(syscall(SYS_memfd_create, name, flags));
}
void __explicit_bzero_chk(void* bytes, size_t size, size_t limit) noexcept {
  if (size > limit) std::abort();
  std::memset(bytes, 0, size);
  asm volatile("" : : "r"(bytes) : "memory");
}

// Since glibc 2.32: false would allow libstdc++ to count references with several threads in mind, true without.
char __libc_single_threaded = 0;

// Since glibc 2.32: the name of a signal. The caller then writes its number.
const char* sigabbrev_np(int) noexcept { return nullptr; }

// Since glibc 2.30: waits until a time of any clock. An older glibc has the clock that users may set only. Of that, one
// wait is short, and then counts as a spurious wake-up, so that setting the clock prolongs the whole by as much.
int pthread_cond_clockwait(pthread_cond_t* changed, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) noexcept {
  using Function = int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  static const auto glibc =
      reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  return glibc != nullptr ? glibc(changed, mutex, clock, until)
                          : clockwait_by_steps(changed, mutex, clock, until);
}

// Since glibc 2.33. Before that, a header made these names calls of the functions below; their first argument is the
// layout of the structure, of which x86-64 has one.
int __xstat(int version, const char* path, struct stat* result);
int __lxstat(int version, const char* path, struct stat* result);
int __fxstat(int version, int file, struct stat* result);
int __fxstat64(int version, int file, struct stat64* result);
int __fxstatat(int version, int folder, const char* path, struct stat* result, int flags);
constexpr int kStatVersion = 1;

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

// Since glibc 2.35: finds the unwind table of the code at an address, for exceptions. libgcc reads only dlfo_eh_frame.
struct Search {
  uintptr_t address;
  dl_find_object* result;
};
static int is_there(dl_phdr_info* object, size_t, void* search_data) {
  const Search& search = *static_cast<Search*>(search_data);
  bool found = false;
  const void* table = nullptr;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && search.address - begin < part.p_memsz) {
      found = true;
      search.result->dlfo_map_start = reinterpret_cast<void*>(begin);
      search.result->dlfo_map_end = reinterpret_cast<void*>(begin + part.p_memsz);
    }
    if (part.p_type == PT_GNU_EH_FRAME) table = reinterpret_cast<const void*>(begin);
  }
  search.result->dlfo_eh_frame = const_cast<void*>(table);
  return found && table != nullptr ? 1 : 0;
}
int _dl_find_object(void* address, dl_find_object* result) noexcept {
  Search search = {reinterpret_cast<uintptr_t>(address), result};
  return dl_iterate_phdr(is_there, &search) == 1 ? 0 : -1;
}
}

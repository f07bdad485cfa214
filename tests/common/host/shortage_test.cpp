#include "common/host/shortage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <stdexcept>
#include <system_error>

#include "common/base/buffer_pool.h"

namespace pushpull::shortage_test {
namespace {

using testing::ExitedWithCode;
using testing::StartsWith;

// Ends the process with the code and the line of what `action` throws, under a limit.
[[noreturn]] void end_under(__rlimit_resource resource, rlim_t limit,
                            const std::function<void()>& action) {
  const rlimit both{limit, limit};
  setrlimit(resource, &both);
  try {
    action();
  } catch (const std::exception& e) {
    const Error error = error_of(e);
    fprintf(stderr, "%s\n", error.what());
    std::_Exit(static_cast<int>(error.code()));
  }
  std::_Exit(0);
}

TEST(Shortage, OfMemoryNamesWhatWasAskedAndWhatThereIs) {
  constexpr rlim_t kFew = rlim_t{4} << 30;
  EXPECT_EXIT(
      end_under(RLIMIT_AS, kFew, [] { heap_floats(size_t{1} << 40); }), ExitedWithCode(9),
      "^.memory. cannot allocate 4\\.4 TB for weights, gradients or messages: [0-9.]+ .B of "
      "this host's memory are available,.* ulimit -v is 4\\.3 GB; ");
  const Error plain = error_of(std::bad_alloc());
  EXPECT_EQ(plain.code(), ErrorCode::kDevice);
  EXPECT_THAT(plain.what(), StartsWith("[memory] cannot allocate memory: "));
}

TEST(Shortage, OfThreadsIsFoundAtTheStart) {
  check_threads(8, "a worker");
  // the address space has no room for their stacks
  EXPECT_EXIT(end_under(RLIMIT_AS, rlim_t{1} << 20, [] { check_threads(100, "a worker"); }),
              ExitedWithCode(9),
              "^.threads. a worker needs 100 threads, and [0-9]+ can be started: ");
}

TEST(Shortage, OfDescriptorsIsFoundAtTheStart) {
  check_descriptors(3, "a worker");
  EXPECT_EXIT(end_under(RLIMIT_NOFILE, 24, [] { check_descriptors(40, "a worker"); }),
              ExitedWithCode(9), "^.files. a worker needs 40 descriptors: ulimit -n is 24; raise ");
}

TEST(Shortage, OfWhatTheSystemRefusesIsNamed) {
  const auto of = [](int code) {
    return error_of(std::system_error(code, std::generic_category()));
  };
  EXPECT_THAT(of(EMFILE).what(), StartsWith("[files] no descriptor is left: ulimit -n is "));
  EXPECT_THAT(of(EAGAIN).what(), StartsWith("[threads] a thread cannot be started"));
  EXPECT_THAT(of(ENOMEM).what(), StartsWith("[memory] "));
  EXPECT_THAT(error_of(std::runtime_error(std::strerror(EMFILE))).what(), StartsWith("[files] "))
      << "libzmq's";
}

TEST(Shortage, OtherExceptionsStayWhatTheyAre) {
  const Error own = error_of(Error(ErrorCode::kData, "[x] y"));
  EXPECT_EQ(own.code(), ErrorCode::kData);
  EXPECT_STREQ(own.what(), "[x] y");
  const Error internal = error_of(std::runtime_error("odd"));
  EXPECT_EQ(internal.code(), ErrorCode::kInternal);
  EXPECT_STREQ(internal.what(), "[internal] odd");
  EXPECT_FALSE(shortage_of(std::runtime_error("odd")));
}

}  // namespace
}  // namespace pushpull::shortage_test

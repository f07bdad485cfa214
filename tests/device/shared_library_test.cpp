#include "common/device/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/common/scratch_folder.h"

namespace pushpull::device {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class SharedLibraries : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("PUSHPULL_CUDA_LIBS");
    unsetenv("CUDA_HOME");
  }
  void TearDown() override { SetUp(); }
};

TEST_F(SharedLibraries, AreSearchedInOrder) {
  EXPECT_THAT(library_candidates("libx.so.1"),
              ElementsAre("libx.so.1", "/usr/local/cuda/lib64/libx.so.1"));
  setenv("PUSHPULL_CUDA_LIBS", "/a:/b b::", 1);
  setenv("CUDA_HOME", "/c", 1);
  EXPECT_THAT(library_candidates("libx.so.1"),
              ElementsAre("/a/libx.so.1", "/b b/libx.so.1", "libx.so.1", "/c/lib64/libx.so.1",
                          "/usr/local/cuda/lib64/libx.so.1"));
}

TEST_F(SharedLibraries, ReturnTheirFunctionsByName) {
  const SharedLibrary library("libm.so.6");
  ASSERT_TRUE(library.is_open()) << library.failures();
  EXPECT_EQ(library.failures(), "");
  EXPECT_THAT(library.path(), HasSubstr("libm.so.6"));
  auto* const cosine = reinterpret_cast<double (*)(double)>(library.find("cos"));
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0.0), 1.0);
  EXPECT_EQ(library.find("no_such_function"), nullptr);
}

TEST_F(SharedLibraries, ListTheAttemptsInOneLine) {
  const ScratchFolder folder;
  std::ofstream(folder / "libnone.so.7") << "no library\n";
  setenv("PUSHPULL_CUDA_LIBS", folder.path().c_str(), 1);
  const SharedLibrary library("libnone.so.7");
  EXPECT_FALSE(library.is_open());
  EXPECT_EQ(library.find("cos"), nullptr);
  EXPECT_THAT(library.failures(),
              AllOf(HasSubstr(folder / "libnone.so.7"),
                    HasSubstr("/usr/local/cuda/lib64/libnone.so.7"), Not(HasSubstr("\n"))));
}

TEST_F(SharedLibraries, ABrokenFileDoesNotHideAGoodOne) {
  const ScratchFolder folder;
  std::ofstream(folder / "libm.so.6") << "no library\n";
  setenv("PUSHPULL_CUDA_LIBS", folder.path().c_str(), 1);
  EXPECT_TRUE(SharedLibrary("libm.so.6").is_open());
}

}  // namespace
}  // namespace pushpull::device

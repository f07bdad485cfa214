// Tests which line pp_error returns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "client/pushpull.h"

namespace {

using testing::HasSubstr;
using testing::Not;

TEST(PpError, IsTheLineOfTheLastCallThatFailed) {
  unsetenv("PUSHPULL_JOIN");
  pp_session* session = nullptr;
  EXPECT_EQ(pp_open(nullptr, &session), 2);
  const char* const first = pp_error(session);
  EXPECT_THAT(first, HasSubstr("set PUSHPULL_JOIN"));
  pp_job job;
  EXPECT_EQ(pp_join(session, 0, &job), 2);
  EXPECT_THAT(pp_error(session), HasSubstr("could not be opened"));
  pp_free(session);
}

TEST(PpError, HasNoControlCharacters) {
  pp_options options{};
  options.join = "tcp://a\x1b[31mb:1";
  options.insecure = 1;
  pp_session* session = nullptr;
  pp_job job;
  EXPECT_TRUE(pp_open(&options, &session) != 0 || pp_join(session, -1, &job) != 0);
  EXPECT_THAT(pp_error(session), HasSubstr("\\x1b[31m"));
  EXPECT_THAT(pp_error(session), Not(HasSubstr("\x1b")));
  pp_free(session);
}

}  // namespace

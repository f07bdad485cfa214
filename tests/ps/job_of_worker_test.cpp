// The first server before it has a job: which Hellos it takes, refuses and puts off.
#include "ps/run/job_of_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/error.h"
#include "common/net/join.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

Message hello_with(const std::string& keys, wire::Role role = wire::ROLE_WORKER,
                   const std::string& token = "") {
  Message message;
  wire::Hello* hello = message.header.mutable_hello();
  hello->set_role(role);
  hello->set_incarnation(7);
  hello->set_job_keys(keys);
  hello->set_job_token(token);
  return message;
}

class JobDeskTest : public testing::Test {
 protected:
  JobDeskTest() {
    wait_.job_token = "run 1";
    wait_.flags = {{"steps", "9"}};
    wait_.workers = 2;
  }
  // Returns the code and the text of the refusal, or 0 and "".
  std::pair<int, std::string> refusal_of(const Message& message) {
    const auto answer = desk_.on_message(message);
    if (!answer || !answer->header.has_refused()) return {0, ""};
    return {answer->header.refused().code(), answer->header.refused().text()};
  }

  JobWait wait_;
  JobDesk desk_{wait_};
};

TEST_F(JobDeskTest, TakesTheKeysOfTheFirstWorkerThatHasSome) {
  EXPECT_EQ(refusal_of(hello_with("")).first, static_cast<int>(ErrorCode::kUsage));
  EXPECT_FALSE(desk_.job());
  EXPECT_FALSE(desk_.on_message(hello_with("lr = 0.5\nglobal-batch = 8\nmicro-batch = 4\n")));
  ASSERT_TRUE(desk_.job());
  EXPECT_EQ(desk_.job()->schedule.lr, 0.5);
  EXPECT_EQ(desk_.job()->steps, 9);
  EXPECT_EQ(desk_.failure(), "");
  // the coordinator will check those of the others
  const auto later = desk_.on_message(hello_with("lr = 0.1"));
  ASSERT_TRUE(later);
  EXPECT_TRUE(later->header.has_no_place_yet());
  EXPECT_EQ(desk_.job()->schedule.lr, 0.5);
}

TEST_F(JobDeskTest, AWrongJobIsNamedToItsWorkerAndEndsTheWait) {
  const auto [code, text] = refusal_of(hello_with("lr = -1"));
  EXPECT_EQ(code, static_cast<int>(ErrorCode::kUsage));
  EXPECT_THAT(text, HasSubstr("lr = -1 (the worker's program)"));
  EXPECT_EQ(desk_.failure(), text);
  EXPECT_FALSE(desk_.job());
}

TEST_F(JobDeskTest, AJobThatTheWorkersCannotHaveIsWrong) {
  EXPECT_THAT(refusal_of(hello_with("straggler = 5:2")).second, HasSubstr("straggler"));
}

TEST_F(JobDeskTest, ServersWaitAndStrangersAreRefused) {
  const auto server = desk_.on_message(hello_with("lr = 1", wire::ROLE_SERVER));
  ASSERT_TRUE(server);
  EXPECT_TRUE(server->header.has_no_place_yet());
  EXPECT_EQ(refusal_of(hello_with("lr = 1", wire::ROLE_WORKER, "run 2")).first,
            static_cast<int>(ErrorCode::kRefused));
  EXPECT_FALSE(desk_.job());
  EXPECT_FALSE(desk_.on_message(Message()));
}

TEST_F(JobDeskTest, AHelloThatIsNoneHasNoAnswer) {
  EXPECT_FALSE(desk_.on_message(hello_with(std::string(kMaxJobKeysBytes + 1, ' '))));
  EXPECT_FALSE(desk_.job());
}

}  // namespace
}  // namespace pushpull

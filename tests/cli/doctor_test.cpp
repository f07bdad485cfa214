#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>

#include "cli/commands.h"
#include "cli/doctor/checks.h"
#include "cli/doctor/within.h"
#include "common/net/tcp_socket.h"
#include "tests/common/scratch_folder.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

std::string free_address() {
  const UniqueFd taken = listen_on({"127.0.0.1", "0"});
  return "tcp://" + local_name(taken.get()).to_string();
}

TEST(Doctor, WarningsAloneAreNoFailureAndTheFirstErrorGivesTheCode) {
  EXPECT_EQ(doctor_exit_code({fine("a", ""), warning("b", "")}), 0);
  EXPECT_EQ(doctor_exit_code({fine("a", ""), wrong("b", "", ErrorCode::kProtocol),
                              wrong("c", "", ErrorCode::kUnreachable)}),
            6);
}

TEST(Doctor, PrintsALineForEachCheckAndCountsThem) {
  const std::string text = doctor_text({fine("port", "open"), warning("clock", "late"),
                                        wrong("server 1", "gone\x1b", ErrorCode::kUnreachable)});
  EXPECT_EQ(text,
            "ok       port      open\n"
            "warning  clock     late\n"
            "ERROR    server 1  gone\\x1b\n"
            "3 checks, 1 error, 1 warning\n");
}

TEST(Doctor, ACallThatNeverReturnsHasADeadline) {
  EXPECT_EQ(within<int>(60.0, [] { return 7; }), 7);
  EXPECT_THROW(within<int>(60.0, []() -> int { throw std::runtime_error("no"); }),
               std::runtime_error);
  const auto never = [] {
    std::this_thread::sleep_for(std::chrono::hours(1));
    return 7;
  };
  EXPECT_EQ(within<int>(0.01, never), std::nullopt);
}

TEST(Doctor, AnUnusedPortIsNamedWithTheRemedy) {
  const std::string address = free_address();
  const AddressFindings found = reach(address, "of server 1", "start it");
  EXPECT_FALSE(found.ok);
  EXPECT_EQ(found.name.level, Finding::kOk);
  EXPECT_EQ(found.port.level, Finding::kError);
  EXPECT_EQ(found.port.code, ErrorCode::kUnreachable);
  EXPECT_EQ(found.port.check, "port of server 1");
  EXPECT_THAT(found.port.text, HasSubstr(address));
  EXPECT_THAT(found.port.text, HasSubstr("start it"));
}

TEST(Doctor, AnOpenPortIsReachedByNameToo) {
  const UniqueFd listening = listen_on({"127.0.0.1", "0"});
  const std::string numbers = local_name(listening.get()).to_string();
  const std::string port = numbers.substr(numbers.rfind(':'));
  EXPECT_TRUE(reach("tcp://127.0.0.1" + port, "", "").ok);
  const AddressFindings named = reach("tcp://localhost" + port, "", "");
  EXPECT_TRUE(named.ok) << named.port.text;
  EXPECT_THAT(named.name.text, HasSubstr("127.0.0.1"));
}

TEST(Doctor, AnUnknownHostIsNamed) {
  const AddressFindings found = reach("tcp://no-such-host.invalid:5555", "", "");
  EXPECT_FALSE(found.ok);
  EXPECT_EQ(found.name.level, Finding::kError);
  EXPECT_THAT(found.name.text, HasSubstr("no-such-host.invalid"));
  EXPECT_THAT(found.port.text, HasSubstr(":5555"));
}

// Another program listens at the port: it accepts the connection and does not answer.
TEST(Doctor, AnotherProgramAtThePortIsNotAJob) {
  const UniqueFd listening = listen_on({"127.0.0.1", "0"});
  const std::string address = "tcp://" + local_name(listening.get()).to_string();
  const std::vector<Finding> findings = check_job(address, Keys(), 0.2);
  EXPECT_EQ(doctor_exit_code(findings), 4);
  EXPECT_THAT(findings.back().text, HasSubstr(address));
}

TEST(Doctor, ClocksMayDifferByTheRoundTrip) {
  EXPECT_EQ(check_clock(10'000, 10'100, 200.0).level, Finding::kOk);
  EXPECT_EQ(check_clock(10'000, 12'500, 2'900.0).level, Finding::kOk) << "within the round trip";
  const Finding behind = check_clock(10'000, 15'000, 10.0);
  EXPECT_EQ(behind.level, Finding::kWarning);
  EXPECT_THAT(behind.text, HasSubstr("4.995 s behind"));
  EXPECT_THAT(check_clock(15'000, 10'000, 10.0).text, HasSubstr("5.005 s ahead"));
}

TEST(Doctor, TheHardLimitOfFilesCounts) {
  EXPECT_EQ(check_files(1024, 4096, 2000).level, Finding::kOk);
  EXPECT_EQ(check_files(1024, 1024, 2000).level, Finding::kWarning);
}

TEST(Doctor, LittleOrSlowMemoryAndDiskAreWarnings) {
  EXPECT_EQ(check_shm(int64_t{8} << 30, int64_t{8} << 30).level, Finding::kOk);
  EXPECT_EQ(check_shm(int64_t{64} << 20, int64_t{64} << 20).level, Finding::kWarning);
  EXPECT_EQ(check_disk("/x", int64_t{1} << 40, 1e9).level, Finding::kOk);
  EXPECT_EQ(check_disk("/x", int64_t{1} << 20, 1e9).level, Finding::kWarning);
  EXPECT_EQ(check_disk("/x", int64_t{1} << 40, 1e6).level, Finding::kWarning);
}

TEST(Doctor, TheDiskCheckLeavesNoFile) {
  const ScratchFolder folder;
  EXPECT_THAT(check_disk_here(folder.path()).text, HasSubstr(folder.path()));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(check_disk_here(folder / "none").level, Finding::kWarning);
}

TEST(Doctor, AServerIsReportedWithItsLatencyAndItsMemory) {
  const ServerWay good{0.08, 1.2e9, 2.4e9, "", true};
  const std::vector<Finding> findings = findings_of("server 1", "tcp://node:5", good);
  ASSERT_EQ(findings.size(), 2U);
  for (const char* value : {"tcp://node:5", "0.08 ms", "1200 MB/s", "2400 MB/s"}) {
    EXPECT_THAT(findings[0].text, HasSubstr(value));
  }
  EXPECT_EQ(findings[1].level, Finding::kOk);
  EXPECT_EQ(findings_of("s", "a", {80.0, 1e9, 1e9, "", true})[0].level, Finding::kWarning);
  EXPECT_NE(findings_of("s", "a", {1.0, 0.0, 1e9, "", true})[0].level, Finding::kOk);
  const ServerWay apart{1.0, 1e9, 1e9, "it is on another host", false};
  EXPECT_EQ(findings_of("s", "a", apart)[1].level, Finding::kOk);
  const ServerWay closed{1.0, 1e9, 1e9, "Permission denied", true};
  EXPECT_EQ(findings_of("s", "a", closed)[1].level, Finding::kWarning);
}

}  // namespace
}  // namespace pushpull

#include "ps/server/grants.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/ps/refusals.h"

namespace pushpull {
namespace {

constexpr uint64_t kHolder = 1;
constexpr uint64_t kOther = 2;
constexpr Range kShare{2, 4};
constexpr Range kSteps{5, 10};

const Grants& issuer() {
  static const Grants one("a key of this run");
  return one;
}

TEST(Grants, CoverTheirWorkerMicroBatchesAndSteps) {
  const wire::Grant grant = issuer().make(kHolder, kShare, kSteps);
  EXPECT_TRUE(taken(issuer().check(grant, kHolder, kShare, {5, 6})));
  EXPECT_TRUE(taken(issuer().check(grant, kHolder, kShare, {9, 10})));
  EXPECT_TRUE(taken(issuer().check(grant, kHolder, kShare, kSteps)));
}

TEST(Grants, AnotherWorkerOrWorkIsRefused) {
  const wire::Grant grant = issuer().make(kHolder, kShare, kSteps);
  EXPECT_EQ(reason_of(issuer().check(grant, kOther, kShare, {5, 6})), "push-grant");
  EXPECT_EQ(reason_of(issuer().check(grant, kHolder, {0, 2}, {5, 6})), "push-grant");
  EXPECT_EQ(reason_of(issuer().check(grant, kHolder, {2, 3}, {5, 6})), "push-grant");
  EXPECT_EQ(line_of(issuer().check(grant, kHolder, kShare, {4, 5})),
            "[push-grant] expected the coordinator's grant of micro-batches [2, 4) of steps [4, 5) "
            "to this worker, got one of steps [5, 10)");
  EXPECT_EQ(reason_of(issuer().check(grant, kHolder, kShare, {9, 11})), "push-grant");
  EXPECT_EQ(reason_of(issuer().check(grant, kHolder, kShare, {5, 6}, 1)), "push-grant");
}

TEST(Grants, NameStageAndAttemptOfAGroup) {
  wire::Grant grant = issuer().make(kHolder, kShare, kSteps, {1, 7});
  EXPECT_EQ(grant.attempt(), 7);
  EXPECT_TRUE(taken(issuer().check(grant, kHolder, kShare, {5, 6}, 1)));
  EXPECT_EQ(reason_of(issuer().check(grant, kHolder, kShare, {5, 6})), "push-grant");
  grant.set_attempt(8);
  EXPECT_EQ(reason_of(issuer().check(grant, kHolder, kShare, {5, 6}, 1)), "push-grant");
}

TEST(Grants, ForgedGrantsAreRefused) {
  EXPECT_EQ(line_of(issuer().check({}, kHolder, kShare, {5, 6})),
            "[push-grant] expected the coordinator's grant of micro-batches [2, 4) of steps [5, 6) "
            "to this worker, got none");
  const wire::Grant grant = issuer().make(kHolder, kShare, kSteps);
  wire::Grant longer = grant;
  longer.set_to_step(1000);
  EXPECT_EQ(reason_of(issuer().check(longer, kHolder, kShare, {5, 6})), "push-grant");
  for (size_t byte = 0; byte < grant.mac().size(); ++byte) {
    wire::Grant changed = grant;
    (*changed.mutable_mac())[byte] ^= 1;
    EXPECT_EQ(reason_of(issuer().check(changed, kHolder, kShare, {5, 6})), "push-grant") << byte;
  }
  wire::Grant short_one = grant;
  short_one.mutable_mac()->pop_back();
  EXPECT_EQ(reason_of(issuer().check(short_one, kHolder, kShare, {5, 6})), "push-grant");
  EXPECT_EQ(reason_of(Grants("another key").check(grant, kHolder, kShare, {5, 6})), "push-grant");
}

TEST(Grants, KeysAreRandom) {
  EXPECT_EQ(Grants::random_key().size(), 32U);
  EXPECT_NE(Grants::random_key(), Grants::random_key());
}

// HMAC-SHA256 of the seven fields as 8-byte little-endian numbers, made with Python's hmac.
TEST(Grants, HaveTheDocumentedFormat) {
  const std::string mac = Grants("a key of this run").make(kHolder, kShare, kSteps).mac();
  std::string hex;
  for (const char c : mac) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[static_cast<unsigned char>(c) >> 4U];
    hex += kDigits[static_cast<unsigned char>(c) & 15U];
  }
  EXPECT_EQ(hex, "d83422b7d120991fb874219d65241c44");
}

}  // namespace
}  // namespace pushpull

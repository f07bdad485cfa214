// The proofs of data connections, and the machine of the side that connects.
#include "common/net/data_proof.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace pushpull {
namespace {

constexpr const char* kNonce = "0123456789abcdef0123456789abcdef";
constexpr int64_t kStartMs = 1000;

KeyNumber some_key(unsigned char filler) {
  KeyNumber key{};
  key.fill(filler);
  return key;
}

// Computed by Python's hashlib and hmac: programs of two releases must agree.
TEST(DataProof, TheProofsAreThoseOfRecord) {
  const KeyNumber key{0x6b, 0x6b, 0xe2, 0xd7, 0x8e, 0xea, 0x45, 0xb3, 0xb8, 0x7c, 0xe4,
                      0x1d, 0xf5, 0x35, 0xe2, 0x65, 0x46, 0x71, 0x30, 0x87, 0xb0, 0x90,
                      0xc7, 0x54, 0x9e, 0xf1, 0xb0, 0xe1, 0x32, 0x99, 0x5e, 0x54};
  EXPECT_EQ(listener_name(7), "8e5318561af93e431ca3043b05d7d713");
  EXPECT_EQ(member_proof(key, listener_name(7), kNonce),
            "d400fea2ad2b45d2214eee6da0a0fdacc3c54449158541e485c32d1e1b9609b3");
  EXPECT_EQ(listener_proof(key, listener_name(7), kNonce),
            "7f0fb18f681223afcdc335058ebcb72422ad1d99e56e48c3bd0cc7c7a339ca4e");
}

TEST(DataProof, EachKeyListenerNonceAndDirectionHasItsOwn) {
  std::set<std::string> all;
  for (const unsigned char filler : {1, 2}) {
    for (const uint64_t incarnation : {1, 2}) {
      for (const std::string& nonce : {std::string(kNonce), std::string(32, '0')}) {
        all.insert(member_proof(some_key(filler), listener_name(incarnation), nonce));
        all.insert(listener_proof(some_key(filler), listener_name(incarnation), nonce));
      }
    }
  }
  EXPECT_EQ(all.size(), 16U);
}

TEST(DataProof, NoncesDiffer) {
  EXPECT_EQ(new_nonce().size(), kNonceDigits);
  EXPECT_NE(new_nonce(), new_nonce());
}

TEST(DataProof, OnlyEqualProofsAreTheSame) {
  EXPECT_TRUE(same_proof("ab", "ab"));
  EXPECT_FALSE(same_proof("ab", "ac"));
  EXPECT_FALSE(same_proof("ab", "abc"));
  EXPECT_FALSE(same_proof("ab", ""));
}

TEST(UsedNonces, ANonceCountsOnceUntilItIsForgotten) {
  UsedNonces used(2);
  EXPECT_TRUE(used.add("a"));
  EXPECT_FALSE(used.add("a"));
  EXPECT_TRUE(used.add("b"));
  EXPECT_FALSE(used.add("a"));
  EXPECT_TRUE(used.add("c"));  // forgets a
  EXPECT_FALSE(used.add("b"));
  EXPECT_TRUE(used.add("a"));
}

class ServerProofTest : public testing::Test {
 protected:
  static Credentials credentials() {
    Credentials out;
    out.proof = Proof::kChallenge;
    out.data_key = some_key(1);
    return out.to(listener_name(7));
  }
  static std::string right(const std::string& nonce) {
    return listener_proof(some_key(1), listener_name(7), nonce);
  }

  ServerProof machine_{credentials()};
};

TEST_F(ServerProofTest, TheServerIsProvenByItsAnswerToTheNonce) {
  EXPECT_TRUE(machine_.open_due(kStartMs));
  const ServerProof::Opening opening = machine_.open(kNonce, kStartMs);
  EXPECT_EQ(opening.user, kNonce + listener_name(7));
  EXPECT_EQ(opening.nonce, kNonce);
  EXPECT_EQ(opening.password, member_proof(some_key(1), listener_name(7), kNonce));
  EXPECT_FALSE(machine_.proven());
  EXPECT_FALSE(machine_.open_due(kStartMs));
  EXPECT_TRUE(machine_.on_proof(right(kNonce), kStartMs + 1));
  EXPECT_TRUE(machine_.proven());
  EXPECT_FALSE(machine_.open_due(kStartMs + 10 * ServerProof::kProofMs));
}

TEST_F(ServerProofTest, WrongAnswersEndTheConnection) {
  const std::string other(32, '0');
  for (const std::string& answer : {std::string(), std::string(64, '0'), right(other),
                                    listener_proof(some_key(2), listener_name(7), kNonce),
                                    listener_proof(some_key(1), listener_name(8), kNonce),
                                    member_proof(some_key(1), listener_name(7), kNonce)}) {
    ServerProof machine(credentials());
    machine.open(kNonce, kStartMs);
    EXPECT_FALSE(machine.on_proof(answer, kStartMs)) << answer;
    EXPECT_FALSE(machine.proven());
    EXPECT_FALSE(machine.open_due(kStartMs));
    EXPECT_TRUE(machine.open_due(kStartMs + ServerProof::kMinWaitMs));
    EXPECT_FALSE(machine.on_proof(right(kNonce), kStartMs)) << "an answer after the end";
  }
}

TEST_F(ServerProofTest, AReplacedConnectionMustBeProvenAgain) {
  machine_.open(kNonce, kStartMs);
  machine_.on_proof(right(kNonce), kStartMs);
  machine_.on_end(kStartMs);
  EXPECT_FALSE(machine_.proven());
  EXPECT_FALSE(machine_.on_proof(right(kNonce), kStartMs));
  EXPECT_TRUE(machine_.open_due(kStartMs + ServerProof::kMinWaitMs));
  const std::string other(32, '0');
  machine_.open(other, kStartMs + ServerProof::kMinWaitMs);
  EXPECT_FALSE(machine_.on_proof(right(kNonce), kStartMs)) << "the answer to an earlier nonce";
}

TEST_F(ServerProofTest, TheWaitDoublesUntilAServerIsProven) {
  int64_t now = kStartMs;
  for (const int64_t wait : {50, 100, 200, 400, 800, 1000, 1000}) {
    machine_.open(kNonce, now);
    machine_.on_end(now);
    EXPECT_FALSE(machine_.open_due(now + wait - 1));
    EXPECT_TRUE(machine_.open_due(now + wait));
    machine_.on_end(now + wait - 1);  // once more changes nothing
    now += wait;
  }
  machine_.open(kNonce, now);
  EXPECT_TRUE(machine_.on_proof(right(kNonce), now));
  machine_.on_end(now);
  EXPECT_TRUE(machine_.open_due(now + ServerProof::kMinWaitMs));
}

TEST_F(ServerProofTest, ASilentServerIsGivenUp) {
  machine_.open(kNonce, kStartMs);
  EXPECT_FALSE(machine_.open_due(kStartMs + ServerProof::kProofMs - 1));
  EXPECT_TRUE(machine_.open_due(kStartMs + ServerProof::kProofMs));
}

}  // namespace
}  // namespace pushpull

#include "common/net/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zmq.h>

#include <array>
#include <set>
#include <string>

#include "common/base/error.h"
#include "common/job/job.h"
#include "common/net/data_proof.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

SecretKey some_secret(unsigned char filler) {
  SecretKey key;
  key.secret.fill(filler);
  return key;
}

std::string bytes_of(const std::string& z85) {
  std::string bytes(z85.size() / 5 * 4, '\0');
  zmq_z85_decode(reinterpret_cast<uint8_t*>(bytes.data()), z85.c_str());
  return bytes;
}

TEST(Keys, ProgramsWithOneSecretAcceptEachOther) {
  const Keys server(some_secret(1), "a");
  const Keys member(some_secret(1), "b");
  const Demand demand = server.control_demand();
  const Credentials shown = member.control_credentials();
  EXPECT_EQ(shown.server_public, demand.server.public_key);
  EXPECT_EQ(role_of(demand, "CURVE", std::array{bytes_of(shown.own.public_key)}),
            PeerRole::kMember);
}

TEST(Keys, AnotherSecretDerivesOtherKeys) {
  const Demand demand = Keys(some_secret(1), "").control_demand();
  const Credentials shown = Keys(some_secret(2), "").control_credentials();
  EXPECT_NE(shown.server_public, demand.server.public_key);
  EXPECT_FALSE(role_of(demand, "CURVE", std::array{bytes_of(shown.own.public_key)}));
}

// RFC 5869's HKDF-SHA256 without salt, computed with Python's hmac from a secret of 32 bytes 0x01.
// A change here would lock programs of two releases out of each other's jobs.
TEST(Keys, TheDerivationNeverChanges) {
  const Keys keys(some_secret(1), "");
  EXPECT_EQ(keys.control_credentials().own.secret_key, ")tXej21Y=.<rq2fYtM4UFg/7o)j=)No1Zv9&3WSf");
  EXPECT_EQ(keys.control_demand().server.secret_key, "C-AOZ@ug$Xmkoa4ShQv0hu:43+I3$iW!=b\?N%[Q1");
  const KeyNumber data = keys.data_credentials(false, 42).data_key;
  EXPECT_EQ(std::string(data.begin(), data.begin() + 8), "\x6b\x6b\xe2\xd7\x8e\xea\x45\xb3");
}

TEST(Keys, EveryRoleAndRunHasItsOwnKey) {
  const Keys keys(some_secret(1), "");
  const Demand control = keys.control_demand();
  const std::set<std::string> all{control.server.public_key, control.member, control.observer,
                                  control.server.secret_key};
  EXPECT_EQ(all.size(), 4U);
  EXPECT_NE(keys.data_credentials(false, 1).data_key, keys.data_credentials(false, 2).data_key);
}

TEST(Keys, AnObserverHasItsRoleOnControlOnly) {
  const Keys job(some_secret(3), "");
  const Keys observer(job.observer_key(), "o.key");
  const Credentials shown = observer.control_credentials();
  const std::array mine{bytes_of(shown.own.public_key)};
  EXPECT_EQ(shown.server_public, job.control_demand().server.public_key);
  EXPECT_EQ(role_of(job.control_demand(), "CURVE", mine), PeerRole::kObserver);
  EXPECT_FALSE(role_of(job.data_demand(true, 1, "here"), "CURVE", mine));
  EXPECT_FALSE(role_of(job.data_demand(false, 1, "here"), "CURVE", mine));
}

TEST(Keys, AnObserverCanNeitherListenNorReachData) {
  const Keys observer(Keys(some_secret(3), "").observer_key(), "o.key");
  for (const auto& call : std::initializer_list<std::function<void()>>{
           [&] { observer.control_demand(); }, [&] { observer.data_demand(false, 1, "here"); },
           [&] { observer.data_demand(true, 1, "here"); },
           [&] { observer.data_credentials(false, 1); },
           [&] { observer.data_credentials(true, 1); }, [&] { observer.observer_key(); }}) {
    EXPECT_THAT(thrown(ErrorCode::kUsage, call), HasSubstr("o.key"));
  }
}

TEST(Keys, OnlyAProofOfTheRunForThisListenerAdmits) {
  const Keys keys(some_secret(4), "");
  const Demand here = keys.data_demand(false, 7, "here");
  const std::string nonce(kNonceDigits, 'a');
  const auto role = [&](const std::string& shown, const std::string& proof) {
    return role_of(here, "PLAIN", std::array<std::string, 2>{challenge_user(shown, "here"), proof});
  };
  const KeyNumber key = keys.data_credentials(false, 7).data_key;
  const std::string proof = member_proof(key, "here", nonce);
  EXPECT_EQ(role(nonce, proof), PeerRole::kMember);
  EXPECT_FALSE(role(std::string(kNonceDigits, 'b'), proof));
  EXPECT_FALSE(role(nonce, member_proof(key, "there", nonce)));
  EXPECT_FALSE(role(nonce, listener_proof(key, "here", nonce)));
  EXPECT_FALSE(role(nonce, member_proof(keys.data_credentials(false, 6).data_key, "here", nonce)));
  EXPECT_FALSE(role("", member_proof(key, "here", "")));
  EXPECT_FALSE(role(nonce, ""));
  const std::array<std::string, 2> elsewhere{challenge_user(nonce, "past"),
                                             member_proof(key, "past", nonce)};
  EXPECT_FALSE(role_of(here, "PLAIN", elsewhere));
  EXPECT_TRUE(seeks_another_listener(here, elsewhere));
  EXPECT_FALSE(seeks_another_listener(
      here, std::array<std::string, 2>{challenge_user(nonce, "here"), "wrong"}));
  EXPECT_FALSE(role(nonce, proof + "x"));
  EXPECT_FALSE(role(nonce, proof.substr(1)));
  EXPECT_FALSE(role_of(here, "CURVE", std::array{proof}));
  EXPECT_FALSE(role_of(here, "NULL", {}));
  EXPECT_FALSE(role_of(here, "PLAIN", std::array{proof}));
}

TEST(Keys, AListenerWithoutANameAdmitsNoPeer) {
  Demand demand;
  demand.proof = Proof::kChallenge;
  const std::string nonce(kNonceDigits, 'a');
  const std::string proof = member_proof(demand.data_key, "", nonce);
  EXPECT_FALSE(role_of(demand, "PLAIN", std::array<std::string, 2>{nonce, proof}));
}

TEST(Keys, WithoutAKeyNoCredentialsAreShownOrDemanded) {
  const Keys none;
  EXPECT_TRUE(none.insecure());
  EXPECT_EQ(none.control_demand().proof, Proof::kNone);
  EXPECT_EQ(none.control_credentials().proof, Proof::kNone);
  EXPECT_EQ(none.data_demand(true, 1, "here").proof, Proof::kNone);
  EXPECT_EQ(none.data_credentials(false, 1).proof, Proof::kNone);
  EXPECT_THROW(none.observer_key(), Error);
}

TEST(Keys, NewKeysDiffer) { EXPECT_NE(new_secret_key().secret, new_secret_key().secret); }

}  // namespace
}  // namespace pushpull

#include "common/keys/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zmq.h>

#include <array>
#include <set>
#include <string>

#include "common/base/error.h"

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
  EXPECT_EQ(keys.data_credentials(false, 42).token, "]Vun2q>vh)L$)P(nk=E@BL93oD*5tcDa#I/vYhdM");
}

TEST(Keys, EveryRoleAndRunHasItsOwnKey) {
  const Keys keys(some_secret(1), "");
  const Demand control = keys.control_demand();
  const std::set<std::string> all{control.server.public_key,
                                  control.member,
                                  control.observer,
                                  control.server.secret_key,
                                  keys.data_credentials(false, 1).token,
                                  keys.data_credentials(false, 2).token};
  EXPECT_EQ(all.size(), 6U);
}

TEST(Keys, AnObserverHasItsRoleOnControlOnly) {
  const Keys job(some_secret(3), "");
  const Keys observer(job.observer_key(), "o.key");
  const Credentials shown = observer.control_credentials();
  const std::array mine{bytes_of(shown.own.public_key)};
  EXPECT_EQ(shown.server_public, job.control_demand().server.public_key);
  EXPECT_EQ(role_of(job.control_demand(), "CURVE", mine), PeerRole::kObserver);
  EXPECT_FALSE(role_of(job.data_demand(true, 1), "CURVE", mine));
  EXPECT_FALSE(role_of(job.data_demand(false, 1), "CURVE", mine));
}

TEST(Keys, AnObserverCanNeitherListenNorReachData) {
  const Keys observer(Keys(some_secret(3), "").observer_key(), "o.key");
  for (const auto& call : std::initializer_list<std::function<void()>>{
           [&] { observer.control_demand(); }, [&] { observer.data_demand(false, 1); },
           [&] { observer.data_demand(true, 1); }, [&] { observer.data_credentials(false, 1); },
           [&] { observer.data_credentials(true, 1); }, [&] { observer.observer_key(); }}) {
    try {
      call();
      ADD_FAILURE() << "an observer's key was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUsage);
      EXPECT_THAT(e.what(), HasSubstr("o.key"));
    }
  }
}

TEST(Keys, OnlyTheTokenOfTheRunAdmits) {
  const Keys keys(some_secret(4), "");
  const Demand today = keys.data_demand(false, 7);
  const auto role = [&](const std::string& token) {
    return role_of(today, "PLAIN", std::array<std::string, 2>{"pushpull", token});
  };
  const std::string token = keys.data_credentials(false, 7).token;
  EXPECT_EQ(role(token), PeerRole::kMember);
  EXPECT_FALSE(role(keys.data_credentials(false, 6).token));
  EXPECT_FALSE(role(""));
  EXPECT_FALSE(role(token + "x"));
  EXPECT_FALSE(role(token.substr(1)));
  EXPECT_FALSE(role_of(today, "CURVE", std::array{token}));
  EXPECT_FALSE(role_of(today, "NULL", {}));
  EXPECT_FALSE(role_of(today, "PLAIN", std::array{token}));
}

TEST(Keys, AnEmptyTokenAdmitsNoPeer) {
  Demand demand;
  demand.proof = Proof::kToken;
  EXPECT_FALSE(role_of(demand, "PLAIN", std::array<std::string, 2>{"pushpull", ""}));
}

TEST(Keys, WithoutAKeyNoCredentialsAreShownOrDemanded) {
  const Keys none;
  EXPECT_TRUE(none.insecure());
  EXPECT_EQ(none.control_demand().proof, Proof::kNone);
  EXPECT_EQ(none.control_credentials().proof, Proof::kNone);
  EXPECT_EQ(none.data_demand(true, 1).proof, Proof::kNone);
  EXPECT_EQ(none.data_credentials(false, 1).proof, Proof::kNone);
  EXPECT_THROW(none.observer_key(), Error);
}

TEST(Keys, NewKeysDiffer) { EXPECT_NE(new_secret_key().secret, new_secret_key().secret); }

}  // namespace
}  // namespace pushpull

#include "common/net/key_text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/common/net/key_text_check.h"
#include "tests/common/scratch_folder.h"

namespace pushpull {
namespace {

const std::string kDigits(64, 'a');
const std::string kOthers(64, '0');

SecretKey secret_of(unsigned char first) {
  SecretKey key;
  for (size_t i = 0; i < key.secret.size(); ++i) {
    key.secret[i] = static_cast<unsigned char>(first + i);
  }
  return key;
}

TEST(KeyText, ASecretSurvivesTheRoundTrip) {
  const SecretKey key = secret_of(0xf0);
  const auto read = parse_key(key_text(key));
  ASSERT_TRUE(read && std::holds_alternative<SecretKey>(*read));
  EXPECT_EQ(std::get<SecretKey>(*read).secret, key.secret);
}

TEST(KeyText, AnObserversKeySurvivesTheRoundTrip) {
  const ObserverKey key{secret_of(7).secret, secret_of(99).secret};
  const auto read = parse_key(key_text(key));
  ASSERT_TRUE(read && std::holds_alternative<ObserverKey>(*read));
  EXPECT_EQ(std::get<ObserverKey>(*read).secret, key.secret);
  EXPECT_EQ(std::get<ObserverKey>(*read).server_public, key.server_public);
}

TEST(KeyText, NumbersAreHexadecimal) {
  EXPECT_EQ(key_text(secret_of(0)),
            "pushpull-key-1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n");
}

TEST(KeyText, LineEndsOfOtherSystemsAreAccepted) {
  EXPECT_TRUE(parse_key("pushpull-key-1 " + kDigits + "\r\n"));
  EXPECT_TRUE(parse_key("pushpull-key-1 " + kDigits));
}

TEST(KeyText, AnInvalidKeyIsRefused) {
  for (const std::string& text : std::vector<std::string>{
           std::string(), std::string("\n"), std::string(2000, 'a'), kDigits, "pushpull-key-1",
           "pushpull-key-1 ", "pushpull-key-1 " + kDigits.substr(1),
           "pushpull-key-1 " + kDigits + "a", "pushpull-key-1  " + kDigits,
           "pushpull-key-1 " + kDigits + " " + kOthers, "pushpull-key-2 " + kDigits,
           "pushpull-key-1 G" + kDigits.substr(1), "pushpull-key-1 A" + kDigits.substr(1),
           "pushpull-key-1 " + kDigits + "\npushpull-key-1 " + kDigits,
           "pushpull-observer-key-1 " + kDigits, "pushpull-observer-key-1 " + kDigits + " ",
           "pushpull-observer-key-1 " + kDigits + " " + kOthers + " " + kOthers,
           std::string("pushpull-key-1 ") + std::string(64, '\0')}) {
    EXPECT_FALSE(parse_key(text)) << text;
  }
}

TEST(KeyText, EveryPrefixOfAKeyIsRefused) {
  for (const AnyKey& key : {AnyKey(secret_of(1)), AnyKey(ObserverKey{})}) {
    const std::string text = key_text(key);
    for (size_t n = 0; n + 1 < text.size(); ++n) EXPECT_FALSE(parse_key(text.substr(0, n))) << n;
  }
}

TEST(KeyText, TheFuzzersCorpusPasses) {
  int keys = 0;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(PUSHPULL_KEY_CORPUS)) {
    keys += check_key_text(read_bytes(entry.path().string())) ? 1 : 0;
    ++files;
  }
  EXPECT_GE(files, 8);
  EXPECT_GE(keys, 3);
}

}  // namespace
}  // namespace pushpull

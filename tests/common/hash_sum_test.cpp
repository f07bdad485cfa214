#include "common/base/hash_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

namespace pushpull {
namespace {

HashSum number(std::initializer_list<int> last_bytes) {
  std::array<std::byte, HashSum::kBytes> bytes{};
  size_t i = bytes.size() - last_bytes.size();
  for (const int b : last_bytes) bytes[i++] = static_cast<std::byte>(b);
  return HashSum(bytes);
}

TEST(HashSum, AddsAsNumbersWithCarries) {
  HashSum sum = number({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff});
  sum += number({1});
  EXPECT_EQ(sum, number({1, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(sum.hex(), std::string(47, '0') + "1" + std::string(16, '0'));
}

TEST(HashSum, TheHighestCarryIsDropped) {
  std::array<std::byte, HashSum::kBytes> all{};
  all.fill(std::byte{0xff});
  HashSum sum(all);
  sum += number({3});
  EXPECT_EQ(sum, number({2}));
  // a carry into a word of all ones
  sum = HashSum(all);
  sum += HashSum(all);
  EXPECT_EQ(sum.hex(), std::string(63, 'f') + "e");
}

TEST(HashSum, TheOrderDoesNotMatter) {
  std::mt19937_64 random(1);
  std::vector<HashSum> hashes;
  for (int i = 0; i < 100; ++i) {
    std::array<std::byte, HashSum::kBytes> bytes{};
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    hashes.emplace_back(bytes);
  }
  HashSum want;
  for (const HashSum& h : hashes) want += h;
  std::shuffle(hashes.begin(), hashes.end(), random);
  HashSum parts[2];
  for (size_t i = 0; i < hashes.size(); ++i) parts[i % 2] += hashes[i];
  parts[0] += parts[1];
  EXPECT_EQ(parts[0], want);
  EXPECT_NE(want, HashSum());
}

TEST(HashSum, SurvivesConversionToBytes) {
  const HashSum sum = number({0x80, 0, 0, 0, 0, 0, 0, 0, 0xfe, 0x41});
  EXPECT_EQ(sum.bytes().size(), HashSum::kBytes);
  EXPECT_EQ(sum.bytes().back(), 'A');
  EXPECT_EQ(HashSum::from_bytes(sum.bytes()), sum);
  EXPECT_EQ(sum.hex(), std::string(44, '0') + "8000000000000000fe41");
}

}  // namespace
}  // namespace pushpull

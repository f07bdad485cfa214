#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>

#include "cli/link/proxy_connection.h"

namespace pushpull {
namespace {

void put(ByteQueue& queue, const std::vector<std::byte>& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const std::span<std::byte> space = queue.space();
    const size_t part = std::min(space.size(), bytes.size() - at);
    std::memcpy(space.data(), bytes.data() + at, part);
    queue.commit(part);
    at += part;
  }
}

TEST(ByteQueue, BytesComeOutInOrderForAnyPieces) {
  BlockPool pool;
  ByteQueue queue(pool);
  std::mt19937_64 random(7);
  std::vector<std::byte> in;
  std::vector<std::byte> out;
  for (int turn = 0; turn < 2000; ++turn) {
    std::vector<std::byte> some(random() % 3000);
    for (std::byte& byte : some) {
      byte = std::byte(random());
    }
    in.insert(in.end(), some.begin(), some.end());
    put(queue, some);
    // drains now and then; in between, several blocks fill up
    size_t want = turn % 500 == 499 ? queue.size() : random() % 2600;
    while (want > 0 && queue.size() > 0) {
      const std::span<std::byte> front = queue.front();
      ASSERT_FALSE(front.empty());
      const size_t part = std::min(want, front.size());
      out.insert(out.end(), front.begin(), front.begin() + static_cast<ptrdiff_t>(part));
      queue.pop(part);
      want -= part;
    }
    ASSERT_EQ(in.size(), out.size() + queue.size());
  }
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_TRUE(in == out);
}

TEST(ByteQueue, AnEmptyQueueHasNoFront) {
  BlockPool pool;
  ByteQueue queue(pool);
  EXPECT_TRUE(queue.front().empty());
  queue.space();
  queue.commit(0);  // no bytes were written
  EXPECT_TRUE(queue.front().empty());
  put(queue, std::vector<std::byte>(3 * BlockPool::kBlockBytes));
  queue.clear();
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_TRUE(queue.front().empty());
}

}  // namespace
}  // namespace pushpull

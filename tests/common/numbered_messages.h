// Pushes with a number and a payload, for tests of what carries messages. Any thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "common/net/message.h"

namespace pushpull {

inline Message message_of(int64_t number, size_t floats = 0) {
  Message message;
  wire::Exchange* exchange = message.header.mutable_exchange();
  exchange->mutable_push()->set_number(number);
  if (floats == 0) return message;
  exchange->mutable_push()->add_parts()->set_slice(1);
  auto owner = std::make_shared<std::vector<float>>(floats);
  std::iota(owner->begin(), owner->end(), static_cast<float>(number));
  const auto bytes = std::as_bytes(std::span<const float>(*owner));
  message.payloads.push_back({std::move(owner), bytes});
  return message;
}

inline int64_t number_of(const Message& message) {
  return message.header.exchange().push().number();
}

inline void expect_equal(const Message& got, const Message& sent) {
  EXPECT_EQ(got.header.SerializeAsString(), sent.header.SerializeAsString());
  ASSERT_EQ(got.payloads.size(), sent.payloads.size());
  for (size_t i = 0; i < got.payloads.size(); ++i) {
    ASSERT_EQ(got.payloads[i].bytes.size(), sent.payloads[i].bytes.size());
    EXPECT_EQ(std::memcmp(got.payloads[i].bytes.data(), sent.payloads[i].bytes.data(),
                          got.payloads[i].bytes.size()),
              0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(got.payloads[i].address()) % alignof(float), 0U);
  }
}

}  // namespace pushpull

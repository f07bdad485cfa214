#include "common/layout/fields.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

const FieldTable kFields = {{{"pixels", FieldType::kFloat, {3, 7, 5}, 0, 0},
                             {"mask", FieldType::kInt, {9}, 0, 2},
                             {"label", FieldType::kInt, {}, -1, 10}}};

TEST(Fields, AreFoundByName) {
  EXPECT_EQ(kFields.find("mask"), 1U);
  EXPECT_FALSE(kFields.find("ids"));
  EXPECT_EQ(kFields.names(), "pixels, mask, label");
  EXPECT_EQ(kFields.fields[0].size(), 105);
  EXPECT_EQ(kFields.fields[2].size(), 1);
}

TEST(BatchLayout, FieldsDoNotOverlapAndBeginAligned) {
  for (const int64_t samples : {1, 2, 5, 64}) {
    const BatchLayout layout(kFields, samples);
    ASSERT_EQ(layout.fields(), 3U);
    size_t end = 0;
    for (size_t i = 0; i < layout.fields(); ++i) {
      EXPECT_EQ(layout.offset(i) % 64, 0U) << i;
      EXPECT_GE(layout.offset(i), end) << i;
      EXPECT_LT(layout.offset(i), end + 64) << "more padding than needed";
      EXPECT_EQ(layout.size(i), static_cast<size_t>(samples * kFields.fields[i].size()));
      end = layout.offset(i) + layout.size(i);
    }
    EXPECT_EQ(layout.words(), end);
  }
}

TEST(BatchLayout, WithoutFieldsIsEmpty) { EXPECT_EQ(BatchLayout({}, 8).words(), 0U); }

}  // namespace
}  // namespace pushpull

#include "ps/report/transfer_watch.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

constexpr int64_t kMb = 1'000'000;

TEST(TransferWatch, NoticeComesAfterTenSecondsAndEveryThirty) {
  TransferWatch watch(600);
  watch.running(1000, "server 1", 0, 0);
  EXPECT_FALSE(watch.take_notice(11'000));
  EXPECT_EQ(watch.take_notice(11'001), "server 0 has waited 10.0 s for server 1");
  EXPECT_FALSE(watch.take_notice(41'000));
  EXPECT_EQ(watch.take_notice(41'001), "server 0 has waited 40.0 s for server 1");
}

TEST(TransferWatch, ProgressRestartsTheWait) {
  TransferWatch watch(25);
  for (int64_t i = 0; i < 100; ++i) {
    watch.running(i * 9000, "server 1", i, 0);
    EXPECT_FALSE(watch.take_notice(i * 9000));
    EXPECT_FALSE(watch.overdue(i * 9000));
  }
  watch.running(900'000, "server 2", 99, 0);
  EXPECT_FALSE(watch.overdue(925'000));
  watch.running(925'000, "server 2", 99, 0);
  EXPECT_TRUE(watch.overdue(925'001));
  EXPECT_EQ(watch.overdue_text(925'001),
            "[checkpoint] server 0 has waited 25.0 s for server 2 (progress-timeout = 25.0)");
}

TEST(TransferWatch, LargeTransfersGetMoreTime) {
  TransferWatch watch(25);
  watch.running(0, "the disk", 0, 1000 * kMb);
  EXPECT_FALSE(watch.take_notice(110'000));
  EXPECT_TRUE(watch.take_notice(110'001));
  EXPECT_FALSE(watch.overdue(125'000));
  EXPECT_TRUE(watch.overdue(125'001));
}

TEST(TransferWatch, FinishedTransferIsNotOverdueAndZeroIsNever) {
  TransferWatch watch(25);
  watch.running(0, "the disk", 0, 0);
  watch.idle();
  EXPECT_FALSE(watch.overdue(1'000'000));
  TransferWatch patient(0);
  patient.running(0, "the disk", 0, 0);
  EXPECT_FALSE(patient.overdue(1'000'000'000));
  EXPECT_TRUE(patient.take_notice(1'000'000'000));
}

}  // namespace
}  // namespace pushpull

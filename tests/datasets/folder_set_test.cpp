// Images in folders of classes: files that the test writes, PNG by hand with zlib. image_pil_test.py compares
// the decoders and the sizes with PIL.
#include "datasets/folder_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <filesystem>
#include <random>
#include <span>

#include "common/base/error.h"
#include "common/job/job.h"
#include "datasets/image_file.h"
#include "datasets/image_fit.h"
#include "datasets/loader.h"
#include "datasets/sampler.h"
#include "tests/common/thrown.h"
#include "tests/datasets/allocations.h"
#include "tests/datasets/idx_writer.h"
#include "tests/datasets/images.h"

namespace pushpull::folder_set_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

std::string number(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string chunk(const std::string& type, const std::string& data) {
  const std::string whole = type + data;
  const uLong sum = crc32(0, reinterpret_cast<const Bytef*>(whole.data()), whole.size());
  return number(static_cast<uint32_t>(data.size())) + whole + number(static_cast<uint32_t>(sum));
}

// colour: PNG's type: 0 grey, 2 colours, 6 with alpha. rows: each with its filter's byte in front.
std::string png_of(uint32_t width, uint32_t height, int colour, const std::string& rows,
                   int bits = 8) {
  uLongf size = compressBound(rows.size());
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(rows.data()), rows.size());
  packed.resize(size);
  const std::string head = number(width) + number(height) + static_cast<char>(bits) +
                           static_cast<char>(colour) + std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", head) + chunk("IDAT", packed) + chunk("IEND", "");
}

std::string bytes_of(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values) bytes += static_cast<char>(value);
  return bytes;
}

// One colour, two by two.
std::string flat(int red, int green, int blue) {
  std::string row(1, '\0');
  for (int i = 0; i < 2; ++i) row += bytes_of({red, green, blue});
  return png_of(2, 2, 2, row + row);
}

// 8x8, all 100, from PIL.
const std::string kGreyJpeg = bytes_of(
    {0xff, 0xd8, 0xff, 0xe0, 0x00, 0x10, 0x4a, 0x46, 0x49, 0x46, 0x00, 0x01, 0x01, 0x00, 0x00,
     0x01, 0x00, 0x01, 0x00, 0x00, 0xff, 0xdb, 0x00, 0x43, 0x00, 0x03, 0x02, 0x02, 0x03, 0x02,
     0x02, 0x03, 0x03, 0x03, 0x03, 0x04, 0x03, 0x03, 0x04, 0x05, 0x08, 0x05, 0x05, 0x04, 0x04,
     0x05, 0x0a, 0x07, 0x07, 0x06, 0x08, 0x0c, 0x0a, 0x0c, 0x0c, 0x0b, 0x0a, 0x0b, 0x0b, 0x0d,
     0x0e, 0x12, 0x10, 0x0d, 0x0e, 0x11, 0x0e, 0x0b, 0x0b, 0x10, 0x16, 0x10, 0x11, 0x13, 0x14,
     0x15, 0x15, 0x15, 0x0c, 0x0f, 0x17, 0x18, 0x16, 0x14, 0x18, 0x12, 0x14, 0x15, 0x14, 0xff,
     0xc0, 0x00, 0x0b, 0x08, 0x00, 0x08, 0x00, 0x08, 0x01, 0x01, 0x11, 0x00, 0xff, 0xc4, 0x00,
     0x14, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
     0x00, 0x00, 0x00, 0x07, 0xff, 0xc4, 0x00, 0x14, 0x10, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00,
     0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xda, 0x00, 0x08,
     0x01, 0x01, 0x00, 0x00, 0x3f, 0x00, 0x34, 0x7f, 0xff, 0xd9});

ByteImage decoded(const std::string& bytes) {
  return decode_image(std::as_bytes(std::span(bytes)), "x.png");
}

class FolderSet : public testing::Test {
 protected:
  FolderSet() {
    std::string why;
    if (!can_decode_images(why)) skipped_ = why;
    job_.dataset = "folder";
    job_.data_dir = folder_.path();
    job_.input = {3, 2, 2};
    write("train/cat/b.png", flat(51, 0, 255));
    write("train/cat/a.PNG", flat(0, 102, 0));
    write("train/ant/z.jpeg", kGreyJpeg);
    write("train/ant/more/c.png", flat(1, 2, 3));
    write("train/ant/notes.txt", "no image");
    write("test/cat/1.png", flat(9, 9, 9));
  }

  void SetUp() override {
    if (!skipped_.empty()) GTEST_SKIP() << skipped_;
  }

  void write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(folder_.file(name)).parent_path());
    folder_.write(name, bytes);
  }

  std::string failure(ErrorCode code = ErrorCode::kData) const {
    return thrown(code, [&] { open_dataset(job_); });
  }

  std::string skipped_;
  TestFolder folder_;
  Job job_;
};

TEST_F(FolderSet, ClassesAndFilesAreInTheOrderOfTheirNames) {
  const auto data = open_dataset(job_);
  EXPECT_EQ(data->fields(), image_fields({3, 2, 2}, 2));
  EXPECT_EQ(data->size(Split::kTrain), 4);
  EXPECT_EQ(data->size(Split::kTest), 1);
  EXPECT_TRUE(data->decodes());
  EXPECT_THAT(data->classes(), ElementsAre(0, 0, 1, 1));
  const Images train = read_images(*data, Split::kTrain, {0, 1, 2, 3});
  EXPECT_THAT(train.labels, ElementsAre(0, 0, 1, 1));
  const auto image = [&](size_t k) {
    return std::vector<float>(train.images.begin() + static_cast<std::ptrdiff_t>(12 * k),
                              train.images.begin() + static_cast<std::ptrdiff_t>(12 * (k + 1)));
  };
  EXPECT_THAT(image(0), Each(100.0F / 255.0F)) << "ant/z.jpeg";
  EXPECT_EQ(image(1)[0], 1.0F / 255.0F) << "ant/more/c.png";
  EXPECT_EQ(image(1)[11], 3.0F / 255.0F);
  EXPECT_EQ(image(2)[4], 102.0F / 255.0F) << "cat/a.PNG, green";
  EXPECT_EQ(image(3)[0], 51.0F / 255.0F);
  EXPECT_EQ(image(3)[11], 1.0F);
  EXPECT_THAT(read_images(*data, Split::kTest, {0}).labels, ElementsAre(1));
}

TEST_F(FolderSet, TheDigestIsOfTheNamesAndSizesThatAreUsed) {
  job_.train_samples = 3;
  const std::string digest = open_dataset(job_)->digest();
  EXPECT_EQ(open_dataset(job_)->size(Split::kTrain), 3);
  write("train/cat/b.png", "another one, not used");
  EXPECT_EQ(open_dataset(job_)->digest(), digest);
  write("train/cat/a.PNG", flat(0, 102, 0) + "x");
  EXPECT_NE(open_dataset(job_)->digest(), digest);
  job_.train_samples = 5;
  EXPECT_THAT(failure(ErrorCode::kUsage), HasSubstr("train-samples: expected at most 4"));
}

TEST_F(FolderSet, TheTestSplitMayBeCalledVal) {
  std::filesystem::rename(folder_.file("test"), folder_.file("val"));
  EXPECT_EQ(open_dataset(job_)->size(Split::kTest), 1);
}

TEST_F(FolderSet, AWeightedSamplerNeedsNoImage) {
  write("train/cat/b.png", "damaged");
  job_.sampler = SamplerKind::kWeighted;
  EXPECT_THAT(classes_for_sampler(job_, *open_dataset(job_)), ElementsAre(0, 0, 1, 1));
}

TEST_F(FolderSet, ThreadsOfTheLoaderReadWhatItGives) {
  job_.global_batch = 4;
  job_.micro_batch = 1;
  job_.shuffle = false;
  const auto data = open_dataset(job_);
  Loader loader(job_, *data);
  const auto first = static_cast<std::ptrdiff_t>(BatchLayout(data->fields(), 1).offset(0));
  for (int64_t step = 0; step < 20; ++step) {
    for (int64_t m = 0; m < 4; ++m) loader.hint(step, m);
    for (int64_t m = 0; m < 4; ++m) {
      const MicroBatch& batch = loader.get(step, m);
      const Images want = read_images(*data, Split::kTrain, {m});
      const auto begin = batch.block.begin() + first;
      EXPECT_EQ(std::vector<float>(begin, begin + 12), want.images);
    }
  }
  write("train/cat/a.PNG", flat(0, 0, 0).substr(0, 60));
  loader.hint(20, 2);
  EXPECT_THAT(thrown(ErrorCode::kData, [&] { loader.get(20, 2); }),
              HasSubstr(folder_.file("train/cat/a.PNG") + ": this PNG cannot be read"));
}

TEST_F(FolderSet, NamesTheFolderOrFileOfAMistake) {
  write("test/dog/1.png", flat(1, 1, 1));
  EXPECT_THAT(failure(),
              HasSubstr(folder_.file("test/dog") + ": this class has no folder in train"));
  std::filesystem::remove_all(folder_.file("test/dog"));
  std::filesystem::create_directories(folder_.file("train/empty"));
  EXPECT_THAT(failure(), HasSubstr(folder_.file("train/empty") + ": expected images"));
  std::filesystem::remove(folder_.file("train/empty"));
  write("train/cat/x.webp", "RIFF");
  EXPECT_THAT(failure(), HasSubstr(folder_.file("train/cat/x.webp") + ": expected PNG or JPEG"));
  folder_.remove("train/cat/x.webp");
  std::filesystem::create_directory_symlink("..", folder_.file("train/cat/loop"));
  EXPECT_THAT(failure(), HasSubstr("more than 32 folders, one inside the other"));
  folder_.remove("train/cat/loop");
  job_.input = {2, 2, 2};
  EXPECT_THAT(failure(ErrorCode::kUsage), HasSubstr("expected 1 channel (grey) or 3"));
  job_.input = {3, 2, 2};
  std::filesystem::remove_all(folder_.file("train/cat"));
  EXPECT_THAT(failure(), HasSubstr(folder_.file("train") + ": expected a folder for each class"));
  std::filesystem::remove_all(folder_.file("test"));
  EXPECT_THAT(failure(),
              HasSubstr(folder_.path() + ": expected the folders train and test (or val)"));
}

TEST_F(FolderSet, KindsOfPngAreGreyOrColours) {
  const ByteImage alpha = decoded(png_of(1, 1, 6, bytes_of({0, 10, 20, 30, 0})));
  EXPECT_EQ(alpha.channels, 3);
  EXPECT_THAT(alpha.pixels, ElementsAre(10, 20, 30)) << "transparency is dropped";
  EXPECT_THAT(decoded(png_of(2, 1, 4, bytes_of({0, 7, 255, 8, 0}))).pixels, ElementsAre(7, 8));
  EXPECT_THAT(decoded(png_of(8, 1, 0, bytes_of({0, 0b10100001}), 1)).pixels,
              ElementsAre(255, 0, 255, 0, 0, 0, 0, 255));
  EXPECT_THAT(decoded(png_of(1, 1, 0, bytes_of({0, 0x12, 0xff}), 16)).pixels, ElementsAre(0x12));
}

TEST_F(FolderSet, ImagesThatCannotBeReadHaveOneLine) {
  const auto refused = [](const std::string& bytes) {
    return thrown(ErrorCode::kData, [&] { decoded(bytes); });
  };
  EXPECT_THAT(refused(""), HasSubstr("x.png: expected a PNG or JPEG image, got other bytes (0"));
  EXPECT_THAT(refused("GIF89a"), HasSubstr("expected a PNG or JPEG image"));
  std::string wrong = flat(1, 2, 3);
  EXPECT_THAT(refused(wrong.substr(0, wrong.size() - 20)), HasSubstr("the file ends early"));
  wrong[20] = static_cast<char>(wrong[20] ^ 1);
  EXPECT_THAT(refused(wrong), HasSubstr("this PNG cannot be read: IHDR: CRC error"));
  EXPECT_THAT(refused(kGreyJpeg.substr(0, 100)), HasSubstr("this JPEG cannot be read: "));
}

TEST_F(FolderSet, ALargeImageIsRefusedBeforeMemoryIsAllocated) {
  const std::string huge = png_of(60'000, 60'000, 2, "x");
  reset_largest_allocation();
  EXPECT_THAT(thrown(ErrorCode::kData, [&] { decoded(huge); }), HasSubstr("60000 x 60000 pixels"));
  EXPECT_LT(largest_allocation(), size_t{1} << 20);
}

// Seeded mutations: each image is read, in its bounds, or refused.
TEST_F(FolderSet, DamagedImagesAreReadOrRefused) {
  std::mt19937_64 random(1);
  int read = 0;
  for (int n = 0; n < 4000; ++n) {
    std::string bytes = n % 2 == 0 ? flat(1, 2, 3) : kGreyJpeg;
    for (uint64_t edits = 1 + random() % 3; edits > 0; --edits) {
      bytes[random() % bytes.size()] = static_cast<char>(random() % 256);
    }
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    try {
      const ByteImage image = decoded(bytes);
      ASSERT_EQ(std::ssize(image.pixels), image.height * image.width * image.channels);
      if (image.height * image.width < 10'000) fit_image(image, {1, 3, 4});
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kData);
      ASSERT_THAT(error.what(), HasSubstr("[data] x.png: "));
    }
  }
  EXPECT_GT(read, 50);
}

TEST(FitImage, HandWorkedSizes) {
  const ByteImage grey{2, 4, 1, {0, 10, 20, 30, 40, 50, 60, 70}};
  EXPECT_THAT(fit_image(grey, {1, 2, 4}), ElementsAre(0, 10, 20, 30, 40, 50, 60, 70));
  EXPECT_THAT(fit_image(grey, {1, 2, 2}), ElementsAre(10, 20, 50, 60)) << "the middle";
  EXPECT_THAT(fit_image({2, 2, 1, {10, 20, 50, 60}}, {3, 1, 1}), Each(35)) << "the mean";
  EXPECT_THAT(fit_image({1, 2, 1, {0, 100}}, {1, 2, 4}),
              ElementsAre(0, 25, 75, 100, 0, 25, 75, 100));
  EXPECT_THAT(fit_image({1, 1, 3, {255, 0, 0}}, {1, 1, 1}), ElementsAre(76)) << "299 / 1000";
}

}  // namespace
}  // namespace pushpull::folder_set_test

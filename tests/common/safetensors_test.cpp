#include "common/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <random>

#include "common/base/error.h"
#include "tests/common/scratch_folder.h"
#include "tests/common/thrown.h"

namespace pushpull::safetensors_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::vector<float> weight_data = {1.0F, -2.5F, 3.25F, 0.0F, 1e-40F, 6.0F};
const std::vector<float> bias_data = {7.0F, 8.0F};
const std::vector<float> scale_data = {9.0F};

std::vector<NamedTensor> sample_tensors() {
  return {{"fc.weight", {2, 3}, weight_data},
          {"fc.bias", {2}, bias_data},
          {"scale", {}, scale_data},
          {"nothing", {0, 4}, {}}};
}

// The bytes of a file: length, header, data.
std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + data;
}

// Returns the text of the error, or "read" if there is none. Every refusal must be one line, with
// code kData, that names the file.
std::string refusal(const std::string& bytes) {
  static const ScratchFolder folder;
  const std::string path = folder / "file.safetensors";
  write_bytes(path, bytes);
  try {
    read_safetensors(path);
  } catch (const Error& error) {
    std::string text = error.what();
    EXPECT_EQ(error.code(), ErrorCode::kData) << text;
    EXPECT_THAT(text, HasSubstr(path));
    EXPECT_THAT(text, Not(HasSubstr("\n")));
    return text;
  }
  return "read";
}

std::string sample_bytes() {
  const ScratchFolder folder;
  write_safetensors(folder / "x", sample_tensors(), {{"format", "pt"}});
  return read_bytes(folder / "x");
}

TEST(Safetensors, ReadsTheTensorsThatItWrote) {
  const ScratchFolder folder;
  const FileDigest digest =
      write_safetensors(folder / "x", sample_tensors(), {{"format", "pt"}, {"a", "\"\n\u00e4"}});
  const SafetensorsFile file = read_safetensors(folder / "x");
  EXPECT_THAT(file.metadata, ElementsAre(std::pair("a", "\"\n\u00e4"), std::pair("format", "pt")));
  ASSERT_EQ(file.tensors.size(), 4U);
  for (const NamedTensor& tensor : sample_tensors()) {
    const SafetensorsFile::Entry& entry = file.tensors.at(tensor.name);
    EXPECT_EQ(entry.shape, tensor.shape) << tensor.name;
    ASSERT_EQ(entry.count, tensor.data.size()) << tensor.name;
    ASSERT_LE(entry.first + entry.count, file.data.size());
    EXPECT_TRUE(std::equal(tensor.data.begin(), tensor.data.end(),
                           file.data.begin() + static_cast<int64_t>(entry.first)))
        << tensor.name;
  }
  EXPECT_EQ(file.data.size(), 9U);
  EXPECT_EQ(digest, digest_file(folder / "x"));
}

TEST(Safetensors, WritesTheBytesThatTheFormatRequires) {
  const ScratchFolder folder;
  const std::vector<float> data = {1.0F, -2.0F};
  const NamedTensor tensor{"w", {2}, data};
  write_safetensors(folder / "x", std::span(&tensor, 1), {});
  // 54 characters, padded to 56 with spaces; 1.0F is 00 00 80 3f, -2.0F is 00 00 00 c0.
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(read_bytes(folder / "x"),
            file_of(header + "  ", std::string("\0\0\x80\x3f\0\0\0\xc0", 8)));
}

TEST(Safetensors, AFileWithoutTensorsIsValid) {
  const ScratchFolder folder;
  write_safetensors(folder / "x", {}, {});
  EXPECT_THAT(read_safetensors(folder / "x").tensors, IsEmpty());
  EXPECT_EQ(refusal(file_of("{}", "")), "read");
}

TEST(Safetensors, AlignsTheDataToEightBytes) {
  const ScratchFolder folder;
  for (size_t length = 1; length <= 9; ++length) {
    const NamedTensor tensor{std::string(length, 'n'), {2}, bias_data};
    write_safetensors(folder / "x", std::span(&tensor, 1), {});
    EXPECT_EQ(read_bytes(folder / "x").size() % 8, 0U);
  }
}

TEST(Safetensors, RefusesAnImpossibleHeader) {
  EXPECT_THAT(refusal(""), HasSubstr("only 0 bytes"));
  EXPECT_THAT(refusal("1234567"), HasSubstr("only 7 bytes"));
  EXPECT_THAT(refusal(std::string(8, '\xff')), HasSubstr("at most 100000000 are allowed"));
  EXPECT_THAT(refusal(std::string("\x10\0\0\0\0\0\0\0{}", 10)), HasSubstr("only 2 follow"));
  EXPECT_THAT(refusal(file_of("", "")), HasSubstr("does not begin with {"));
  EXPECT_THAT(refusal(file_of(" {}", "")), HasSubstr("does not begin with {"));
  EXPECT_THAT(refusal("\x80\x02}q\x01PK\x03\x04 a pickle, not ours"),
              HasSubstr("not a safetensors file"));
  EXPECT_THAT(refusal(file_of("{nonsense", "")), HasSubstr("not JSON at its byte 3"));
  EXPECT_THAT(refusal(file_of("{} x", "")), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(file_of("{\"\xff\":1}", "")), HasSubstr("not JSON"));
}

// Returns the refusal of a file with a tensor "a" of this description and four bytes of data.
std::string refusal_of_entry(const std::string& entry) {
  return refusal(file_of("{\"a\":" + entry + "}", "1234"));
}

TEST(Safetensors, RefusesAnInvalidEntry) {
  EXPECT_EQ(refusal_of_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})"), "read");
  EXPECT_THAT(refusal_of_entry(R"({"dtype":"I64","shape":[1],"data_offsets":[0,4]})"),
              HasSubstr(R"(tensor "a": dtype is "I64", only F32 is supported)"));
  for (const char* entry :
       {"1",
        "\"F32\"",
        "null",
        "true",
        "[]",
        "{}",
        "{\"dtype\":\"F32\"}",
        R"({"dtype":"F32","shape":[1],"data_offsets":[0]})",
        R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,4]})",
        R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[[1]],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":["1"],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})",
        R"({"dtype":["F32"],"shape":[1],"data_offsets":[0,4]})",
        R"({"dtype":{"a":"F32"},"shape":[1],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":"F32"})",
        R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})",
        R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[99999999999999999999999],"data_offsets":[0,4]})"}) {
    EXPECT_THAT(refusal_of_entry(entry), HasSubstr("tensor \"a\": ")) << entry;
  }
  EXPECT_THAT(refusal_of_entry(std::string(100'000, '[')), HasSubstr("tensor \"a\""));
}

TEST(Safetensors, ReadsIntegersFromAFileOfTheirOwn) {
  const ScratchFolder folder;
  const std::string entry = R"({"dtype":"I32","shape":[2],"data_offsets":[0,8]})";
  write_bytes(folder / "x",
              file_of("{\"a\":" + entry + "}", std::string("\x07\0\0\0\xff\xff\xff\xff", 8)));
  const IntTensorFile file = read_int_tensors(folder / "x");
  EXPECT_THAT(file.data, ElementsAre(7, -1));
  EXPECT_THAT(file.tensors.at("a").shape, ElementsAre(2));
  write_safetensors(folder / "y", sample_tensors(), {});
  EXPECT_THROW(read_int_tensors(folder / "y"), Error);
  EXPECT_THROW(read_safetensors(folder / "x"), Error);
}

TEST(Safetensors, RefusesShapesThatOverflow) {
  // 2^62 floats are 2^64 bytes, which a careless product turns into 0.
  EXPECT_THAT(
      refusal_of_entry(R"({"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]})"),
      HasSubstr("over 2^62 bytes"));
  EXPECT_THAT(
      refusal_of_entry(R"({"dtype":"F32","shape":[4294967296,4294967297],"data_offsets":[0,4]})"),
      HasSubstr("over 2^62 bytes"));
  EXPECT_THAT(
      refusal_of_entry(R"({"dtype":"F32","shape":[4611686018427387904,4,0],"data_offsets":[0,0]})"),
      HasSubstr("over 2^62 bytes"));
}

TEST(Safetensors, RefusesNamesThatAppearTwice) {
  const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_THAT(refusal(file_of("{\"a\":" + entry + ",\"a\":" + entry + "}", "1234")),
              HasSubstr("tensor \"a\": the name appears twice"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":{},"__metadata__":{}})", "")),
              HasSubstr("appears twice"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":{"k":"1","k":"2"}})", "")),
              HasSubstr("key \"k\" appears twice"));
  EXPECT_THAT(refusal_of_entry(R"({"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]})"),
              HasSubstr("field dtype appears twice"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":{"k":1}})", "")), HasSubstr("__metadata__"));
}

// Two tensors of one float each at these byte offsets, and `data_bytes` of data.
std::string refusal_of_places(int a, int b, size_t data_bytes) {
  const auto entry = [](int begin) {
    return R"({"dtype":"F32","shape":[1],"data_offsets":[)" + std::to_string(begin) + "," +
           std::to_string(begin + 4) + "]}";
  };
  return refusal(
      file_of("{\"a\":" + entry(a) + ",\"b\":" + entry(b) + "}", std::string(data_bytes, '\0')));
}

TEST(Safetensors, RefusesTensorsThatDoNotTileTheData) {
  EXPECT_EQ(refusal_of_places(0, 4, 8), "read");
  EXPECT_EQ(refusal_of_places(4, 0, 8), "read");
  EXPECT_THAT(refusal_of_places(0, 0, 4), HasSubstr("tensor \"b\" begins at byte 0"));   // same
  EXPECT_THAT(refusal_of_places(0, 2, 8), HasSubstr("tensor \"b\" begins at byte 2"));   // overlap
  EXPECT_THAT(refusal_of_places(0, 8, 12), HasSubstr("tensor \"b\" begins at byte 8"));  // hole
  EXPECT_THAT(refusal_of_places(4, 8, 12), HasSubstr("tensor \"a\" begins at byte 4"));  // hole
  EXPECT_THAT(refusal_of_places(0, 4, 9), HasSubstr("too long: the tensors need 8 bytes"));
  EXPECT_THAT(refusal_of_places(0, 4, 7), HasSubstr("truncated: the tensors need 8 bytes"));
  EXPECT_THAT(refusal(file_of("{}", "1234")), HasSubstr("too long"));
}

TEST(Safetensors, KeepsAHostileNameOnOneShortLine) {
  const std::string name = "a\\n\\u0007" + std::string(10'000, 'x');
  const std::string text = refusal(file_of("{\"" + name + "\":1}", ""));
  EXPECT_LT(text.size(), 400U);
  EXPECT_THAT(text, HasSubstr("a\\n\\u0007xxx"));
}

TEST(Safetensors, SaysWhyAPathCannotBeRead) {
  const ScratchFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  for (const auto& [name, why] :
       {std::pair("absent", "No such file"), std::pair(".", "not a regular file"),
        std::pair("fifo", "not a regular file")}) {
    const std::string text = thrown(ErrorCode::kData, [&] { read_safetensors(folder / name); });
    EXPECT_THAT(text, HasSubstr(folder / name));
    EXPECT_THAT(text, HasSubstr(why));
  }
}

TEST(Safetensors, SaysWhyAPathCannotBeWritten) {
  const ScratchFolder folder;
  for (const auto& [path, why] : {std::pair(std::string("/dev/full"), "No space left on device"),
                                  std::pair(folder / "absent/x", "No such file or directory")}) {
    const std::string text =
        thrown(ErrorCode::kIo, [&] { write_safetensors(path, sample_tensors(), {}); });
    EXPECT_THAT(text, HasSubstr(path));
    EXPECT_THAT(text, HasSubstr(why));
  }
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string bytes = sample_bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(refusal(bytes.substr(0, size)), "read") << size;
  }
  EXPECT_NE(refusal(bytes + '\0'), "read");
}

TEST(Safetensors, EveryFlippedBitIsReadOrRefused) {
  const std::string bytes = sample_bytes();
  const size_t data_begins = bytes.size() - 36;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      const std::string result = refusal(flipped);
      if (at < 8) {
        EXPECT_NE(result, "read") << at;
      }
      if (at >= data_begins) {
        EXPECT_EQ(result, "read") << at;  // any four bytes are a float
      }
    }
  }
}

TEST(Safetensors, TwentyThousandMutationsAreReadOrRefused) {
  const std::string bytes = sample_bytes();
  std::mt19937 engine(2024);
  const auto below = [&](size_t n) { return static_cast<size_t>(engine()) % n; };
  const std::string favourites = "{}[]\",:0123456789-.eE \\\xff";
  int read = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string mutated = bytes;
    for (size_t edits = 1 + below(4); edits > 0; --edits) {
      const size_t at = below(mutated.size());
      switch (below(5)) {
        case 0:
          mutated[at] = static_cast<char>(engine());
          break;
        case 1:
          mutated[at] = favourites[below(favourites.size())];
          break;
        case 2:
          mutated.insert(at, 1, favourites[below(favourites.size())]);
          break;
        case 3:
          mutated.erase(at, 1 + below(8));
          break;
        default:
          mutated.insert(at, mutated.substr(below(mutated.size()), below(40)));
      }
      if (mutated.empty()) mutated = bytes;
    }
    // Half of the time the length is corrected, so that the header's own checks are reached.
    if (mutated.size() > 44 && below(2) == 0) {
      const uint64_t size = mutated.size() - 44;
      std::memcpy(mutated.data(), &size, 8);
    }
    if (refusal(mutated) == "read") ++read;
  }
  EXPECT_GT(read, 0);
  EXPECT_LT(read, 10'000);
}

}  // namespace
}  // namespace pushpull::safetensors_test

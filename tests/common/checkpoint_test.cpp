#include "common/io/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>

#include "common/base/error.h"
#include "common/io/safetensors.h"
#include "tests/common/scratch_folder.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAre;

// The checkpoint of a model at `step`. One tensor is a running statistic.
struct Sample {
  CheckpointState state;
  TensorTable table;
  std::vector<float> weights;
  std::vector<std::vector<float>> slots;
  std::vector<std::string> slot_names = {"exp_avg", "exp_avg_sq"};
};

Sample sample(int64_t step, int64_t width = 5) {
  Sample s;
  s.state = {.step = step,
             .updates = step * 2,
             .total_steps = 1000,
             .job_ini = "model = mlp\n# \"quotes\", \u00fcmlauts\n",
             .data_digest = "abc123",
             .numerics = "cpu avx2",
             .choices = step % 2 == 0 ? "" : "linear a\nlinear b\n",
             .tokenizer = step % 2 != 0 ? "" : "{\"model\": {}}\n"};
  s.table.add({.name = "z.weight", .shape = {3, width}});
  s.table.add({.name = "bn.running_mean", .shape = {4}, .rule = UpdateRule::kAverage});
  s.table.add({.name = "a.bias", .shape = {2}});
  const auto fill = [&](float first) {
    std::vector<float> values;
    for (int64_t i = 0; i < s.table.total; ++i) {
      values.push_back(first + static_cast<float>(step) + static_cast<float>(i) / 8.0F);
    }
    return values;
  };
  s.weights = fill(0.5F);
  s.slots = {fill(1000.0F), fill(2000.0F)};
  return s;
}

void write(CheckpointStore& store, const Sample& s) {
  const std::vector<std::span<const float>> slots(s.slots.begin(), s.slots.end());
  store.write(s.state, s.table, s.weights, slots, s.slot_names);
}

void expect_equal(const Checkpoint& actual, const Sample& expected) {
  EXPECT_EQ(actual.state.step, expected.state.step);
  EXPECT_EQ(actual.state.updates, expected.state.updates);
  EXPECT_EQ(actual.state.total_steps, expected.state.total_steps);
  EXPECT_EQ(actual.state.job_ini, expected.state.job_ini);
  EXPECT_EQ(actual.state.data_digest, expected.state.data_digest);
  EXPECT_EQ(actual.state.numerics, expected.state.numerics);
  EXPECT_EQ(actual.state.choices, expected.state.choices);
  EXPECT_EQ(actual.state.tokenizer, expected.state.tokenizer);
  ASSERT_EQ(actual.table.tensors.size(), expected.table.tensors.size());
  for (size_t t = 0; t < actual.table.tensors.size(); ++t) {
    EXPECT_EQ(actual.table.tensors[t].name, expected.table.tensors[t].name);
    EXPECT_EQ(actual.table.tensors[t].shape, expected.table.tensors[t].shape);
    EXPECT_EQ(actual.table.tensors[t].offset, expected.table.tensors[t].offset);
  }
  EXPECT_EQ(actual.weights, expected.weights);
  EXPECT_EQ(actual.slot_names, expected.slot_names);
  ASSERT_EQ(actual.slots.size(), expected.slots.size());
  for (size_t s = 0; s < actual.slots.size(); ++s) {
    std::vector<float> slot = expected.slots[s];
    for (const TensorInfo& info : expected.table.tensors) {
      if (info.rule == UpdateRule::kAverage) {
        std::fill_n(slot.begin() + info.offset, info.size, 0.0F);  // no optimizer state
      }
    }
    EXPECT_EQ(actual.slots[s], slot);
  }
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

std::string refusal(const std::string& path) {
  try {
    read_checkpoint(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kData);
    EXPECT_THAT(error.what(), HasSubstr(path));
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    return error.what();
  }
  return "read";
}

void flip_last_byte(const std::string& path) {
  std::string bytes = read_bytes(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_bytes(path, bytes);
}

TEST(Checkpoint, ReadsBackTheCheckpointThatItWrote) {
  const ScratchFolder folder;
  CheckpointStore store(folder / "deep/store", 3);
  write(store, sample(40));
  EXPECT_THAT(names_in(folder / "deep/store"), ElementsAre("step-00000040"));
  EXPECT_THAT(names_in(folder / "deep/store/step-00000040"),
              UnorderedElementsAre("model.safetensors", "optimizer.safetensors", "tokenizer.json",
                                   "state.json", "DONE"));
  for (const char* path : {"deep/store", "deep/store/", "deep/store/step-00000040",
                           "deep/store/step-00000040/", "deep/../deep/store/step-00000040"}) {
    const Checkpoint checkpoint = read_checkpoint(folder / path);
    expect_equal(checkpoint, sample(40));
    EXPECT_THAT(checkpoint.path, HasSubstr("step-00000040"));
    EXPECT_THAT(checkpoint.skipped, IsEmpty());
  }
}

TEST(Checkpoint, HoldsWholeTensorsUnderPyTorchsNames) {
  const ScratchFolder folder;
  CheckpointStore store(folder.path(), 3);
  write(store, sample(40));
  const SafetensorsFile model = read_safetensors(folder / "step-00000040/model.safetensors");
  EXPECT_EQ(model.metadata.at("format"), "pt");
  EXPECT_EQ(model.tensors.size(), 3U);
  EXPECT_THAT(model.tensors.at("z.weight").shape, ElementsAre(3, 5));
  const SafetensorsFile state = read_safetensors(folder / "step-00000040/optimizer.safetensors");
  EXPECT_EQ(state.tensors.size(), 4U);
  EXPECT_EQ(state.data[state.tensors.at("z.weight.exp_avg_sq").first], 2040.0F);
  EXPECT_EQ(state.tensors.count("bn.running_mean.exp_avg"), 0U);
}

TEST(Checkpoint, WorksForAnOptimizerWithoutState) {
  const ScratchFolder folder;
  CheckpointStore store(folder.path(), 1);
  Sample s = sample(7);
  s.slots.clear();
  s.slot_names.clear();
  write(store, s);
  expect_equal(read_checkpoint(folder.path()), s);
}

TEST(Checkpoint, KeepsTheNewest) {
  const ScratchFolder folder;
  CheckpointStore store(folder.path(), 2);
  for (int64_t step = 10; step <= 50; step += 10) write(store, sample(step));
  EXPECT_THAT(store.steps(), ElementsAre(40, 50));
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("step-00000040", "step-00000050"));
  expect_equal(read_checkpoint(folder.path()), sample(50));
}

TEST(Checkpoint, NeverDeletesTheCheckpointJustWritten) {
  // The run went back from step 50 to step 20.
  const ScratchFolder folder;
  CheckpointStore store(folder.path(), 1);
  write(store, sample(50));
  write(store, sample(20));
  EXPECT_THAT(store.steps(), ElementsAre(20, 50));
  write(store, sample(30));
  EXPECT_THAT(store.steps(), ElementsAre(30, 50));
  write(store, sample(60));
  EXPECT_THAT(store.steps(), ElementsAre(60));
}

TEST(Checkpoint, ReplacesAStepThatIsWrittenAgain) {
  const ScratchFolder folder;
  CheckpointStore store(folder.path(), 2);
  write(store, sample(40));
  Sample again = sample(40);
  again.weights[0] = -1.0F;
  write(store, again);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000040"));
  expect_equal(read_checkpoint(folder.path()), again);
}

TEST(Checkpoint, SortsStepsBeyondEightDigitsAsNumbers) {
  const ScratchFolder folder;
  CheckpointStore store(folder.path(), 5);
  write(store, sample(99'999'999));
  write(store, sample(100'000'000));
  EXPECT_THAT(store.steps(), ElementsAre(99'999'999, 100'000'000));
  EXPECT_EQ(read_checkpoint(folder.path()).state.step, 100'000'000);
}

TEST(Checkpoint, LeavesForeignFilesAlone) {
  const ScratchFolder folder;
  fs::create_directories(folder / "step-best");
  fs::create_directories(folder / "step-00000001");  // no DONE: not a checkpoint
  write_bytes(folder / "notes.txt", "mine");
  CheckpointStore store(folder.path(), 1);
  write(store, sample(2));
  EXPECT_THAT(store.steps(), ElementsAre(2));
  write(store, sample(3));
  EXPECT_THAT(store.steps(), ElementsAre(3));
  EXPECT_THAT(names_in(folder.path()),
              UnorderedElementsAre("step-best", "step-00000001", "step-00000003", "notes.txt"));
}

TEST(Checkpoint, OpeningAStoreRemovesTheFilesOfACrash) {
  const ScratchFolder folder;
  fs::create_directories(folder / ".tmp-step-00000007-123");
  fs::create_directories(folder / ".del-step-00000005-123/sub");
  write_bytes(folder / ".tmp-step-00000007-123/model.safetensors", "torn");
  const CheckpointStore store(folder.path(), 1);
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

TEST(Checkpoint, ACrashBetweenTheTwoRenamesOfAReplacementLosesNothing) {
  const ScratchFolder folder;
  {
    CheckpointStore store(folder.path(), 1);
    write(store, sample(40));
  }
  // The old checkpoint was moved away, the new one is not in place: a reader finds the old one, and
  // an opening store moves it back.
  fs::rename(folder / "step-00000040", folder / ".old-step-00000040-123");
  expect_equal(read_checkpoint(folder.path()), sample(40));
  EXPECT_THAT(CheckpointStore(folder.path(), 1).steps(), ElementsAre(40));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000040"));
  // The old checkpoint was moved away, the new one is in place: an opening store deletes the old
  // one.
  fs::copy(folder / "step-00000040", folder / ".old-step-00000040-123");
  EXPECT_THAT(CheckpointStore(folder.path(), 1).steps(), ElementsAre(40));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000040"));
}

TEST(Checkpoint, NamesTheDamagedFileAndTheReason) {
  const ScratchFolder folder;
  CheckpointStore store(folder.path(), 9);
  const std::string path = folder / "step-00000040";
  const auto damage = [&](const char* file, const std::function<void(const std::string&)>& how) {
    write(store, sample(40));
    how(path + "/" + file);
    return refusal(path);
  };
  const auto cut = [](const std::string& file) { fs::resize_file(file, 100); };
  const auto grow = [](const std::string& file) { write_bytes(file, read_bytes(file) + "x"); };
  const auto remove = [](const std::string& file) { fs::remove(file); };
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_THAT(
        damage(file, cut),
        testing::MatchesRegex(".*/" + std::string(file) +
                              ": truncated: 100 bytes, expected [0-9]+ \\(sha256 differs\\)"));
    EXPECT_THAT(damage(file, grow), HasSubstr(std::string(file) + ": too long: "));
    EXPECT_THAT(damage(file, flip_last_byte), HasSubstr(std::string(file) + ": damaged: sha256"));
    EXPECT_THAT(damage(file, remove), HasSubstr(std::string(file) + ": No such file"));
  }
  EXPECT_THAT(damage("state.json", cut), HasSubstr("state.json: damaged: sha256"));
  EXPECT_THAT(damage("state.json", flip_last_byte), HasSubstr("state.json: damaged: sha256"));
  EXPECT_THAT(damage("state.json", remove), HasSubstr("state.json: No such file"));
  EXPECT_THAT(damage("DONE", flip_last_byte), HasSubstr("DONE has another"));
  EXPECT_THAT(damage("DONE", remove), HasSubstr("DONE is missing"));
  EXPECT_THAT(damage("tokenizer.json", flip_last_byte), HasSubstr("tokenizer.json: damaged"));
  EXPECT_THAT(damage("tokenizer.json", remove), HasSubstr("tokenizer.json: No such file"));
}

TEST(Checkpoint, AStoreFallsBackToTheNewestUndamagedCheckpointAndSaysSo) {
  const ScratchFolder folder;
  CheckpointStore store(folder.path(), 9);
  for (int64_t step = 10; step <= 40; step += 10) write(store, sample(step));
  flip_last_byte(folder / "step-00000040/model.safetensors");
  fs::remove(folder / "step-00000030/optimizer.safetensors");
  const Checkpoint checkpoint = read_checkpoint(folder.path());
  expect_equal(checkpoint, sample(20));
  EXPECT_THAT(checkpoint.skipped,
              ElementsAre(HasSubstr("step-00000040/model.safetensors: damaged"),
                          HasSubstr("step-00000030/optimizer.safetensors: No such file")));
  EXPECT_THAT(refusal(folder / "step-00000040"), HasSubstr("damaged"));
}

TEST(Checkpoint, AStoreWithoutAnUndamagedCheckpointSaysWhy) {
  const ScratchFolder folder;
  EXPECT_THAT(refusal(folder.path()), HasSubstr("no complete checkpoint"));
  EXPECT_THAT(refusal(folder / "absent"), HasSubstr("no such folder"));
  write_bytes(folder / "file", "");
  EXPECT_THAT(refusal(folder / "file"), HasSubstr("not a folder"));
  CheckpointStore store(folder.path(), 9);
  write(store, sample(10));
  write(store, sample(20));
  flip_last_byte(folder / "step-00000010/model.safetensors");
  flip_last_byte(folder / "step-00000020/optimizer.safetensors");
  EXPECT_THAT(refusal(folder.path()),
              testing::MatchesRegex(".*step-00000020/optimizer.safetensors: damaged.*; "
                                    ".*step-00000010/model.safetensors: damaged.*"));
}

// Replaces `from` in state.json and updates DONE to match, as an attacker or a later version can.
// Returns the refusal.
std::string refusal_of_state(const std::string& from, const std::string& to) {
  const ScratchFolder folder;
  CheckpointStore store(folder.path(), 1);
  write(store, sample(40));
  const std::string path = folder / "step-00000040";
  std::string text = read_bytes(path + "/state.json");
  const size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("no " + from + " in " + text);
  text.replace(at, from.size(), to);
  write_bytes(path + "/state.json", text);
  write_bytes(path + "/DONE", sha256_hex(std::as_bytes(std::span(text))) + "\n");
  return refusal(path);
}

TEST(Checkpoint, RefusesAStateThatDoesNotFit) {
  EXPECT_EQ(refusal_of_state("abc123", "abc124"), "read");
  EXPECT_THAT(refusal_of_state("\"version\": 1", "\"version\": 2"), HasSubstr("version 2"));
  EXPECT_THAT(refusal_of_state("pushpull-checkpoint", "other"), HasSubstr("not a pushpull"));
  EXPECT_THAT(refusal_of_state("\"step\": 40", "\"step\": 41"), HasSubstr("for step 41"));
  EXPECT_THAT(refusal_of_state("\"step\": 40", "\"step\": \"40\""), HasSubstr("state.json"));
  EXPECT_THAT(refusal_of_state("\"step\": 40,", ""), HasSubstr("state.json"));
  EXPECT_THAT(refusal_of_state("\"updates\": 80", "\"updates\": -1"), HasSubstr("negative"));
  EXPECT_THAT(refusal_of_state("{", "["), HasSubstr("state.json"));
  EXPECT_THAT(refusal_of_state("\"exp_avg\"", "\"other\""), HasSubstr("lacks a part"));
  EXPECT_THAT(refusal_of_state("\"exp_avg\",", ""), HasSubstr("4 tensors, expected 2"));
  EXPECT_THAT(refusal_of_state("\"exp_avg\"", "1,2,3,4,5,6,7,8,9"), HasSubstr("state.json"));
  EXPECT_THAT(refusal_of_state("\"exp_avg\"", R"("1","2","3","4","5","6","7","8","exp_avg")"),
              HasSubstr("10 optimizer slots"));
}

// Checks that a write fails with an Error that names the file, and leaves only the older
// checkpoint.
void expect_write_fails(const std::string& dir, const std::string& reason, int64_t width) {
  CheckpointStore store(dir, 3);
  const std::string text = thrown(ErrorCode::kIo, [&] { write(store, sample(20, width)); });
  EXPECT_THAT(text, HasSubstr(dir + "/.tmp-step-00000020-"));
  EXPECT_THAT(text, HasSubstr("/model.safetensors: " + reason));
  EXPECT_THAT(names_in(dir), ElementsAre("step-00000010"));
  expect_equal(read_checkpoint(dir), sample(10));
  write(store, sample(30));  // the store still works
  EXPECT_THAT(store.steps(), ElementsAre(10, 30));
}

TEST(Checkpoint, AFileSizeLimitLeavesTheOlderCheckpoint) {
  const ScratchFolder folder;
  CheckpointStore store(folder.path(), 3);
  write(store, sample(10));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);  // else the kernel ends the process
  const rlimit limit{65'536, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  expect_write_fails(folder.path(), "File too large after 65536 bytes", 10'000);
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
}

// A file system of 128 KiB; `error` is not 0 if this user may not mount one.
struct SmallDisk {
  explicit SmallDisk(std::string where) : path(std::move(where)) {
    fs::create_directories(path);
    if (::mount("tmpfs", path.c_str(), "tmpfs", 0, "size=128k") != 0) error = errno;
  }
  ~SmallDisk() {
    if (error == 0) ::umount2(path.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  std::string path;
  int error = 0;
};

TEST(Checkpoint, AFullDiskLeavesTheOlderCheckpoint) {
  const ScratchFolder folder;
  const SmallDisk small(folder / "disk");
  const std::string& disk = small.path;
  if (small.error != 0) {
    GTEST_SKIP() << "a small disk cannot be mounted here: " << std::strerror(small.error);
  }
  {
    CheckpointStore store(disk, 3);
    write(store, sample(10));
  }
  expect_write_fails(disk, "No space left on device after ", 20'000);
}

TEST(Checkpoint, FailureToCreateAStoreNamesItsPath) {
  const ScratchFolder folder;
  write_bytes(folder / "file", "");
  EXPECT_THAT(
      thrown(ErrorCode::kIo, [&] { const CheckpointStore store(folder / "file/store", 1); }),
      HasSubstr(folder / "file/store: Not a directory"));
}

TEST(Checkpoint, RefusesACallWithMismatchedSizes) {
  const ScratchFolder folder;
  CheckpointStore store(folder.path(), 1);
  Sample s = sample(1);
  s.weights.pop_back();
  EXPECT_THROW(write(store, s), Error);
  s = sample(1);
  s.slots.pop_back();
  EXPECT_THROW(write(store, s), Error);
  EXPECT_THROW(CheckpointStore(folder.path(), 0), Error);
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

// Reads initial weights for sample()'s table from a file with these tensors, or returns the
// refusal.
class InitialWeights : public testing::Test {
 protected:
  std::string refusal_of(const std::vector<NamedTensor>& tensors) {
    write_safetensors(path_, tensors, {});
    try {
      weights_ = read_initial_weights(path_, table_).weights;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kData);
      EXPECT_THAT(error.what(), StartsWith("[safetensors] " + path_ + ": tensor "));
      return error.what();
    }
    return "read";
  }

  const ScratchFolder folder_;
  const std::string path_ = folder_ / "weights.safetensors";
  const TensorTable table_ = sample(0).table;
  std::vector<float> a_ = {1.0F, 2.0F};
  std::vector<float> bn_ = {3.0F, 4.0F, 5.0F, 6.0F};
  std::vector<float> z_ = std::vector<float>(15, 7.0F);
  std::vector<float> weights_;
};

TEST_F(InitialWeights, AreInCanonicalOrderForAnyOrderInTheFile) {
  EXPECT_EQ(
      refusal_of({{"a.bias", {2}, a_}, {"bn.running_mean", {4}, bn_}, {"z.weight", {3, 5}, z_}}),
      "read");
  std::vector<float> expected = z_;
  expected.insert(expected.end(), bn_.begin(), bn_.end());
  expected.insert(expected.end(), a_.begin(), a_.end());
  EXPECT_EQ(weights_, expected);
}

TEST_F(InitialWeights, MustMatchTheModelExactly) {
  EXPECT_THAT(refusal_of({{"a.bias", {2}, a_}, {"z.weight", {3, 5}, z_}}),
              HasSubstr("tensor \"bn.running_mean\" of the model is missing"));
  EXPECT_THAT(refusal_of({{"a.bias", {2}, a_},
                          {"b.bias", {2}, a_},
                          {"bn.running_mean", {4}, bn_},
                          {"z.weight", {3, 5}, z_}}),
              HasSubstr("tensor \"b.bias\" is unknown"));
  EXPECT_THAT(
      refusal_of({{"a.bias", {2}, a_}, {"bn.running_mean", {4}, bn_}, {"z.weight", {5, 3}, z_}}),
      HasSubstr("tensor \"z.weight\" has shape [5, 3], the model's is [3, 5]"));
}

TEST_F(InitialWeights, MustBeFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -INFINITY}) {
    bn_[2] = bad;
    EXPECT_THAT(
        refusal_of({{"a.bias", {2}, a_}, {"bn.running_mean", {4}, bn_}, {"z.weight", {3, 5}, z_}}),
        testing::MatchesRegex(".*\"bn.running_mean\" is (nan|-inf) at element 2"));
  }
}

TEST(Sha256Hex, GivesTheKnownAnswersOfFips180) {
  const std::string abc = "abc";
  EXPECT_EQ(sha256_hex(std::as_bytes(std::span(abc))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace pushpull

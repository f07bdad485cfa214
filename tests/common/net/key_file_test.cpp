#include "common/net/key_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "tests/common/scratch_folder.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// Gives the test a home of its own and clears the user's variables.
class KeyFile : public testing::Test {
 protected:
  KeyFile() {
    for (const char* name :
         {"XDG_CONFIG_HOME", "PUSHPULL_KEY_FILE", "PUSHPULL_KEY_FD", "PUSHPULL_KEY"}) {
      unsetenv(name);
    }
    setenv("HOME", folder_.path().c_str(), 1);
  }

  static std::string secret_in(const std::string& path) {
    const AnyKey key = read_key_file(path);
    return key_text(key);
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      if (entry.is_regular_file()) names.push_back(entry.path().string());
    }
    return names;
  }

  ScratchFolder folder_;
  const std::string own_ = folder_ / ".config/pushpull/key";
};

TEST_F(KeyFile, TheUsersKeyIsCreatedAtFirstUseReadableByTheOwnerOnly) {
  EXPECT_EQ(find_keys("").source(), own_);
  struct stat about {};
  ASSERT_EQ(stat(own_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600U);
  ASSERT_EQ(stat((folder_ / ".config/pushpull").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0700U);
  const std::string first = secret_in(own_);
  find_keys("");
  EXPECT_EQ(secret_in(own_), first);
  EXPECT_EQ(files(), std::vector{own_});
}

TEST_F(KeyFile, XdgConfigHomeIsUsedIfItIsAbsolute) {
  setenv("XDG_CONFIG_HOME", (folder_ / "xdg").c_str(), 1);
  EXPECT_EQ(find_keys("").source(), folder_ / "xdg/pushpull/key");
  setenv("XDG_CONFIG_HOME", "xdg", 1);
  EXPECT_EQ(user_key_path(), own_);
}

TEST_F(KeyFile, ProgramsThatStartTogetherUseOneKey) {
  constexpr int kPrograms = 24;
  int gate[2];
  int out[2];
  ASSERT_EQ(pipe(gate) | pipe(out), 0);
  for (int i = 0; i < kPrograms; ++i) {
    if (fork() != 0) continue;
    char go = 0;
    close(gate[1]);
    if (read(gate[0], &go, 1) != 0) _exit(1);  // until all children have started
    const std::string token = find_keys("").control_credentials().own.secret_key;
    _exit(write(out[1], token.data(), token.size()) == 40 ? 0 : 1);
  }
  close(gate[0]);
  close(gate[1]);
  for (int i = 0; i < kPrograms; ++i) {
    int status = 0;
    wait(&status);
    EXPECT_EQ(status, 0);
  }
  std::set<std::string> tokens;
  std::string token(40, '\0');
  for (int i = 0; i < kPrograms; ++i) {
    ASSERT_EQ(read(out[0], token.data(), token.size()), 40);
    tokens.insert(token);
  }
  EXPECT_EQ(tokens.size(), 1U);
  EXPECT_EQ(files(), std::vector{own_});
}

TEST_F(KeyFile, AFlagOverridesADescriptorAndADescriptorOverridesAVariable) {
  const std::string flag = folder_ / "flag";
  const std::string variable = folder_ / "variable";
  ASSERT_TRUE(make_key_file(flag, new_secret_key()));
  ASSERT_TRUE(make_key_file(variable, new_secret_key()));
  setenv("PUSHPULL_KEY_FILE", variable.c_str(), 1);
  EXPECT_EQ(find_keys("").source(), variable);
  hand_down_key(new_secret_key());
  EXPECT_THAT(find_keys("").source(), HasSubstr("PUSHPULL_KEY_FD"));
  EXPECT_EQ(find_keys(flag).source(), flag);
  EXPECT_FALSE(fs::exists(own_));
}

TEST_F(KeyFile, ADescriptorHandsOneKeyToEveryProcess) {
  const SecretKey key = new_secret_key();
  hand_down_key(key);
  const std::string want = Keys(key, "").control_credentials().own.secret_key;
  EXPECT_EQ(find_keys("").control_credentials().own.secret_key, want);
  EXPECT_EQ(find_keys("").control_credentials().own.secret_key, want);  // read a second time
  setenv("PUSHPULL_KEY_FD", "999", 1);
  EXPECT_THAT(thrown(ErrorCode::kUsage, [] { find_keys(""); }), HasSubstr("PUSHPULL_KEY_FD=999"));
  setenv("PUSHPULL_KEY_FD", "three", 1);
  EXPECT_THAT(thrown(ErrorCode::kUsage, [] { find_keys(""); }), HasSubstr("PUSHPULL_KEY_FD=three"));
}

TEST_F(KeyFile, AKeyThatOthersCanReadIsRefused) {
  const std::string path = folder_ / "open.key";
  ASSERT_TRUE(make_key_file(path, new_secret_key()));
  for (const mode_t mode : {0644, 0640, 0604, 0660, 0601, 0620}) {
    chmod(path.c_str(), mode);
    EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { find_keys(path); }),
                AllOf(HasSubstr(path), HasSubstr("chmod 600")))
        << mode;
  }
  chmod(path.c_str(), 0400);
  EXPECT_NO_THROW(find_keys(path));
}

// Only root can open such a file at all.
TEST_F(KeyFile, AKeyOfAnotherUserIsRefused) {
  const std::string path = folder_ / "theirs.key";
  ASSERT_TRUE(make_key_file(path, new_secret_key()));
  if (chown(path.c_str(), 12345, static_cast<gid_t>(-1)) != 0) GTEST_SKIP() << "not root";
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { find_keys(path); }),
              AllOf(HasSubstr(path), HasSubstr("12345"), HasSubstr("chown")));
}

TEST_F(KeyFile, AnInvalidKeyFileIsNamed) {
  const std::string path = folder_ / "job.ini";
  write_bytes(path, "model = mlp\n");
  chmod(path.c_str(), 0600);
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { find_keys(path); }), HasSubstr(path));
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { find_keys(folder_ / "none"); }),
              AllOf(HasSubstr(folder_ / "none"), HasSubstr("keygen")));
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { find_keys(folder_.path()); }),
              HasSubstr(folder_.path()));
  ASSERT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { find_keys(folder_ / "fifo"); }),
              HasSubstr("fifo"));  // without waiting for a writer
}

TEST_F(KeyFile, AKeyIsNeverOverwritten) {
  const std::string path = folder_ / "job.key";
  ASSERT_TRUE(make_key_file(path, new_secret_key()));
  const std::string before = secret_in(path);
  EXPECT_FALSE(make_key_file(path, new_secret_key()));
  EXPECT_EQ(secret_in(path), before);
  EXPECT_EQ(files(), std::vector{path});
}

TEST_F(KeyFile, AFileIsNoHome) {
  write_bytes(folder_ / "file", "");
  setenv("HOME", (folder_ / "file").c_str(), 1);
  EXPECT_TRUE(no_home_for_a_key());
  EXPECT_THAT(thrown(ErrorCode::kUsage, [] { find_keys(""); }),
              AllOf(HasSubstr("/file is not a folder"), HasSubstr("--key")));
  const std::string note = set_keys_of_children({});
  EXPECT_THAT(note, HasSubstr("a key of its own"));
  EXPECT_THAT(find_keys("").source(), HasSubstr("PUSHPULL_KEY_FD"));
}

// As for other users' homes (mode 0), stat(2) of what is in it fails, and not because it is absent.
TEST_F(KeyFile, AHomeThatCannotBeSearchedIsNone) {
  fs::create_symlink(folder_ / ".config", folder_ / ".config");
  EXPECT_THAT(why_no_user_key(), HasSubstr("symbolic links"));
  EXPECT_TRUE(no_home_for_a_key());
  EXPECT_THAT(thrown(ErrorCode::kUsage, [] { find_keys(""); }),
              AllOf(HasSubstr("[key] cannot use the folder "), HasSubstr("/.config/pushpull: "),
                    HasSubstr("symbolic links"), HasSubstr("--key")));
  EXPECT_THAT(set_keys_of_children({}), HasSubstr("a key of its own"));
  EXPECT_THAT(find_keys("").source(), HasSubstr("PUSHPULL_KEY_FD"));
}

TEST_F(KeyFile, AHomeWithoutAKeyIsAPlaceForOne) {
  EXPECT_EQ(why_no_user_key(), "");
  EXPECT_TRUE(files().empty()) << "it made one";
  setenv("HOME", "/nonexistent", 1);
  EXPECT_THAT(why_no_user_key(), HasSubstr("no home: /nonexistent is not a folder"));
}

TEST_F(KeyFile, ChildrenInheritTheKeyOfAFlag) {
  const std::string path = folder_ / "job.key";
  ASSERT_TRUE(make_key_file(path, new_secret_key()));
  CommandLine line;
  line.local["key"] = path;
  EXPECT_EQ(set_keys_of_children(line), "");
  EXPECT_EQ(find_keys("").source(), path);
}

TEST_F(KeyFile, AKeyAndNoKeyContradictEachOther) {
  CommandLine line;
  line.local["insecure"] = "true";
  EXPECT_TRUE(keys_of(line).insecure());
  EXPECT_TRUE(files().empty());
  line.local["key"] = folder_ / "job.key";
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { keys_of(line); }), HasSubstr("--insecure"));
}

TEST_F(KeyFile, AKeyInTheEnvironmentReachesProcessesThatReadNoFile) {
  const std::string text = find_key_text("");
  EXPECT_EQ(text + "\n", secret_in(own_));
  fs::remove(own_);
  setenv("PUSHPULL_KEY", text.c_str(), 1);
  EXPECT_EQ(find_key_text(""), text);
  EXPECT_FALSE(no_home_for_a_key());
  EXPECT_THAT(files(), testing::IsEmpty()) << "it makes no key of its own";
  setenv("PUSHPULL_KEY", "pushpull-key-1 00", 1);
  EXPECT_THAT(thrown(ErrorCode::kUsage, [] { find_keys(""); }),
              HasSubstr("PUSHPULL_KEY holds no key"));
  hand_down_file(own_);
  EXPECT_EQ(getenv("PUSHPULL_KEY"), nullptr) << "the file counts";
}

}  // namespace
}  // namespace pushpull

#include "common/net/local_socket.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "common/base/error.h"
#include "common/net/endpoint.h"

namespace pushpull {
namespace {

namespace fs = std::filesystem;

constexpr const char* kData = "tcp://127.0.0.1:4711";

class LocalSocket : public testing::Test {
 protected:
  LocalSocket() {
    std::string name = "/tmp/pushpull-test-XXXXXX";
    folder_ = mkdtemp(name.data());
    unsetenv("XDG_RUNTIME_DIR");
    setenv("TMPDIR", folder_.c_str(), 1);
    private_ = folder_ + "/pushpull-" + std::to_string(getuid());
  }
  ~LocalSocket() override { fs::remove_all(folder_); }

  std::string path_of(const std::string& endpoint) { return endpoint.substr(6); }
  void make_old(const std::string& path) {
    const utimbuf times{std::time(nullptr) - 3600, std::time(nullptr) - 3600};
    ASSERT_EQ(utime(path.c_str(), &times), 0);
  }

  std::string folder_;
  std::string private_;
};

TEST_F(LocalSocket, IsInAFolderThatOnlyTheUserCanEnter) {
  EXPECT_EQ(local_endpoint(7, kData), "ipc://" + private_ + "/7-4711.sock");
  struct stat info {};
  ASSERT_EQ(stat(private_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700U);
}

TEST_F(LocalSocket, AFolderThatOthersCanEnterIsNotUsed) {
  local_endpoint(7, kData);
  chmod(private_.c_str(), 0755);
  EXPECT_THROW(local_endpoint(7, kData), Error);
}

TEST_F(LocalSocket, ALinkToAFolderIsNotUsed) {
  fs::create_directory(folder_ + "/other");
  chmod((folder_ + "/other").c_str(), 0700);
  fs::create_symlink(folder_ + "/other", private_);
  EXPECT_THROW(local_endpoint(7, kData), Error);
}

TEST_F(LocalSocket, ANameTooLongForASocketIsRefused) {
  const std::string longer = folder_ + "/" + std::string(100, 'a');
  fs::create_directory(longer);
  setenv("TMPDIR", longer.c_str(), 1);
  EXPECT_THROW(local_endpoint(7, kData), Error);
}

TEST_F(LocalSocket, AcceptsConnectionsWhileARouterListens) {
  const std::string endpoint = local_endpoint(7, kData);
  EXPECT_FALSE(answers(endpoint));
  {
    zmq::context_t context(1);
    Router router(context, "tcp://127.0.0.1:*", data_limits(4096));
    router.listen_also(endpoint);
    const LocalSocketName name(endpoint);
    EXPECT_TRUE(answers(endpoint));
    Dealer dealer(context, endpoint, data_limits(4096));
    Message message;
    message.header.mutable_hello()->set_pid(5);
    dealer.send(message);
    std::optional<std::pair<PeerId, Message>> got;
    for (int i = 0; i < 500 && !got; ++i) {
      zmq::pollitem_t item{router.socket().handle(), 0, ZMQ_POLLIN, 0};
      poll_sockets({&item, 1}, 20);
      got = router.receive();
    }
    ASSERT_TRUE(got);
    EXPECT_EQ(got->second.header.hello().pid(), 5);
  }
  EXPECT_FALSE(answers(endpoint));
  EXPECT_FALSE(fs::exists(path_of(endpoint)));
}

TEST_F(LocalSocket, OnlyOldSocketsOfDeadProcessesAreRemoved) {
  const std::string endpoint = local_endpoint(7, kData);
  zmq::context_t context(1);
  Router living(context, "tcp://127.0.0.1:*", data_limits(4096));
  living.listen_also(endpoint);
  const std::string dead = private_ + "/8-1.sock";
  const std::string fresh = private_ + "/9-1.sock";
  const std::string file = private_ + "/10-1.sock";
  {
    zmq::context_t other(1);
    Router killed(other, "tcp://127.0.0.1:*", data_limits(4096));
    for (const std::string& path : {dead, fresh}) killed.listen_also("ipc://" + path);
  }
  std::ofstream(file) << "not a socket";
  for (const std::string& path : {dead, file, path_of(endpoint)}) make_old(path);
  remove_stale(endpoint);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(fresh)) << "a new socket's owner may not listen yet";
  EXPECT_TRUE(fs::exists(file));
  EXPECT_TRUE(answers(endpoint));
}

}  // namespace
}  // namespace pushpull

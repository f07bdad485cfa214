// When a server is asked again for what it has not answered, when its silence is too long, and
// which of its words answer a question that was asked after a push: those show that the push is
// lost. Keeps why a server has refused something, to say so when it falls silent. Times come from the caller. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/exchange/connection_map.h"

namespace pushpull {

constexpr int64_t kPullRepeatMs = 1000;  // an answer that has not come by then is asked for again

class PullRepeats {
 public:
  // timeout_ms: silence beyond that is an error.
  PullRepeats(const ConnectionMap& connections, int64_t timeout_ms);

  // ---- what the worker sends ----
  // A pull begins: nothing of it has been asked.
  void begin(int server);
  // It goes out to the server: for the first time, or once more.
  void ask(int server, int64_t now_ms);
  void ask_again(int server, int64_t now_ms);
  // ... because it has not answered in time.
  void overdue(int server);
  // Pushes go out once more.
  void push_again(int server) { at(server).pushed_at = at(server).asked; }

  // ---- what the server says ----
  // True: it was asked again since it was last heard.
  bool hear(int server, int64_t now_ms);
  // An answer to the running pull.
  //   asked: the repetition that it answers.
  void answer(int server, int connection, int asked);
  // More of an answer may be under way: the next repetition counts from here.
  void wait(int server, int64_t now_ms) { at(server).repeat_ms = now_ms + kPullRepeatMs; }
  // It does not know this worker yet: it is asked again soon, and that counts for nothing.
  void not_ready(int server, int64_t now_ms);
  // It has dropped a message of this worker. True: it did not say the same last time.
  bool refuse(int server, const std::string& why);
  // All that was asked for and pushed has arrived, so that no refusal matters any more.
  void forget_refusals();
  // Waiting begins only now.
  void restart(int server, int64_t now_ms);

  // ---- queries ----
  // Repetitions of the running pull so far.
  int asked(int server) const { return at(server).asked; }
  // The newest of them that was answered on this connection.
  int answered(int server, int connection) const {
    return at(server).answered[static_cast<size_t>(connection)];
  }
  // The server has answered, on each of so many connections, a question that was asked after the
  // last push. A connection keeps the order, so that whatever was pushed before has arrived by
  // then, or is lost.
  bool answered_since_push(int server, int connections) const;
  // It is time to ask the server again. The caller checks `silent_ms` first.
  bool due(int server, int64_t now_ms) const { return now_ms >= at(server).repeat_ms; }
  // How long the server has been silent, where that is too long.
  std::optional<int64_t> silent_ms(int server, int64_t now_ms) const;
  // Its newest refusal; empty: none that matters.
  const std::string& refusal(int server) const { return at(server).refusal; }

 private:
  struct Server {
    int64_t repeat_ms = -1;  // when to ask again
    int64_t heard_ms = -1;
    int repeats = 0;            // since it was last heard
    int asked = 0;              // repetitions of the running pull
    int pushed_at = 0;          // `asked` when pushes were last sent
    bool not_ready = false;     // it said so
    std::string refusal;        // the newest
    std::vector<int> answered;  // by connection: the newest repetition that it has answered
  };
  Server& at(int server) { return servers_[static_cast<size_t>(server)]; }
  const Server& at(int server) const { return servers_[static_cast<size_t>(server)]; }

  const int64_t timeout_ms_;
  std::vector<Server> servers_;
};

}  // namespace pushpull

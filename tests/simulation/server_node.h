// The program of a joined server without sockets: `ServerMember` on the simulated network and
// clock.
#pragma once

#include <string>

#include "ps/server/server_member.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/data_node.h"

namespace pushpull::sim {

class ServerNode : private ServerHost {
 public:
  // surplus: the job has all its servers and must refuse this one.
  ServerNode(Cluster& cluster, int number, bool surplus = false);

  void kill();
  void request_end();
  bool has_ended() const { return over_; }
  const DataNode& node() const { return data_; }
  int data_router() const { return data_.router(); }
  int control() const { return control_; }
  std::string describe() const;

 private:
  std::string listen(const Job& /*job*/, uint64_t /*term_id*/, uint64_t /*run_id*/) override {
    return endpoint_of(number_);
  }
  void rename(const Job& /*job*/, uint64_t /*term_id*/) override {}
  ServedData& data() override { return data_.data(); }
  void take(const Message& message);
  void tick();
  void send();
  void check_end();

  Cluster& cluster_;
  int number_;
  const bool surplus_;
  DataNode data_;
  ServerMember member_;
  uint64_t incarnation_;
  int control_;
  bool over_ = false;
};

}  // namespace pushpull::sim

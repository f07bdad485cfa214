// A lab of hosts for one job: network namespaces, connected by links with a given
// rate, delay and loss. Runs pushpull-netlab (scripts/netlab.sh), which is found next to the
// program. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/report/compare_result.h"
#include "cli/run/launcher.h"
#include "common/base/unique_fd.h"

namespace pushpull {

struct LinkSpec {
  std::string text;   // as typed
  std::string rate;   // "100mbit"; empty = unlimited
  std::string delay;  // "5ms", each way; empty = none
  std::string loss;   // "1%"; empty = none
};

// Parses "RATE,DELAY[,LOSS]": 100mbit,5ms or 1gbit,200us,0.1%; rate "any" and delay "0ms" mean no
// limit. Returns empty for "none", this machine's loopback. Throws Error(kUsage) with the text.
std::optional<LinkSpec> parse_link(const std::string& text);

class LinkLab {
 public:
  // Creates the lab and measures its first link.
  //   program_dir: folder of pushpull-netlab.
  // Throws Error(kFailed) with one line that says why no lab is possible: no root, no namespaces.
  LinkLab(const LinkSpec& spec, int64_t hosts, const std::string& program_dir);
  // Removes the lab. The lab also goes if this process is killed: pushpull-netlab waits for the end
  // of a pipe.
  ~LinkLab();
  LinkLab(const LinkLab&) = delete;
  LinkLab& operator=(const LinkLab&) = delete;

  int64_t hosts() const { return hosts_; }
  const LinkMeasured& measured() const { return measured_; }
  const std::string& congestion_control() const { return congestion_control_; }  // TCP's
  std::string address(int64_t host) const;
  // Returns the start of a command line that runs on that host.
  std::vector<std::string> prefix(int64_t host) const;

 private:
  void wait_until_ready();
  void measure();

  std::string name_;
  int64_t hosts_;
  std::string script_;
  std::string ip_;   // path of ip(8)
  UniqueFd input_;   // pushpull-netlab's standard input; closing it ends the lab
  UniqueFd output_;  // pushpull-netlab's output
  pid_t netlab_ = -1;
  LinkMeasured measured_;
  std::string congestion_control_;
};

// Returns "100mbit,5ms: measured 95.3 Mbit/s and 10.3 ms for a round trip (network namespaces
// ...)".
std::string link_text(const LinkMeasured& link);

// Returns the number of hosts for a job.
//   per_host: workers of each host.
int64_t hosts_of_job(int64_t servers, int64_t workers, int64_t per_host);

// Puts the processes of the job on hosts: each server has its own, then `per_host` workers in the order of
// their ranks have one. The lab must have at least hosts_of_job hosts.
void put_on_hosts(LauncherOptions& options, const LinkLab& lab, int64_t per_host);

// The labs of a comparison: one per link, all existing at once, so that runs can alternate. An idle
// lab costs nothing.
class LinkLabs {
 public:
  // Creates the labs.
  //   links: as for parse_link(); "" and "none" are this machine's loopback.
  //   hosts: of the largest job, hosts_of_job.
  //   notes: receives one line per link that is not possible and is left out. If no link remains,
  //   loopback is used.
  LinkLabs(const std::vector<std::string>& links, int64_t hosts, const std::string& program_dir,
           std::vector<std::string>& notes);

  // Returns the available links in the order given; "" is loopback.
  const std::vector<std::string>& links() const { return links_; }
  std::vector<LinkMeasured> measured() const;
  // Puts the processes of a job on the hosts of this link, see put_on_hosts; "" leaves them on this
  // machine.
  void put_on(const std::string& link, LauncherOptions& options, int64_t per_host) const;

 private:
  std::vector<std::string> links_;
  std::map<std::string, std::unique_ptr<LinkLab>> labs_;
};

}  // namespace pushpull

// A lab of hosts for one job: one network namespace per process, connected by links of a given
// rate, delay and loss. pushpull-netlab (scripts/netlab.sh), next to the program, does the work.
// One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/result/compare_result.h"
#include "cli/run/launcher.h"
#include "common/base/unique_fd.h"

namespace pushpull {

struct LinkSpec {
  std::string text;   // as typed
  std::string rate;   // "100mbit"; empty: unlimited
  std::string delay;  // "5ms", each way; empty: none
  std::string loss;   // "1%"; empty: none
};

// Parses "RATE,DELAY[,LOSS]": 100mbit,5ms or 1gbit,200us,0.1%; rate "any" and delay "0ms" mean no
// limit. Empty for "none", this machine's loopback. Throws Error(kUsage) naming the text.
std::optional<LinkSpec> parse_link(const std::string& text);

class LinkLab {
 public:
  // Creates the lab and measures its first link.
  //   program_dir: folder of pushpull-netlab.
  // Throws Error(kFailed) with one line that says why no lab is possible: no root, no namespaces.
  LinkLab(const LinkSpec& spec, int64_t hosts, const std::string& program_dir);
  // Removes the lab. If this process dies first, by whatever signal, the lab still goes:
  // pushpull-netlab waits for the end of a pipe.
  ~LinkLab();
  LinkLab(const LinkLab&) = delete;
  LinkLab& operator=(const LinkLab&) = delete;

  int64_t hosts() const { return hosts_; }
  const LinkMeasured& measured() const { return measured_; }
  const std::string& congestion_control() const { return congestion_control_; }  // TCP's
  std::string address(int64_t host) const;
  // The start of a command line that runs on that host.
  std::vector<std::string> prefix(int64_t host) const;

 private:
  void wait_until_ready();
  void measure();

  std::string name_;
  int64_t hosts_;
  std::string script_;
  std::string ip_;   // path of iproute2's program
  UniqueFd input_;   // pushpull-netlab's standard input; the lab ends with it
  UniqueFd output_;  // its output
  pid_t netlab_ = -1;
  LinkMeasured measured_;
  std::string congestion_control_;
};

// "100mbit,5ms: measured 95.3 Mbit/s and 10.3 ms for a round trip (network namespaces ...)".
std::string link_text(const LinkMeasured& link);

// Puts every process of the job on its own host, in slot order: servers, then workers. The lab must
// have at least as many hosts.
void put_on_hosts(LauncherOptions& options, const LinkLab& lab);

// The labs of a comparison: one per link, all existing at once. An idle lab costs nothing, and runs
// can alternate.
class LinkLabs {
 public:
  // links: as parse_link() reads them; "" and "none": this machine's loopback.
  // hosts: of the largest job.
  // notes: one line for each link that is not possible and left out; if none remains, loopback is
  // used.
  LinkLabs(const std::vector<std::string>& links, int64_t hosts, const std::string& program_dir,
           std::vector<std::string>& notes);

  // The available links in the order asked for; "": loopback.
  const std::vector<std::string>& links() const { return links_; }
  std::vector<LinkMeasured> measured() const;
  // Puts the processes of a job on the hosts of this link; "" leaves them on this machine.
  void put_on(const std::string& link, LauncherOptions& options) const;

 private:
  std::vector<std::string> links_;
  std::map<std::string, std::unique_ptr<LinkLab>> labs_;
};

}  // namespace pushpull

// A lab of hosts for one job: a network namespace for each process, joined by links of a given
// rate, delay and loss. The work is done by pushpull-netlab (scripts/netlab.sh), which lies beside
// the program. One thread.
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
  std::string text;   // as it was written
  std::string rate;   // "100mbit"; empty: as fast as it goes
  std::string delay;  // "5ms", each way; empty: none
  std::string loss;   // "1%"; empty: none
};

// "RATE,DELAY[,LOSS]": 100mbit,5ms or 1gbit,200us,0.1%; rate any and delay 0ms leave it as it is.
// Empty for "none", this machine's loopback. Throws Error(kUsage) naming the text.
std::optional<LinkSpec> parse_link(const std::string& text);

class LinkLab {
 public:
  // Makes the lab and measures its first link. program_dir: where pushpull-netlab lies.
  // Throws Error(kFailed) with one line that says why there can be no lab: no root, no namespaces.
  LinkLab(const LinkSpec& spec, int64_t hosts, const std::string& program_dir);
  // Removes it. Where this process ends without it, by whatever signal, the lab goes all the same:
  // pushpull-netlab waits for the end of a pipe.
  ~LinkLab();
  LinkLab(const LinkLab&) = delete;
  LinkLab& operator=(const LinkLab&) = delete;

  int64_t hosts() const { return hosts_; }
  const LinkMeasured& measured() const { return measured_; }
  const std::string& congestion_control() const { return congestion_control_; }  // of TCP there
  std::string address(int64_t host) const;
  // What a command line begins with to run on that host.
  std::vector<std::string> prefix(int64_t host) const;

 private:
  void wait_until_ready();
  void measure();

  std::string name_;
  int64_t hosts_;
  std::string script_;
  std::string ip_;   // the program of iproute2
  UniqueFd input_;   // of pushpull-netlab: it ends with the lab
  UniqueFd output_;  // what it says
  pid_t netlab_ = -1;
  LinkMeasured measured_;
  std::string congestion_control_;
};

// "100mbit,5ms: measured 95.3 Mbit/s and 10.3 ms for a round trip (network namespaces ...)".
std::string link_text(const LinkMeasured& link);

// Every process of the job on a host of its own, in the order of the slots: servers, then workers.
// The lab must have at least as many hosts.
void put_on_hosts(LauncherOptions& options, const LinkLab& lab);

// The labs of a comparison: one for each link that is asked for, all at one time. An idle lab costs
// nothing, and runs can take turns.
class LinkLabs {
 public:
  // links: as parse_link() reads them; "" and "none": this machine's loopback.
  // hosts: of the largest job. A link that cannot be had is left out, with a line in `notes`; where
  // none is left, loopback is.
  LinkLabs(const std::vector<std::string>& links, int64_t hosts, const std::string& program_dir,
           std::vector<std::string>& notes);

  // Those that are there, in the order asked for; "": loopback.
  const std::vector<std::string>& links() const { return links_; }
  std::vector<LinkMeasured> measured() const;
  // The processes of a job onto the hosts of this link; "" leaves them where they are.
  void put_on(const std::string& link, LauncherOptions& options) const;

 private:
  std::vector<std::string> links_;
  std::map<std::string, std::unique_ptr<LinkLab>> labs_;
};

}  // namespace pushpull

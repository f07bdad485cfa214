// One all-reduce over loopback TCP, one process per rank. Alternates ring, tree and gloo in one
// run.
//   all_reduce_bench [--ranks 2,4] [--rounds 30] [--segment BYTES] [--whole BYTES] [--only NAME]
// Prints medians (with min and max) per size, and ring / gloo. bench/peers/run_all_reduce.sh runs
// it.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/process.h"
#include "worker/all_reduce/collective.h"

namespace pushpull {
namespace {

struct Options {
  std::vector<int> ranks = {2, 4};
  int rounds = 30;
  CollectiveOptions sizes;
  std::string only;
};

const std::vector<int64_t> sizes_in_bytes = {4 << 10, 64 << 10, 256 << 10, 1 << 20,
                                             4 << 20, 25 << 20, 100 << 20};
const std::vector<std::pair<std::string, AllReduceKind>> kinds = {
    {"ring", AllReduceKind::kRing}, {"tree", AllReduceKind::kTree}, {"gloo", AllReduceKind::kGloo}};

// A child process and its pipes. It writes its address to `up`, reads all addresses from `down`,
// and then writes its times to `up`.
struct Child {
  pid_t pid = 0;
  int up = -1;
  int down = -1;
};

void write_line(int fd, const std::string& text) {
  const std::string line = text + "\n";
  if (write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(1);
}

std::string read_line(int fd) {
  std::string line;
  for (char c = 0; read(fd, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Vector {
  explicit Vector(int64_t elements) : floats(new float[static_cast<size_t>(elements)]) {
    std::fill_n(floats.get(), elements, 1.0F);
  }
  std::shared_ptr<float[]> floats;
};

// Runs one rank. Prints nothing; sends its times of each (kind, size) up.
void rank_main(int rank, int ranks, const Options& options, int down, int up) {
  keep_heap();
  zmq::context_t context(1);
  std::vector<std::unique_ptr<Peers>> peers;
  std::vector<std::unique_ptr<Collective>> collectives;
  std::string mine;
  std::vector<std::unique_ptr<Router>> routers;
  for (size_t k = 0; k < kinds.size(); ++k) {
    routers.push_back(std::make_unique<Router>(context, "tcp://127.0.0.1:*", EndpointLimits{}));
    mine += routers.back()->address() + " ";
  }
  write_line(up, mine);
  std::vector<std::vector<PeerAddress>> all(kinds.size());
  for (int r = 0; r < ranks; ++r) {
    std::istringstream line(read_line(down));
    for (auto& addresses : all) {
      PeerAddress address;
      line >> address.endpoint;
      address.incarnation = static_cast<uint64_t>(r) + 1;
      addresses.push_back(address);
    }
  }
  for (size_t k = 0; k < kinds.size(); ++k) {
    PeersSetup setup;
    setup.term_id = 1;
    setup.rank = rank;
    setup.all = all[k];
    peers.push_back(
        std::make_unique<Peers>(context, std::move(routers[k]), setup, [] { return false; }));
    collectives.push_back(
        make_collective(kinds[k].second, *peers.back(), ranks, 10.0, options.sizes));
  }
  Vector in(sizes_in_bytes.back() / 4);
  Vector out(sizes_in_bytes.back() / 4);
  std::vector<int64_t> operation(kinds.size());
  const Range node{rank, rank + 1};
  for (const int64_t bytes : sizes_in_bytes) {
    const int repeats = bytes <= (1 << 20) ? 20 : 2;
    const int rounds = bytes >= (25 << 20) ? std::max(3, options.rounds / 3) : options.rounds;
    for (int round = -1; round < rounds; ++round) {
      for (size_t k = 0; k < kinds.size(); ++k) {
        if (!options.only.empty() && options.only != kinds[k].first) continue;
        const SumPart part{node, in.floats, in.floats.get()};
        const SumTarget target{out.floats, out.floats.get()};
        // All ranks start together.
        collectives[k]->sum(operation.at(k)++, {part}, 1, target);
        const double begin = seconds_now();
        for (int i = 0; i < repeats; ++i) {
          collectives[k]->sum(operation.at(k)++, {part}, bytes / 4, target);
        }
        const double seconds = (seconds_now() - begin) / repeats;
        if (out.floats.get()[bytes / 4 - 1] != static_cast<float>(ranks)) _exit(2);
        if (round >= 0 && rank == 0) {
          write_line(up, kinds[k].first + " " + std::to_string(bytes) + " " +
                             std::to_string(seconds * 1e3));
        }
      }
    }
  }
  write_line(up, "end");
  // Waits for the parent: messages still being sent would be lost with this process.
  read_line(down);
}

using Times = std::map<std::pair<int64_t, std::string>, std::vector<double>>;

Times measure(int ranks, const Options& options) {
  std::vector<Child> children;
  for (int r = 0; r < ranks; ++r) {
    int up[2];
    int down[2];
    if (pipe(up) != 0 || pipe(down) != 0) std::exit(1);
    const pid_t pid = fork();
    if (pid == 0) {
      try {
        rank_main(r, ranks, options, down[0], up[1]);
        _exit(0);
      } catch (const std::exception& e) {
        std::cerr << "rank " << r << ": " << e.what() << "\n";
        _exit(1);
      }
    }
    close(up[1]);
    close(down[0]);
    children.push_back({pid, up[0], down[1]});
  }
  std::vector<std::string> addresses;
  addresses.reserve(children.size());
  for (const Child& child : children) addresses.push_back(read_line(child.up));
  for (const Child& child : children) {
    for (const std::string& address : addresses) write_line(child.down, address);
  }
  Times times;
  for (const Child& child : children) {
    for (std::string line = read_line(child.up); !line.empty() && line != "end";
         line = read_line(child.up)) {
      std::istringstream words(line);
      std::string kind;
      int64_t bytes = 0;
      double ms = 0.0;
      words >> kind >> bytes >> ms;
      times[{bytes, kind}].push_back(ms);
    }
  }
  for (const Child& child : children) write_line(child.down, "end");
  for (const Child& child : children) {
    int status = 0;
    waitpid(child.pid, &status, 0);
    if (status != 0) std::cerr << "a rank ended with status " << status << "\n";
    close(child.up);
    close(child.down);
  }
  return times;
}

void print(int ranks, Times times) {
  std::printf("%d ranks: milliseconds, median (min .. max)\n%10s", ranks, "bytes");
  for (const auto& [name, kind] : kinds) std::printf("  %26s", name.c_str());
  std::printf("  ring/gloo\n");
  for (const int64_t bytes : sizes_in_bytes) {
    std::printf("%10ld", static_cast<long>(bytes));
    std::map<std::string, double> median;
    for (const auto& [name, kind] : kinds) {
      std::vector<double>& all = times[{bytes, name}];
      if (all.empty()) continue;
      std::sort(all.begin(), all.end());
      median[name] = all[all.size() / 2];
      std::printf("  %8.3f (%6.3f .. %6.3f)", median[name], all.front(), all.back());
    }
    if (median.contains("ring") && median.contains("gloo")) {
      std::printf("  %9.2f", median["ring"] / median["gloo"]);
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

int main_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = argv[i + 1];
    if (flag == "--rounds") options.rounds = std::stoi(value);
    if (flag == "--segment") options.sizes.segment_bytes = std::stoll(value);
    if (flag == "--whole") options.sizes.whole_bytes = std::stoll(value);
    if (flag == "--only") options.only = value;
    if (flag == "--ranks") {
      options.ranks.clear();
      std::istringstream list(value);
      for (std::string word; std::getline(list, word, ',');)
        options.ranks.push_back(std::stoi(word));
    }
  }
  for (const int ranks : options.ranks) print(ranks, measure(ranks, options));
  return 0;
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) { return pushpull::main_of(argc, argv); }

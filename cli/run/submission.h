// A job that a batch system or a cluster will run: the plan of `pushpull submit`, from its flags. Any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/job/command_line.h"

namespace pushpull {

struct KeyHelp;

struct Submission {
  std::string name;      // of the job, for Slurm and Kubernetes
  std::string job_file;  // absolute
  std::string out;       // absolute; for a manifest as given
  int64_t nodes = 1;
  int64_t workers = 1;     // in all
  int64_t servers = 1;     // in all; one for each node
  std::string time = {};   // limit, as sbatch takes it; "": that of the partition
  int64_t cpus = 2;        // for each worker: the job's threads, and one for messages and a server
  int64_t gpus = 0;        // for each worker
  int64_t memory = 0;      // for each worker and its part of a server, bytes; 0: unknown
  int64_t notice_s = 120;  // before the time limit, in which the job stops with a checkpoint
  std::string program;     // path of pushpull on all nodes
  std::vector<std::string> run_words = {};  // further flags of pushpull run: --device, --key
  std::vector<std::string> job_words = {};  // keys of the job that flags gave, and --resume
  std::string sbatch_args = {};             // further words for sbatch, one line
  std::string image = {};                   // of a manifest
  std::string volume = {};                  // of a manifest: the claim that holds OUT
  std::string device = {};                  // of a manifest's workers
  std::vector<std::string> worker = {};     // of a manifest: words of --worker
  bool insecure = false;
};

const std::vector<KeyHelp>& submit_options();

// Throws Error(kUsage) naming the flag or the key of the job. Reads the job file.
Submission plan_submission(const CommandLine& line, const std::string& program_dir);

// Returns a time limit of Slurm in seconds: "30" (minutes), "30:00", "2:30:00", "1-12", "1-12:30",
// "1-12:30:00"; -1 for other text.
int64_t slurm_seconds(const std::string& text);

// The manifest of a JobSet of Kubernetes (jobset.x-k8s.io/v1alpha2) for a submission. Any thread.

// Returns YAML: a ConfigMap with the job file, and a JobSet with two indexed Jobs, `server` and
// `worker`. Their pods find the first server by its name (--join auto). Reads the job file. The key is
// in a Secret that the user makes.
std::string job_set(const Submission& plan);

// The batch script of Slurm for a submission. Any thread.

// Returns the text of the script: the allocation, `pushpull run --over slurm` in it, and what follows
// when Slurm is about to take the allocation away. In an array each task has a folder of its own.
std::string sbatch_script(const Submission& plan);

}  // namespace pushpull

#include "cli/submit/sbatch_script.h"

#include <sstream>

#include "cli/run/shell_command.h"

namespace pushpull {
namespace {

// bash runs a trap as soon as `wait` returns, and not while another command runs: so `run` is in the
// background. A signal ends `wait`, but not `run`. The last `wait` returns its code.
// Traps come first: without one, a signal right after the start would end bash and leave `run` alone.
constexpr const char* kTraps = R"(run= again= told=
pass_on() { told=1; [ -z "$run" ] || kill -TERM $run; }
trap 'again=1; pass_on' USR1  # the time limit is near: stop with a checkpoint, and requeue
trap pass_on TERM             # preempted, or cancelled: stop with a checkpoint

)";

constexpr const char* kBody = R"(run=$!
[ -z "$told" ] || pass_on
while kill -0 $run 2>/dev/null; do wait $run; done
wait $run
code=$?
if [ $code = 75 ] && [ -z "$again" ]; then
  # Slurm does not requeue a preempted job that ends within its grace time.
  again=$(scontrol show job "$SLURM_JOB_ID" 2>/dev/null | grep -o 'PreemptTime=[0-9]')
fi
if [ $code = 75 ] && [ -n "$again" ]; then
  echo "stopped with a checkpoint: back into the queue"
  scontrol requeue "$SLURM_JOB_ID" && exit 0
fi
exit $code
)";

std::string quoted_word(const std::string& text) { return shell_command("", {text}).substr(1); }

}  // namespace

std::string sbatch_script(const Submission& plan) {
  const int64_t per_node = (plan.workers + plan.nodes - 1) / plan.nodes;
  std::ostringstream out;
  out << "#!/bin/bash\n"
      << "# Written by `pushpull submit`. `sbatch` with this file submits the job again.\n"
      << "#SBATCH --job-name=" << plan.name << "\n"
      << "#SBATCH --nodes=" << plan.nodes << "\n"
      << "#SBATCH --ntasks=" << plan.workers << "\n"
      << "#SBATCH --ntasks-per-node=" << per_node << "\n";
  if (!plan.time.empty()) out << "#SBATCH --time=" << plan.time << "\n";
  out << "#SBATCH --requeue\n"
      << "#SBATCH --open-mode=append\n"
      << "#SBATCH --signal=B:USR1@" << plan.notice_s << "\n"
      << "#SBATCH --output=" << quoted_word(plan.out + "/slurm-%j.log") << "\n";
  if (!plan.sbatch_args.empty()) out << "#SBATCH " << plan.sbatch_args << "\n";
  out << "\nout=" << quoted_word(plan.out) << "\n"
      << "if [ -n \"$SLURM_ARRAY_TASK_ID\" ]; then out=$out/task-$SLURM_ARRAY_TASK_ID; fi\n\n"
      << kTraps
      << shell_command(quoted_word(plan.program),
                       {"run", "--over", "slurm", "--job", plan.job_file, "--workers",
                        std::to_string(plan.workers), "--servers", std::to_string(plan.servers)})
      << " \\\n  --out \"$out\" --logs \"$out/logs\"" << shell_command("", plan.run_words)
      << shell_command("", plan.job_words) << " &\n"
      << kBody;
  return out.str();
}

}  // namespace pushpull

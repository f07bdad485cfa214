#include "cli/run/submission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/base/error.h"
#include "common/job/job_keys.h"
#include "tests/common/scratch_folder.h"
#include "tests/common/thrown.h"

namespace pushpull::submission_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SubmissionTest : public ::testing::Test {
 protected:
  SubmissionTest() { std::ofstream(job_) << "steps = 10\nmodel = mlp\n"; }

  Submission plan(std::vector<std::string> more) {
    std::vector<std::string> all{"submit", "--job", job_, "--out", out_};
    all.insert(all.end(), more.begin(), more.end());
    std::vector<const char*> words;
    for (const std::string& word : all) words.push_back(word.c_str());
    return plan_submission(
        parse_command_line(static_cast<int>(words.size()), words.data(), submit_options()), "/opt");
  }
  std::string refusal(const std::vector<std::string>& more) {
    return thrown(ErrorCode::kUsage, [&] { plan(more); });
  }

  ScratchFolder folder_;
  const std::string job_ = folder_ / "My Job_2.ini";
  std::string out_ = "/data/out put";
};

TEST_F(SubmissionTest, OneServerForEachNodeBesideItsWorkers) {
  const Submission submission = plan({"--nodes", "3", "--workers", "8"});
  EXPECT_EQ(submission.servers, 3);
  EXPECT_EQ(submission.name, "my-job-2");
  const std::string script = sbatch_script(submission);
  EXPECT_THAT(script, AllOf(HasSubstr("#SBATCH --nodes=3\n#SBATCH --ntasks=8\n"),
                            HasSubstr("#SBATCH --ntasks-per-node=3\n"),
                            HasSubstr("#SBATCH --requeue\n#SBATCH --open-mode=append\n"),
                            HasSubstr("/opt/pushpull run --over slurm"),
                            HasSubstr(" --resume=auto"), HasSubstr("out='/data/out put'\n")));
}

TEST_F(SubmissionTest, AsksForWhatAWorkerNeedsUnlessTheUserDoes) {
  const std::vector<std::string> words{"--threads", "7", "--device", "cuda:0,cuda:1"};
  EXPECT_THAT(sbatch_script(plan(words)),
              AllOf(HasSubstr("#SBATCH --cpus-per-task=8\n#SBATCH --gpus-per-task=2\n"),
                    Not(HasSubstr("--mem"))));
  EXPECT_THAT(job_set(plan(words)), AllOf(HasSubstr("requests: {cpu: 8, memory: 10"),
                                          HasSubstr("limits: {nvidia.com/gpu: 2}\n")));
  std::vector<std::string> more = words;
  more.emplace_back("--sbatch-args=-c16 --gres=gpu:2");
  EXPECT_THAT(sbatch_script(plan(more)),
              AllOf(Not(HasSubstr("per-task=8")), Not(HasSubstr("gpus-per"))));
  std::ofstream(job_) << "steps = 10\nmodel = mlp\nhidden = 16384,16384\nmicro-batch = 1\n";
  EXPECT_THAT(sbatch_script(plan({})), HasSubstr("#SBATCH --mem-per-cpu="));
  EXPECT_THAT(sbatch_script(plan({"--sbatch-args=--mem=9G"})), Not(HasSubstr("mem-per-cpu")));
}

TEST_F(SubmissionTest, AsksForResumeOnlyIfTheJobDoesNot) {
  std::ofstream(job_) << "steps = 10\nresume = auto\n";
  EXPECT_THAT(sbatch_script(plan({})), Not(HasSubstr("--resume")));
  EXPECT_THAT(refusal({"--resume=false"}), HasSubstr("would start from scratch"));
}

TEST_F(SubmissionTest, TheNoticeLeavesTimeForWork) {
  EXPECT_EQ(plan({}).notice_s, 120);
  EXPECT_EQ(plan({"--time", "4"}).notice_s, 60) << "a quarter of the limit";
  EXPECT_EQ(plan({"--time", "1-00:00:00", "--notice", "600"}).notice_s, 600);
  EXPECT_THAT(refusal({"--time", "1", "--notice", "60"}), HasSubstr("would stop at once"));
}

TEST_F(SubmissionTest, ReadsTimesAsSbatchDoes) {
  EXPECT_EQ(slurm_seconds("30"), 30 * 60);
  EXPECT_EQ(slurm_seconds("1:30"), 90);
  EXPECT_EQ(slurm_seconds("2:00:05"), 2 * 3600 + 5);
  EXPECT_EQ(slurm_seconds("1-12"), 36 * 3600);
  EXPECT_EQ(slurm_seconds("1-12:30"), 36 * 3600 + 30 * 60);
  EXPECT_EQ(slurm_seconds("0-0:0:7"), 7);
  for (const char* text : {"", "x", "1:", "1:2:3:4", "-5", "1-", "1--2", "1 0", "99999999999"}) {
    EXPECT_EQ(slurm_seconds(text), -1) << text;
  }
}

TEST_F(SubmissionTest, NamesWrongFlags) {
  EXPECT_THAT(refusal({"--nodes", "0"}), HasSubstr("--nodes is '0'"));
  EXPECT_THAT(refusal({"--nodes", "2", "--workers", "1"}), HasSubstr("less than --nodes 2"));
  EXPECT_THAT(refusal({"--workers", "2", "--servers", "3"}), HasSubstr("more than --workers 2"));
  EXPECT_THAT(refusal({"--sbatch-args", "a\nrm -r /"}), HasSubstr("one line of plain text"));
  EXPECT_THAT(refusal({"--time", "soon"}), HasSubstr("--time is 'soon'"));
}

TEST_F(SubmissionTest, ANameIsOneWord) {
  EXPECT_THAT(sbatch_script(plan({"--name", "a --wrap=ls"})),
              HasSubstr("#SBATCH --job-name='a --wrap=ls'\n"));
  EXPECT_THAT(sbatch_script(plan({"--name", "a-b"})), HasSubstr("#SBATCH --job-name=a-b\n"));
  EXPECT_THAT(job_set(plan({"--name", "a;b"})), HasSubstr("generic 'a;b-key' --from-file"));
  EXPECT_THAT(refusal({"--name", "a\nb"}), HasSubstr("one line of plain text"));
}

TEST_F(SubmissionTest, NoLineOfTheScriptComesFromTheWorkingDirectory) {
  const std::string before = std::filesystem::current_path();
  const std::string folder = folder_ / "a\nrm -r x";
  std::filesystem::create_directory(folder);
  std::filesystem::current_path(folder);
  const std::string key = refusal({"--key", "job.key"});
  out_ = "out";
  const std::string relative = refusal({});
  std::filesystem::current_path(before);
  EXPECT_THAT(relative, AllOf(HasSubstr("--out is "), HasSubstr("a\\x0arm -r x/out"),
                              HasSubstr("one line of plain text")));
  EXPECT_THAT(key, HasSubstr("--key is "));
}

TEST_F(SubmissionTest, AManifestIsUtf8) {
  EXPECT_THROW(job_set(plan({"--image", "a\xff"})), Error);
  std::ofstream(job_) << "\xEF\xBB\xBFsteps = 10\n";
  EXPECT_THAT(job_set(plan({})), HasSubstr("  job.ini: |4\n      steps = 10\n"));
}

TEST_F(SubmissionTest, AJobSetHasTwoIndexedJobsAndSecondsToStop) {
  const std::string text = job_set(plan({"--nodes", "2", "--workers", "6", "--lr", "0.5"}));
  EXPECT_THAT(text, AllOf(HasSubstr("kind: JobSet"), HasSubstr("    - name: server\n"),
                          HasSubstr("completions: 2\n"), HasSubstr("completions: 6\n"),
                          HasSubstr("terminationGracePeriodSeconds: 30"),
                          HasSubstr("              enableServiceLinks: false"),
                          HasSubstr("enableDNSHostnames: true"), HasSubstr("\"--lr=0.5\""),
                          HasSubstr("  job.ini: |4\n      steps = 10\n      model = mlp\n")));
  EXPECT_THAT(text, HasSubstr("secretKeyRef: {name: \"my-job-2-key\", key: key}"));
  EXPECT_THAT(job_set(plan({"--insecure"})), Not(HasSubstr("secretKeyRef")));
}

}  // namespace
}  // namespace pushpull::submission_test

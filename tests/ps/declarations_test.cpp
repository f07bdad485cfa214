#include "ps/members/declarations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "common/base/error.h"
#include "common/io/checkpoint.h"
#include "common/job/job.h"
#include "common/net/model_wire.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

wire::Declare declaration() {
  wire::Declare declare;
  to_wire(table_of(3000), declare.mutable_tensors());
  declare.set_train_samples(64);
  declare.set_test_samples(16);
  declare.set_data_digest("0123456789abcdef");
  declare.set_numerics("cpu avx2");
  declare.set_choices("linear 1");
  declare.set_tokenizer("{}");
  declare.set_arena_bytes(4096);
  declare.set_slots(1);
  return declare;
}

ErrorCode code_of(Declarations& declarations, const wire::Declare& declare) {
  try {
    declarations.take(declare);
  } catch (const Error& e) {
    return e.code();
  }
  ADD_FAILURE() << "the declaration was accepted";
  return ErrorCode::kInternal;
}

TEST(Declarations, FirstDeclarationHoldsAndTheSameAgrees) {
  const Job job = job_of();
  Declarations declarations(job);
  EXPECT_FALSE(declarations.complete());
  EXPECT_EQ(declarations.take(declaration()), "");
  EXPECT_TRUE(declarations.complete());
  EXPECT_EQ(declarations.first().table, table_of(3000));
  EXPECT_EQ(declarations.first().train_samples, 64);
  EXPECT_EQ(declarations.first().tokenizer, "{}");
  EXPECT_EQ(declarations.take(declaration()), "");
}

TEST(Declarations, MemoryMayDifferBetweenWorkers) {
  const Job job = job_of();
  Declarations declarations(job);
  declarations.take(declaration());
  wire::Declare other = declaration();
  other.set_arena_bytes(0);
  other.set_slots(2);
  EXPECT_EQ(declarations.take(other), "");
  EXPECT_EQ(declarations.first().arena_bytes, 4096);
  EXPECT_EQ(declarations.first().slots, 1);
}

TEST(Declarations, NameThePartOfADigestThatDiffers) {
  const Job job = job_of();
  Declarations declarations(job);
  wire::Declare first = declaration();
  first.set_data_digest("train 500-0123456789abcdef, test none, weights 1111");
  declarations.take(first);
  for (const auto& [digest, parts] : {std::pair<std::string, std::string>{
                                          "train 500-0123456789abcdef, test none, weights 2222",
                                          "with digest weights 1111, this worker has 64 + 16 with "
                                          "weights 2222"},
                                      {"train 500-0123456789abcdee, test none, weights 1111",
                                       "with digest train 500-0123456789abcdef, this worker has 64 "
                                       "+ 16 with train 500-0123456789abcdee"}}) {
    wire::Declare other = declaration();
    other.set_data_digest(digest);
    EXPECT_THAT(declarations.take(other), HasSubstr(parts));
  }
}

// Otherwise a worker that declares other data first would lock out the run's own workers.
TEST(Declarations, LaterTermAcceptsOnlyTheDeclarationOfTheEarlierOnes) {
  const Job job = job_of("data-dir = /data\n");
  Declarations before(job);
  before.take(declaration());
  Declarations declarations(job, earlier_form(before.first()));
  wire::Declare other = declaration();
  other.set_data_digest("fedcba9876543210");
  EXPECT_THAT(declarations.take(other),
              AllOf(HasSubstr("its data differ"), HasSubstr("0123456789ab"),
                    HasSubstr("fedcba987654"), HasSubstr("an earlier term of the run")));
  other = declaration();
  other.set_train_samples(65);
  EXPECT_THAT(declarations.take(other), HasSubstr("this worker has 65 + 16"));
  other = declaration();
  other.mutable_tensors(1)->set_shape(0, 5);
  EXPECT_THAT(declarations.take(other),
              AllOf(HasSubstr("its model does not fit"), HasSubstr("an earlier term of the run")));
  other = declaration();
  other.set_numerics("cpu avx512");
  EXPECT_THAT(declarations.take(other),
              AllOf(HasSubstr("its numerics differ"), HasSubstr("an earlier term of the run")));
  EXPECT_FALSE(declarations.complete());
  EXPECT_EQ(declarations.take(declaration()), "");
  declarations.keep({});
  EXPECT_THAT(declarations.take(other), HasSubstr("its numerics differ"));
  EXPECT_EQ(declarations.take(declaration()), "");
}

// The coordinator was started again, perhaps with all workers on another host.
TEST(Declarations, TermOfANewProcessComparesNumericsWithItsFirstWorker) {
  const Job job = job_of();
  Declarations before(job);
  before.take(declaration());
  EarlierDeclaration earlier = earlier_form(before.first());
  earlier.numerics.reset();
  Declarations declarations(job, earlier);
  wire::Declare other = declaration();
  other.set_numerics("cpu avx512");
  EXPECT_EQ(declarations.take(other), "");
  EXPECT_THAT(declarations.take(declaration()), HasSubstr("its numerics differ"));
}

// Their bits need not be the same, and a worker may have been replaced.
TEST(Declarations, LaterTermAcceptsOtherNumericsWhereTheFirstTermDoes) {
  const Job job = job_of("strategy = async\n");
  Declarations before(job);
  before.take(declaration());
  Declarations declarations(job, earlier_form(before.first()));
  wire::Declare other = declaration();
  other.set_numerics("cpu avx512");
  EXPECT_EQ(declarations.take(other), "");
}

TEST(Declarations, WorkersWithAndWithoutInitialWeightsDoNotMix) {
  const Job job = job_of();
  wire::Declare own = declaration();
  own.set_own_weights(true);
  Declarations with(job);
  EXPECT_EQ(with.take(own), "");
  EXPECT_TRUE(with.first().own_weights);
  EXPECT_THAT(with.take(declaration()),
              HasSubstr("its model does not fit: the job's has initial weights of its own, this "
                        "worker's has none"));
  Declarations without(job);
  without.take(declaration());
  EXPECT_THAT(without.take(own), HasSubstr("this worker's has"));
  Declarations later(job, earlier_form(with.first()));
  EXPECT_THAT(later.take(declaration()), HasSubstr("an earlier term of the run"));
  EXPECT_EQ(later.take(own), "");
}

TEST(Declarations, RatesOfTensorsAreCompared) {
  const Job job = job_of();
  Declarations declarations(job);
  declarations.take(declaration());
  Declarations later(job, earlier_form(declarations.first()));
  wire::Declare other = declaration();
  other.mutable_tensors(0)->set_lr_scale(0.5);
  EXPECT_THAT(declarations.take(other), HasSubstr("with lr times 0.5"));
  EXPECT_THAT(later.take(other), HasSubstr("its model does not fit"));
  other = declaration();
  other.mutable_tensors(0)->set_weight_decay(0.0);
  EXPECT_THAT(declarations.take(other), HasSubstr("with weight decay 0"));
  EXPECT_THAT(later.take(other), HasSubstr("its model does not fit"));
}

// Its slices end elsewhere.
TEST(Declarations, AWorkerOfOtherStagesIsNamed) {
  const Job job = job_of();
  Declarations declarations(job);
  wire::Declare declare = declaration();
  TensorInfo behind{.name = "behind", .shape = {2048}};
  TensorTable table = table_of(3000);
  table.add(behind);
  declare.clear_tensors();
  to_wire(table, declare.mutable_tensors());
  EXPECT_EQ(declarations.take(declare), "");
  behind.begins_stage = true;
  table = table_of(3000);
  table.add(behind);
  declare.clear_tensors();
  to_wire(table, declare.mutable_tensors());
  EXPECT_THAT(declarations.take(declare), HasSubstr("behind [2048] as the first one of a stage"));
}

TEST(Declarations, MismatchIsReportedByItsFirstDifference) {
  const Job job = job_of();
  Declarations declarations(job);
  declarations.take(declaration());
  wire::Declare other = declaration();
  other.mutable_tensors(1)->set_shape(0, 5);
  EXPECT_THAT(declarations.take(other), HasSubstr("norm.running_mean [5]"));
  other = declaration();
  other.set_test_samples(17);
  EXPECT_THAT(declarations.take(other), HasSubstr("64 + 17"));
  other.mutable_tensors(1)->set_shape(0, 5);
  EXPECT_THAT(declarations.take(other),
              AllOf(HasSubstr("[5]"), HasSubstr("its data differ"), HasSubstr("dataset = dummy")))
      << "a text with other characters gives another model";
  EXPECT_EQ(declarations.first().test_samples, 16) << "the first declaration still holds";
}

TEST(Declarations, DifferentArithmeticMattersIfTheWeightsDependOnIt) {
  wire::Declare other = declaration();
  other.set_numerics("cpu avx512");
  const Job sync = job_of("strategy = sync\n");
  Declarations strict(sync);
  strict.take(declaration());
  EXPECT_THAT(strict.take(other), AllOf(HasSubstr("cpu avx512"), HasSubstr("numerics = any")));

  const Job any = job_of("strategy = sync\nnumerics = any\n");
  Declarations takes(any);
  takes.take(declaration());
  for (int again = 0; again < 2; ++again) EXPECT_EQ(takes.take(other), "");
  EXPECT_THAT(takes.first().other_numerics, ElementsAre("cpu avx512"));
  EXPECT_THAT(takes.other_bits("worker 1", other), HasSubstr("its bits depend on which worker"));
  EXPECT_EQ(takes.shared_choices(), "");

  for (const char* keys : {"strategy = allreduce:ring\nnumerics = any\n",
                           "strategy = async\nrecord = r\nnumerics = any\n"}) {
    const Job needs_same = job_of(keys);
    Declarations refuses(needs_same);
    refuses.take(declaration());
    EXPECT_THAT(refuses.take(other),
                AllOf(HasSubstr("cpu avx512"), Not(HasSubstr("numerics = any"))))
        << keys;
  }

  const Job async = job_of("strategy = async\n");
  Declarations lenient(async);
  lenient.take(declaration());
  EXPECT_EQ(lenient.take(other), "");
  EXPECT_EQ(lenient.other_bits("worker 1", other), "") << "an async run does not repeat anyway";

  const Job local = job_of("strategy = local:2\n");
  Declarations warns(local);
  warns.take(declaration());
  EXPECT_EQ(warns.take(other), "");
  EXPECT_THAT(warns.other_bits("worker 1", other), HasSubstr("worker 1 has numerics"));
  EXPECT_EQ(warns.other_bits("worker 1", declaration()), "");
}

TEST(Declarations, ChoicesAreSharedIfAllMustComputeTheSameBits) {
  const Job sync = job_of("strategy = sync\n");
  Declarations shared(sync);
  shared.take(declaration());
  EXPECT_EQ(shared.shared_choices(), "linear 1");
  shared.set_choices("linear 2");
  EXPECT_EQ(shared.shared_choices(), "linear 2");
  const Job async = job_of("strategy = async\n");
  Declarations own(async);
  own.take(declaration());
  EXPECT_EQ(own.shared_choices(), "");
}

TEST(Declarations, ImpossibleNumbersAreTheWorkersFault) {
  const Job job = job_of();
  Declarations declarations(job);
  wire::Declare bad = declaration();
  bad.set_train_samples(-1);
  EXPECT_EQ(code_of(declarations, bad), ErrorCode::kProtocol);
  bad = declaration();
  bad.set_choices(std::string((64 << 10) + 1, 'a'));
  EXPECT_EQ(code_of(declarations, bad), ErrorCode::kProtocol);
  bad = declaration();
  bad.set_tokenizer(std::string(kMaxTokenizerBytes + 1, 'a'));
  EXPECT_EQ(code_of(declarations, bad), ErrorCode::kProtocol);
  for (const char* text : {"\xff", "two\nlines"}) {
    bad = declaration();
    bad.set_numerics(text);
    EXPECT_EQ(code_of(declarations, bad), ErrorCode::kProtocol);
    bad = declaration();
    bad.set_data_digest(text);
    EXPECT_EQ(code_of(declarations, bad), ErrorCode::kProtocol);
    bad = declaration();
    bad.mutable_tensors(0)->set_name(text);
    EXPECT_EQ(code_of(declarations, bad), ErrorCode::kProtocol);
  }
  bad = declaration();
  bad.mutable_tensors(0)->set_name("__metadata__");
  EXPECT_EQ(code_of(declarations, bad), ErrorCode::kProtocol);
  bad = declaration();
  bad.set_slots(-1);
  EXPECT_EQ(code_of(declarations, bad), ErrorCode::kProtocol);
  for (const int stages : {-1, 257}) {
    bad = declaration();
    bad.set_local_stages(stages);
    EXPECT_EQ(code_of(declarations, bad), ErrorCode::kProtocol);
  }
  bad = declaration();
  bad.mutable_tensors(0)->set_shape(0, INT64_MAX);
  EXPECT_EQ(code_of(declarations, bad), ErrorCode::kProtocol);
  EXPECT_FALSE(declarations.complete()) << "a refused declaration does not become the first";
}

TEST(Declarations, UnusableDataAreTheJobsFault) {
  const Job job = job_of();
  Declarations declarations(job);
  wire::Declare few = declaration();
  few.set_train_samples(5);
  EXPECT_EQ(code_of(declarations, few), ErrorCode::kUsage);
}

// ---- stages that workers declare one by one ----

Job staged_job(int64_t stages = 2) {
  Job job = job_of();
  job.model = "external";
  job.stages = stages;
  return job;
}

// One tensor of stage `stage` with this name.
wire::Declare stage_declaration(int stage, const std::string& name, int stages = 2) {
  wire::Declare declare = declaration();
  TensorTable table;
  table.add({.name = name, .shape = {1500}});
  table.add({.name = name + ".bias", .shape = {10}});
  declare.clear_tensors();
  to_wire(table, declare.mutable_tensors());
  declare.mutable_own_stage()->set_stage(stage);
  declare.mutable_own_stage()->set_stages(stages);
  declare.mutable_own_stage()->set_digest("frozen " + std::to_string(stage));
  return declare;
}

TEST(Declarations, TheModelIsTheStagesOneAfterTheOther) {
  const Job job = staged_job(3);
  Declarations declarations(job);
  for (const int stage : {2, 0, 0}) {
    EXPECT_EQ(declarations.take(stage_declaration(stage, "s" + std::to_string(stage), 3)), "");
    EXPECT_FALSE(declarations.complete());
  }
  EXPECT_EQ(declarations.take(stage_declaration(1, "s1", 3)), "");
  ASSERT_TRUE(declarations.complete());
  const TensorTable& table = declarations.first().table;
  EXPECT_EQ(table.total, 4530);
  EXPECT_THAT(table.stage_begins(), ElementsAre(1510, 3020));
  EXPECT_EQ(table.tensors[2].name, "s1");
  EXPECT_EQ(declarations.first().train_samples, 64);
  declarations.keep({0, 2});
  EXPECT_FALSE(declarations.complete()) << "no worker with stage 1 is left";
  EXPECT_EQ(declarations.take(stage_declaration(1, "other", 3)), "");
  EXPECT_EQ(declarations.first().table.tensors[2].name, "other");
}

TEST(Declarations, AStageThatDiffersIsRefused) {
  const Job job = staged_job();
  Declarations declarations(job);
  EXPECT_EQ(declarations.take(stage_declaration(0, "fc")), "");
  wire::Declare other = stage_declaration(0, "fc");
  other.mutable_tensors(0)->set_shape(0, 5);
  EXPECT_THAT(declarations.take(other), HasSubstr("stage 0, tensor 0: the job has fc [1500]"));
  other = stage_declaration(0, "fc");
  other.mutable_own_stage()->set_digest("thawed");
  EXPECT_THAT(declarations.take(other),
              HasSubstr("stage 0, data of the stage alone: the job has frozen 0, this worker has "
                        "thawed"));
  EXPECT_THAT(declarations.take(stage_declaration(1, "fc")),
              HasSubstr("stage 1 has a tensor fc, as stage 0 has: give tensors the names that they "
                        "have in the whole model"));
  other = stage_declaration(1, "out");
  other.set_data_digest("fedcba9876543210");
  EXPECT_THAT(declarations.take(other), HasSubstr("its data differ"));
  other = stage_declaration(1, "out");
  other.set_numerics("cpu avx512");
  EXPECT_THAT(declarations.take(other), HasSubstr("its numerics differ"));
  EXPECT_FALSE(declarations.complete());
  EXPECT_EQ(declarations.take(stage_declaration(1, "out")), "");
}

TEST(Declarations, TheStagesOfAProgramAreThoseOfTheJob) {
  const Job job = staged_job();
  Declarations declarations(job);
  EXPECT_EQ(declarations.take(stage_declaration(1, "fc", 3)),
            "its program has stage 1 of 3, and the job has stages = 2: set stages = 3");
  EXPECT_EQ(declarations.take(declaration()),
            "its program has the whole model, and the job has stages = 2: attach a stage of it");
  for (const int stage : {-1, 2}) {
    EXPECT_EQ(code_of(declarations, stage_declaration(stage, "fc")), ErrorCode::kProtocol);
  }
  const Job whole = job_of();
  Declarations undivided(whole);
  EXPECT_THAT(undivided.take(stage_declaration(0, "fc")), HasSubstr("the job has stages = 1"));
}

TEST(Declarations, ALaterTermComparesTheWholeModel) {
  const Job job = staged_job();
  Declarations before(job);
  before.take(stage_declaration(0, "fc"));
  before.take(stage_declaration(1, "out"));
  Declarations later(job, earlier_form(before.first()));
  EXPECT_EQ(later.take(stage_declaration(0, "fc")), "");
  EXPECT_THAT(later.take(stage_declaration(1, "other")), HasSubstr("an earlier term of the run"));
  EXPECT_EQ(later.take(stage_declaration(1, "out")), "");
  EXPECT_TRUE(later.complete());
}

}  // namespace
}  // namespace pushpull

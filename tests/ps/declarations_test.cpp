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
  EXPECT_FALSE(declarations.any());
  EXPECT_EQ(declarations.take(declaration()), "");
  EXPECT_TRUE(declarations.any());
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
  EXPECT_FALSE(declarations.any());
  EXPECT_EQ(declarations.take(declaration()), "");
  declarations.forget();
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
  bad = declaration();
  bad.mutable_tensors(0)->set_shape(0, INT64_MAX);
  EXPECT_EQ(code_of(declarations, bad), ErrorCode::kProtocol);
  EXPECT_FALSE(declarations.any()) << "a refused declaration does not become the first";
}

TEST(Declarations, UnusableDataAreTheJobsFault) {
  const Job job = job_of();
  Declarations declarations(job);
  wire::Declare few = declaration();
  few.set_train_samples(5);
  EXPECT_EQ(code_of(declarations, few), ErrorCode::kUsage);
}

}  // namespace
}  // namespace pushpull

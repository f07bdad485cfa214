// Tests what tasks tell of their nodes, and the text about them.
#include "cli/run/step_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/process.h"
#include "common/host/cores.h"

namespace pushpull::step_nodes_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

StepNode node_of(const std::string& name, int64_t cores, std::vector<int> cpus,
                 const std::string& processor = "CPU") {
  StepNode node{.name = name, .host = name, .machine = {}, .cpus = std::move(cpus)};
  node.machine.processor = processor;
  node.machine.cores = cores;
  node.machine.present = 8;
  node.machine.rest = "24.0 GiB, Linux";
  return node;
}

TEST(StepNodes, ATaskTellsItsNode) {
  const std::string line = node_line(3, "n1");
  EXPECT_THAT(line, StartsWith("task 3 on n1 | [node] {"));
  const std::optional<StepNode> node = node_in(line);
  ASSERT_TRUE(node);
  EXPECT_EQ(node->name, "n1");
  EXPECT_EQ(node->host, host_name());
  EXPECT_EQ(node->cpus, own_cores().cpus);
  EXPECT_EQ(machine_text(node->machine), machine_text(machine_info()));
  EXPECT_EQ(node->machine.libraries, machine_info().libraries);
}

TEST(StepNodes, OtherLinesTellNothing) {
  for (const char* line :
       {"", "srun: error", "[node] {}", "task 0 on n | [node] ", "task 0 on n | [node] 1",
        "task 0 on n | [node] {\"cores\": \"many\"}", "task 0 on n | [node] {\"cpus\": 1}",
        "task 0 on n | [node] {\"name\": 7}", "task 0 on n | [node] {\"libraries\": [1]}"}) {
    EXPECT_FALSE(node_in(line)) << line;
  }
}

TEST(StepNodes, ANodeHasTheCoresOfAllItsTasks) {
  const auto bound = nodes_of_tasks(
      {node_of("b", 1, {2}), node_of("a", 2, {0, 1}), node_of("b", 1, {3}), node_of("b", 1, {2})});
  ASSERT_EQ(bound.size(), 2U);
  EXPECT_EQ(bound[0].name, "a");
  EXPECT_THAT(bound[1].cpus, ElementsAre(2, 3));
  EXPECT_EQ(cores_of(bound), 4);
  EXPECT_EQ(cores_of(nodes_of_tasks({node_of("a", 1, {0, 1}), node_of("a", 1, {0, 1})})), 1)
      << "a quota holds for all tasks";
}

TEST(StepNodes, EqualNodesAreOneText) {
  EXPECT_EQ(text_of_nodes({node_of("n1", 4, {}), node_of("n2", 4, {})}),
            "2 nodes (n1, n2), each: CPU, 4 of 8 cores usable, 24.0 GiB, Linux");
  EXPECT_EQ(text_of_nodes({node_of("n1", 4, {}), node_of("n2", 4, {}, "Other")}),
            "1 node (n1): CPU, 4 of 8 cores usable, 24.0 GiB, Linux; "
            "1 node (n2): Other, 4 of 8 cores usable, 24.0 GiB, Linux");
  EXPECT_THAT(text_of_nodes(std::vector<StepNode>(9, node_of("n", 1, {}))),
              HasSubstr("9 nodes (n, n, n, n, n, n, n, n, ...)"));
}

}  // namespace
}  // namespace pushpull::step_nodes_test

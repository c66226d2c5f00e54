// Where a model is cut, in which order its stages compute, and what carries their messages.
#include "parallel/model_stage.h"

#include <gtest/gtest.h>

#include <future>

#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "exchange/local.h"
#include "nn/model.h"
#include "parallel/part_times.h"
#include "parallel/partition.h"
#include "support/device.h"

namespace etr::test {
namespace {

using graph::Pass;
using parallel::Courier;
using parallel::Partition;
using parallel::Schedule;
using Direction = Pass::Direction;

TEST(Schedules, ComputeEveryPassOnceAndGradientsInOrder) {
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_forward_one_backward})
    for (int stages = 1; stages <= 4; ++stages)
      for (int stage = 0; stage < stages; ++stage)
        for (const int count : {1, 2, 5, 8}) {
          int forward = 0, backward = 0, most = 0;
          for (const Pass& pass : training_order(schedule, stage, stages, count)) {
            int& next = pass.direction == Direction::forward ? forward : backward;
            EXPECT_EQ(pass.micro_batch, next++);
            EXPECT_LE(backward, forward);
            most = std::max(most, forward - backward);
          }
          EXPECT_EQ(forward, count);
          EXPECT_EQ(backward, count);
          EXPECT_EQ(most, schedule == Schedule::gpipe ? count : std::min(stages - stage, count))
              << "in flight";
          EXPECT_EQ(forward_ahead(schedule, stage, stages, count), most);
        }
  EXPECT_THROW(parallel::schedule_named("2f2b"), Error);
}

nn::ModelGraph net_of(const char* layers) {
  const std::string text = cat(R"({"layers": )", layers, "}");
  return nn::Model(parse_json(text, "test"))
      .build(4, {{"image", {DType::f32, {10}}}, {"label", {DType::i32, {}}}});
}

Partition cut(const nn::ModelGraph& net, const parallel::PartitionOptions& options) {
  return partition(net.graph, net.loss, options);
}

std::vector<std::string> first_layers(const nn::ModelGraph& net, const Partition& partition) {
  std::vector<std::string> out;
  for (const size_t node : partition.begins) out.push_back(net.graph.nodes()[node].label);
  return out;
}

constexpr const char* kUneven = R"([
    {"layer": "dense", "units": 10, "name": "a"}, {"layer": "dense", "units": 10, "name": "b"},
    {"layer": "dense", "units": 400, "name": "c"}, {"layer": "dense", "units": 400, "name": "d"},
    {"layer": "relu"}, {"layer": "dense", "units": 5, "name": "e"}])";

TEST(Partitions, GiveTheLargestStageAsLittleAsCanBe) {
  const nn::ModelGraph net = net_of(kUneven);
  const Partition two = cut(net, {.stages = 2});
  EXPECT_EQ(first_layers(net, two), (std::vector<std::string>{"a", "d"}));
  EXPECT_NE(two.reasons.find("stage 0: 'a' to 'c'"), std::string::npos) << two.reasons;
  EXPECT_NE(two.reasons.find("stage 1: 'd' to 'loss'"), std::string::npos) << two.reasons;
  EXPECT_EQ(cut(net, {.stages = 5}).begins.size(), 5u);
  EXPECT_THROW(cut(net, {.stages = 6}), Error) << "five layers have parameters";
}

TEST(Partitions, AvoidWhatDoesNotFit) {
  // 'd' has most of the work, the others most of the activations.
  const nn::ModelGraph net = net_of(R"([
      {"layer": "dense", "units": 400, "name": "a"}, {"layer": "relu"}, {"layer": "relu"},
      {"layer": "relu"}, {"layer": "relu"}, {"layer": "relu"}, {"layer": "relu"},
      {"layer": "dense", "units": 400, "name": "d"}, {"layer": "dense", "units": 5}])");
  EXPECT_EQ(first_layers(net, cut(net, {.stages = 2}))[1], "d");
  const Partition tight =
      cut(net, {.stages = 2, .in_flight = {4000, 3999}, .memory_bytes = 150'000'000});
  EXPECT_TRUE(first_layers(net, tight)[1].starts_with("relu")) << tight.reasons;
}

// With gpipe, the last stage keeps all micro-batches, too.
TEST(Partitions, CountWhatTheLastStageKeeps) {
  std::string relus;
  for (int i = 0; i < 20; ++i) relus += R"({"layer": "relu"}, )";
  const nn::ModelGraph net = net_of(cat(R"([{"layer": "dense", "units": 400, "name": "a"}, )",
                                        relus, R"({"layer": "dense", "units": 5}])")
                                        .c_str());
  std::vector<double> slow_start(parallel::parts_of(net.graph, net.loss).size(), 0.001);
  slow_start.front() = 0.1;
  parallel::PartitionOptions options{
      .stages = 2, .memory_bytes = 230'000, .seconds = {slow_start, slow_start}};
  EXPECT_EQ(first_layers(net, cut(net, options))[1], "relu_2") << "kept once, all relus fit";
  for (int stage = 0; stage < 2; ++stage)
    options.in_flight.push_back(forward_ahead(Schedule::gpipe, stage, 2, 2));
  const Partition tight = cut(net, options);
  EXPECT_GT(tight.begins[1], 3u) << tight.reasons;
}

TEST(Partitions, KeepAsManyMicroBatchesAsTheSchedule) {
  const nn::ModelGraph net = net_of(kUneven);
  const std::vector<std::string> layers{"b", "d"};
  const std::pair<parallel::ModelStageOptions, std::vector<int>> cases[] = {
      {{.micro_batches = 2000, .schedule = Schedule::gpipe, .layers = layers}, {2000, 2000, 2000}},
      {{.micro_batches = 2000, .layers = layers}, {3, 2, 1}},
      {{.micro_batches = 2, .layers = layers}, {2, 2, 1}}};
  for (const auto& [options, in_flight] : cases) {
    std::string told;  // by the first rank
    set_log_hook([&](LogLevel, const char* message) {
      if (log_subject() == LogSubject::partition) told += message;
    });
    std::vector<exchange::Group> groups = exchange::local_groups(3, 30);
    std::vector<std::future<void>> ranks;
    for (int rank = 0; rank < 3; ++rank)
      ranks.push_back(std::async(std::launch::async, [&, rank] {
        parallel::ModelStage stage({{1, 3, 1}, rank, 3}, groups[static_cast<size_t>(rank)],
                                   device(), options);
        stage.cut(kernels(), net.graph, {.training = true, .loss = net.loss}, 0);
      }));
    for (auto& rank : ranks) rank.get();
    set_log_hook({});
    const std::string reasons =
        cut(net, {.stages = 3, .layers = layers, .in_flight = in_flight}).reasons;
    EXPECT_NE(told.find(reasons), std::string::npos) << told << "\n" << reasons;
  }
}

TEST(Partitions, GoByTheSecondsThatWereMeasured) {
  const nn::ModelGraph net = net_of(kUneven);
  const std::vector<size_t> parts = parallel::parts_of(net.graph, net.loss);
  EXPECT_EQ(parts.front(), 0u);
  // 'a' takes longer than all the others together, on either device.
  std::vector<double> slow_start(parts.size(), 0.001);
  slow_start.front() = 0.1;
  const Partition first = cut(net, {.stages = 2, .seconds = {slow_start, slow_start}});
  EXPECT_EQ(first_layers(net, first), (std::vector<std::string>{"a", "b"}));
  EXPECT_NE(first.reasons.find("'a': 100 ms a micro-batch"), std::string::npos) << first.reasons;
  // All parts take the same time. One device is five times as fast as the other, or both are equal.
  const std::vector<double> fast(parts.size(), 0.001), slow(parts.size(), 0.005);
  const auto second_of = [&](const auto& one, const auto& other) {
    return cut(net, {.stages = 2, .seconds = {one, other}}).begins[1];
  };
  EXPECT_GT(second_of(fast, slow), second_of(fast, fast));
  EXPECT_LT(second_of(slow, fast), second_of(fast, fast));
}

TEST(Partitions, MeasureEachPart) {
  const auto device = std::make_shared<gpu::Device>(device_options());
  gpu::Kernels kernels(device);
  const nn::ModelGraph net = net_of(R"([
      {"layer": "dense", "units": 16}, {"layer": "relu"}, {"layer": "dense", "units": 2048},
      {"layer": "dense", "units": 2048, "name": "large"}, {"layer": "dense", "units": 5}])");
  const std::vector<size_t> parts = parallel::parts_of(net.graph, net.loss);
  const std::vector<double> seconds = parallel::seconds_of_parts(
      kernels, net.graph, parts, {.training = true, .loss = net.loss, .outputs = {net.loss}});
  ASSERT_EQ(seconds.size(), parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_GT(seconds[i], 0);
    if (net.graph.nodes()[parts[i]].label != "large") continue;
    EXPECT_EQ(std::max_element(seconds.begin(), seconds.end()) - seconds.begin(),
              static_cast<ptrdiff_t>(i))
        << "four million weights";
  }
}

TEST(Partitions, BeginWhereTheJobSays) {
  const nn::ModelGraph net = net_of(kUneven);
  EXPECT_EQ(first_layers(net, cut(net, {.stages = 3, .layers = {"b", "relu_5"}})),
            (std::vector<std::string>{"a", "b", "relu_5"}));
  const auto error_of = [&](int stages, std::vector<std::string> layers) {
    try {
      cut(net, {.stages = stages, .layers = std::move(layers)});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(error_of(2, {"f"}).find("no stage can begin at a layer 'f'"), std::string::npos);
  EXPECT_NE(error_of(3, {"c", "b"}).find("in the model's order"), std::string::npos);
  EXPECT_NE(error_of(3, {"c"}).find("name 2"), std::string::npos);
  EXPECT_NE(error_of(2, {"loss"}).find("no parameters"), std::string::npos);
}

TEST(Partitions, LetNoTwoStagesShareAParameter) {
  nn::ModelGraph net = net_of(R"([
      {"layer": "dense", "units": 10, "name": "a"}, {"layer": "dense", "units": 10, "name": "b"},
      {"layer": "dense", "units": 10, "name": "c"}])");
  graph::Graph& g = net.graph;
  const graph::ValueId again =
      g.add("dense", Json::object(), {net.output, g.parameter("b.weight")}, "again");
  g.add("dense", Json::object(), {again, g.add_parameter("own", {10, 10}, true, {})}, "last");
  try {
    cut(net, {.stages = 2, .layers = {"c"}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    EXPECT_NE(std::string(error.what()).find("the layers 'b' and 'again' share 'b.weight'"),
              std::string::npos)
        << error.what();
  }
  const Partition chosen = cut(net, {.stages = 2});
  const std::string second = g.nodes()[chosen.begins[1]].label;
  EXPECT_TRUE(second == "b" || second == "last") << second;
}

TEST(Couriers, CarryMessagesInTheirOrderWhileOthersWait) {
  std::vector<exchange::Group> ends = exchange::local_groups(2, 30);
  Courier from(std::move(ends[0]), {}), to(std::move(ends[1]), {});
  std::vector<std::array<std::byte, 3>> sent(5), received(5);
  for (size_t i = 0; i < sent.size(); ++i) {
    sent[i].fill(static_cast<std::byte>(i + 1));
    to.receive(received[i], 0, static_cast<uint32_t>(i));
  }
  for (size_t i = 0; i < sent.size(); ++i) from.send(sent[i], 1, static_cast<uint32_t>(i));
  from.wait(from.begun());
  to.wait(to.begun());
  EXPECT_EQ(sent, received);
}

TEST(Couriers, TellWhyTheyFail) {
  std::vector<exchange::Group> ends = exchange::local_groups(2, 0.05);
  std::promise<std::string> told;
  Courier alone(std::move(ends[0]), [&](const std::string& reason) { told.set_value(reason); });
  std::array<std::byte, 4> memory;
  const uint64_t number = alone.receive(memory, 1, 0);
  alone.receive(memory, 1, 1);
  EXPECT_THROW(alone.wait(number), exchange::RankLost);
  EXPECT_THROW(alone.wait(alone.begun()), exchange::RankLost) << "the next message is not tried";
  EXPECT_NE(told.get_future().get().find("rank 1"), std::string::npos);
}

// Destroying a courier that waits ends its wait.
TEST(Couriers, GiveUpWhatHasNotCome) {
  std::vector<exchange::Group> ends = exchange::local_groups(2, 3600);
  std::array<std::byte, 4> memory;
  Courier waiting(std::move(ends[0]), [](const std::string&) {});
  waiting.receive(memory, 1, 0);
}

}  // namespace
}  // namespace etr::test

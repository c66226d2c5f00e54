#include "study/synthetic.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace etr::test {
namespace {

using study::Record;
using study::Status;

double draw(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) / 9007199254740992.0;
}

// A made-up workload: with the best effective rate, it reaches the target after `fresh` fresh
// examples or a few more.
struct Model {
  double fresh, batch, factor, best_rate, budget;
};

// Training is slower the further the effective rate is from the best one; far above it, it
// diverges.
void train(const Model& model, std::mt19937_64& random, Record& record) {
  const double rate = record.point["schedule.learning_rate"].get<double>();
  const double momentum = record.point["optimizer.momentum"].get<double>();
  const double off = std::log10(rate / (1 - momentum) / model.best_rate);
  const double slower = std::exp(0.9 * off * off) * (1 + 0.12 * draw(random));
  const double needed = model.fresh * slower, every = model.budget / 40;
  const auto clock = [&](double fresh) {
    const double steps = std::ceil(fresh * model.factor / model.batch);
    return study::Clock{fresh, fresh * model.factor, steps, fresh * 2e-5 + steps * 2e-3};
  };
  const auto loss = [&](double fresh) {
    return 1.35 + 0.95 * std::exp(-fresh / needed * std::log(0.95 / 0.2)) + 0.01 * draw(random);
  };
  record.status = off > 0.9 ? Status::diverged : Status::missed;
  const double end = off > 0.9 ? 4 * every : model.budget;
  for (double fresh = every; fresh <= end * 1.0001; fresh += every) {
    study::CurvePoint point{clock(fresh), loss(fresh)};
    if (record.status == Status::diverged) point.loss = 2.3 * std::exp(fresh / every);
    if (!(point.loss >= record.best_metric))
      record.best_metric = point.loss, record.best_at = point.at;
    record.curve.push_back(point);
    record.final_metric = point.loss;
    record.spent = point.at;
    if (point.loss < 1.55 && !record.to_target) {
      record.to_target = point.at;
      record.status = Status::reached;
    }
  }
}

struct Search {
  double least_rate, most_rate;
  uint64_t searches, trials;
};

void add_searches(std::vector<Record>& out, const std::string& workload, const Json& labels,
                  const Model& model, const Search& search) {
  for (uint64_t s = 0; s < search.searches; ++s) {
    std::mt19937_64 points(77 + s);  // the same for all conditions
    for (uint64_t t = 0; t < search.trials; ++t) {
      Record record;
      record.workload = workload;
      record.condition = labels;
      record.search = s, record.trial = t, record.seed = 1000 * out.size() + 17;
      record.digest = "d" + std::to_string(out.size());
      record.unit = {draw(points), draw(points)};
      record.point["schedule.learning_rate"] =
          search.least_rate * std::pow(search.most_rate / search.least_rate, record.unit[0]);
      record.point["optimizer.momentum"] = 1 - std::pow(1e-3, record.unit[1]);
      record.device = "synthetic device", record.version = "0.1.0 (abcdef0)";
      record.time = "2026-11-23T15:" + std::to_string(10 + out.size() % 50) + ":00Z";
      std::mt19937_64 random(record.seed);
      train(model, random, record);
      out.push_back(std::move(record));
    }
  }
}

}  // namespace

std::vector<Record> echo_study_records() {
  std::vector<Record> out;
  const Search search{1e-3, 1, 3, 12};
  for (const double batch : {128.0, 1024.0}) {
    const auto add = [&](const char* variant, double factor, double gain) {
      add_searches(out, "cifar16_mlp", {{"variant", variant}, {"factor", factor}, {"batch", batch}},
                   {90000 / gain, batch, factor, 0.3 * std::sqrt(batch / 128), 200000}, search);
    };
    add("none", 1, 1);
    for (const double factor : {2.0, 4.0, 8.0, 16.0}) {
      add("before augmentation", factor, std::pow(factor, batch > 500 ? 0.85 : 0.68));
      add("after augmentation", factor, std::pow(factor, 0.35) / (1 + 0.03 * factor));
      if (factor <= 4) add("batch", factor, std::pow(factor, batch > 500 ? 0.15 : -0.1));
    }
  }
  return out;
}

study::Outline outline(const std::string& workload, std::optional<double> target) {
  study::Objective objective;
  objective.workload = workload;
  objective.target = target;
  study::Outline out;
  out.objectives = {objective};
  return out;
}

study::Outline echo_study() {
  study::Outline out = outline("cifar16_mlp", 1.55);
  out.name = "Echo variants on CIFAR-10";
  out.description =
      "Fresh examples to a validation loss, for three places of the echo node and factors from 2 "
      "to 16. The "
      "records come from a formula.";
  out.seed = 1;
  out.objectives[0].limit = 200000;
  return out;
}

std::vector<Record> batch_study_records() {
  std::vector<Record> out;
  for (const auto& [name, knee] : {std::pair("sgd", 128.0), std::pair("nesterov", 1024.0)})
    for (double batch = 16; batch <= 8192; batch *= 2) {
      const double steps = 12000 * 16 * (1 / batch + 0.25 / knee);
      add_searches(out, "cnn", {{"optimizer", name}, {"batch", batch}},
                   {steps * batch, batch, 1, 0.03 * std::pow(std::min(batch, 2 * knee) / 16, 0.8),
                    3 * steps * batch},
                   {1e-3, 1, 3, 16});
    }
  return out;
}

study::Outline batch_study() {
  study::Outline out = outline("cnn", 1.55);
  out.name = "Batch sizes";
  out.description = "Steps to a loss against batch size. The records come from a formula.";
  out.seed = 4;
  out.objectives[0].limit = 1000000;
  return out;
}

Record simple_record(const Json& labels, uint64_t search, uint64_t trial,
                     std::optional<double> fresh, double loss) {
  Record out;
  out.workload = "w";
  out.condition = labels;
  out.search = search, out.trial = trial, out.seed = 100 * search + trial;
  out.point = Json::object();
  out.status = fresh ? Status::reached : Status::missed;
  if (fresh) out.to_target = study::Clock{*fresh, 2 * *fresh, *fresh / 10, *fresh / 1000};
  out.best_metric = out.final_metric = loss;
  out.curve = {{{10, 20, 1, 0.01}, 2 * loss}, {{100, 200, 10, 0.1}, loss}};
  return out;
}

}  // namespace etr::test

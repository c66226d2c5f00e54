#include "explain/explain.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/format_text.h"
#include "core/json.h"
#include "core/json_members.h"
#include "core/text.h"

namespace etr::explain {
namespace {

constexpr double kEndless = 1e15;    // samples/s of a stage without measurable work
constexpr double kMaxFactor = 8;     // of a suggested echo node
constexpr double kWorthwhile = 1.1;  // gain that justifies a suggestion

enum class Runs { own_thread, serial, parallel };

struct Stage {
  std::string name;
  Runs runs;
  bool random, passes;  // passes: samples come out as they went in, one by one
  double work_s;        // per sample that reaches the consumer
};

// Serial stages that neither hold samples back nor join them.
constexpr const char* kPassing[] = {"delay", "filter", "keep", "repeat", "skip", "take"};

struct Model {
  std::vector<Stage> stages;
  double threads = 1, consumer = kEndless;

  static double alone(const Stage& s, double threads) {
    if (s.work_s <= 0) return kEndless;
    return std::min(kEndless, (s.runs == Runs::parallel ? threads : 1) / s.work_s);
  }
  // Samples/s of all threads together.
  double pool() const {
    double work = 0;
    for (const Stage& s : stages)
      if (s.runs != Runs::own_thread) work += s.work_s;
    return work > 0 ? std::min(kEndless, threads / work) : kEndless;
  }
  double pipeline() const {
    double rate = pool();
    for (const Stage& s : stages) rate = std::min(rate, alone(s, threads));
    return rate;
  }
  double whole() const { return std::min(pipeline(), consumer); }
};

constexpr char kNoStatistics[] = "these are not the statistics of a pipeline";

// Statistics may come from files. Checks that what is read exists and has the right type, and that
// no divisor is 0.
void check_stage(const Json& row, const std::string& where) {
  const JsonMembers stage(row, cat(kNoStatistics, ": ", where), Code::invalid_argument);
  stage.text("name");
  stage.text("kind");
  stage.flag("random");
  if (stage.has("own_thread")) stage.flag("own_thread");
  if (stage.has("items_in")) stage.number("items_in");
  stage.number("items_out");
  stage.number("busy_s");
  if (!stage.has("queue_items") && !stage.has("queue_limit_items")) return;
  stage.number("queue_items");
  if (stage.number("queue_limit_items") <= 0)
    fail(Code::invalid_argument, kNoStatistics, ": ", where, ": 'queue_limit_items' is 0");
}

// Says which stage has taken items and given none, as a shuffle that fills its buffer.
std::string held(const Json& stages) {
  for (const Json& row : stages) {
    const auto taken = static_cast<int64_t>(std::min(row.value("items_in", 0.0), kEndless));
    if (taken > 0 && row["items_out"] == 0)
      return cat("; '", row["name"].get<std::string>(), "' has taken ", counted(taken, "item"),
                 " and given none");
  }
  return "";
}

void check_stats(const Json& stats) {
  constexpr uint64_t kMostThreads = uint64_t{1} << 32;
  const JsonMembers whole(stats, kNoStatistics, Code::invalid_argument);
  const auto need = [](bool good, const auto&... why) {
    if (!good) fail(Code::invalid_argument, kNoStatistics, ": ", why...);
  };
  const JsonMembers consumer = whole.part("consumer");
  const double samples = consumer.number("samples"), items = consumer.number("items");
  consumer.number("waiting_s");
  const double elapsed = whole.number("elapsed_s");
  need(whole.whole("threads", kMostThreads) > 0, "'threads' is 0");
  whole.whole("cores", kMostThreads);
  const Json& stages = whole.list("stages");
  need(!stages.empty(), "'stages' is empty; a pipeline has a source at least");
  for (size_t i = 0; i < stages.size(); ++i) check_stage(stages[i], cat("stage ", i + 1));
  if (samples <= 0)
    fail(Code::state, "nothing can be explained yet: no sample has reached the consumer",
         held(stages), ". Let the pipeline run for longer");
  need(items > 0 && elapsed > 0 && stages.back()["items_out"].get<double>() > 0,
       "samples reached the consumer, but 'items', 'elapsed_s' or the last stage's 'items_out' is "
       "0");
}

Runs runs_of(const Json& row) {
  if (row["kind"] == "map") return Runs::parallel;
  return row.value("own_thread", false) ? Runs::own_thread : Runs::serial;
}

// Returns the seconds of work in each stage for a sample that reaches the consumer, who takes
// `needed` items for it. What a shuffle still holds counts for the samples to come.
std::vector<double> work_of(const Json& stages, double needed) {
  std::vector<Passed> passed;
  for (const Json& row : stages)
    passed.push_back(
        {row.value("items_in", 0.0), row["items_out"].get<double>(), row["kind"] == "map"});
  const std::vector<double> more = skipped(passed);
  std::vector<double> work(stages.size());
  for (size_t i = stages.size(); i-- > 0;) {
    const Json& row = stages[i];
    const double in = passed[i].in + more[i], out = passed[i].out + more[i];
    if (out > 0) work[i] = needed * row["busy_s"].get<double>() / out;
    if (out > 0 && in > 0 && row["name"] != "shuffle") needed *= in / out;
  }
  return work;
}

Model model_of(const Json& stats) {
  Model model;
  const Json& consumer = stats["consumer"];
  const auto samples = consumer["samples"].get<double>();
  model.threads = stats["threads"];
  const double busy = stats["elapsed_s"].get<double>() - consumer["waiting_s"].get<double>();
  if (busy > 0) model.consumer = std::min(kEndless, samples / busy);
  const std::vector<double> work =
      work_of(stats["stages"], consumer["items"].get<double>() / samples);
  for (size_t i = 0; i < work.size(); ++i) {
    const Json& row = stats["stages"][i];
    const bool passes =
        row["kind"] != "serial" || std::ranges::count(kPassing, row["name"].get<std::string>());
    model.stages.push_back({row["name"], runs_of(row), row["random"], passes, work[i]});
  }
  return model;
}

Json prediction(const Model& now, const Model& then, const char* change,
                const std::string& detail) {
  return {{"change", change},
          {"detail", detail},
          {"samples_per_s", then.whole()},
          {"gain", then.whole() / now.whole()}};
}

// The last stage after which nothing random has happened yet, and samples still come one by one and
// in order. 0, the source, if there is none later.
size_t last_before_augmentation(const Model& model) {
  size_t last = 0;
  for (size_t i = 0; i < model.stages.size(); ++i) {
    if (!model.stages[i].passes || model.stages[i].random) break;
    last = i;
  }
  return last;
}

Model with_upstream_work(Model model, size_t last, double share) {
  for (size_t i = 0; i <= last; ++i) model.stages[i].work_s *= share;
  return model;
}

Json predict_echo(const Model& now, size_t last) {
  Model best = now;
  double factor = 1;
  for (double e = 1; e <= kMaxFactor + 0.01; e += 0.25) {
    const Model then = with_upstream_work(now, last, 1 / e);
    if (then.whole() < 1.02 * best.whole()) continue;
    best = then;
    factor = e;
  }
  Json out = prediction(now, best, "echo",
                        cat("an echo stage of factor ", factor, " after '", now.stages[last].name,
                            "': repeated samples, worth less than fresh ones"));
  out["factor"] = factor;
  return out;
}

Json predictions_of(const Model& now, double cores) {
  Json out = Json::array();
  const double more = std::min(2 * now.threads, std::max(cores, now.threads));
  if (more > now.threads) {
    Model then = now;
    then.threads = more;
    out.push_back(prediction(now, then, "threads", cat(more, " threads instead of ", now.threads)));
    out.back()["threads"] = more;
  }
  const auto has = [&](const char* stage) {
    return std::ranges::count(now.stages, stage, &Stage::name) > 0;
  };
  const size_t last = last_before_augmentation(now);
  if (!has("cache"))
    out.push_back(
        prediction(now, with_upstream_work(now, last, 0), "cache",
                   cat("a cache after '", now.stages[last].name, "', after the first pass")));
  if (!has("echo")) out.push_back(predict_echo(now, last));
  return out;
}

Json limit_of(const char* by, const Json& stage, const std::string& why) {
  return {{"limit", by}, {"stage", stage}, {"why", why}};
}

const Stage& slowest_of(const Model& model) {
  return *std::min_element(model.stages.begin(), model.stages.end(),
                           [&](const Stage& a, const Stage& b) {
                             return Model::alone(a, model.threads) < Model::alone(b, model.threads);
                           });
}

// `measured`: samples/s that reached the consumer.
Json bottleneck_of(const Model& model, double measured) {
  // Below this share of the model's rate, the model does not explain the measurement.
  constexpr double kExplained = 0.5;
  const Stage& slowest = slowest_of(model);
  if (measured < kExplained * model.whole())
    return limit_of(
        "none", nullptr,
        "nothing here is busy all the time: other work takes the cores, or the run was too "
        "short to settle");
  if (model.consumer <= model.pipeline())
    return limit_of("consumer", "consumer",
                    "the consumer takes samples more slowly than the pipeline can give them");
  const double alone = Model::alone(slowest, model.threads), pool = model.pool();
  if (pool < 0.95 * alone) {
    const Stage* most = nullptr;  // of the stages that share the threads
    for (const Stage& s : model.stages)
      if (s.runs != Runs::own_thread && (!most || s.work_s > most->work_s)) most = &s;
    const double share = most->work_s * pool / model.threads;
    return limit_of("threads", most->name,
                    cat("all ", counted(static_cast<int64_t>(model.threads), "thread"), " ",
                        model.threads == 1 ? "is" : "are", " busy; '", most->name, "' takes ",
                        std::lround(100 * share), " % of their time"));
  }
  return limit_of(
      "stage", slowest.name,
      slowest.runs == Runs::parallel
          ? cat("'", slowest.name, "' takes all threads")
          : cat("'", slowest.name, "' works on one item at a time and is always busy"));
}

std::string rate_in_table(double rate) {
  if (rate >= kEndless / 2) return "-";
  return format_text("%.*f", rate < 100 ? 1 : 0, rate);
}

}  // namespace

std::vector<double> skipped(std::span<const Passed> stages) {
  std::vector<double> out(stages.size());
  for (size_t i = stages.size(); i-- > 1;)
    if (stages[i - 1].is_map) out[i - 1] = std::max(0.0, stages[i].in + out[i] - stages[i - 1].out);
  return out;
}

Json explain(const Json& stats) {
  check_stats(stats);
  const Model model = model_of(stats);
  const double whole = model.whole(), cores = stats["cores"];
  Json stages = Json::array();
  for (size_t i = 0; i < model.stages.size(); ++i) {
    const Stage& s = model.stages[i];
    const double alone = Model::alone(s, model.threads);
    Json row{{"name", s.name},
             {"kind", stats["stages"][i]["kind"]},
             {"us_per_sample", s.work_s * 1e6},
             {"samples_per_s_alone", alone},
             {"load", whole / alone},
             {"headroom", alone / whole}};
    for (const char* key : {"queue_items", "queue_limit_items"})
      if (stats["stages"][i].contains(key)) row[key] = stats["stages"][i][key];
    stages.push_back(std::move(row));
  }
  const Json& consumer = stats["consumer"];
  const auto elapsed = stats["elapsed_s"].get<double>();
  return {{"samples_per_s", consumer["samples"].get<double>() / elapsed},
          {"possible_samples_per_s", model.pipeline()},
          {"bottleneck", bottleneck_of(model, consumer["samples"].get<double>() / elapsed)},
          {"threads", model.threads},
          {"pool",
           {{"samples_per_s_alone", model.pool()},
            {"load", whole / model.pool()},
            {"headroom", model.pool() / whole}}},
          {"cores", cores},
          {"consumer",
           {{"samples_per_s_alone", model.consumer},
            {"waiting_share", consumer["waiting_s"].get<double>() / elapsed}}},
          {"stages", std::move(stages)},
          {"predictions", predictions_of(model, cores)}};
}

std::string to_text(const Json& e) {
  std::string out;
  out += format_text("%.0f samples/s reach the consumer, which waits %.0f %% of its time\n",
                     e["samples_per_s"].get<double>(),
                     100 * e["consumer"]["waiting_share"].get<double>());
  out += format_text("bottleneck: %s\n\n", e["bottleneck"]["why"].get<std::string>().c_str());
  out += format_text("%-22s %14s %18s %6s %9s\n", "stage", "us a sample", "samples/s alone", "load",
                     "headroom");
  const auto row = [&](const std::string& name, const std::string& work, const Json& r) {
    const double headroom = r["headroom"];
    out +=
        format_text("%-22s %14s %18s %4.0f %% %9s\n", name.c_str(), work.c_str(),
                    rate_in_table(r["samples_per_s_alone"]).c_str(), 100 * r["load"].get<double>(),
                    headroom > 1000 ? "> 1000 x" : (rate_in_table(headroom) + " x").c_str());
  };
  for (const Json& s : e["stages"]) {
    row(s["name"], format_text("%.1f", s["us_per_sample"].get<double>()), s);
  }
  row(counted(e["threads"].get<int64_t>(), "thread", "threads together"), "", e["pool"]);
  out += format_text("%-22s %14s %18s\n\n", "consumer", "",
                     rate_in_table(e["consumer"]["samples_per_s_alone"]).c_str());
  for (const Json& p : e["predictions"]) {
    const double gain = p["gain"];
    if (gain < kWorthwhile)
      out += format_text("%s would change little\n",
                         p["change"] == "threads"
                             ? "more threads"
                             : with_article(p["change"].get<std::string>()).c_str());
    else
      out += format_text("%.2f x (%.0f samples/s) with %s\n", gain,
                         p["samples_per_s"].get<double>(), p["detail"].get<std::string>().c_str());
  }
  if (e["threads"].get<double>() >= e["cores"].get<double>())
    out += format_text("every core of the %.0f has its thread\n", e["cores"].get<double>());
  return out;
}

}  // namespace etr::explain

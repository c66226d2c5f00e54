#include "study/advise.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "study/worth.h"

namespace etr::study {
namespace {

constexpr double kWorthwhile = 1.05;  // a gain that justifies a change
constexpr double kAlike = 1.02;    // below this ratio, a prediction does not decide between places
constexpr double kBuffer = 10000;  // samples in the buffer, as in the table of worth
constexpr double kLeastBuffer = 1000;  // with fewer, copies of a sample come close to each other
constexpr double kFillSeconds = 60;    // for filling the buffer, also when a run resumes
constexpr double kBufferShare = 0.5;   // of the memory: some samples are larger than the mean
// The margin of a cap over R, which was measured for only seconds, and the largest cap relative to
// the advised factor: the table of worth still rises up to there.
constexpr double kHeadroom = 2, kMostCap = 2;
constexpr double kFasterDecoding = 2.5;  // of fast shards, compared with PNGs (docs/performance.md)
constexpr double kLimiting = 0.5;  // share of a pipeline's work above which decoding dominates

// Returns the share of a stage's work that remains per example, given the echo nodes after it.
double share_of(size_t stage, const std::vector<EchoAt>& echoes) {
  double share = 1;
  for (const EchoAt& echo : echoes)
    if (stage <= echo.after) share /= echo.factor;
  return share;
}

// Returns the share of augmentations that come after an echo node; 0 if there are none.
double drawn_anew(const Measured& m, size_t after) {
  double all = 0, behind = 0;
  for (const StageCost& s : m.stages) {
    all += s.augments;
    behind += s.augments && s.stage > after;
  }
  return all > 0 ? behind / all : 0;
}

double worth_of(const Measured& m, const EchoAt& echo) {
  return fewer_fresh(drawn_anew(m, echo.after), echo.after >= m.batch_stage, echo.factor, m.batch);
}

struct Sides {
  double upstream_s, downstream_s;
};

// Returns the time of a fresh example up to a place, and of each copy after it, as if the other
// side took no time. With other echo nodes, fewer examples enter the stages before them than leave
// the stages after them.
Sides sides_of(const Measured& m, size_t after, const std::vector<EchoAt>& others = {}) {
  double slowest[2] = {}, pool[2] = {};
  const double all = share_of(after, others);  // share of those after the place
  for (const StageCost& s : m.stages) {
    const int side = s.stage > after;
    const double work = s.work_s * share_of(s.stage, others) / all;
    if (s.runs != Runs::parallel) slowest[side] = std::max(slowest[side], work);
    if (s.runs != Runs::own_thread) pool[side] += work;
  }
  const double device = m.downstream_s / all + (m.device_is_cpu ? pool[1] / m.cores : 0);
  return {std::max(slowest[0], pool[0] / m.threads),
          std::max({slowest[1], pool[1] / m.threads, device})};
}

double ratio_of(const Sides& sides) {
  return sides.upstream_s / std::max(sides.downstream_s, 1e-12);
}

// Replaces adaptive nodes by the factors at which they settle. The first one covers as much of the
// gap as it can, the next ones what remains.
std::vector<EchoAt> settled(const Measured& m, std::vector<EchoAt> echoes) {
  std::vector<double> caps;
  for (EchoAt& echo : echoes) caps.push_back(echo.adapts ? std::exchange(echo.factor, 1) : 1);
  for (size_t i = 0; i < echoes.size(); ++i) {
    if (!std::exchange(echoes[i].adapts, false)) continue;
    const double r = ratio_of(sides_of(m, echoes[i].after, echoes));  // its own factor is still 1
    echoes[i].factor = std::min(caps[i], std::max(1.0, r));
  }
  return echoes;
}

std::string percent(double gain) {
  const double p = 100 * (gain - 1);
  return cat(p >= 0 ? "+" : "", std::lround(p), " %");
}

std::string count_text(double n) {
  return n >= 1e6 ? cat(std::lround(n / 1e5) / 10.0, " million") : cat(std::lround(n));
}

std::string bytes_of(double bytes) {
  const auto rounded = [](double x) { return std::lround(10 * x) / 10.0; };
  return bytes >= 1e9 ? cat(rounded(bytes / 1e9), " GB") : cat(rounded(bytes / 1e6), " MB");
}

Json row_of(const Measured& m, const Prediction& then) {
  const Prediction now = predict(m, m.echoes);
  return {{"examples_per_s", 1 / then.example_s},
          {"seconds_per_fresh_equivalent", then.equivalent_s},
          {"uses", then.uses},
          {"gain_examples", now.example_s / then.example_s},
          {"gain", now.equivalent_s / then.equivalent_s},
          {"limit", then.limit}};
}

std::string name_at(const Measured& m, size_t stage) {
  std::string name;
  for (const StageCost& s : m.stages)
    if (s.stage == stage && name.empty()) name = s.name;
  return name;
}

std::string place_text(const Measured& m, size_t after) {
  if (after >= m.batch_stage) return "batches";
  bool any = false;
  for (const StageCost& s : m.stages) any = any || s.augments;
  const double anew = drawn_anew(m, after);
  if (!any) return "no augmentation";
  return anew == 1   ? "before augmentation"
         : anew == 0 ? "after augmentation"
                     : "between augmentations";
}

struct Edge {
  const StageCost* stage;
  EchoAt echo;
  double most, r;
  Prediction then;

  bool binds() const { return echo.adapts && echo.factor < r; }
};

double rounded(double factor) { return std::max(1.0, std::floor(10 * factor + 0.5) / 10); }

// Batches are repeated a fixed number of times, since they are worth no more. Other nodes follow R
// up to a cap.
EchoAt echo_at(const Measured& m, size_t stage, double r, double most) {
  if (stage >= m.batch_stage) return {stage, rounded(std::min(r, most))};
  if (r <= 1) return {stage, 1};
  return {stage, rounded(std::min(std::ceil(kHeadroom * r), kMostCap * most)), /*adapts=*/true};
}

// Evaluates a single echo node after each stage where one may stand.
std::vector<Edge> edges_of(const Measured& m) {
  std::vector<Edge> out;
  for (size_t i = 0; i < m.stages.size(); ++i) {
    const StageCost& s = m.stages[i];
    const bool is_last_part = i + 1 == m.stages.size() || m.stages[i + 1].stage != s.stage;
    if (!s.takes_echo || !is_last_part) continue;
    const double r = ratio_of(sides_of(m, s.stage));
    const double most =
        most_factor(drawn_anew(m, s.stage), s.stage >= m.batch_stage, m.batch, m.noise_scale);
    const EchoAt echo = echo_at(m, s.stage, r, most);
    out.push_back({&s, echo, most, r, predict(m, {echo})});
  }
  return out;
}

// Returns the edge with the least time; among similar ones the last, where copies cost the least
// work.
const Edge* best_of(const std::vector<Edge>& edges) {
  const Edge* best = nullptr;
  for (const Edge& edge : edges)
    if (!best || edge.then.equivalent_s < best->then.equivalent_s) best = &edge;
  if (!best) return nullptr;
  const double bound = kAlike * best->then.equivalent_s;
  for (const Edge& edge : edges)
    if (edge.then.equivalent_s <= bound) best = &edge;
  return best;
}

// Rounds to two digits: a number that is computed from a measured time is no more exact.
double two_digits(double n) {
  if (!(n >= 10)) return n;
  const double unit = std::pow(10, std::floor(std::log10(n)) - 1);
  return std::round(n / unit) * unit;
}

// Counted in what the node receives, samples or batches. A fixed node counts copies, which share
// their bytes.
double buffer_for(const Measured& m, const Edge& edge) {
  const double copies = edge.echo.adapts ? 1 : edge.echo.factor;
  const double samples = edge.stage->stage >= m.batch_stage ? m.batch : 1;  // in each
  double buffer = kBuffer / samples;
  const double least = std::min(kLeastBuffer, buffer);
  if (m.samples > 0) buffer = std::min(buffer, m.samples / samples * copies);
  const double upstream_s = samples * sides_of(m, edge.stage->stage).upstream_s;
  const double filled = two_digits(kFillSeconds * copies / std::max(upstream_s, 1e-9));
  buffer = std::min(buffer, std::max(filled, least));
  if (edge.stage->bytes > 0)
    buffer =
        std::min(buffer, kBufferShare * m.memory_bytes / (samples * edge.stage->bytes) * copies);
  return std::floor(std::max(buffer, 1.0));
}

std::string why_mode(const Edge& edge) {
  if (!edge.echo.adapts)
    return "whole batches are repeated a fixed number of times, because more repeats are not worth "
           "their time";
  if (!edge.binds())
    return cat(
        "on_demand repeats an example only when the device would otherwise wait, so it follows R "
        "where that changes; 'factor' is a cap, ",
        edge.echo.factor >= kHeadroom * edge.r ? cat("about ", kHeadroom, " R")
                                               : "as high as repeats are known to pay here");
  return cat("the cap binds: R here is ", std::lround(10 * edge.r) / 10.0, ", and more than ",
             edge.echo.factor, " uses of an example are not known to pay, so the device will wait ",
             std::lround(100 * (1 - edge.echo.factor / edge.r)), " % of its time");
}

Json echo_of(const Measured& m, const Edge& edge) {
  Json out{
      {"after", edge.stage->stage},
      {"stage", edge.stage->name},
      {"place", place_text(m, edge.stage->stage)},
      {"factor", edge.echo.factor},
      {"most_factor", edge.most},
      {"mode", edge.echo.adapts ? "on_demand" : "fixed"},
      {"why_mode", why_mode(edge)},
      {"cap_binds", edge.binds()},
      {"buffer", buffer_for(m, edge)},
      // On a CPU device the shaders would run on the same cores that the pipeline no longer needs.
      {"device", edge.stage->device_echo && !m.device_is_cpu},
      {"r", edge.r},
      {"fewer_fresh", worth_of(m, {edge.echo.after, edge.then.uses})}};
  if (m.memory_bytes != kEchoBytes) out["buffer_bytes"] = std::floor(m.memory_bytes);
  out.update(row_of(m, edge.then));
  return out;
}

Json other(const Measured& m, const char* change, const Prediction& then, const std::string& what,
           const std::string& formula) {
  Json out{{"change", change}, {"what", what}, {"formula", formula}};
  out.update(row_of(m, then));
  return out;
}

Json threads_row(const Measured& m) {
  Measured more = m;
  more.threads = m.cores;
  Json out = other(m, "threads", predict(more, m.echoes),
                   cat("pipeline.threads: ", m.cores, " instead of ", m.threads),
                   "work of the stages that share threads / threads");
  out["threads"] = m.cores;
  return out;
}

Json cache_row(const Measured& m) {
  Measured cached = m;
  double bytes = 0;
  for (StageCost& s : cached.stages)
    if (s.stage <= *m.cacheable) {
      s.work_s = 0;
      bytes = s.bytes;
    }
  const std::string size =
      bytes <= 0 ? "of unknown size"
      : m.samples > 0
          ? cat("about ", bytes_of(bytes * m.samples), " for ", count_text(m.samples), " samples")
          : cat(std::lround(bytes), " bytes a sample; how many there are is not known");
  Json out = other(m, "cache", predict(cached, m.echoes),
                   cat("a stage 'cache' after '", name_at(m, *m.cacheable), "' (", size,
                       "), from the second epoch on"),
                   "no work up to the cache");
  out["after"] = *m.cacheable;
  out["bytes"] = bytes * m.samples;
  out["fits"] = bytes > 0 && m.samples > 0 && bytes * m.samples <= m.memory_bytes;
  return out;
}

// Applies if decoding is most of the shared work.
std::optional<Json> pack_row(const Measured& m) {
  Measured packed = m;
  double decode = 0, all = 0;
  for (StageCost& s : packed.stages) {
    if (s.runs != Runs::own_thread) all += s.work_s;
    if (s.name != "decode") continue;
    decode += s.work_s;
    s.work_s /= kFasterDecoding;
  }
  if (m.source == "fast_shard" || decode <= kLimiting * all) return std::nullopt;
  return other(m, "pack", predict(packed, m.echoes),
               cat("'echotrain pack --format fast', and the source fast_shard: decoding is ",
                   std::lround(100 * decode / all), " % of the threads' work"),
               cat("work of 'decode' / ", kFasterDecoding,
                   ", which fast shards gain over PNGs; JPEGs gain less"));
}

Json others_of(const Measured& m) {
  Json rows = Json::array();
  if (m.threads < m.cores) rows.push_back(threads_row(m));
  if (m.cacheable) rows.push_back(cache_row(m));
  if (auto row = pack_row(m)) rows.push_back(*std::move(row));
  std::erase_if(rows.get_ref<Json::array_t&>(),
                [](const Json& row) { return row["gain"].get<double>() < kWorthwhile; });
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Json& a, const Json& b) { return a["gain"] > b["gain"]; });
  return rows;
}

Json batch_advice(const Measured& m) {
  if (m.noise_scale <= 0)
    return {
        {"batch", m.batch},
        {"noise_scale", nullptr},
        {"why", "the gradient noise scale could not be measured: too much noise, too few batches"}};
  const double ratio = m.noise_scale / m.batch;
  const char* why =
      ratio > 4
          ? "the batch is well below the noise scale: a larger one should save steps, nearly in "
            "proportion"
      : ratio > 0.25 ? "the batch is near the noise scale of the beginning: larger ones save steps "
                       "as that grows"
                     : "the batch is beyond the noise scale of the beginning, which grows: measure "
                       "it in a run "
                       "(train.noise_scale_every) before you change the batch";
  return {{"batch", m.batch}, {"noise_scale", m.noise_scale}, {"why", why}};
}

Json measured_json(const Measured& m) {
  Json stages = Json::array();
  for (const StageCost& s : m.stages)
    stages.push_back({{"name", s.name},
                      {"stage", s.stage},
                      {"runs", s.runs == Runs::own_thread ? "own thread"
                               : s.runs == Runs::serial   ? "serial"
                                                          : "parallel"},
                      {"augments", s.augments},
                      {"us_per_example", 1e6 * s.work_s},
                      {"bytes", s.bytes}});
  return {{"upstream_s", m.upstream_s}, {"downstream_s", m.downstream_s},
          {"device_busy_s", m.busy_s},  {"device_is_cpu", m.device_is_cpu},
          {"threads", m.threads},       {"cores", m.cores},
          {"batch", m.batch},           {"remote", m.remote},
          {"unsteady", m.unsteady},     {"samples", m.samples},
          {"stages", std::move(stages)}};
}

Json edges_json(const Measured& m, const std::vector<Edge>& edges) {
  Json rows = Json::array();
  for (const Edge& edge : edges) rows.push_back(echo_of(m, edge));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Json& a, const Json& b) { return a["gain"] > b["gain"]; });
  return rows;
}

std::string why_of(const Measured& m, double r, bool helps, bool keeps, const Edge* best) {
  if (r <= 1 && keeps) return "upstream keeps up with the device";
  if (r <= 1)
    return "upstream keeps up with the device: an echo node would repeat examples for nothing";
  if (helps)
    return cat("upstream needs ", std::lround(10 * r) / 10.0,
               " times as long for a fresh example as the device for one");
  if (best && best->echo.factor <= 1)
    return cat(
        "upstream is the slow side, but an echo node would spare too little of its work",
        m.device_is_cpu ? ": what it repeats takes the device's time, on the same cores" : "");
  return cat("upstream is the slow side, but repeats would be worth too little here (",
             percent(predict(m, {}).equivalent_s / best->then.equivalent_s), ")");
}

Json assumptions_of(const Measured& m) {
  Json out{
      cat("worth of repeats: ", kWorthSource),
      "between two augmentations the worth lies between those before and after, in "
      "proportion to the augmentations that are drawn anew",
      "stages cost the same with an echo node as without",
      "'on_demand' and 'auto' use an example R times on average, as R is at their place, or as "
      "often as their cap allows",
      "the gradient noise scale is an order of magnitude, here at the beginning of training; "
      "it grows later"};
  if (m.device_is_cpu)
    out.push_back("the device is a CPU: the pipeline's work takes time from it, and both add up");
  return out;
}

// Nodes that adapt already, and do nearly as well, need not be replaced for another cap. Where
// upstream keeps up, they cover stalls. Nodes with a factor of 1 change nothing.
bool keeps_own(const Measured& m, const Prediction& without, const Edge* best) {
  const auto any = [&](auto is) { return std::any_of(m.echoes.begin(), m.echoes.end(), is); };
  if (!any([](const EchoAt& e) { return e.adapts; }) ||
      any([](const EchoAt& e) { return !e.adapts && e.factor != 1; }))
    return false;
  const double least =
      best ? std::min(without.equivalent_s, best->then.equivalent_s) : without.equivalent_s;
  return predict(m, m.echoes).equivalent_s <= kWorthwhile * least;
}

void check(const Measured& m) {
  if (m.stages.empty() || m.threads < 1 || m.cores < 1 || m.batch < 1 || !(m.downstream_s > 0))
    fail(Code::invalid_argument, "advise: these are no measurements of a job");
}

}  // namespace

Prediction predict(const Measured& m, const std::vector<EchoAt>& given) {
  const std::vector<EchoAt> echoes = settled(m, given);
  Prediction out{m.downstream_s, 0, 1, "device"};
  const auto limit = [&](double seconds, const std::string& by) {
    if (seconds <= out.example_s) return;
    out.example_s = seconds;
    out.limit = by;
  };
  double pool = 0;
  for (const StageCost& s : m.stages) {
    const double work = s.work_s * share_of(s.stage, echoes);
    if (s.runs != Runs::parallel) limit(work, s.name);
    if (s.runs != Runs::own_thread) pool += work;
  }
  limit(pool / m.threads, "threads");
  if (m.device_is_cpu && pool > 0) limit(m.downstream_s + pool / m.cores, "device and threads");
  double fewer = 1;
  for (const EchoAt& echo : echoes) {
    out.uses *= echo.factor;
    fewer *= worth_of(m, echo);
  }
  out.equivalent_s = out.example_s * out.uses / fewer;
  return out;
}

Json advise(const Measured& m) {
  check(m);
  const double r = m.upstream_s / m.downstream_s;
  const std::vector<Edge> edges = edges_of(m);
  const Edge* best = best_of(edges);
  const Prediction without = predict(m, {});
  const bool helps = r > 1 && best && best->echo.factor > 1 &&
                     without.equivalent_s >= kWorthwhile * best->then.equivalent_s;
  const bool keeps = keeps_own(m, without, best);
  Json baseline = row_of(m, predict(m, m.echoes));
  baseline["echoes"] = m.echoes.size();
  Json plain = row_of(m, without);
  return {{"upstream_to_step_ratio", r},
          {"helps", helps},
          {"keep_echo", keeps},
          {"why", why_of(m, r, helps, keeps, best)},
          {"baseline", std::move(baseline)},
          {"without_echo", std::move(plain)},
          {"echo", helps ? echo_of(m, *best) : Json()},
          {"candidates", edges_json(m, edges)},
          {"other_advice", others_of(m)},
          {"batch", batch_advice(m)},
          {"measured", measured_json(m)},
          {"assumptions", assumptions_of(m)}};
}

}  // namespace etr::study

#include "study/records.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <tuple>

#include "core/error.h"
#include "core/format_text.h"
#include "core/json_members.h"
#include "core/options.h"
#include "core/parse_json.h"
#include "core/platform_files.h"
#include "study/labels.h"

namespace etr::study {
namespace {

constexpr const char* kStatuses[] = {"reached", "missed", "diverged", "slower", "pruned", "failed"};
constexpr const char* kDamaged = "the record is damaged";
constexpr uint64_t kVersion = 1;

JsonMembers members_of(const Json& json) { return {json, kDamaged, Code::corrupt_data}; }

Clock clock_of(const JsonMembers& in) {
  return {in.number("fresh"), in.number("examples"), in.number("steps"), in.number("seconds")};
}

constexpr const char* kMetrics[] = {"loss", "accuracy", "training_loss"};

double& metric_of(CurvePoint& point, size_t which) {
  return which == 0 ? point.loss : which == 1 ? point.accuracy : point.training_loss;
}

// A curve is most of a record, so it is stored as one column per clock and metric.
Json to_json(std::vector<CurvePoint> curve) {
  Json out = Json::object();
  for (CurvePoint& point : curve) {
    Json row = study::to_json(point.at);
    for (size_t i = 0; i < std::size(kMetrics); ++i)
      row[kMetrics[i]] = rounded(metric_of(point, i));
    for (const auto& [name, value] : row.items()) {
      Json& column = out[name];
      if (column.is_null()) column = Json::array();
      column.push_back(value);
    }
  }
  return out;
}

std::vector<CurvePoint> curve_of(const Json& columns) {
  std::vector<CurvePoint> out;
  if (columns.empty()) return out;
  const JsonMembers in = members_of(columns);
  const size_t size = in.list("steps").size();
  const auto column = [&](const char* key) -> const Json& {
    const Json& list = in.list(key);
    if (list.size() == size) return list;
    fail(Code::corrupt_data, kDamaged, ": the curve has ", size, " values of 'steps' and ",
         list.size(), " of '", key, "'");
  };
  for (size_t i = 0; i < size; ++i) {
    Json row = Json::object();
    for (const char* key : kClocks) row[key] = column(key)[i];
    for (const char* key : kMetrics) row[key] = column(key)[i];
    CurvePoint point{clock_of(members_of(row))};
    for (size_t k = 0; k < std::size(kMetrics); ++k)
      metric_of(point, k) = members_of(row).real_or_nan(kMetrics[k]);
    out.push_back(point);
  }
  return out;
}

Status status_of(const std::string& name) {
  if (name == "hopeless") return Status::pruned;  // until 0.1
  if (name == kFormerSlower) return Status::slower;
  const auto found = std::find(std::begin(kStatuses), std::end(kStatuses), name);
  if (found == std::end(kStatuses))
    fail(Code::corrupt_data, kDamaged, ": there is no status '", name, "'",
         suggestion(name, std::vector<std::string>(std::begin(kStatuses), std::end(kStatuses))));
  return static_cast<Status>(found - kStatuses);
}

void check_version(const JsonMembers& in) {
  const uint64_t version = in.whole("v");
  if (version != kVersion)
    fail(Code::unsupported, "the record is of version ", version, "; this library reads version ",
         kVersion, ": write the study into another folder");
}

std::vector<double> unit_of(const Json& list) {
  std::vector<double> out;
  for (const Json& coordinate : list) {
    if (!coordinate.is_number())
      fail(Code::corrupt_data, kDamaged, ": 'unit_point' has ", brief_json(coordinate));
    out.push_back(coordinate.get<double>());
  }
  return out;
}

}  // namespace

double rounded(double value) {
  if (!std::isfinite(value)) return value;
  const std::string text = format_text("%.7g", value);
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

double read_clock(const Clock& clock, size_t which) {
  switch (which) {
    case 0: return clock.fresh;
    case 1: return clock.examples;
    case 2: return clock.steps;
    default: return clock.seconds;
  }
}

double read_clock(const Clock& clock, const std::string& name) {
  return read_clock(clock, clock_index(name));
}

size_t clock_index(const std::string& name) {
  const auto found = std::find(kClocks.begin(), kClocks.end(), name);
  if (found == kClocks.end())
    fail(Code::invalid_argument, "there is no clock '", name, "'",
         suggestion(name, std::vector<std::string>(kClocks.begin(), kClocks.end())));
  return static_cast<size_t>(found - kClocks.begin());
}

bool is_better(double one, double other, bool accuracy) {
  if (std::isnan(one)) return false;
  if (std::isnan(other)) return true;
  return accuracy ? one > other : one < other;
}

bool is_better_trial(const Record& one, const Record& other, size_t clock, bool accuracy) {
  if (is_feasible(one.status) != is_feasible(other.status)) return is_feasible(one.status);
  const auto score = [&](const Record& record) {
    return record.to_target ? read_clock(*record.to_target, clock)
                            : std::numeric_limits<double>::infinity();
  };
  if (score(one) != score(other)) return score(one) < score(other);
  if (is_better(one.best_metric, other.best_metric, accuracy)) return true;
  if (is_better(other.best_metric, one.best_metric, accuracy)) return false;
  return std::tie(one.search, one.trial) < std::tie(other.search, other.trial);
}

const char* status_name(Status status) { return kStatuses[static_cast<int>(status)]; }

Json to_json(const Clock& clock) {
  const auto count = [](double value) { return static_cast<uint64_t>(value); };
  return {{"fresh", count(clock.fresh)},
          {"examples", count(clock.examples)},
          {"steps", count(clock.steps)},
          {"seconds", std::round(clock.seconds * 1e4) / 1e4}};
}

Json to_json(const Record& r) {
  Json best = to_json(r.best_at);
  best["metric"] = r.best_metric;
  return {{"v", kVersion},
          {"workload", r.workload},
          {"condition", r.condition},
          {"search", r.search},
          {"trial", r.trial},
          {"seed", r.seed},
          {"digest", r.digest},
          {"point", r.point},
          {"unit_point", r.unit},
          {"status", status_name(r.status)},
          {"error", r.error.empty() ? Json() : Json(r.error)},
          {"to_target", r.to_target ? to_json(*r.to_target) : Json()},
          {"best", std::move(best)},
          {"final_metric", r.final_metric},
          {"spent", to_json(r.spent)},
          {"elapsed", std::round(r.elapsed * 1e3) / 1e3},
          {"device_wait_share", r.device_wait_share},
          {"noise_scale", r.noise_scale ? Json(*r.noise_scale) : Json()},
          {"curve", to_json(r.curve)},
          {"device", r.device},
          {"host", r.host},
          {"time", r.time},
          {"version", r.version}};
}

Record record_of(const Json& line) {
  const JsonMembers in = members_of(line);
  check_version(in);
  Record r;
  r.workload = in.text("workload");
  r.condition = in.object("condition");
  r.search = in.whole("search");
  r.trial = in.whole("trial");
  r.seed = in.whole("seed");
  r.digest = in.text("digest");
  r.point = in.object("point");
  r.unit = unit_of(in.list(in.has("unit") ? "unit" : "unit_point"));  // "unit": until 0.1
  r.status = status_of(in.text("status"));
  if (!in.at("error").is_null()) r.error = in.text("error");
  if (!in.at("to_target").is_null()) r.to_target = clock_of(in.part("to_target"));
  if ((r.status == Status::reached) != r.to_target.has_value())
    fail(Code::corrupt_data, kDamaged, ": its status is '", status_name(r.status), "', and it has ",
         r.to_target ? "a" : "no", " 'to_target'");
  const JsonMembers best = in.part("best");
  r.best_metric = best.real_or_nan("metric");
  r.best_at = clock_of(best);
  r.final_metric = in.real_or_nan("final_metric");
  r.spent = clock_of(in.part("spent"));
  if (in.has("elapsed")) r.elapsed = in.number("elapsed");
  r.device_wait_share = in.number("device_wait_share");
  if (!in.at("noise_scale").is_null()) r.noise_scale = in.real_or_nan("noise_scale");
  r.curve = curve_of(in.object("curve"));
  r.device = in.text("device");
  if (in.has("host")) r.host = in.text("host");
  r.time = in.text("time");
  r.version = in.text("version");
  return r;
}

std::vector<Record> read_records(const std::string& path) {
  std::vector<Record> out;
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) return out;
  const std::string text = platform::read_file(path);
  std::map<std::tuple<std::string, std::string, uint64_t, uint64_t>, size_t> places;
  size_t number = 1;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1, ++number)
    try {
      const std::string_view line = std::string_view(text).substr(begin, end - begin);
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      Record record = record_of(parse_json(line, "the record", {false, Code::corrupt_data}));
      const auto [place, is_new] = places.try_emplace(
          {record.workload, label_key(record.condition), record.search, record.trial}, out.size());
      if (is_new)
        out.push_back(std::move(record));
      else
        out[place->second] = std::move(record);
    } catch (const Error& error) {
      fail(error.code(), "'", path, "', line ", number, ": ", error.what(),
           error.code() == Code::corrupt_data ? ": remove the line; its trial runs again" : "");
    }
  return out;
}

}  // namespace etr::study

#include "optim/hyperparameters.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/error.h"
#include "core/json.h"

namespace etr::optim {
namespace {

constexpr const char* kLabelSmoothing = "label_smoothing";
constexpr const char* kOfOptimizers[] = {"momentum", "beta1", "beta2", "decay", "weight_decay"};

constexpr double kMostSmoothing = 0.99;  // as in the loss's schema

// Fills in the values of a running mean of which an update keeps the share `kept`.
void put_mean(double kept, float& share, float& rest, float& log) {
  share = static_cast<float>(kept);
  rest = static_cast<float>(1 - kept);
  log = kept > 0 ? static_cast<float>(std::log(kept)) : -1e30f;
}

}  // namespace

Hyperparameters::Hyperparameters(const UpdateSpec& update, std::optional<double> label_smoothing,
                                 std::optional<Schedule> schedule)
    : optimizer_(&update.optimizer()),
      options_(update.options()),
      label_smoothing_(label_smoothing),
      schedule_(std::move(schedule)),
      accumulate_(static_cast<uint64_t>(update.accumulate())) {
  if (!schedule_) return;
  for (const auto& [name, end] : schedule_->ends()) {
    const std::string of = name == "momentum" && !has(name) ? "beta1" : name;
    if (!has(of))
      fail(Code::invalid_argument, "schedule: ", name, "_end is given, and ",
           name == kLabelSmoothing ? "the model's loss" : cat("optimizer '", optimizer_->name, "'"),
           " has no ", name);
    check(of, end);
  }
}

bool Hyperparameters::has(const std::string& name) const {
  if (name == kLabelSmoothing) return label_smoothing_.has_value();
  return std::ranges::find(kOfOptimizers, name) != std::end(kOfOptimizers) &&
         options_.json().contains(name);
}

void Hyperparameters::check(const std::string& name, double value) const {
  if (!std::isfinite(value))
    fail(Code::invalid_argument, name, " is to become ", value, "; it takes finite numbers");
  if (name == kLabelSmoothing) {
    if (!(value >= 0 && value <= kMostSmoothing))
      fail(Code::invalid_argument, "the loss's label_smoothing is to be ", value,
           "; it takes 0 to ", kMostSmoothing);
    return;
  }
  Json changed = options_.json();
  changed[name] = value;
  const Options in_range(optimizer_->options, cat("optimizer '", optimizer_->name, "'"), changed);
  if (name == "momentum" && value != 0 && optimizer_->may_lack_velocity &&
      options_.number(name) == 0)
    fail(Code::invalid_argument, "optimizer '", optimizer_->name, "': momentum is to become ",
         value, ", but no velocity is kept if it starts at 0: start with a momentum above 0");
}

void Hyperparameters::require(const std::string& name) const {
  if (has(name)) return;
  std::vector<std::string> names;
  for (const char* each : kOfOptimizers)
    if (has(each)) names.emplace_back(each);
  if (has(kLabelSmoothing)) names.emplace_back(kLabelSmoothing);
  fail(Code::not_found, "neither optimizer '", optimizer_->name,
       "' nor the loss has a hyperparameter '", name, "' that changes between steps",
       suggestion(name, names));
}

void Hyperparameters::set(const std::string& name, double value, uint64_t step) {
  require(name);
  check(name, value);
  set_[name][step] = value;
}

void Hyperparameters::restore(const Changes& were_set) {
  for (const auto& [name, values] : were_set) {
    require(name);
    for (const auto& [step, value] : values) check(name, value);
  }
  set_ = were_set;
}

double Hyperparameters::value(const std::string& name, const Passed& passed) const {
  if (const auto of = set_.find(name); of != set_.end())
    if (const auto after = of->second.upper_bound(passed.steps); after != of->second.begin())
      return std::prev(after)->second;
  const double begin = name == kLabelSmoothing ? label_smoothing_.value() : options_.number(name);
  if (!schedule_) return begin;
  const auto& ends = schedule_->ends();
  const auto end = ends.find(name == "beta1" ? "momentum" : name);
  return end == ends.end() ? begin
                           : begin + (end->second - begin) *
                                         schedule_->progress(schedule_->clock(passed, accumulate_));
}

double Hyperparameters::value_or(const std::string& name, double otherwise,
                                 const Passed& passed) const {
  return has(name) ? value(name, passed) : otherwise;
}

void Hyperparameters::put(ops::StepValues& values, const Passed& passed) const {
  const double a = value_or("momentum", value_or("beta1", 0, passed), passed);
  const double b = value_or("decay", value_or("beta2", 0, passed), passed);
  put_mean(a, values.kept_a, values.rest_a, values.log_a);
  put_mean(b, values.kept_b, values.rest_b, values.log_b);
  values.weight_decay = static_cast<float>(value_or("weight_decay", 0, passed));
  values.label_smoothing = static_cast<float>(value_or(kLabelSmoothing, 0, passed));
}

}  // namespace etr::optim

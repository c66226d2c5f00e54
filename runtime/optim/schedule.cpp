#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/error.h"
#include "core/log.h"

namespace etr::optim {
namespace {

constexpr OptionSpec kOptions[] = {
    {"schedule", OptionType::string, "\"constant\"", "how the learning rate changes over the run",
     0, 0, "", "constant|step|linear|cosine|polynomial|inverse_sqrt|one_cycle"},
    {"learning_rate", OptionType::number, nullptr, "learning rate after warm-up", 0, 1000},
    {"clock", OptionType::string, "\"steps\"",
     "what warmup_steps, decay_steps and step_every count: optimizer steps, or fresh examples (of "
     "all ranks)",
     0, 0, "", "steps|fresh"},
    {"warmup_steps", OptionType::integer, "0",
     "length of the linear warm-up (reduced to half of the run if a decaying schedule "
     "would end within it); 0: warmup_share applies",
     0, 1e12, "steps, or examples"},
    {"warmup_share", OptionType::number, "0",
     "fraction of decay_steps used for warm-up, for runs of any length", 0, 0.99},
    {"decay_steps", OptionType::integer, "0",
     "where linear, cosine, polynomial and one_cycle end; 0: at the end of the run", 0, 1e12,
     "steps, or examples"},
    {"end_factor", OptionType::number, "0",
     "final rate as a fraction of learning_rate; one_cycle starts at this fraction "
     "and ends at its square",
     0, 1},
    {"step_every", OptionType::integer, "1000", "schedule 'step': interval between drops", 1, 1e12,
     "steps, or examples"},
    {"gamma", OptionType::number, "0.1", "schedule 'step': factor of each drop", 0, 1},
    {"power", OptionType::number, "1", "schedule 'polynomial': its exponent", 0, 100},
    {"echo_power", OptionType::number, "0",
     "lowers the rate for echoed examples: the rate is multiplied by (fresh / all "
     "examples so far)^echo_power; 1 suits a run limited by gradient noise, 0 one "
     "limited by curvature",
     0, 1},
    {"rise", OptionType::number, "0.3",
     "schedule 'one_cycle': fraction of the steps in which the rate rises", 0.001, 0.999},
    {"momentum_end", OptionType::number, "-1",
     "momentum of the optimizer (or its beta1) at decay_steps; it changes linearly; -1: constant",
     -1, 0.999999},
    {"weight_decay_end", OptionType::number, "-1", "the same for the optimizer's weight_decay", -1,
     10},
    {"label_smoothing_end", OptionType::number, "-1", "the same for the loss's label_smoothing", -1,
     0.99},
};

constexpr const char* kChanging[] = {"momentum", "weight_decay", "label_smoothing"};

// Options that only some kinds read.
struct Readers {
  std::string_view option;
  const char* kinds;
};

const Readers kReaders[] = {
    {"step_every", "step"},
    {"gamma", "step"},
    {"power", "polynomial"},
    {"rise", "one_cycle"},
    {"end_factor", "linear, cosine, polynomial, one_cycle"},
    {"warmup_steps", "constant, step, linear, cosine, polynomial, inverse_sqrt"},
    {"warmup_share", "constant, step, linear, cosine, polynomial, inverse_sqrt"},
};

// An option without an effect would make another run than the one asked for, and a search over it
// would compare seeds.
void check_options(const Options& options) {
  const std::string kind = options.string("schedule");
  for (const auto& [option, kinds] : kReaders) {
    if (cat(", ", kinds, ",").find(cat(", ", kind, ",")) != std::string::npos) continue;
    const std::string unread = changed_options(kOptions, options, {&option, 1}, "schedule");
    if (!unread.empty())
      fail(Code::invalid_argument, unread, ", which has no effect on the schedule '", kind,
           "', only on: ", kinds, ". Leave it out");
  }
  for (const std::string name : kChanging)
    if (const double end = options.number(name + "_end"); end < 0 && end != -1)
      fail(Code::invalid_argument, "schedule.", name, "_end is ", end,
           ": give 0 or more, or -1 so that it stays");
}

// Half a cosine, falling from 1 to 0.
double falling(double p) { return (1 + std::cos(std::numbers::pi * p)) / 2; }

const char* run_length(bool of_fresh) {
  return of_fresh ? "or the run's length in fresh examples (train.fresh of a job)"
                  : "or the run's length in steps (train.steps or train.planned_steps of a job); "
                    "or set schedule.clock to fresh if the run's length is in fresh examples";
}

}  // namespace

Schema schedule_schema() { return kOptions; }

bool counts_fresh(const Options& schedule) { return schedule.string("clock") == "fresh"; }

Schedule::Schedule(const Options& options, int64_t length)
    : counts_fresh_(optim::counts_fresh(options)),
      rate_(options.number("learning_rate")),
      end_factor_(options.number("end_factor")),
      gamma_(options.number("gamma")),
      power_(options.number("power")),
      rise_(options.number("rise")),
      echo_power_(options.number("echo_power")),
      warmup_(options.integer("warmup_steps")),
      decay_(options.integer("decay_steps")),
      step_every_(options.integer("step_every")) {
  check_options(options);
  const std::string kind = options.string("schedule");
  kind_ = kind == "step"           ? Kind::step
          : kind == "linear"       ? Kind::linear
          : kind == "cosine"       ? Kind::cosine
          : kind == "polynomial"   ? Kind::polynomial
          : kind == "inverse_sqrt" ? Kind::inverse_sqrt
          : kind == "one_cycle"    ? Kind::one_cycle
                                   : Kind::constant;
  if (decay_ == 0) decay_ = length;
  for (const std::string name : kChanging)
    if (const double end = options.number(name + "_end"); end >= 0) ends_[name] = end;
  if (decay_ == 0 && !ends_.empty())
    fail(Code::invalid_argument, "schedule: ", ends_.begin()->first, "_end needs ",
         counts_fresh_ ? "an example" : "a step", " at which it is reached: set decay_steps, ",
         run_length(counts_fresh_));
  const bool ends = kind_ != Kind::constant && kind_ != Kind::step && kind_ != Kind::inverse_sqrt;
  const double share = options.number("warmup_share");
  if (decay_ == 0 && (ends || (share > 0 && warmup_ == 0)))
    fail(Code::invalid_argument, "schedule '", kind, "' needs ",
         !ends           ? "a length that warmup_share is a share of"
         : counts_fresh_ ? "an example at which it ends"
                         : "a step at which it ends",
         ": set decay_steps, ", run_length(counts_fresh_));
  if (warmup_ == 0) warmup_ = std::llround(share * static_cast<double>(decay_));
  if (kind_ == Kind::one_cycle) warmup_ = 0;
  if (ends && decay_ <= warmup_) shorten_warmup(options.integer("decay_steps") > 0, kind);
}

void Schedule::shorten_warmup(bool decay_is_given, const std::string& kind) {
  if (decay_is_given)
    fail(Code::invalid_argument, "schedule '", kind, "': decay_steps (", decay_,
         ") must exceed warmup_steps (", warmup_, ")");
  const int64_t given = std::exchange(warmup_, decay_ / 2);
  log_line(LogLevel::warning,
           cat("schedule '", kind, "': the run's ", decay_,
               counts_fresh_ ? " fresh examples" : " steps", " are no more than warmup_steps (",
               given, "); it warms up for ", warmup_, ". warmup_share follows the run's length"));
}

int64_t Schedule::clock(const Passed& passed, uint64_t accumulate) const {
  return static_cast<int64_t>(counts_fresh_ ? passed.fresh : passed.steps / accumulate);
}

double Schedule::echo_correction(const Passed& passed) const {
  if (passed.examples == 0 || echo_power_ == 0) return 1;
  const auto fresh = static_cast<double>(std::max<uint64_t>(passed.fresh, 1));
  return std::pow(std::min(1.0, fresh / static_cast<double>(passed.examples)), echo_power_);
}

double Schedule::progress(int64_t at) const {
  return std::clamp(static_cast<double>(at) / static_cast<double>(std::max<int64_t>(decay_, 1)),
                    0.0, 1.0);
}

float Schedule::rate(int64_t at, int64_t ticks) const {
  if (at < warmup_)
    return static_cast<float>(rate_ * static_cast<double>(std::min(at + ticks, warmup_)) /
                              static_cast<double>(warmup_));
  const double p = std::clamp(static_cast<double>(at - warmup_) /
                                  static_cast<double>(std::max<int64_t>(decay_ - warmup_, 1)),
                              0.0, 1.0);
  double factor = 1;
  switch (kind_) {
    case Kind::constant: break;
    case Kind::step: factor = std::pow(gamma_, static_cast<double>(at / step_every_)); break;
    case Kind::linear: factor = 1 - (1 - end_factor_) * p; break;
    case Kind::cosine: factor = end_factor_ + (1 - end_factor_) * falling(p); break;
    case Kind::polynomial:
      factor = end_factor_ + (1 - end_factor_) * std::pow(1 - p, power_);
      break;
    case Kind::inverse_sqrt: {
      const auto warmup = static_cast<double>(std::max<int64_t>(warmup_, 1));
      factor = std::sqrt(warmup / std::max(static_cast<double>(at), warmup));
      break;
    }
    case Kind::one_cycle:
      factor = p < rise_ ? end_factor_ + (1 - end_factor_) * (1 - falling(p / rise_))
                         : end_factor_ * end_factor_ +
                               (1 - end_factor_ * end_factor_) * falling((p - rise_) / (1 - rise_));
      break;
  }
  return static_cast<float>(rate_ * factor);
}

}  // namespace etr::optim

#include "console.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <utility>
#include <vector>

#include "cli.h"

namespace cli {
namespace {

// Returns how many columns fit into one line of the terminal, since a longer text could not be
// overwritten. Elsewhere there is no limit.
size_t line_columns() {
  const size_t columns = terminal_columns();
  return columns < 2 ? SIZE_MAX : columns - 1;
}

// Counts bytes, which is good enough for these texts.
std::string fitted(const std::string& text) { return text.substr(0, line_columns()); }

// For the signal handler, which may do only this much.
volatile std::sig_atomic_t signal_number = 0, signal_came_again = 0;
etr_run* current_run = nullptr;
etr_study* current_study = nullptr;

extern "C" void on_signal(int number) {
  if (signal_number) signal_came_again = 1;
  signal_number = number;
  if (current_run) etr_run_stop(current_run);
  if (current_study) etr_study_stop(current_study);
}

extern "C" void end_on_signal(int number) { end_with("echotrain: interrupted\n", 128 + number); }

std::string formatted(const char* format, double a, double b = 0) {
  char text[128];
  std::snprintf(text, sizeof text, format, a, b);
  return text;
}

// Returns the loss, and the accuracy if the model has one.
std::string scores(const char* name, double loss, double accuracy) {
  std::string out = std::string(name) + formatted("loss %.3f", loss);
  if (accuracy > 0) out += formatted(" acc %.1f %%", 100 * accuracy);
  return out;
}

// The position of a run; share and seconds left are negative if its length is unknown.
struct Position {
  double share = -1, seconds_left = -1;
};

Position position_of(const etr_event& e, double total_seconds) {
  Position out;
  const auto limit = [&](double done, double total) {
    const double share = std::min(1.0, done / total);
    if (share < out.share) return;  // the first limit to be reached counts
    out.share = share;
    out.seconds_left = done > 0 ? e.seconds * (total - done) / done : -1;
  };
  if (total_seconds > 0) limit(e.seconds, total_seconds);
  if (e.total_steps > 0) limit(static_cast<double>(e.step), static_cast<double>(e.total_steps));
  return out;
}

// Returns whether the run has made a step: one that was resumed may already have been complete.
bool has_trained(const etr_event& e) {
  return e.loss != 0 || e.accuracy != 0 || e.learning_rate != 0;
}

struct Part {
  int rank;  // parts with the lowest ranks stay if there is no room for all
  std::string text;
};

std::vector<Part> event_parts(const etr_event& e, const std::string& label, double total_seconds) {
  constexpr double kSettled = 0.5;  // seconds after which a rate is meaningful
  const Position position = position_of(e, total_seconds);
  const bool settled = e.examples_per_second > 0 && e.seconds >= kSettled;
  std::string step = " step " + std::to_string(e.step);
  if (e.total_steps > 0) step += " of " + std::to_string(e.total_steps);
  step += ", " + time_text(e.seconds);
  if (settled && position.seconds_left > 0 && position.share < 1)
    step += ", " + time_text(position.seconds_left) + " left";
  std::vector<Part> out{{0, label}};
  if (position.share >= 0) out.push_back({3, " " + bar(position.share, 10)});
  out.push_back({6, " epoch " + std::to_string(e.epoch)});
  out.push_back({0, step});
  if (has_trained(e)) out.push_back({1, "  " + scores("", e.loss, e.accuracy)});
  if (settled) {
    out.push_back({4, formatted("  %.0f ex/s", e.examples_per_second)});
    out.push_back({5, formatted("  device waits %.0f %%", 100 * e.device_wait_share)});
  }
  if (e.eval_loss != 0 || e.eval_accuracy != 0)
    out.push_back({2, "  " + scores("test ", e.eval_loss, e.eval_accuracy)});
  return out;
}

std::string event_text(const etr_event& e, const std::string& label, double total_seconds) {
  const std::vector<Part> parts = event_parts(e, label, total_seconds);
  const auto joined = [&](int most_rank) {
    std::string out;
    for (const Part& part : parts)
      if (part.rank <= most_rank) out += part.text;
    return out;
  };
  int rank = 6;
  while (rank > 0 && joined(rank).size() > line_columns()) --rank;
  return joined(rank);
}

// The state of an evaluation for the callback that shows it.
struct Evaluation {
  ProgressLine& line;
  std::string label;
  double began = 0;
  int64_t done = 0, batches = -1;
};

int32_t show_evaluation(void* user_data, int64_t done, int64_t batches) {
  auto& evaluation = *static_cast<Evaluation*>(user_data);
  if (done == 1) {
    evaluation.began = now_seconds();
    // If their number is unknown, assumes as many as in the previous evaluation.
    if (batches < 0) evaluation.batches = evaluation.done;
  }
  evaluation.done = done;
  if (batches < 0) batches = evaluation.batches;
  evaluation.line.show(
      progress_text(evaluation.label, done, batches, now_seconds() - evaluation.began));
  return 1;
}

}  // namespace

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

ProgressLine::ProgressLine() : shown_at_(now_seconds()) {}

void ProgressLine::show(const std::string& text) {
  if (text == kept_) return;
  last_ = text;
  if (output_is_terminal()) {
    std::printf("\r\033[K%s", fitted(text).c_str());
  } else if (now_seconds() - shown_at_ >= 10) {  // in a log file, a line every ten seconds
    shown_at_ = now_seconds();
    std::printf("%s\n", text.c_str());
    kept_ = std::exchange(last_, "");
  }
  std::fflush(stdout);
}

void ProgressLine::finish() {
  if (last_.empty()) return;
  std::printf(output_is_terminal() ? "\n" : "%s\n", last_.c_str());
  std::fflush(stdout);
  kept_ = std::exchange(last_, "");
}

void ProgressLine::erase() {
  if (!last_.empty() && output_is_terminal()) std::printf("\r\033[K");
  last_.clear();
}

std::string bar(double share, int width) {
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * width + 0.5);
  return "[" + std::string(static_cast<size_t>(full), '#') +
         std::string(static_cast<size_t>(width - full), '.') + "]";
}

std::string time_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  if (whole < 60) return std::to_string(whole) + " s";
  const auto pair = [](int64_t large, const char* unit, int64_t small, const char* small_unit) {
    return std::to_string(large) + unit + (small ? " " + std::to_string(small) + small_unit : "");
  };
  if (whole < 3600) return pair(whole / 60, " min", whole % 60, " s");
  return pair(whole / 3600, " h", whole % 3600 / 60, " min");
}

std::string progress_text(const std::string& name, int64_t done, int64_t total, double seconds) {
  if (total <= 0) return name + " " + std::to_string(done);
  const auto share = static_cast<double>(done) / static_cast<double>(total);
  std::string out =
      name + " " + bar(share, 16) + " " + std::to_string(done) + " of " + std::to_string(total);
  if (done < total && share > 0 && seconds > 0.5)
    out += ", " + time_text(seconds * (1 - share) / share) + " left";
  return out;
}

SignalHandler::SignalHandler(void (*handler)(int), etr_run* run, bool stays) {
  current_run = run;
  signal_number = 0;
  signal_came_again = 0;
  setting_ = std::make_unique<SignalSetting>(handler, stays);
}

SignalHandler::~SignalHandler() {
  setting_.reset();
  current_run = nullptr;
}

InterruptGuard::InterruptGuard(etr_run* run) : SignalHandler(on_signal, run) {}

StudyGuard::StudyGuard(etr_study* study) : SignalHandler(on_signal, nullptr) {
  current_study = study;
}

StudyGuard::~StudyGuard() { current_study = nullptr; }

InterruptNotes::InterruptNotes() : SignalHandler(on_signal, nullptr, /*stays=*/true) {}

InterruptEnds::InterruptEnds() : SignalHandler(end_on_signal, nullptr) {}

int interrupted() { return signal_number; }

bool interrupted_again() { return signal_came_again != 0; }

bool next_batch(const Pipeline& pipeline, Batch& batch) {
  constexpr double kAtOnce = 0.1;  // seconds between checks for a signal
  do {
    if (interrupted()) throw Interrupted{};
  } while (check(etr_pipeline_wait(pipeline.get(), kAtOnce)) == ETR_END);
  return check(etr_pipeline_next(pipeline.get(), batch.out())) != ETR_END;
}

int exit_status(const Interrupted& interruption) {
  std::fflush(stdout);
  std::fprintf(stderr, "echotrain: interrupted%s%s\n", interruption.message.empty() ? "" : ": ",
               interruption.message.c_str());
  return 128 + signal_number;
}

RunEnd run_with_progress(etr_run* run, const std::string& label, double total_seconds,
                         const std::function<void()>& before_shown) {
  const InterruptGuard guard(run);
  ProgressLine line;
  Evaluation evaluation{line, label + " evaluating"};
  check(etr_run_on_evaluation(run, show_evaluation, &evaluation, nullptr));
  RunEnd end;
  end.event.struct_size = sizeof end.event;
  line.show(label + " the driver compiles the kernels");
  uint64_t saved_step = 0;
  bool told = false;
  while (check(etr_run_next_event(run, &end.event)) == ETR_OK) {
    const etr_event& event = end.event;
    if (before_shown) before_shown();
    if (event.kind == ETR_EVENT_CHECKPOINT) saved_step = event.step;
    if (event.step > 0) line.show(event_text(event, label, total_seconds));
    // Without a known length there is no bar, so each evaluation's line is kept instead.
    if (event.kind == ETR_EVENT_EVALUATION && position_of(event, total_seconds).share < 0)
      line.finish();
    if (interrupted() && !std::exchange(told, true) && event.kind != ETR_EVENT_END) {
      line.finish();
      line.show("stopping; interrupt again to stop at once");
    }
  }
  line.finish();
  check(etr_run_on_evaluation(run, nullptr, nullptr, nullptr));
  end.trained = has_trained(end.event);
  end.has_checkpoint = saved_step != 0 && saved_step == end.event.step;
  return end;
}

}  // namespace cli

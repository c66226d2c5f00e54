// Arguments, progress, and the loop that runs a job.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "cli.h"

namespace cli {

int32_t check(int32_t status) {
  if (status < 0) throw Failure(etr_last_error());
  return status;
}

std::string take_string(char* text) {
  std::string out = text ? text : "";
  etr_string_free(text);
  return out;
}

Arguments::Arguments(const std::vector<std::string>& words, const std::vector<std::string>& valued,
                     const std::vector<std::string>& flags) {
  const auto has = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.rfind("--", 0) != 0) {
      positional_.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (has(flags, name)) {
      flags_.push_back(name);
    } else if (!has(valued, name)) {
      throw Failure("unknown option --" + name + "; see 'echotrain help'");
    } else if (equals != std::string::npos) {
      values_.emplace_back(name, word.substr(equals + 1));
    } else if (i + 1 < words.size()) {
      values_.emplace_back(name, words[++i]);
    } else {
      throw Failure("--" + name + " needs a value");
    }
  }
}

std::string Arguments::value(const std::string& name, const std::string& otherwise) const {
  const auto all = values(name);
  return all.empty() ? otherwise : all.back();
}

std::vector<std::string> Arguments::values(const std::string& name) const {
  std::vector<std::string> out;
  for (const auto& [key, value] : values_)
    if (key == name) out.push_back(value);
  return out;
}

bool Arguments::flag(const std::string& name) const {
  return std::find(flags_.begin(), flags_.end(), name) != flags_.end();
}

const std::string& Arguments::required(size_t position, const std::string& what) const {
  if (position >= positional_.size()) throw Failure("missing argument: " + what);
  return positional_[position];
}

namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool on_terminal() {
  static const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  return terminal;
}

// For the signal handler, which may only do this little.
etr_trainer* running_trainer = nullptr;

extern "C" void on_interrupt(int) { etr_trainer_stop(running_trainer); }

// Ctrl-C ends the run in order while this lives; a second one kills.
class InterruptGuard {
 public:
  explicit InterruptGuard(etr_trainer* trainer) {
    running_trainer = trainer;
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGINT, &action, &before_);
  }
  ~InterruptGuard() {
    ::sigaction(SIGINT, &before_, nullptr);
    running_trainer = nullptr;
  }

 private:
  struct sigaction before_ {};
};

std::string progress_text(const etr_event& e) {
  char text[256];
  std::snprintf(text, sizeof text, "%6.0f ex/s  loss %.3f  acc %4.1f %%  device waits %3.0f %%",
                e.examples_per_second, e.loss, 100 * e.accuracy, 100 * e.device_wait_share);
  std::string out = text;
  if (e.eval_accuracy > 0) {
    std::snprintf(text, sizeof text, "  test %4.1f %%", 100 * e.eval_accuracy);
    out += text;
  }
  return out;
}

}  // namespace

void ProgressLine::show(const std::string& text) {
  if (on_terminal()) {
    std::printf("\r\033[K%s", text.c_str());
  } else {
    // A log file gets a line every ten seconds.
    const double now = now_seconds();
    if (now - shown_at_ < 10) {
      last_ = text;
      return;
    }
    shown_at_ = now;
    std::printf("%s\n", text.c_str());
  }
  last_ = on_terminal() ? text : "";
  std::fflush(stdout);
}

void ProgressLine::finish() {
  if (!last_.empty()) std::printf(on_terminal() ? "\n" : "%s\n", last_.c_str());
  last_.clear();
}

std::string bar(double share, int width) {
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * width + 0.5);
  return "[" + std::string(static_cast<size_t>(full), '#') +
         std::string(static_cast<size_t>(width - full), '.') + "]";
}

etr_event run_with_progress(etr_trainer* trainer, const std::string& label, double total_seconds) {
  const InterruptGuard guard(trainer);
  ProgressLine line;
  etr_event event{};
  event.struct_size = sizeof event;
  line.show(label + " the driver compiles the kernels");
  while (check(etr_trainer_next_event(trainer, &event)) == ETR_OK) {
    double share = -1;
    if (event.total_steps > 0)
      share = static_cast<double>(event.step) / static_cast<double>(event.total_steps);
    else if (total_seconds > 0)
      share = event.seconds / total_seconds;
    char text[160];
    std::snprintf(text, sizeof text, " epoch %llu step %llu %5.0f s ",
                  static_cast<unsigned long long>(event.epoch),
                  static_cast<unsigned long long>(event.step), event.seconds);
    if (event.step > 0)
      line.show(label + (share >= 0 ? " " + bar(share, 20) : "") + text + progress_text(event));
    // Without a known length there is no bar: keep each evaluation's line instead.
    if (event.kind == ETR_EVENT_EVALUATION && share < 0) line.finish();
  }
  line.finish();
  return event;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush()) throw Failure("cannot write '" + path + "'");
  std::printf("wrote %s\n", path.c_str());
}

}  // namespace cli

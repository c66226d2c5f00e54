// Progress on the terminal, Ctrl-C, and the loop that runs a job.
#pragma once

#include <signal.h>

#include <functional>
#include <string>

#include "cli.h"

namespace cli {

// One line that is rewritten in place on a terminal, and printed now and then elsewhere.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { finish(); }
  void show(const std::string& text);
  void finish();  // keeps the last text and goes to the next line; nothing is kept twice
  void erase();   // keeps nothing

 private:
  std::string last_, kept_;
  double shown_at_;
};

// "[#########.........]" for a share in [0, 1].
std::string bar(double share, int width);

// "8 s", "3 min 20 s", "2 h 5 min".
std::string time_text(double seconds);

// "name [####....] 12 of 40, 3 s left", of work that goes on evenly; `total` -1: not known.
std::string progress_text(const std::string& name, int64_t done, int64_t total, double seconds);

double now_seconds();

// What SIGINT and SIGTERM do while this lives. Where a command has none, the signal ends it.
class SignalHandler {
 public:
  SignalHandler(const SignalHandler&) = delete;
  SignalHandler& operator=(const SignalHandler&) = delete;

 protected:
  // `stays`: for every signal, not just the first.
  SignalHandler(void (*handler)(int), etr_trainer* trainer, bool stays = false);
  ~SignalHandler();

 private:
  struct sigaction interrupt_ {
  }, terminate_{};
};

// The first signal is noted and stops `trainer` (may be nullptr) in order; a second one ends the program.
class InterruptGuard : SignalHandler {
 public:
  explicit InterruptGuard(etr_trainer* trainer = nullptr);
};

// The same for a study.
class StudyGuard : SignalHandler {
 public:
  explicit StudyGuard(etr_study* study);
  ~StudyGuard();
};

// Signals are noted, however many come: for a command that has to clean up.
class InterruptNotes : SignalHandler {
 public:
  InterruptNotes();
};

// The first signal ends the program and says so: for calls that may wait for data without asking for interrupted(), and
// leave nothing behind.
class InterruptEnds : SignalHandler {
 public:
  InterruptEnds();
};

// The signal that has come, or 0.
int interrupted();
bool interrupted_again();  // noted by InterruptNotes

// The next batch; false at the end of an epoch. Throws Interrupted, also where one is waited for.
bool next_batch(const Pipeline& pipeline, Batch& batch);

// Ends a command that a signal interrupted: the exit status is 128 and the signal's number.
struct Interrupted {
  std::string message;
};

// Prints the message and gives the exit status.
int exit_status(const Interrupted& interruption);

struct RunEnd {
  etr_event event{};            // the last one
  bool has_checkpoint = false;  // of the last event's step
  bool trained = false;         // any step: a resumed run may be over already
};

// Runs a job's trainer to its end with a progress bar; a signal ends it in order. `label` leads the line. `total_seconds` is
// the length of a run that is limited by time (0: limited by steps or epochs).
RunEnd run_with_progress(etr_trainer* trainer, const std::string& label, double total_seconds = 0,
                         const std::function<void()>& before_shown = {});

}  // namespace cli

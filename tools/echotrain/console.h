// Progress on the terminal, signals, and the loop that runs a job.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli.h"
#include "terminal.h"

namespace cli {

// A line that is rewritten in place on a terminal, and printed at intervals elsewhere.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { finish(); }
  void show(const std::string& text);
  void finish();  // ends the line with its last text, unless that was already kept
  void erase();   // removes the line

 private:
  std::string last_, kept_;
  double shown_at_;
};

// Returns "[#########.........]" for a share in [0, 1].
std::string bar(double share, int width);

// "8 s", "3 min 20 s", "2 h 5 min".
std::string time_text(double seconds);

// Returns "name [####....] 12 of 40, 3 s left" for work at an even pace; `total` -1: unknown.
std::string progress_text(const std::string& name, int64_t done, int64_t total, double seconds);

double now_seconds();

// Handles SIGINT and SIGTERM while it lives. Without a handler, the signal ends the command.
class SignalHandler {
 public:
  SignalHandler(const SignalHandler&) = delete;
  SignalHandler& operator=(const SignalHandler&) = delete;

 protected:
  // `stays`: handles every signal, not just the first.
  SignalHandler(void (*handler)(int), etr_run* run, bool stays = false);
  ~SignalHandler();

 private:
  std::unique_ptr<SignalSetting> setting_;
};

// Notes the first signal and stops `run` (may be nullptr) in order. A second signal ends the
// program.
class InterruptGuard : SignalHandler {
 public:
  explicit InterruptGuard(etr_run* run = nullptr);
};

// The same for a study.
class StudyGuard : SignalHandler {
 public:
  explicit StudyGuard(etr_study* study);
  ~StudyGuard();
};

// Notes signals, however many come, for a command that has to clean up.
class InterruptNotes : SignalHandler {
 public:
  InterruptNotes();
};

// Ends the program with a message at the first signal, for calls that may wait for data without
// checking interrupted() and leave nothing behind.
class InterruptEnds : SignalHandler {
 public:
  InterruptEnds();
};

// Returns the signal that has come, or 0.
int interrupted();
bool interrupted_again();  // a second signal came while InterruptNotes lived

// Gets the next batch; false at the end of an epoch. Throws Interrupted, also while it waits for a
// batch.
bool next_batch(const Pipeline& pipeline, Batch& batch);

// Ends a command that a signal interrupted; the exit status is 128 plus the signal's number.
struct Interrupted {
  std::string message;
};

// Prints the message and returns the exit status.
int exit_status(const Interrupted& interruption);

struct RunEnd {
  etr_event event{};            // the last one
  bool has_checkpoint = false;  // for the last event's step
  bool trained = false;         // made any step: a resumed run may already be complete
};

// Takes a run to its end with a progress bar; a signal ends it in order. The line begins
// with `label`. `total_seconds` is the length of a run limited by time (0: limited by steps or
// epochs).
RunEnd run_with_progress(etr_run* run, const std::string& label, double total_seconds = 0,
                         const std::function<void()>& before_shown = {});

}  // namespace cli

// A trainer on its own thread, which runs the work that it is given.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "train/trainer.h"

namespace etr::train {

class Mate {
 public:
  using Make = std::function<std::unique_ptr<Trainer>()>;
  using Work = std::function<void(Trainer&)>;

  // `make` is called on the thread. `name` is the device's, for messages.
  Mate(std::string name, Make make);
  ~Mate() { end(); }

  const std::string& name() const { return name_; }

  // Begins `work` when earlier work is done. Does nothing if that failed, or if there is no
  // trainer.
  void begin(Work work);
  // Waits for the work. Returns its exception, or nullptr.
  std::exception_ptr finish();
  bool finishes_within(double seconds);
  // Lets the trainer and the thread end after the work, without waiting.
  void ask_to_end();
  // Waits for the work, and ends the trainer and the thread. Returns what ended the trainer early,
  // or nullptr.
  std::exception_ptr end();

 private:
  void run(const Make& make);
  bool next(Work& work);
  bool is_idle() const { return !is_working_ && (!work_ || failure_); }
  void done(std::exception_ptr failure);

  const std::string name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Work work_;               // empty: no work is waiting or under way
  bool is_working_ = true;  // true at first, while it makes the trainer
  bool ends_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace etr::train

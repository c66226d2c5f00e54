// A trainer with a thread of its own, which is told what to do.
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

  // `work` begins when what began before is over. Where that failed, or there is no trainer, nothing is done.
  void begin(Work work);
  // Waits for it; what it threw, nullptr where it threw nothing.
  std::exception_ptr finish();
  // The trainer and the thread end when that is over; does not wait for it.
  void ask_to_end();
  // Waits for it, and ends the trainer and the thread. What ended the trainer, if something did.
  std::exception_ptr end();

 private:
  void run(const Make& make);
  bool next(Work& work);
  void done(std::exception_ptr failure);

  const std::string name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Work work_;               // empty: none is waiting or under way
  bool is_working_ = true;  // at first it makes the trainer
  bool ends_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace etr::train

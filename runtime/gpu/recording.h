// A command list that is recorded once and submitted many times.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include "gpu/kernel.h"
#include "gpu/upload.h"

namespace etr::gpu {

// Returns the ticks between two timestamps with `bits` valid bits. With few of them the counter
// wraps within hours.
constexpr uint64_t ticks_between(uint64_t from, uint64_t to, uint32_t bits) {
  return (to - from) & (~uint64_t{0} >> (64 - bits));
}

// Owns command buffers with their descriptors, timestamps and fences. Used by one thread at a time.
class Recording {
 public:
  // Places a barrier before each command that accesses a range which an earlier command has
  // written, or writes a range which an earlier command reads, and nowhere else. Ends with a
  // barrier to the host, so that read-back memory is visible once `wait` returns.
  // `timed`: takes the time of each command, with a barrier after each, for profiles. `parts`:
  // number of submissions among which the commands are divided by their operations and bytes.
  Recording(DevicePtr device, const CommandList& commands, bool timed = false, int parts = 1);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Starts the commands, after the copies that `after` has submitted. The previous submission of
  // this recording must have been waited for. Recordings with host turns run one after another.
  // Those without may overtake them unless `in_turn` is set.
  void submit(Upload* after = nullptr, bool in_turn = false);

  // Same as submit() when the commands have already been run in another way (gpu/comparison.h):
  // submits only the fence. Reports no device time.
  void submit_nothing();

  // Blocks until the last submission has ended; returns at once if there is none. Throws
  // Error(device_lost) if the device is lost or hangs, and rethrows what a host turn has thrown.
  void wait();

  bool in_flight() const { return in_flight_; }
  bool has_run() const { return has_run_; }  // the last submission was a submit()
  bool done();                               // returns whether `wait` would not block
  bool done_within(double seconds);          // same, after waiting for at most that long

  // Device time of the last finished submission, without the time spent waiting for host turns; 0
  // if the device has no timestamps.
  double busy_seconds() const { return busy_seconds_; }

  // Device clock at the beginning and the end of that submission, in seconds from an arbitrary
  // origin that may change; 0 without timestamps.
  double begin_seconds() const { return begin_seconds_; }
  double end_seconds() const { return end_seconds_; }

  int barriers() const { return barriers_; }  // placed between commands
  int parts() const;
  bool has_host_turns() const;

  // Device time of each command of the last finished submission; empty unless the recording is
  // timed and the device has timestamps.
  const std::vector<double>& command_seconds() const { return command_seconds_; }

 private:
  struct Handles;

  void run_turns(Upload* after);
  void read_timestamps();

  DevicePtr device_;
  std::unique_ptr<Handles> handles_;
  bool in_flight_ = false, has_run_ = false;
  std::future<void> turns_;  // of the last submission, if it runs on the thread of host turns
  double busy_seconds_ = 0, begin_seconds_ = 0, end_seconds_ = 0;
  int barriers_ = 0;
  std::vector<double> command_seconds_;
};

// Returns the number of submissions into which commands that take `seconds` should be split on this
// device. If `seconds` is 0, the time is not known yet and is estimated from the operations and
// bytes. See DeviceOptions::longest_submit_seconds.
int parts_for(const Device& device, const CommandList& commands, double seconds);

// Records, submits and waits, without comparing kernels with the host; see gpu/run_once.h.
void run_uncompared(const DevicePtr& device, const CommandList& commands);

}  // namespace etr::gpu

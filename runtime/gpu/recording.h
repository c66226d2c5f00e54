// A command list, recorded once and submitted many times.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include "gpu/kernel.h"
#include "gpu/upload.h"

namespace etr::gpu {

// Ticks from one timestamp of so many bits to a later one: few of them, and the clock passes 0 within hours.
constexpr uint64_t ticks_between(uint64_t from, uint64_t to, uint32_t bits) {
  return (to - from) & (~uint64_t{0} >> (64 - bits));
}

// Owns one command buffer with its descriptors, timestamps and fence. Used by one thread at a time.
class Recording {
 public:
  // Places a barrier before each command that touches a range which an earlier command has written
  // (or writes one that an earlier command reads), and nowhere else. Ends with a barrier to the
  // host, so that read-back memory is visible once `wait` returns.
  // `timed`: waits after each command and takes its time, for profiles. `parts`: submissions that the
  // commands are divided among, by their operations and bytes.
  Recording(DevicePtr device, const CommandList& commands, bool timed = false, int parts = 1);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Starts the commands, after what `after` has submitted. The previous submission of this recording must have been waited
  // for. Recordings with host turns go one after another; those without may overtake them, unless they are to go `in_turn`.
  void submit(Upload* after = nullptr, bool in_turn = false);

  // As submit(), where the commands were run otherwise: gpu/comparison.h. It has no device time.
  void submit_nothing();

  // Blocks until the last submission has ended; returns at once if there is none.
  // Throws Error(device_lost) when the device dies, and what a host turn has thrown.
  void wait();

  bool in_flight() const { return in_flight_; }
  bool has_run() const { return has_run_; }  // the last submission was no submit_nothing()
  bool done();                               // whether `wait` would return at once
  bool done_within(double seconds);          // whether it would after at most that long

  // Device time of the last finished submission, without what the device waited for host turns; 0 where it has no timestamps.
  double busy_seconds() const { return busy_seconds_; }

  // Device clock at its begin and end, in seconds from an arbitrary start, which may change (0 without timestamps).
  double begin_seconds() const { return begin_seconds_; }
  double end_seconds() const { return end_seconds_; }

  int barriers() const { return barriers_; }  // placed between commands
  int parts() const;
  bool has_host_turns() const;

  // Of each command of the last finished submission, where the recording is timed and the device has
  // timestamps; else empty.
  const std::vector<double>& command_seconds() const { return command_seconds_; }

 private:
  struct Handles;

  void run_turns(Upload* after);
  void read_timestamps();

  DevicePtr device_;
  std::unique_ptr<Handles> handles_;
  bool in_flight_ = false, has_run_ = false;
  std::future<void> turns_;  // of the last submission, where it has any: all segments are submitted
  double busy_seconds_ = 0, begin_seconds_ = 0, end_seconds_ = 0;
  int barriers_ = 0;
  std::vector<double> command_seconds_;
};

// Submissions into which commands that take `seconds` (0: not known yet, so their operations are counted)
// should be divided on this device; see DeviceOptions::longest_submit_seconds.
int parts_for(const Device& device, const CommandList& commands, double seconds);

// Records, submits and waits: for set-up work and tests. Compares what has to be compared.
void run_once(const DevicePtr& device, const CommandList& commands);
void run_uncompared(const DevicePtr& device, const CommandList& commands);  // and compares nothing

}  // namespace etr::gpu

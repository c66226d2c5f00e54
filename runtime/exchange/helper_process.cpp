#include "exchange/helper_process.h"

#include "core/clock.h"
#include "core/platform.h"
#include "exchange/failure.h"
#include "exchange/helper.h"

namespace etr::exchange {

using platform::Channel;
using platform::Frame;
using Outcome = platform::Channel::Outcome;

namespace {

constexpr auto kFramePoll = std::chrono::milliseconds(5);  // how often the store is polled
// How long after a deadline a helper may take to report which ranks are missing.
constexpr auto kPatience = std::chrono::seconds(6);

std::string_view raw_bytes(std::span<const uint64_t> numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()};
}

bool send(Channel& channel, FrameKind kind, std::string_view payload = {}) {
  return channel.send(static_cast<uint32_t>(kind), payload);
}

}  // namespace

// Closes this process's copy of the helper's end of the channel on return. Otherwise the channel
// would stay open when the helper exits.
void HelperProcess::start(const HelperPlace& place) {
  platform::Descriptor end;
  Channel::make(channel_, end);
  const int descriptors[] = {end.number(), memory_.descriptor()};
  child_ = std::make_unique<platform::Child>(place.program, std::vector{std::to_string(owner_)},
                                             descriptors);
}

HelperProcess::HelperProcess(const HelperPlace& place, Meeting& meeting, Deadline deadline)
    : rank_(place.rank), program_(place.program), owner_(platform::process_id()) {
  start(place);
  const Join join{place.rank, place.size, place.is_interface, 0, place.timeout_s};
  send(channel_, FrameKind::join, payload_of(join, place.address));
  bool ready = false;
  try {
    while (!ready || !meeting.unmarked("ready").empty()) this->join(meeting, deadline, ready);
    meeting.set_formed();
  } catch (const Error&) {
    if (!ready || !meeting.formed()) throw;
    ended_ = std::current_exception();  // thrown by the first call
  }
}

// Relays the helper's rendezvous through the meeting's session.
void HelperProcess::join(Meeting& meeting, Deadline deadline, bool& ready) {
  const auto now = std::chrono::steady_clock::now();
  if (now >= deadline) {
    const auto missing = meeting.unmarked("ready");
    throw RankLost(cat("the group did not form in time: ", ranks_text(missing),
                       " could not connect to all others"),
                   missing);
  }
  if (meeting.given_up()) fail(Code::cancelled, "another rank gave this attempt up");
  if (wanted_) {
    if (const auto value = meeting.get(*wanted_)) {
      send(channel_, FrameKind::value, *value);
      wanted_.reset();
    }
  }
  Frame frame;
  while (receive(frame, wanted_ || ready ? now + kFramePoll : now + 4 * kFramePoll) ==
         Outcome::frame)
    relay(meeting, frame, ready);
}

void HelperProcess::relay(Meeting& meeting, Frame& frame, bool& ready) {
  switch (static_cast<FrameKind>(frame.kind)) {
    case FrameKind::set: {
      const size_t end = frame.payload.find('\0');
      return meeting.set(frame.payload.substr(0, end), frame.payload.substr(end + 1));
    }
    case FrameKind::get: wanted_ = frame.payload; return;
    case FrameKind::ready:
      meeting.mark("ready");
      ready = true;
      return;
    default: fail(Code::internal, "a helper that joins said ", frame.kind);
  }
}

Outcome HelperProcess::receive(Frame& frame, Deadline deadline) {
  const Outcome outcome = channel_.receive(frame, deadline);
  if (outcome == Outcome::closed && !heard_)
    fail(Code::io, "the helper '", program_,
         "' ended as soon as it was started: can it load its libraries (ldd)?");
  if (outcome == Outcome::closed)
    throw RankLost(cat("the helper process of rank ", rank_, " has ended"), {rank_});
  heard_ = heard_ || outcome == Outcome::frame;
  Failure failure{};
  if (outcome == Outcome::frame && frame.kind == static_cast<uint32_t>(FrameKind::failed)) {
    if (!take(frame.payload, failure)) fail(Code::internal, "a helper's last words are cut short");
    raise(failure.status, failure.error);
  }
  return outcome;
}

void HelperProcess::call(const Call& call, std::span<const uint64_t> sizes) {
  check_owner();
  if (ended_) std::rethrow_exception(ended_);
  // If the helper is gone, sending fails, and receive() throws the error that it sent last.
  send(channel_, FrameKind::call, payload_of(call, raw_bytes(sizes)));
  Frame frame;
  if (receive(frame, deadline_after(call.timeout_s) + kPatience) == Outcome::late)
    throw RankLost(cat("the helper process of rank ", rank_, " does not answer: is it stopped?"),
                   {rank_});
  if (frame.kind != static_cast<uint32_t>(FrameKind::done))
    fail(Code::internal, "a helper that works said ", frame.kind);
}

void HelperProcess::check_owner() const {
  if (platform::process_id() != owner_)
    fail(Code::state,
         "a group can be used only by the process that formed it, not by children that it "
         "forked");
}

void HelperProcess::abort(const std::string& reason) {
  if (platform::process_id() == owner_) send(channel_, FrameKind::abort, reason);
}

bool HelperProcess::leave(Deadline deadline) {
  if (platform::process_id() != owner_) return false;
  Frame frame;
  const bool all = !ended_ && send(channel_, FrameKind::leave) &&
                   channel_.receive(frame, deadline) == Outcome::frame &&
                   frame.kind == static_cast<uint32_t>(FrameKind::done);
  // The helper may still be telling the other ranks why it ended.
  child_->wait(deadline);
  return all;
}

}  // namespace etr::exchange

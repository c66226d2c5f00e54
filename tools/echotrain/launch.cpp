// Ranks on this machine: a process each, one display for all, and one end.
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "arguments.h"
#include "console.h"
#include "job.h"

namespace cli {
namespace {

constexpr double kGrace = 15;  // seconds for the other ranks, when one has failed

// Where ranks find each other.
class Meeting {
 public:
  Meeting() {
    std::string pattern = (std::filesystem::temp_directory_path() / "echotrain-XXXXXX").string();
    if (!::mkdtemp(pattern.data()))
      throw Failure("cannot make a folder in which ranks meet: " + pattern + ": " +
                    std::strerror(errno));
    folder = pattern;
  }
  ~Meeting() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  std::string folder;
};

struct Rank {
  pid_t process = -1;  // -1: it has ended
  int messages = -1;   // what it writes on standard error; the first one's are not read here
  std::string unfinished;
  int status = 0;
};

// How the run's ranks are started, also anew.
struct Plan {
  const Arguments& arguments;
  int size = 0;
  std::string folder;
  bool has_section = false;
  bool elastic = false;  // the others go on without one that fails
  int64_t restarts = 0;  // of ranks that have failed, which join the others again
};

std::vector<std::string> words_of(const Arguments& arguments, bool has_section, int rank) {
  std::vector<std::string> out{"echotrain", "train", arguments.operand(0)};
  for (const char* option : {"set", "kernels", "tuning"})
    for (const std::string& value : arguments.values(option)) {
      out.push_back(std::string("--") + option);
      out.push_back(value);
    }
  if (!has_section) out.insert(out.end(), {"--set", "parallel={}"});
  const auto devices = arguments.values("device");
  if (!devices.empty())
    out.insert(out.end(), {"--device", devices[static_cast<size_t>(rank) % devices.size()]});
  for (const char* flag : {"resume", "overwrite", "validation"})
    if (arguments.flag(flag)) out.push_back(std::string("--") + flag);
  return out;
}

void set_default(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 0); }

// In the child: never returns.
[[noreturn]] void become(const std::vector<std::string>& words, int rank, int size,
                         const std::string& folder, bool joins, int messages, pid_t parent) {
#ifdef __linux__  // elsewhere ranks learn by their end of the pipe, when they next write
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  if (::getppid() != parent) ::_exit(1);
  ::setenv("ECHOTRAIN_RANK", std::to_string(rank).c_str(), 1);
  ::setenv("ECHOTRAIN_SIZE", std::to_string(size).c_str(), 1);
  ::setenv("ECHOTRAIN_RENDEZVOUS", ("file:" + folder).c_str(), 1);
  if (joins) ::setenv("ECHOTRAIN_JOIN", "1", 1);
  // Ranks share the cores: lavapipe would take all of them for each.
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  set_default("LP_NUM_THREADS", std::to_string(std::max(1u, cores / static_cast<unsigned>(size))));
  if (rank > 0) {
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(messages, STDERR_FILENO);
  }
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  ::execv("/proc/self/exe", pointers.data());
  ::execvp(pointers[0], pointers.data());  // where there is no /proc
  ::_exit(127);
}

Rank start(const Plan& plan, int rank, bool joins = false) {
  const auto words = words_of(plan.arguments, plan.has_section, rank);
  int ends[2] = {-1, -1};
  if (rank > 0 && ::pipe(ends) != 0)
    throw Failure(std::string("cannot make a pipe: ") + std::strerror(errno));
  for (const int end : ends)
    if (end >= 0) ::fcntl(end, F_SETFD, FD_CLOEXEC);
  const pid_t parent = ::getpid(), process = ::fork();
  if (process < 0) throw Failure(std::string("cannot start a process: ") + std::strerror(errno));
  if (process == 0) become(words, rank, plan.size, plan.folder, joins, ends[1], parent);
  if (ends[1] >= 0) ::close(ends[1]);
  return {process, ends[0], "", 0};
}

// Whole lines, with the rank's number in front.
void pass_on(Rank& rank, int number) {
  char buffer[4096];
  const ssize_t count = ::read(rank.messages, buffer, sizeof buffer);
  if (count > 0) {
    rank.unfinished.append(buffer, static_cast<size_t>(count));
  } else if (count == 0 || errno != EINTR) {
    ::close(std::exchange(rank.messages, -1));
    if (!rank.unfinished.empty()) rank.unfinished += '\n';
  }
  for (size_t end; (end = rank.unfinished.find('\n')) != std::string::npos;) {
    std::fprintf(stderr, "rank %d: %s\n", number, rank.unfinished.substr(0, end).c_str());
    rank.unfinished.erase(0, end + 1);
  }
}

void signal_all(const std::vector<Rank>& ranks, int number) {
  for (const Rank& rank : ranks)
    if (rank.process > 0) ::kill(rank.process, number);
}

int status_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

std::string end_of(const Rank& rank) {
  return rank.status > 128 ? "was ended by signal " + std::to_string(rank.status - 128)
                           : "failed with status " + std::to_string(rank.status);
}

// Looks after the ranks until all have ended.
class Attendance {
 public:
  Attendance(Plan plan, std::vector<Rank>& ranks) : plan_(std::move(plan)), ranks_(ranks) {}

  // The status of the first that failed; of an elastic run of the last, and 0 where any rank came to its end. When one has failed, the others, who
  // learn it from the group, have some time to end in order.
  int run() {
    const auto runs = [](const Rank& rank) { return rank.process > 0 || rank.messages >= 0; };
    while (std::any_of(ranks_.begin(), ranks_.end(), runs)) {
      std::vector<pollfd> open;
      for (const Rank& rank : ranks_) open.push_back({rank.messages, POLLIN, 0});
      ::poll(open.data(), open.size(), 100);
      for (size_t i = 0; i < ranks_.size(); ++i) {
        if (open[i].revents) pass_on(ranks_[i], static_cast<int>(i));
        look_after(static_cast<int>(i));
      }
      // Ctrl-C reaches all of a terminal's processes by itself; asking twice would end them at once.
      if (interrupted() == SIGTERM && !std::exchange(asked_, true)) signal_all(ranks_, SIGTERM);
      if (failed_ && !plan_.elastic && now_seconds() > due_) {
        signal_all(ranks_, SIGKILL);
        due_ = now_seconds() + kGrace;
      }
    }
    return plan_.elastic && came_to_end_ ? 0 : failed_;
  }

 private:
  void look_after(int number) {
    Rank& rank = ranks_[static_cast<size_t>(number)];
    int status = 0;
    if (rank.process <= 0 || ::waitpid(rank.process, &status, WNOHANG) <= 0) return;
    rank.process = -1;
    rank.status = status_of(status);
    if (!rank.status) {
      came_to_end_ = true;
    } else if (!failed_ || plan_.elastic) {
      failed_ = rank.status;
      due_ = now_seconds() + kGrace;
    }
    if (rank.status && plan_.elastic) replace(number);
  }

  // Nobody is there to join when the last one has failed, or some have come to the end.
  void replace(int number) {
    Rank& rank = ranks_[static_cast<size_t>(number)];
    const bool others = std::any_of(ranks_.begin(), ranks_.end(),
                                    [](const Rank& other) { return other.process > 0; });
    const bool again = plan_.restarts > 0 && others && !came_to_end_;
    if (interrupted()) return;
    std::fprintf(stderr, "echotrain: rank %d %s%s\n", number, end_of(rank).c_str(),
                 again ? "; it is started again, and joins the others at the end of an epoch" : "");
    rank.status = 0;  // it has been told
    if (!again) return;
    --plan_.restarts;
    if (rank.messages >= 0) ::close(rank.messages);
    rank = start(plan_, number, /*joins=*/true);
  }

  Plan plan_;
  std::vector<Rank>& ranks_;
  int failed_ = 0;
  bool asked_ = false, came_to_end_ = false;
  double due_ = 0;
};

}  // namespace

int command_launch(const Arguments& arguments) {
  const int64_t size = arguments.integer("ranks").value_or(0);
  if (size < 1 || size > 1024)
    throw UsageError("launch needs the number of ranks, from 1 to 1024: echotrain launch -n 2 " +
                     arguments.operand(0));
  Job job;
  load_job(arguments, job);  // a mistake in it is told once
  const auto json = json_of(job);
  const Meeting meeting;
  const InterruptGuard guard;
  Plan plan{arguments, static_cast<int>(size), meeting.folder, json.contains("parallel")};
  plan.elastic = json.value("/parallel/elastic"_json_pointer, false);
  plan.restarts = arguments.integer("restarts").value_or(0);
  if (plan.restarts < 0 || (plan.restarts > 0 && !plan.elastic))
    throw UsageError(
        "--restarts needs a job whose ranks can join again: --set parallel.elastic=true");
  std::vector<Rank> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(start(plan, rank));
  const int status = Attendance(plan, ranks).run();
  for (size_t i = 0; i < ranks.size(); ++i)
    if (ranks[i].status > 128 && ranks[i].status != 128 + interrupted())
      std::fprintf(stderr, "echotrain: rank %zu %s\n", i, end_of(ranks[i]).c_str());
  return status;
}

}  // namespace cli

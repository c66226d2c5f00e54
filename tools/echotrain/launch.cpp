// Starts ranks on this machine: one process each, one display for all, and one end.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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

constexpr double kGrace = 15;  // seconds for the other ranks to end after one has failed

// The folder in which ranks find each other.
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

struct Role {
  int number = 0;
  bool serves = false;  // a shard of a parameter server
  bool joins = false;   // joins an elastic run in progress

  std::string name() const { return (serves ? "shard " : "rank ") + std::to_string(number); }
};

struct Rank {
  Role role;
  pid_t process = -1;  // -1: it has ended
  int messages = -1;   // its standard error
  std::string unfinished;
  int status = 0;

  // The prefix of its messages; the first rank has none, since it speaks for all.
  std::string prefix() const { return role.number == 0 && !role.serves ? "" : role.name() + ": "; }
};

// What to start, and how to restart it.
struct LaunchPlan {
  const Arguments& arguments;
  std::string folder;
  int ranks = 0, servers = 0;
  std::vector<std::string> settings;  // that the job needs for this
  bool elastic = false;               // the others continue if one fails
  int64_t restarts = 0;               // allowed restarts of failed ranks, which rejoin the others
};

// Plans servers if the job has them, or --servers asks for them.
void plan_servers(LaunchPlan& plan, const Json& section) {
  const std::string algorithm = section.value("algorithm", "synchronous");
  const bool has_servers = algorithm == "downpour" || algorithm == "easgd";
  const auto wanted = plan.arguments.integer("servers");
  if (wanted && !has_servers) {
    if (section.contains("algorithm") || *wanted < 1)
      throw UsageError(
          "--servers is for jobs whose parallel.algorithm is downpour or easgd, and at "
          "least 1; this job has '" +
          algorithm + "'");
    plan.settings.push_back("parallel.algorithm=downpour");
  }
  if (wanted) plan.settings.push_back("parallel.servers=" + std::to_string(*wanted));
  if (wanted || has_servers)
    plan.servers = static_cast<int>(wanted.value_or(section.value("servers", int64_t{1})));
}

LaunchPlan plan_of(const Arguments& arguments, const Json& job, int ranks,
                   const std::string& folder) {
  LaunchPlan plan{arguments, folder, ranks};
  const bool has_section = job.contains("parallel") && job["parallel"].is_object();
  const Json section = has_section ? job["parallel"] : Json::object();
  if (!has_section) plan.settings.push_back("parallel={}");
  plan_servers(plan, section);
  plan.elastic = section.value("elastic", false);
  plan.restarts = arguments.integer("restarts").value_or(0);
  if (plan.restarts > 0 && plan.servers)
    throw UsageError("--restarts is for elastic runs, and this one has a parameter server");
  if (!plan.servers && ranks > 1 && section.value("size", 0) == 1 && section.value("rank", -1) < 0)
    throw UsageError(
        "the job says that it trains alone (parallel.size is 1), and launch is to start " +
        std::to_string(ranks) + " ranks: leave parallel.size out");
  if (plan.restarts < 0 || (plan.restarts > 0 && !plan.elastic))
    throw UsageError(
        "--restarts needs a job whose ranks can join again: --set parallel.elastic=true");
  return plan;
}

void add_settings(std::vector<std::string>& out, const LaunchPlan& plan) {
  for (const std::string& value : plan.arguments.values("set"))
    out.insert(out.end(), {"--set", value});
  for (const std::string& value : plan.settings) out.insert(out.end(), {"--set", value});
}

std::vector<std::string> words_of_server(const LaunchPlan& plan, int shard) {
  std::vector<std::string> out{"echotrain", "parameter-server", plan.arguments.operand(0),
                               "--shard", std::to_string(shard)};
  add_settings(out, plan);
  return out;
}

std::vector<std::string> words_of_rank(const LaunchPlan& plan, int rank) {
  const Arguments& arguments = plan.arguments;
  std::vector<std::string> out{"echotrain", "train", arguments.operand(0)};
  add_settings(out, plan);
  for (const char* option : {"kernels", "tuning"})
    for (const std::string& value : arguments.values(option)) {
      out.push_back(std::string("--") + option);
      out.push_back(value);
    }
  const auto devices = arguments.values("device");
  if (!devices.empty())
    out.insert(out.end(), {"--device", devices[static_cast<size_t>(rank) % devices.size()]});
  for (const char* flag : {"resume", "overwrite", "validation-layer"})
    if (arguments.flag(flag)) out.push_back(std::string("--") + flag);
  return out;
}

void set_default(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 0); }

// Runs in the child and never returns.
[[noreturn]] void become(const std::vector<std::string>& words, const Role& role, int size,
                         const LaunchPlan& plan, int messages, pid_t parent) {
  // A group of its own: whatever signal the launcher gets, from the terminal or from elsewhere, it
  // passes on once, and not to the servers, which the workers need in order to end.
  ::setpgid(0, 0);
  // From the background, it may write to a terminal all the same.
  ::signal(SIGTTOU, SIG_IGN);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::setenv("ECHOTRAIN_RANK", std::to_string(role.number).c_str(), 1);
  ::setenv("ECHOTRAIN_SIZE", std::to_string(size).c_str(), 1);
  ::setenv("ECHOTRAIN_RENDEZVOUS", ("file:" + plan.folder).c_str(), 1);
  if (role.joins) ::setenv("ECHOTRAIN_JOIN", "1", 1);
  // Ranks share the cores, but lavapipe would use all of them for each rank.
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  set_default("LP_NUM_THREADS", std::to_string(std::max(1u, cores / static_cast<unsigned>(size))));
  // Every rank of an elastic run keeps its standard output, because any may become the first (see
  // follow_first_rank()).
  if ((role.number > 0 && !plan.elastic) || role.serves)
    ::dup2(::open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
  ::dup2(messages, STDERR_FILENO);
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  ::execv("/proc/self/exe", pointers.data());
  ::execvp(pointers[0], pointers.data());  // without /proc
  ::_exit(127);
}

// Blocks signals while a process starts: until it runs its own program, its parent's handlers would
// get them.
class Held {
 public:
  Held() {
    sigset_t both;
    sigemptyset(&both);
    for (const int number : {SIGINT, SIGTERM}) sigaddset(&both, number);
    ::sigprocmask(SIG_BLOCK, &both, &before_);
  }
  ~Held() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  void end_in_child() const {
    for (const int number : {SIGINT, SIGTERM}) ::signal(number, SIG_DFL);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t before_;
};

Rank start(const LaunchPlan& plan, const Role& role) {
  const auto words =
      role.serves ? words_of_server(plan, role.number) : words_of_rank(plan, role.number);
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0) throw Failure(std::string("cannot make a pipe: ") + std::strerror(errno));
  for (const int end : ends) ::fcntl(end, F_SETFD, FD_CLOEXEC);
  const Held held;
  const pid_t parent = ::getpid(), process = ::fork();
  if (process == 0) held.end_in_child();
  if (process < 0) {
    const std::string why = std::strerror(errno);
    for (const int end : ends) ::close(end);
    throw Failure("cannot start a process: " + why);
  }
  if (process == 0)
    become(words, role, role.serves ? plan.servers : plan.ranks, plan, ends[1], parent);
  ::close(ends[1]);
  return {role, process, ends[0], "", 0};
}

// The processes that were started. Those that still run when it goes are killed.
class Ranks {
 public:
  Ranks() = default;
  ~Ranks() {
    for (const Rank& rank : all) {
      if (rank.process <= 0) continue;
      ::kill(rank.process, SIGKILL);
      while (::waitpid(rank.process, nullptr, 0) < 0 && errno == EINTR) continue;
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  std::vector<Rank> all;
};

volatile std::sig_atomic_t suspend_asked = 0;

// Notes Ctrl-Z, which reaches only the launcher's own group. Where it is ignored, it stays so.
class SuspendNotes {
 public:
  SuspendNotes() {
    struct sigaction action {};
    action.sa_handler = [](int) { suspend_asked = 1; };
    ::sigaction(SIGTSTP, nullptr, &former_);
    if (former_.sa_handler != SIG_IGN) ::sigaction(SIGTSTP, &action, nullptr);
  }
  ~SuspendNotes() { ::sigaction(SIGTSTP, &former_, nullptr); }
  SuspendNotes(const SuspendNotes&) = delete;
  SuspendNotes& operator=(const SuspendNotes&) = delete;

 private:
  struct sigaction former_ {};
};

// Prints a line on standard error, in place of a terminal's progress line.
void tell(const std::string& line) {
  static const bool over_progress = ::isatty(STDERR_FILENO) && ::isatty(STDOUT_FILENO);
  std::fprintf(stderr, "%s%s\n", over_progress ? "\r\033[K" : "", line.c_str());
}

// Passes on in whole lines what the ranks write on standard error.
class Messages {
 public:
  void pass_on(Rank& rank) {
    char buffer[4096];
    const ssize_t count = ::read(rank.messages, buffer, sizeof buffer);
    if (count > 0) {
      rank.unfinished.append(buffer, static_cast<size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      ::close(std::exchange(rank.messages, -1));
      if (!rank.unfinished.empty()) rank.unfinished += '\n';
    }
    for (size_t end; (end = rank.unfinished.find('\n')) != std::string::npos;) {
      print(rank, rank.unfinished.substr(0, end));
      rank.unfinished.erase(0, end + 1);
    }
  }

 private:
  // Prints a line with the rank's prefix, which some ranks write themselves. Drops a line that
  // another rank has already written.
  void print(const Rank& rank, std::string line) {
    const std::string prefix = rank.prefix();
    if (!prefix.empty() && line.starts_with(prefix)) line.erase(0, prefix.size());
    const bool is_told = std::any_of(told_.begin(), told_.end(), [&](const Told& told) {
      return told.prefix != prefix && is_same(told.line, line);
    });
    if (is_told) return;
    if (told_.size() < kMost) told_.push_back({prefix, line});
    tell(prefix + line);
  }

  struct Told {
    std::string prefix, line;
  };

  // Also matches "rank 1 ended the group: WHY" with rank 1's own WHY.
  static bool is_same(const std::string& a, const std::string& b) { return why(a) == why(b); }
  static std::string why(const std::string& line) {
    const std::string name = "echotrain: ";
    for (const std::string ended : {" ended the group: ", " ended the evaluation: "})
      if (const size_t at = line.rfind(ended); at != std::string::npos)
        return line.substr(at + ended.size());
    return line.starts_with(name) ? line.substr(name.size()) : line;
  }

  static constexpr size_t kMost = 1000;  // lines remembered
  std::vector<Told> told_;
};

int status_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

std::string end_of(const Rank& rank) {
  return rank.status > 128 ? "was ended by signal " + std::to_string(rank.status - 128)
                           : "failed with status " + std::to_string(rank.status);
}

// Supervises the ranks and servers until all have ended.
class Attendance {
 public:
  Attendance(LaunchPlan plan, std::vector<Rank>& ranks) : plan_(std::move(plan)), ranks_(ranks) {}

  // Returns the status of the first process that failed. For an elastic run it is that of the last
  // one, or 0 if any rank finished. When a rank has failed, the others learn it from the group and
  // have some time to end in an orderly way. Workers of a parameter server continue without a
  // failed one; with servers, the status of the first worker and of the servers counts.
  int run() {
    const auto runs = [](const Rank& rank) { return rank.process > 0 || rank.messages >= 0; };
    while (std::any_of(ranks_.begin(), ranks_.end(), runs)) {
      std::vector<pollfd> open;
      for (const Rank& rank : ranks_) open.push_back({rank.messages, POLLIN, 0});
      ::poll(open.data(), open.size(), 100);
      for (size_t i = 0; i < ranks_.size(); ++i) {
        if (open[i].revents) messages_.pass_on(ranks_[i]);
        look_after(ranks_[i]);
      }
      if (std::exchange(suspend_asked, 0)) suspend();
      if (interrupted() && !std::exchange(asked_, true)) signal_ranks(interrupted(), false);
      if (interrupted_again()) signal_ranks(SIGKILL, true);
      if (plan_.servers && !dismissed_) dismiss_servers();
      if (((failed_ && !plan_.elastic) || dismissed_) && now_seconds() > due_) {
        signal_ranks(SIGKILL, true);
        due_ = now_seconds() + kGrace;
      }
    }
    if (plan_.elastic && came_to_end_) return 0;
    return failed_ ? failed_ : ranks_.front().status;
  }

 private:
  void look_after(Rank& rank) {
    int status = 0;
    if (rank.process <= 0 || ::waitpid(rank.process, &status, WNOHANG) <= 0) return;
    rank.process = -1;
    rank.status = dismissed_ ? 0 : status_of(status);
    const bool counts = rank.role.serves == (plan_.servers > 0);
    if (!rank.status) {
      came_to_end_ = true;
    } else if (counts && (!failed_ || plan_.elastic)) {
      failed_ = rank.status;
      due_ = now_seconds() + kGrace;
    }
    if (rank.status && plan_.elastic) replace(rank);
  }

  bool any_worker(const auto& is) const {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [&](const Rank& rank) { return !rank.role.serves && is(rank); });
  }

  // Servers end when the last worker has; if that one was lost, they are told to end.
  void dismiss_servers() {
    if (any_worker([](const Rank& worker) { return worker.process > 0; })) return;
    dismissed_ = true;
    due_ = now_seconds() + kGrace;
    if (any_worker([](const Rank& worker) { return worker.status != 0; }))
      signal_ranks(SIGTERM, true);
  }

  // Without waiting for the end of the pipe, which a process that the rank left may hold open.
  void take_last_messages(Rank& rank) {
    if (rank.messages >= 0) ::fcntl(rank.messages, F_SETFL, O_NONBLOCK);
    while (rank.messages >= 0) messages_.pass_on(rank);
  }

  // A restart is useless if all others have ended, or if some have finished the run.
  void replace(Rank& rank) {
    const bool others = any_worker([](const Rank& other) { return other.process > 0; });
    const bool again = plan_.restarts > 0 && others && !came_to_end_;
    if (interrupted()) return;
    if (again) take_last_messages(rank);
    tell("echotrain: " + rank.role.name() + " " + end_of(rank) +
         (again ? "; it is started again, and joins the others at the end of an epoch" : ""));
    rank.status = 0;  // it was reported
    if (!again) return;
    --plan_.restarts;
    try {
      rank = start(plan_, {rank.role.number, /*serves=*/false, /*joins=*/true});
    } catch (const Failure& failure) {  // the others go on
      tell("echotrain: " + rank.role.name() + " could not be started again: " + failure.what());
    }
  }

  void suspend() const {
    signal_ranks(SIGSTOP, true);
    ::raise(SIGSTOP);
    signal_ranks(SIGCONT, true);
  }

  void signal_ranks(int number, bool servers_too) const {
    for (const Rank& rank : ranks_)
      if (rank.process > 0 && (servers_too || !rank.role.serves)) ::kill(rank.process, number);
  }

  LaunchPlan plan_;
  std::vector<Rank>& ranks_;
  Messages messages_;
  int failed_ = 0;
  bool asked_ = false, came_to_end_ = false, dismissed_ = false;
  double due_ = 0;
};

}  // namespace

int command_launch(const Arguments& arguments) {
  const int64_t size = arguments.integer("ranks").value_or(0);
  if (size < 1 || size > 1024)
    throw UsageError("launch needs the number of ranks, from 1 to 1024: echotrain launch -n 2 " +
                     arguments.operand(0));
  Job job;
  load_job(arguments, job);    // so that a mistake in it is reported once
  ::signal(SIGCHLD, SIG_DFL);  // ignored, as a parent may leave it, no process has a status
  const InterruptNotes notes;
  const SuspendNotes suspends;
  const Meeting meeting;
  const LaunchPlan plan = plan_of(arguments, json_of(job), static_cast<int>(size), meeting.folder);
  Job as_started;  // also checks whether --servers fits it
  load_job(arguments, as_started, plan.settings);
  Ranks started;
  std::vector<Rank>& ranks = started.all;
  for (int i = 0; i < plan.ranks + plan.servers; ++i) {
    const bool serves = i >= plan.ranks;
    ranks.push_back(start(plan, {serves ? i - plan.ranks : i, serves}));
    if (interrupted()) throw Interrupted{};  // ranks not yet started would miss it
  }
  const int status = Attendance(plan, ranks).run();
  if (interrupted_again()) return 128 + interrupted();
  for (const Rank& rank : ranks)
    if (rank.status > 128 && rank.status != 128 + interrupted())
      tell("echotrain: " + rank.role.name() + " " + end_of(rank));
  return status;
}

}  // namespace cli

#include "server/service.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "server/message.h"

namespace etr::server {
namespace {

// Seconds after which a waiting worker is answered `again`, so that it repeats its request or gives
// it up.
constexpr double kAskAgain = 0.25;

// A damaged message. The parts that should follow it are not received, so the pair cannot go on.
class Damaged : public Error {
 public:
  template <typename... Parts>
  explicit Damaged(const Parts&... parts) : Error(Code::invalid_argument, cat(parts...)) {}
};

class Service {
 public:
  Service(const Post& post, exchange::Group& pair, Roster::Guest& guest)
      : post_(post), shard_(post.shard), roster_(post.roster), pair_(pair), guest_(guest) {}
  ~Service() {
    if (ticket_) roster_.lose(*ticket_);
  }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Returns, for example, "worker 3, whose 17 updates were applied".
  std::string worker() const {
    if (!ticket_) return "a worker that has not said its name";
    return cat("worker ", number_, ", whose ", applied_, " updates were applied");
  }

  void run() {
    while (!finished_) {
      const Message asked = receive(pair_, kWorkerRank, kRequestTag);
      try {
        answer(asked);
      } catch (const exchange::RankLost&) {
        throw;
      } catch (const Damaged& damaged) {
        pair_.abort(damaged.what());
        throw;
      } catch (const std::exception& error) {
        refuse(error.what());
      }
    }
    log_line(LogLevel::info,
             cat("parameter server: shard ", post_.number, ": ", worker(), ", has left"));
  }

 private:
  void answer(const Message& asked) {
    if (!ticket_ && asked.kind != Kind::hello)
      fail(Code::invalid_argument, "a worker begins with its name");
    switch (asked.kind) {
      case Kind::hello: return welcome(asked);
      case Kind::ready: return ready(asked);
      case Kind::check: return check(asked);
      case Kind::tables: return declare_tables(asked);
      case Kind::put: return put_rows(asked);
      case Kind::begin: return begin(asked);
      case Kind::push: return push(asked);
      case Kind::average: return average(asked);
      case Kind::fetch: return fetch();
      case Kind::state:
        shard_.copy_state(numbers_);
        done();
        return send_numbers(pair_, kWorkerRank, numbers_);
      case Kind::rows: return give_rows(asked);
      case Kind::take: return give_piece(asked);
      case Kind::gate: return is_its_turn() ? done() : send_answer(Kind::again);
      case Kind::here: return done();
      case Kind::leave: return leave(asked);
      default: fail(Code::invalid_argument, "a request of an unknown kind");
    }
  }

  void welcome(const Message& asked) {
    if (asked.words > kMostText) throw Damaged("terms of ", asked.words, " bytes");
    const std::string terms = receive_text(pair_, kWorkerRank, asked.words);
    if (ticket_) fail(Code::invalid_argument, "a worker says its name once");
    if (asked.version != Message{}.version)
      fail(Code::unsupported, "the worker speaks version ", asked.version,
           " of the protocol, and this shard version ", Message{}.version,
           ": run the same version of EchoTrain on all machines");
    if (asked.count != static_cast<uint64_t>(post_.shards))
      fail(Code::invalid_argument, "the worker has parallel.servers ", asked.count,
           ", and this shard ", post_.shards, ": run the same job on all of them");
    check_terms(asked, terms);
    if (post_.leads()) {
      ticket_ = roster_.join(guest_, asked.number, asked.numbers);
    } else {
      roster_.admit(guest_, asked.ticket, asked.number);
      ticket_ = asked.ticket;
    }
    number_ = roster_.number(*ticket_);
    done();
  }

  void check_terms(const Message& asked, const std::string& terms) const {
    const auto other = difference(terms, post_.terms);
    if (!other) return;
    const std::string who =
        asked.number < 0 ? std::string("this worker") : cat("worker ", asked.number);
    fail(Code::invalid_argument, who, " has ", other->name, " ", other->one, ", and shard ",
         post_.number, " ", other->other,
         ": run the same job, with the same --set, on all servers and workers");
  }

  void check_leads() const {
    if (!post_.leads()) fail(Code::invalid_argument, "a request to another shard than the first");
  }

  // Refuses if for a whole time-out no worker was here that can begin.
  void ready(const Message& asked) {
    check_leads();
    switch (roster_.wait_beginning(*ticket_, patience(), !asked.waits)) {
      case Roster::Beginning::there: return done();
      case Roster::Beginning::never: return send_answer(Kind::over);
      case Roster::Beginning::yours: {
        Message answer = answer_of(Kind::yours);
        answer.ticket = roster_.attempt();
        return send(pair_, kWorkerRank, kAnswerTag, answer);
      }
      case Roster::Beginning::not_yet: break;
    }
    const auto now = std::chrono::steady_clock::now();
    if (!saw_beginner_ || roster_.has_beginner()) saw_beginner_ = now;
    if (now - *saw_beginner_ >= clock_duration(pair_.timeout()))
      fail(Code::state,
           "the run is to continue from a checkpoint that only the first worker (number 0) "
           "has, but that worker has been missing for ",
           pair_.timeout(), " s: start it or, if it has ended, look at its error");
    send_answer(Kind::again);
  }

  void check(const Message& asked) {
    const std::vector<TableSpec> specs = shard_.check_model(asked.count, receive_specs(asked));
    done();
    send_words(pair_, kWorkerRank, std::span<const TableSpec>(specs));
  }

  std::vector<TableSpec> receive_specs(const Message& asked) {
    if (asked.words > kMostTables) throw Damaged("a model of ", asked.words, " sparse tables");
    std::vector<TableSpec> specs(asked.words);
    receive_words(pair_, kWorkerRank, std::span(specs));
    return specs;
  }

  void declare_tables(const Message& asked) {
    shard_.declare_tables(asked.ticket, receive_specs(asked));
    done();
  }

  void begin(const Message& asked) {
    const auto [first, count] = shard_.slice(asked.count);
    if (asked.count > kMostNumbers) throw Damaged("a model of ", asked.count, " parameters");
    receive_numbers(2 * count);
    const std::span all(numbers_);
    shard_.begin(asked.ticket, asked.count, all.first(count), all.last(count),
                 asked.decayed > first ? std::min(asked.decayed - first, count) : 0);
    if (post_.leads()) roster_.begun(*ticket_);
    done();
  }

  void receive_numbers(uint64_t count) {
    take_memory(numbers_, count);
    server::receive_numbers(pair_, kWorkerRank, numbers_);
  }

  template <typename T>
  static void take_memory(std::vector<T>& to, uint64_t count) try {
    to.resize(count);
  } catch (const std::bad_alloc&) {
    throw Damaged("there is no memory for ", count, " numbers");
  }

  void push(const Message& asked) {
    receive_numbers(shard_.size());
    receive_rows(asked, 1);
    shard_.push(numbers_, asked.rate, {words_, row_numbers_});
    count_push();
    done();
  }

  void count_push() { applied_ = roster_.count_push(*ticket_); }

  void receive_ids(const Message& asked) {
    if (asked.words > shard_.most_words())
      throw Damaged("a message with ", asked.words, " ids of rows, of which there are ",
                    shard_.most_words(), " at most");
    take_memory(words_, asked.words);
    receive_words(pair_, kWorkerRank, std::span(words_));
  }

  // `parts`: how many numbers belong to a value, 2 if state is included.
  void receive_rows(const Message& asked, uint64_t parts) {
    receive_ids(asked);
    const uint64_t most = parts * asked.words * shard_.widest_row();
    if (asked.numbers > most)
      throw Damaged(asked.numbers, " numbers of ", asked.words, " rows, which have ", most,
                    " at most");
    take_memory(row_numbers_, asked.numbers);
    server::receive_numbers(pair_, kWorkerRank, row_numbers_);
  }

  void give_rows(const Message& asked) {
    receive_ids(asked);
    shard_.read_rows(words_, row_numbers_);
    done();
    send_numbers(pair_, kWorkerRank, row_numbers_);
  }

  // The message has as many numbers of state as of values.
  void put_rows(const Message& asked) {
    receive_rows(asked, 2);
    const auto half = row_numbers_.begin() + static_cast<ptrdiff_t>(row_numbers_.size() / 2);
    const Rows rows{words_, {row_numbers_.begin(), half}, {half, row_numbers_.end()}};
    shard_.put_rows(asked.ticket, asked.count, rows);
    done();
  }

  void give_piece(const Message& asked) {
    const Rows rows = shard_.piece_of_rows(asked.count, asked.words);
    Message answer = answer_of(Kind::done);
    answer.words = rows.ids.size();
    answer.numbers = rows.state.size();
    send(pair_, kWorkerRank, kAnswerTag, answer);
    send_words(pair_, kWorkerRank, std::span<const uint32_t>(rows.ids));
    send_numbers(pair_, kWorkerRank, rows.values);
    send_numbers(pair_, kWorkerRank, rows.state);
  }

  void average(const Message& asked) {
    receive_numbers(shard_.size());
    shard_.average(numbers_, asked.rate);
    count_push();
    done();
    send_numbers(pair_, kWorkerRank, numbers_);
  }

  void fetch() {
    if (post_.leads() && !is_its_turn()) return send_answer(Kind::again);
    shard_.copy_weights(numbers_);
    done();
    send_numbers(pair_, kWorkerRank, numbers_);
  }

  bool is_its_turn() {
    check_leads();
    return roster_.wait_turn(*ticket_, patience());
  }

  void leave(const Message& asked) {
    if (post_.leads()) {
      if (asked.ends) roster_.end_all();
      over_ = roster_.finish(*ticket_);
    } else {
      over_ = asked.over != 0;
      roster_.finish(*ticket_, over_);
    }
    finished_ = true;
    done();
  }

  double patience() const { return std::min(kAskAgain, pair_.timeout() / 4); }

  void done() { send_answer(Kind::done); }

  Message answer_of(Kind kind) const {
    Message message;
    message.kind = kind;
    message.number = number_;
    message.ticket = ticket_.value_or(0);
    message.ends = roster_.ends();
    message.in_order = post_.leads() && roster_.in_order();
    message.over = over_;
    return message;
  }

  void send_answer(Kind kind, uint64_t count = 0) {
    Message message = answer_of(kind);
    message.count = count;
    send(pair_, kWorkerRank, kAnswerTag, message);
  }

  void refuse(const std::string& why) {
    log_line(LogLevel::warning,
             cat("parameter server: shard ", post_.number, " refuses ", worker(), ": ", why));
    const std::string text = why.substr(0, kMostText);
    send_answer(Kind::refused, text.size());
    send_text(pair_, kWorkerRank, text);
  }

  const Post& post_;
  Shard& shard_;
  Roster& roster_;
  exchange::Group& pair_;
  Roster::Guest& guest_;
  std::optional<Roster::Ticket> ticket_;
  int number_ = -1;
  uint64_t applied_ = 0;
  bool finished_ = false, over_ = false;
  std::optional<std::chrono::steady_clock::time_point> saw_beginner_;
  std::vector<float> numbers_, row_numbers_;
  std::vector<uint32_t> words_;
};

}  // namespace

void serve_worker(const Post& post, exchange::Group& pair, Roster::Guest& guest) {
  Service service(post, pair, guest);
  try {
    service.run();
  } catch (const exchange::RankLost& lost) {
    throw exchange::RankLost(cat(service.worker(), ": ", lost.what()), lost.missing());
  }
}

}  // namespace etr::server

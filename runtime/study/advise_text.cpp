// Advice as text.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/format_text.h"
#include "core/json.h"
#include "study/advise.h"

namespace etr::study {
namespace {

double number(const Json& row, const char* key) { return row[key].get<double>(); }

std::string micros(double seconds) { return format_text("%.0f us", 1e6 * seconds); }

// Rounds to one digit, the precision of the estimate.
double magnitude(double value) {
  const double unit = std::pow(10, std::floor(std::log10(std::max(value, 1e-9))));
  return std::max(1.0, std::round(value / unit) * unit);
}

std::string rate(double per_s) { return format_text("%.*f", per_s < 100 ? 1 : 0, per_s); }

std::string measured_text(const Json& a) {
  const Json& m = a["measured"];
  std::string out = "Measured\n";
  out += cat("  upstream    ", micros(number(m, "upstream_s")), " for a fresh example (",
             rate(1 / number(m, "upstream_s")),
             " examples/s), measured with a consumer that never waits\n");
  out += cat("  downstream  ", micros(number(m, "downstream_s")), " for an example on the device (",
             rate(1 / number(m, "downstream_s")), " examples/s), with batches already in memory\n");
  out += format_text("  R           %.2f = upstream / downstream\n",
                     number(a, "upstream_to_step_ratio"));
  const Json& batch = a["batch"];
  if (batch["noise_scale"].is_number())
    out += format_text(
        "  noise scale of the order of %.0f, in examples, at the beginning; the batch has %.0f\n",
        magnitude(number(batch, "noise_scale")), number(batch, "batch"));
  out +=
      format_text("\n  %-24s %-11s %14s %12s\n", "stage", "runs", "us an example", "kB behind it");
  for (const Json& s : m["stages"]) {
    const double bytes = number(s, "bytes");
    out += format_text("  %-24s %-11s %14.1f %12s\n", s["name"].get<std::string>().c_str(),
                       s["runs"].get<std::string>().c_str(), number(s, "us_per_example"),
                       bytes > 0 ? format_text("%.1f", bytes / 1e3).c_str() : "");
  }
  return out;
}

std::string promise(const Json& row) {
  return format_text(
      "%9s examples/s %+5.0f %%   %s per fresh-equivalent example, %.2f x as fast",
      rate(number(row, "examples_per_s")).c_str(), 100 * (number(row, "gain_examples") - 1),
      micros(number(row, "seconds_per_fresh_equivalent")).c_str(), number(row, "gain"));
}

std::string echo_line(const Json& e) {
  std::string out =
      format_text("{\"stage\": \"echo\", \"factor\": %g, \"mode\": \"%s\", \"buffer\": %.0f",
                  number(e, "factor"), e["mode"].get<std::string>().c_str(), number(e, "buffer"));
  if (e.contains("buffer_bytes"))
    out += format_text(", \"buffer_bytes\": %.0f", number(e, "buffer_bytes"));
  return out + (e["device"].get<bool>() ? ", \"device\": true}" : "}");
}

std::string edges_text(const Json& a) {
  std::string out =
      format_text("\n  %-24s %-22s %6s %6s %6s %12s %16s %7s\n", "echo after", "repeats", "R here",
                  "factor", "uses", "examples/s", "us per fresh eq.", "gain");
  const Json& now = a["baseline"];
  const auto row = [&](const std::string& after, const std::string& place, const std::string& r,
                       const std::string& factor, const Json& values) {
    out += format_text(
        "  %-24s %-22s %6s %6s %6.1f %12s %16.0f %6.2fx\n", after.c_str(), place.c_str(), r.c_str(),
        factor.c_str(), number(values, "uses"), rate(number(values, "examples_per_s")).c_str(),
        1e6 * number(values, "seconds_per_fresh_equivalent"), number(values, "gain"));
  };
  row("(the job as it is)", "", "", "", now);
  for (const Json& e : a["candidates"])  // at others there is no use in repeating
    if (number(e, "factor") > 1)
      row(e["stage"], e["place"], format_text("%.2f", number(e, "r")),
          format_text("%g", number(e, "factor")), e);
  return out;
}

}  // namespace

std::string advice_text(const Json& a) {
  const bool helps = a["helps"].get<bool>();
  std::string out = measured_text(a);
  out += cat("\nEcho: ", helps ? "yes" : "no", "; ", a["why"].get<std::string>(), ".\n");
  if (a["keep_echo"].get<bool>() && !helps)
    out += format_text(
        "  the job's own echo repeats only where the device would wait, so it stays as it is: it "
        "uses each example %.1f times\n",
        number(a["baseline"], "uses"));
  else if (a["keep_echo"].get<bool>())
    out += format_text(
        "  the job does so already: it uses each example %.1f times, and its echo stays as it is\n",
        number(a["baseline"], "uses"));
  else if (helps) {
    const Json& e = a["echo"];
    out += cat("  after '", e["stage"].get<std::string>(), "' (", e["place"].get<std::string>(),
               "): ", echo_line(e), "\n");
    out += cat("  ", e["why_mode"].get<std::string>(), "\n");
    out += cat("  predicted: ", promise(e), ", each used ", format_text("%.1f", number(e, "uses")),
               " times\n");
  }
  if (std::any_of(a["candidates"].begin(), a["candidates"].end(),
                  [](const Json& e) { return number(e, "factor") > 1; }))
    out += edges_text(a);
  if (!a["other_advice"].empty())
    out += "\nConsider these first (each gain is for that change alone):\n";
  for (const Json& row : a["other_advice"])
    out += cat("  ", row["what"].get<std::string>(), "\n     ", promise(row), "\n     (",
               row["formula"].get<std::string>(), ")\n");
  out += cat("\nBatch size: ", a["batch"]["why"].get<std::string>(), ".\n");
  out +=
      "\nPredictions: an example takes the longest of each serial stage, the threads' work / "
      "threads, "
      "and the device;\nwork in front of an echo node counts 1 / uses. A fresh-equivalent example "
      "is as much progress as a fresh example gives,\nand the gain is how many times sooner the "
      "same progress is made than by the job as it is.\n";
  for (const Json& line : a["assumptions"]) out += cat("  - ", line.get<std::string>(), "\n");
  return out;
}

}  // namespace etr::study

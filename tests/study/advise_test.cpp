// Advice from made-up measurements: what it recommends, and why.
#include "study/advise.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json.h"
#include "study/worth.h"

namespace etr::test {
namespace {

using study::advise;
using study::EchoAt;
using study::Measured;
using study::predict;
using study::Runs;

constexpr size_t kRead = 0, kDecode = 1, kHeavy = 2, kLight = 3, kBatch = 4;

// Returns measurements of a job with the stages read, decode, two augmentations, batch and
// normalize. The parameters are costs in microseconds per example.
Measured job_of(double read, double decode, double heavy, double light, double device) {
  Measured m;
  const auto add = [&](const char* name, Runs runs, bool augments, double us, double bytes) {
    m.stages.push_back({name, m.stages.size(), runs, augments, true, us * 1e-6, bytes, false});
  };
  add("webdataset", Runs::own_thread, false, read, 20e3);
  add("decode", Runs::parallel, false, decode, 100e3);
  add("random_affine", Runs::parallel, true, heavy, 100e3);
  add("flip", Runs::parallel, true, light, 100e3);
  add("batch", Runs::serial, false, 1, 0);
  add("normalize", Runs::parallel, false, 1, 0);
  m.batch_stage = kBatch;
  m.batch = 128;
  m.threads = m.cores = 4;
  m.downstream_s = device * 1e-6;
  m.upstream_s = std::max(read, (decode + heavy + light + 2) / m.threads) * 1e-6;
  m.cacheable = kDecode;
  m.samples = 1e6;  // too many for a cache of 1 GiB
  m.source = "webdataset";
  return m;
}

TEST(Advise, LeavesAHealthyJobAlone) {
  const Json a = advise(job_of(20, 100, 40, 4, 500));
  EXPECT_FALSE(a["helps"].get<bool>());
  EXPECT_TRUE(a["echo"].is_null());
  EXPECT_NEAR(a["upstream_to_step_ratio"].get<double>(), 0.0735, 1e-3);
  EXPECT_NE(a["why"].get<std::string>().find("keeps up"), std::string::npos);
  EXPECT_TRUE(a["other_advice"].empty()) << a["other_advice"];
  for (const Json& edge : a["candidates"]) EXPECT_EQ(edge["factor"], 1);
}

TEST(Advise, EchoesBeforeAugmentationWhereTheNetworkIsSlow) {
  const Json a = advise(job_of(2500, 100, 40, 4, 500));
  ASSERT_TRUE(a["helps"].get<bool>()) << a["why"];
  EXPECT_EQ(a["echo"]["after"], kDecode);  // so that copies are not decoded again
  EXPECT_EQ(a["echo"]["place"], "before augmentation");
  EXPECT_EQ(a["echo"]["mode"], "on_demand");
  EXPECT_DOUBLE_EQ(a["echo"]["factor"].get<double>(), 10) << "the cap is twice R";
  EXPECT_DOUBLE_EQ(a["echo"]["uses"].get<double>(), 5);
  EXPECT_FALSE(a["echo"]["cap_binds"].get<bool>());
  EXPECT_NEAR(a["echo"]["examples_per_s"].get<double>(), 2000, 1);
  // Five uses are worth a value between those in the table for 4 and 8 uses.
  const double worth = study::fewer_fresh(1, false, 5, 128);
  EXPECT_GT(worth, 3.62);
  EXPECT_LT(worth, 6.22);
  EXPECT_NEAR(a["echo"]["gain"].get<double>(), 2500 / (5 * 500 / worth), 1e-6);
  EXPECT_EQ(a["echo"]["buffer"], 5368) << "half of 1 GiB in samples of 100 kB";
  EXPECT_FALSE(a["echo"].contains("buffer_bytes")) << "1 GiB is the default";
}

// The cap is at most the largest factor known to pay, here 16 before and 4 after augmentation. If R
// is larger, the device waits, and the text says so.
TEST(Advise, TheCapEndsWhereRepeatsLoseTheirWorth) {
  const Json a = advise(job_of(20000, 100, 40, 4, 500));
  EXPECT_DOUBLE_EQ(a["echo"]["factor"].get<double>(), 16);
  EXPECT_DOUBLE_EQ(a["echo"]["uses"].get<double>(), 16);
  EXPECT_NEAR(a["echo"]["r"].get<double>(), 40, 1);
  EXPECT_TRUE(a["echo"]["cap_binds"].get<bool>());
  EXPECT_NEAR(a["echo"]["examples_per_s"].get<double>(), 16 / 20000e-6, 1);
  EXPECT_NE(a["echo"]["why_mode"].get<std::string>().find("will wait 60 % of its time"),
            std::string::npos)
      << a["echo"]["why_mode"];
  for (const Json& edge : a["candidates"]) {
    if (edge["place"] == "after augmentation") {
      EXPECT_EQ(edge["factor"], 4);
      EXPECT_EQ(edge["mode"], "on_demand");
    } else if (edge["place"] == "batches") {
      EXPECT_EQ(edge["factor"], 1);
      EXPECT_EQ(edge["mode"], "fixed");
    }
  }
}

// Samples may be larger than those that were measured, so a buffer takes at most half of the
// memory. The advice sets `buffer_bytes` if the limit is not the default of an echo node.
TEST(Advise, TheBufferLeavesRoom) {
  for (const double bytes : {50e3, 600e3, 12e6}) {
    Measured m = job_of(2500, 100, 40, 4, 500);
    for (study::StageCost& s : m.stages) s.bytes = bytes;
    for (const double memory : {1.0 * (1 << 30), 4e9}) {
      m.memory_bytes = memory;
      m.noise_scale = 100;  // so that batches are repeated, too
      const Json a = advise(m);
      for (const Json& edge : a["candidates"]) {
        const bool batches = edge["place"] == "batches";
        const double copies = batches ? edge["factor"].get<double>() : 1;
        const double held = edge["buffer"].get<double>() / copies * (batches ? 128 : 1) * bytes;
        EXPECT_TRUE(held <= memory / 2 || edge["buffer"] == 1) << edge;
        if (memory == 4e9) {
          EXPECT_EQ(edge["buffer_bytes"], 4e9);
        }
      }
      EXPECT_GT(a["echo"]["buffer"].get<double>(), std::min(9999.0, 0.49 * memory / bytes));
    }
  }
}

TEST(Advise, WhereDecodingIsSlowFastShardsAndACacheComeFirst) {
  Measured m = job_of(20, 8000, 40, 4, 500);
  m.samples = 5000;
  const Json a = advise(m);
  ASSERT_TRUE(a["helps"].get<bool>());
  EXPECT_EQ(a["echo"]["after"], kDecode);
  ASSERT_EQ(a["other_advice"].size(), 2u) << a["other_advice"];
  EXPECT_EQ(a["other_advice"][0]["change"], "cache");
  EXPECT_TRUE(a["other_advice"][0]["fits"].get<bool>());
  EXPECT_EQ(a["other_advice"][1]["change"], "pack");
  EXPECT_GT(a["other_advice"][0]["gain"].get<double>(), a["echo"]["gain"].get<double>());
}

// The costly augmentation is done once per sample, the cheap one anew for every copy.
TEST(Advise, EchoesBetweenACostlyAugmentationAndACheapOne) {
  const Json a = advise(job_of(20, 100, 16000, 4, 500));
  ASSERT_TRUE(a["helps"].get<bool>()) << a["why"];
  EXPECT_EQ(a["echo"]["after"], kHeavy);
  EXPECT_EQ(a["echo"]["place"], "between augmentations");
  EXPECT_DOUBLE_EQ(a["echo"]["factor"].get<double>(), 10);  // twice the mean of 2 and 8
  const double uses = a["echo"]["uses"];
  EXPECT_NEAR(uses, (100 + 16000 + 20) / 4 / 500.0, 0.1);
  // The mean of what copies are worth before and after augmentation.
  EXPECT_DOUBLE_EQ(
      a["echo"]["fewer_fresh"].get<double>(),
      (study::fewer_fresh(1, false, uses, 128) + study::fewer_fresh(0, false, uses, 128)) / 2);
}

TEST(Advise, MoreThreadsWhereCoresAreIdle) {
  Measured m = job_of(20, 2000, 40, 4, 500);
  m.threads = 1;
  m.upstream_s = 2046e-6;
  const Json a = advise(m);
  EXPECT_EQ(a["other_advice"][0]["change"], "cache");
  const auto threads = std::find_if(a["other_advice"].begin(), a["other_advice"].end(),
                                    [](const Json& row) { return row["change"] == "threads"; });
  ASSERT_NE(threads, a["other_advice"].end());
  EXPECT_NEAR((*threads)["gain"].get<double>(), 2046.0 / 511.5, 1e-6);
}

// Whole batches are repeated only if the batch is at least the noise scale.
TEST(Advise, BatchesAreEchoedNearTheNoiseScale) {
  Measured m = job_of(20, 100, 8000, 4000, 500);
  m.batch = 1024;
  const auto batch_factor = [&](double noise) {
    m.noise_scale = noise;
    const Json a = advise(m);
    for (const Json& edge : a["candidates"])
      if (edge["after"] == kBatch) return edge["factor"].get<double>();
    return 0.0;
  };
  EXPECT_EQ(batch_factor(0), 1);
  EXPECT_EQ(batch_factor(1e5), 1);
  EXPECT_EQ(batch_factor(800), 2);
}

TEST(Advise, SaysWhatTheBatchSizeIsAgainstTheNoiseScale) {
  Measured m = job_of(20, 100, 40, 4, 500);
  const auto why = [&](double noise) {
    m.noise_scale = noise;
    return advise(m)["batch"]["why"].get<std::string>();
  };
  EXPECT_NE(why(10000).find("larger one should save steps"), std::string::npos);
  EXPECT_NE(why(128).find("near the noise scale"), std::string::npos);
  EXPECT_NE(why(8).find("noise_scale_every"), std::string::npos);
  EXPECT_NE(why(0).find("could not be measured"), std::string::npos);
}

// The job's own echo nodes are predicted like advised ones. In a healthy job, an echo node slows
// progress.
TEST(Advise, PredictsTheJobAsItIs) {
  Measured m = job_of(2000, 100, 40, 4, 500);
  EXPECT_NEAR(predict(m, {{kDecode, 2}}).example_s, 1000e-6, 1e-12);
  EXPECT_EQ(predict(m, {{kDecode, 2}}).limit, "webdataset");
  EXPECT_NEAR(predict(m, {{kDecode, 2}, {kLight, 2}}).example_s, 500e-6, 1e-12);
  m = job_of(20, 100, 40, 4, 500);
  m.echoes = {{kDecode, 4}};
  const Json a = advise(m);
  EXPECT_FALSE(a["helps"].get<bool>());
  EXPECT_EQ(a["baseline"]["limit"], "device");
  EXPECT_GT(a["baseline"]["seconds_per_fresh_equivalent"].get<double>(), 500e-6);
  EXPECT_NEAR(a["without_echo"]["gain"].get<double>(), 4 / study::fewer_fresh(1, false, 4, 128),
              1e-6);
}

// The factor of a node that adapts is a cap, not the number of uses.
TEST(Advise, ANodeThatAdaptsFollowsRUpToItsCap) {
  Measured m = job_of(2000, 100, 40, 4, 500);
  const auto uses = [&](double cap) { return predict(m, {{kDecode, cap, true}}).uses; };
  EXPECT_NEAR(uses(12), 4, 1e-9);
  EXPECT_EQ(uses(3), 3);
  EXPECT_NEAR(predict(m, {{kDecode, 12, true}}).example_s, 500e-6, 1e-12);
  EXPECT_EQ(predict(m, {{kDecode, 12, false}}).uses, 12);
  m.echoes = {{kDecode, 12, true}};
  const Json a = advise(m);
  EXPECT_NEAR(a["baseline"]["uses"].get<double>(), 4, 1e-9);
  EXPECT_NEAR(a["echo"]["gain"].get<double>(), 1, 1e-9);
  EXPECT_TRUE(a["keep_echo"].get<bool>());
  EXPECT_NE(study::advice_text(a).find("its echo stays as it is"), std::string::npos);
  for (const EchoAt& other : {EchoAt{kDecode, 4}, EchoAt{kDecode, 1.5, true}}) {
    m.echoes = {other};  // does not follow R, or not far enough
    EXPECT_FALSE(advise(m)["keep_echo"].get<bool>());
  }
  m = job_of(200, 100, 40, 4, 500);
  EXPECT_EQ(predict(m, {{kDecode, 12, true}}).uses, 1) << "upstream keeps up";
}

// Such a node repeats nothing while upstream keeps up, and it covers stalls.
TEST(Advise, ANodeThatAdaptsStaysInAHealthyJob) {
  Measured m = job_of(20, 100, 40, 4, 500);
  for (const std::vector<EchoAt>& own : {std::vector<EchoAt>{{kDecode, 4, true}},
                                         {{kDecode, 4, true}, {kLight, 2, true}},
                                         {{kRead, 1}, {kDecode, 4, true}}}) {
    m.echoes = own;
    const Json a = advise(m);
    EXPECT_FALSE(a["helps"].get<bool>());
    EXPECT_TRUE(a["keep_echo"].get<bool>());
    EXPECT_TRUE(a["echo"].is_null());
    EXPECT_EQ(a["baseline"]["uses"], 1);
    const std::string text = study::advice_text(a);
    EXPECT_NE(text.find("Echo: no; upstream keeps up with the device.\n"), std::string::npos);
    EXPECT_NE(text.find("stays as it is"), std::string::npos) << text;
    EXPECT_EQ(text.find("for nothing"), std::string::npos) << text;
  }
  for (const std::vector<EchoAt>& own :
       {std::vector<EchoAt>{}, {{kDecode, 4}}, {{kDecode, 4, true}, {kLight, 2}}, {{kRead, 1}}}) {
    m.echoes = own;
    EXPECT_FALSE(advise(m)["keep_echo"].get<bool>());
  }
}

// 60 s / 6.004 ms are 9,993 samples, but times that are measured within seconds are not that exact.
TEST(Advise, ABufferThatFollowsFromATimeHasTwoDigits) {
  Measured m = job_of(6004, 100, 40, 4, 500);
  for (study::StageCost& s : m.stages) s.bytes = 1e3;
  EXPECT_EQ(advise(m)["echo"]["buffer"], 10000);
  m = job_of(17000, 100, 40, 4, 500);
  for (study::StageCost& s : m.stages) s.bytes = 1e3;
  EXPECT_EQ(advise(m)["echo"]["buffer"], 3500) << "60 s / 17 ms are 3,529 samples";
  m.samples = 1892;
  EXPECT_EQ(advise(m)["echo"]["buffer"], 1892) << "all samples, whose number is exact";
}

// A fixed node contributes its factor, and a node that adapts the rest of R.
TEST(Advise, NodesThatAdaptSeeTheOthers) {
  const Measured m = job_of(4000, 100, 40, 4, 500);  // R is 8
  for (const bool fixed_first : {true, false}) {
    const EchoAt fixed{fixed_first ? kRead : kLight, 2}, adapts{kDecode, 12, true};
    const auto both = fixed_first ? std::vector{fixed, adapts} : std::vector{adapts, fixed};
    EXPECT_NEAR(predict(m, both).uses, 8, 1e-9);
    EXPECT_NEAR(predict(m, both).example_s, 500e-6, 1e-12);
  }
  EXPECT_NEAR(predict(m, {{kRead, 2, true}, {kDecode, 12, true}}).uses, 8, 1e-9);
}

TEST(Advise, ACpuDeviceSharesItsCores) {
  Measured m = job_of(20, 1600, 400, 0, 500);
  EXPECT_EQ(predict(m, {}).limit, "threads");
  m.device_is_cpu = true;
  EXPECT_EQ(predict(m, {}).limit, "device and threads");
  EXPECT_NEAR(predict(m, {}).example_s, (500 + 2002 / 4.0) * 1e-6, 1e-9);
}

TEST(Advise, PrefersTheDeviceForWhatStandsBehind) {
  Measured m = job_of(2500, 100, 40, 4, 500);
  m.stages[kDecode].device_echo = true;
  EXPECT_TRUE(advise(m)["echo"]["device"].get<bool>());
  m.device_is_cpu = true;
  EXPECT_FALSE(advise(m)["echo"]["device"].get<bool>());
}

TEST(Advise, TextNamesPlaceFactorAndFormula) {
  const std::string text = study::advice_text(advise(job_of(2500, 100, 40, 4, 500)));
  for (const char* part :
       {"Echo: yes", "after 'decode' (before augmentation)",
        "\"factor\": 10, \"mode\": \"on_demand\"", "per fresh-equivalent example",
        "only when the device would otherwise wait", "R           5.00", "worth of repeats",
        "1 / uses"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Advise, RefusesWhatIsNoMeasurement) { EXPECT_THROW(advise(Measured{}), Error); }

TEST(Worth, MeetsItsTableAndLiesBetween) {
  for (const study::Worth& row : study::worth_table()) {
    const bool is_batch = row.variant == study::Variant::batch;
    const double anew = row.variant == study::Variant::before_augmentation ? 1 : 0;
    EXPECT_DOUBLE_EQ(study::fewer_fresh(anew, is_batch, row.factor, row.batch), row.fewer);
  }
  EXPECT_EQ(study::fewer_fresh(1, false, 1, 128), 1);
  EXPECT_NEAR(study::fewer_fresh(1, false, 2.8284271247, 128), (1.85 + 3.62) / 2, 1e-6);
  EXPECT_EQ(study::fewer_fresh(1, false, 100, 128), 8.7);
  EXPECT_EQ(study::fewer_fresh(1, false, 2, 16), 1.85);
}

}  // namespace
}  // namespace etr::test

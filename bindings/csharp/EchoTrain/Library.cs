using System;
using System.Collections.Generic;
using System.Linq;
using EchoTrain.Native;

namespace EchoTrain
{
    /// <summary>A run for <see cref="Library.WriteReport"/>.</summary>
    public sealed class ReportedRun
    {
        /// <summary>Names a run. Runs of the same <paramref name="name"/> are repetitions with other
        /// seeds. <paramref name="metricsPath"/> is the run's metrics.jsonl, or the folder of
        /// that.</summary>
        public ReportedRun(string name, string metricsPath)
        {
            Name = name;
            MetricsPath = metricsPath;
        }

        public string Name { get; }
        public string MetricsPath { get; }
    }

    /// <summary>Functions of the library as a whole: version, schemas, packing, tuning and reports.</summary>
    public static class Library
    {
        /// <summary>The library's version, such as "0.1.0".</summary>
        public static string Version
        {
            get
            {
                Natives.Load();
                return Bindings.version();
            }
        }

        /// <summary>Returns the options of "stages", "layers", "models", "optimizers", "job",
        /// "study" or "pack", as JSON.</summary>
        public static string Schema(string kind)
        {
            Natives.Load();
            return Bindings.schema(kind);
        }

        /// <summary>Packs the images ROOT/CLASS/NAME, shuffled, into shards named PREFIX-*, for the
        /// stage "webdataset" or, with the option format "fast", for "fast_shard". <paramref
        /// name="options"/> are those of <c>Schema("pack")</c>, as the properties of an object:
        /// <c>new { per_shard = 500 }</c>. <paramref name="progress"/> is told the number of files
        /// that are done, and of all. Returns JSON: the number of samples, bytes and shards, the
        /// classes, and the files left out.</summary>
        public static string Pack(string root, string prefix, object options = null,
                                  EventHandler<ProgressEventArgs> progress = null)
        {
            Natives.Load();
            string json = Spec.Write(Pipeline.OptionsOf(options));
            string packed = Reporting.Run(Reporting.Of(null, progress),
                                          call => Bindings.pack_folder(root, prefix, json, call), out Exception failure);
            Reporting.ThrowAgain(failure);
            return packed;
        }

        /// <summary>Finds good settings for a pipeline, given as JSON, by trying them for
        /// <paramref name="seconds"/> each: threads, connections and prefetching. The consumer takes
        /// <paramref name="stepMs"/> milliseconds for a batch. Returns JSON: "options" for the
        /// pipeline, "samples_per_s" and "trials". <paramref name="progress"/> is told the number of
        /// trials so far, and the latest as JSON; if it stops, this fails with the code
        /// Cancelled.</summary>
        public static string TunePipeline(string pipeline, double seconds = 2, double stepMs = 0,
                                          EventHandler<ProgressEventArgs> progress = null)
        {
            Natives.Load();
            string tuned = Reporting.Run(Reporting.Of(null, progress),
                                         told => Bindings.tune(pipeline, seconds, stepMs, told), out Exception failure);
            Reporting.ThrowAgain(failure);
            return tuned;
        }

        /// <summary>Explains the speed of a pipeline from its statistics: <see cref="Pipeline.Stats"/>
        /// or <see cref="JobRun.Stats"/>. <paramref name="format"/> is "text", "svg" or
        /// "json".</summary>
        public static string ExplainStats(string stats, string format = "text")
        {
            Natives.Load();
            return Bindings.explain_stats(stats, format);
        }

        /// <summary>Compares runs in one self-contained HTML file, and returns the table as JSON.
        /// <paramref name="targetAccuracy"/> is 0 to 1; 0: none.</summary>
        public static string WriteReport(string title, IEnumerable<ReportedRun> runs, string htmlPath,
                                         double targetAccuracy = 0)
        {
            Natives.Load();
            ReportedRun[] all = runs?.ToArray();
            if (all == null || all.Any(run => run?.Name == null || run.MetricsPath == null)) throw new ArgumentNullException(nameof(runs));
            return Bindings.write_report(title, new Strings(all.Select(run => run.Name)),
                                         new Strings(all.Select(run => run.MetricsPath)), htmlPath, targetAccuracy);
        }
    }
}

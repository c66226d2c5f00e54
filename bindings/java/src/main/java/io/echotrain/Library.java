package io.echotrain;

import io.echotrain.internal.Bindings;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** Functions of the library as a whole: version, schemas, packing, tuning and reports. */
public final class Library {
  /** A run for {@link #writeReport}. */
  public static final class ReportedRun {
    final String name;
    final String metricsPath;

    /**
     * Names a run.
     * @param name runs of the same name are repetitions with other seeds
     * @param metricsPath the run's metrics.jsonl, or the folder of that
     */
    public ReportedRun(String name, String metricsPath) {
      this.name = name;
      this.metricsPath = metricsPath;
    }
  }

  private Library() {}

  /** Returns the library's version, such as "0.1.0". */
  public static String version() {
    Natives.load();
    return Bindings.version();
  }

  /**
   * Returns the options of "stages", "layers", "models", "optimizers", "job", "study" or "pack", as
   * JSON.
   */
  public static String schema(String kind) {
    Natives.load();
    return Bindings.schema(kind);
  }

  /**
   * Packs the images ROOT/CLASS/NAME, shuffled, into shards named PREFIX-*, for the stage
   * "webdataset" or, with the option {@code format} "fast", for "fast_shard".
   * @param options those of {@code schema("pack")}
   * @param listener is told the number of files that are done, and of all; null: nobody
   * @return JSON: the number of samples, bytes and shards, the classes, and the files left out
   */
  public static String pack(String root, String prefix, Map<String, ?> options, ProgressListener listener) {
    Natives.load();
    String json = Json.write(new LinkedHashMap<String, Object>(Objects.requireNonNull(options, "options")));
    try (Reporting call = new Reporting(listener)) {
      String packed = call.run(progress -> Bindings.pack_folder(root, prefix, json, progress));
      Reporting.throwAgain(call.failure());
      return packed;
    }
  }

  /** Calls {@link #pack(String, String, Map, ProgressListener)} without a listener. */
  public static String pack(String root, String prefix, Map<String, ?> options) {
    return pack(root, prefix, options, (ProgressListener) null);
  }

  /**
   * Does the same as {@link #pack(String, String, Map, ProgressListener)}.
   * @deprecated Pass a {@link ProgressListener}.
   */
  @Deprecated
  public static String pack(String root, String prefix, Map<String, ?> options,
                            Trainer.EvaluationListener listener) {
    return pack(root, prefix, options, (ProgressListener) listener);
  }

  /**
   * Finds good settings for a pipeline by trying them: threads, connections and prefetching.
   * @param pipeline the pipeline as JSON, {"stages": [...]}
   * @param seconds how long each trial runs
   * @param stepMs milliseconds that the consumer takes for a batch
   * @return JSON: "options" for the pipeline, "samples_per_s" and "trials"
   */
  public static String tunePipeline(String pipeline, double seconds, double stepMs) {
    return tunePipeline(pipeline, seconds, stepMs, (ProgressListener) null);
  }

  /**
   * Does the same.
   * @param listener is told the number of trials so far, -1, and the latest trial as JSON;
   *     returning false ends the call with the code CANCELLED. null: nobody
   */
  public static String tunePipeline(String pipeline, double seconds, double stepMs, ProgressListener listener) {
    Natives.load();
    try (Reporting call = new Reporting(listener)) {
      String tuned = call.run(progress -> Bindings.tune(pipeline, seconds, stepMs, progress));
      Reporting.throwAgain(call.failure());
      return tuned;
    }
  }

  /**
   * Does the same as {@link #tunePipeline(String, double, double, ProgressListener)}.
   * @deprecated Pass a {@link ProgressListener}.
   */
  @Deprecated
  public static String tunePipeline(String pipeline, double seconds, double stepMs,
                                    Trainer.EvaluationListener listener) {
    return tunePipeline(pipeline, seconds, stepMs, (ProgressListener) listener);
  }

  /**
   * Explains the speed of a pipeline from its statistics.
   * @param stats those of {@link Pipeline#stats} or {@link Job.Run#stats}
   * @param format "text", "svg" or "json"
   */
  public static String explainStats(String stats, String format) {
    Natives.load();
    return Bindings.explain_stats(stats, format);
  }

  /**
   * Compares runs in one self-contained HTML file.
   * @param targetAccuracy an accuracy that the runs are to reach, 0 to 1; 0: none
   * @return the table, as JSON
   */
  public static String writeReport(String title, List<ReportedRun> runs, String htmlPath, double targetAccuracy) {
    Natives.load();
    for (ReportedRun run : Objects.requireNonNull(runs, "runs")) Objects.requireNonNull(run, "run");
    String[] names = runs.stream().map(run -> run.name).toArray(String[]::new);
    String[] paths = runs.stream().map(run -> run.metricsPath).toArray(String[]::new);
    return Bindings.write_report(title, names, paths, htmlPath, targetAccuracy);
  }
}

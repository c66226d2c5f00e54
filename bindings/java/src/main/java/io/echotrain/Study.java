package io.echotrain;

import io.echotrain.internal.StudyHandle;
import java.util.Objects;

/**
 * A study: many trials of jobs that compare conditions. Its folder keeps every finished trial: a
 * study that is run again continues. Events and results are JSON; see the C functions
 * etr_study_next_event and etr_study_results. {@code try (Study study = Study.load("study.json")) {
 * study.start(device); while (study.nextEvent(1) != null) {} }} runs it. A study serves one thread
 * at a time, except for {@link #results}, {@link #writeReport}, {@link #stop} and {@link #close}.
 */
public final class Study implements AutoCloseable {
  private final StudyHandle handle;

  private Study(String path, String... overrides) {
    Natives.load();
    handle = new StudyHandle(path, overrides);
    Natives.free(handle, handle.release());
  }

  /** Reads a study file. {@code overrides} are strings "key=value" for the jobs of all trials. */
  public static Study load(String path, String... overrides) { return new Study(path, overrides); }

  /** Returns the study with jobs, labels and overrides filled in. */
  public String json() { return handle.json(); }

  /** Returns the folder that the study writes into unless {@link #start} names another one. */
  public String outputDir() { return handle.output_dir(); }

  /** Prepares the study to run in its own folder, with as many trials at once as it says. */
  public void start(Device device) { start(device, "", -1, false); }

  /**
   * Prepares the study to run in a folder (empty: its own). {@code parallel} is the number of
   * trials that run at once; 0: as many as the device has room for, -1: as the study says. {@code
   * overwrite} runs all trials again, in place of those that the folder holds.
   */
  public void start(Device device, String directory, int parallel, boolean overwrite) {
    handle.start(Objects.requireNonNull(device, "device").handle, directory, parallel, overwrite);
  }

  /**
   * Waits for an event, for at most that many seconds, and returns it; null after the event "end".
   */
  public String nextEvent(double seconds) {
    String event = handle.next_event(seconds);
    return event.isEmpty() ? null : event;
  }

  /**
   * Returns the results by condition, from the trials that a folder (empty: that of start) holds so far.
   */
  public String results(String directory) { return handle.results(directory); }

  /**
   * Writes report.html, results.json, tables and figures into a folder (empty: that of start), from the
   * trials that it holds so far.
   */
  public void writeReport(String directory) { handle.write_report(directory); }

  /** Ends the study soon, abandoning the trials that are running. */
  public void stop() { handle.stop(); }

  /** Stops the study and releases its folder. */
  @Override
  public void close() { handle.close(); }
}

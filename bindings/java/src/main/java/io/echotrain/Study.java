package io.echotrain;

import io.echotrain.internal.Strings;
import io.echotrain.internal.StudyHandle;
import java.util.Objects;

/**
 * Many trials of jobs, for conditions that are to be compared. Its folder keeps every finished trial: a study that is run again goes
 * on. Events and results are JSON, as the C functions etr_study_next_event and etr_study_results say.
 * {@code try (Study study = Study.load("study.json")) { study.start(device); while (study.nextEvent(1) != null) {} }} runs it. Used by
 * one thread at a time, but for {@link #results}, {@link #writeReport}, {@link #stop} and {@link #close}.
 */
public final class Study implements AutoCloseable {
  private final StudyHandle handle;

  private Study(String path, String... overrides) {
    Natives.load();
    Strings strings = new Strings();
    for (String override : overrides) strings.add(override);
    handle = new StudyHandle(path, strings);
    Natives.free(this, handle::delete);
  }

  /** {@code overrides}: "key=value", for the jobs of all trials. */
  public static Study load(String path, String... overrides) { return new Study(path, overrides); }

  /** The study with jobs, labels and overrides in place. */
  public String json() { return handle.json(); }

  /** Where it writes unless {@link #start} says otherwise. */
  public String outputDir() { return handle.output_dir(); }

  /** Prepares to run it in its own folder, with as many trials at once as it says. */
  public void start(Device device) { start(device, "", -1, false); }

  /**
   * The same in another folder (empty: its own). {@code parallel}: trials at once; 0: as the device has room, -1: as the study says.
   * {@code overwrite} runs all trials again, in place of those that the folder holds.
   */
  public void start(Device device, String directory, int parallel, boolean overwrite) {
    handle.start(Objects.requireNonNull(device, "device").handle, directory, parallel, overwrite);
  }

  /** What there is to tell, after so many seconds at most; null after the event "end". */
  public String nextEvent(double seconds) {
    String event = handle.next_event(seconds);
    return event.isEmpty() ? null : event;
  }

  /** Of the conditions, from the trials that a folder (empty: its own) holds so far. */
  public String results(String directory) { return handle.results(directory); }

  /** Writes report.html, results.json, tables and figures into a folder (empty: its own), from the trials that it holds so far. */
  public void writeReport(String directory) { handle.write_report(directory); }

  /** Ends it soon, without the trials that are running. */
  public void stop() { handle.stop(); }

  /** Stops it and lets go of its folder. */
  @Override
  public void close() { handle.close(); }
}

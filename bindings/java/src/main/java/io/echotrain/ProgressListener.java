package io.echotrain;

/** Is told the progress of packing, tuning or advising, on the thread that does it. */
@FunctionalInterface
public interface ProgressListener {
  /**
   * Is called when something more is done. Returning false ends the call. An exception of the
   * listener ends it, too, and is thrown again.
   *
   * @param done the number of files, trials, products or calls so far
   * @param total their number, or -1 if it is not known
   * @param text what was done or is being done; empty if there is nothing to say
   */
  boolean onProgress(long done, long total, String text);
}

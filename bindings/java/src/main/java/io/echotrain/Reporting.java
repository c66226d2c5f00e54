package io.echotrain;

import io.echotrain.internal.Progress;
import java.util.function.Function;

/**
 * A call that reports its progress, and its listener. An exception of the listener must not cross
 * native code.
 */
final class Reporting implements AutoCloseable {
  private static final class Told extends Progress {
    private final ProgressListener listener;
    private Throwable failure;

    Told(ProgressListener listener) { this.listener = listener; }

    @Override
    public boolean report(long done, long total, String text) {
      try {
        return listener.onProgress(done, total, text);
      } catch (Throwable error) {
        failure = error;
        return false;
      }
    }
  }

  private final Told told;  // null if there is no listener

  Reporting(ProgressListener listener) { told = listener == null ? null : new Told(listener); }

  /**
   * Returns the result of {@code call}. If an exception of the listener ended the call, throws it;
   * otherwise see {@link #failure}.
   */
  <T> T run(Function<Progress, T> call) {
    try {
      return call.apply(told);
    } catch (EchoTrainException error) {
      if (error.code() == EchoTrainException.Code.CANCELLED) throwAgain(failure());
      throw error;
    }
  }

  /** Returns the listener's exception; null if it threw none. */
  Throwable failure() { return told == null ? null : told.failure; }

  static void throwAgain(Throwable failure) {
    if (failure == null) return;
    if (failure instanceof Error) throw (Error) failure;
    if (failure instanceof RuntimeException) throw (RuntimeException) failure;
    throw new EchoTrainException(EchoTrainException.Code.CALLBACK, "the listener failed: " + failure, failure);
  }

  @Override
  public void close() {
    if (told != null) told.delete();
  }
}

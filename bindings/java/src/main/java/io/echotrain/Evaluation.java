package io.echotrain;

import io.echotrain.internal.Progress;
import java.util.function.Function;

/** A call that evaluates, and who is told of it: nothing that a listener throws may cross native code. */
final class Evaluation implements AutoCloseable {
  private static final class Told extends Progress {
    private final Trainer.EvaluationListener listener;
    private Throwable failure;

    Told(Trainer.EvaluationListener listener) { this.listener = listener; }

    @Override
    public boolean report(long done, long batches) {
      try {
        return listener.onEvaluation(done, batches);
      } catch (Throwable error) {
        failure = error;
        return false;
      }
    }
  }

  private final Told told;  // null where nobody is

  Evaluation(Trainer.EvaluationListener listener) { told = listener == null ? null : new Told(listener); }

  /** What {@code call} gives; what the listener threw is thrown again. */
  <T> T run(Function<Progress, T> call) {
    try {
      T result = call.apply(told);
      throwAgain();
      return result;
    } catch (EchoTrainException error) {
      if (error.code() == EchoTrainException.Code.CANCELLED) throwAgain();
      throw error;
    }
  }

  private void throwAgain() {
    if (told == null || told.failure == null) return;
    if (told.failure instanceof Error) throw (Error) told.failure;
    if (told.failure instanceof RuntimeException) throw (RuntimeException) told.failure;
    throw new EchoTrainException(EchoTrainException.Code.CALLBACK, "the listener failed: " + told.failure, told.failure);
  }

  @Override
  public void close() {
    if (told != null) told.delete();
  }
}

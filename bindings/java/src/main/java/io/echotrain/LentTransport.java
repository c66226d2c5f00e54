package io.echotrain;

import io.echotrain.internal.TransportCall;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.concurrent.TimeoutException;
import java.util.function.Supplier;

/** Adapts a {@link Transport} to the library's interface. */
final class LentTransport extends io.echotrain.internal.Transport {
  /**
   * Keeps the first exception that the transports of a run threw; the library's later errors repeat
   * it.
   */
  static final class Failures {
    private Throwable first;
    private String told;

    synchronized String add(Throwable failure) {
      String text = Natives.passable(
          failure instanceof EchoTrainException ? failure.getMessage() : failure.toString());
      if (first == null) {
        first = failure;
        told = text.substring(0, Math.min(text.length(), 250));
      }
      return text;
    }

    /**
     * Returns the result of {@code call}. An error of the library gets the transport's exception as
     * its cause if that has ended the run.
     */
    <T> T explained(Supplier<T> call) {
      try {
        return call.get();
      } catch (EchoTrainException error) {
        throw explained(error);
      }
    }

    private synchronized EchoTrainException explained(EchoTrainException error) {
      if (first == null || !error.getMessage().contains(told)) return error;
      return new EchoTrainException(error.code(), error.getMessage(), first);
    }
  }

  // In the order of TransportCall.Operation.
  private interface Function {
    void run(Transport to, TransportCall call) throws Exception;
  }

  private final Function[] functions = {
    (to, call) -> to.allReduce(output(call), number(call), reduction(call)),
    (to, call) -> to.reduceScatter(input(call), call.parts(), output(call), number(call), reduction(call)),
    (to, call) -> to.allGather(input(call), call.parts(), output(call)),
    (to, call) -> to.broadcast(output(call), call.peer()),
    (to, call) -> to.barrier(),
    (to, call) -> to.send(input(call), call.peer(), call.tag()),
    (to, call) -> to.receive(output(call), call.peer(), call.tag()),
    this::split,
    (to, call) -> to.abort(call.reason()),
    (to, call) -> to.close()
  };

  private final Transport transport;
  private final Failures failures;

  LentTransport(Transport transport, Failures failures) {
    this.transport = transport;
    this.failures = failures;
  }

  @Override
  public void run(TransportCall call) {
    try {
      double timeout = call.timeout();
      if (timeout > 0) transport.timeout = timeout;  // 0: an abort, which may come meanwhile
      functions[call.operation()].run(transport, call);
    } catch (Throwable failure) {  // no exception may leave the callback
      int[] missing = failure instanceof Transport.RankLost ? ((Transport.RankLost) failure).missing() : new int[0];
      call.fail(statusOf(failure), failures.add(failure), Arrays.stream(missing).asLongStream().toArray());
    }
  }

  private static int statusOf(Throwable failure) {
    if (failure instanceof EchoTrainException) return ((EchoTrainException) failure).code().status();
    boolean lost = failure instanceof IOException || failure instanceof TimeoutException;
    return (lost ? EchoTrainException.Code.RANK_LOST : EchoTrainException.Code.CALLBACK).status();
  }

  private void split(Transport to, TransportCall call) throws Exception {
    Transport part = to.split(call.colour(), call.key());
    if (part == null && call.colour() >= 0) {
      throw new NullPointerException(to.getClass().getName() + ".split returned null for the colour " + call.colour());
    }
    if (part == null) return;
    LentTransport lent = new LentTransport(part, failures);
    lent.swigReleaseOwnership();  // the library now owns it
    call.give(part.rank(), part.size(), lent);
  }

  private static ByteBuffer input(TransportCall call) {
    return call.input_bytes() == 0 ? empty() : call.input_memory().asReadOnlyBuffer().order(ByteOrder.nativeOrder());
  }

  private static ByteBuffer output(TransportCall call) {
    return call.output_bytes() == 0 ? empty() : call.output_memory().order(ByteOrder.nativeOrder());
  }

  private static ByteBuffer empty() { return ByteBuffer.allocateDirect(0).order(ByteOrder.nativeOrder()); }

  private static Transport.Number number(TransportCall call) { return Transport.Number.values()[call.number()]; }

  private static Transport.Reduction reduction(TransportCall call) {
    return Transport.Reduction.values()[call.reduction()];
  }
}

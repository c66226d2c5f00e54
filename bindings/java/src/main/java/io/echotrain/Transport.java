package io.echotrain;

import java.nio.ByteBuffer;

/**
 * One rank's end of a group of processes, over whatever moves data between them. Override its
 * methods, and pass an object of your class to {@link Job#run(Device, Job.Start, Transport)}, on
 * all ranks at the same time. Data-parallel training needs {@link #allReduce}, {@link #allGather},
 * {@link #broadcast} and {@link #split}; features that need another method say so.
 *
 * <p>All ranks call the same methods in the same order. Buffers are direct, in native order, in the
 * library's memory and valid only during the call. A method returns when its work is done, and
 * should end within {@link #timeout} seconds. An exception ends the run and is the cause of the
 * exception that the run throws. Its code is RANK_LOST for a {@link RankLost}, an {@link
 * java.io.IOException} or a {@link java.util.concurrent.TimeoutException}. After that only {@link
 * #abort} and {@link #close} are called.
 *
 * <p>Methods are called on threads of the library, one at a time. A transport that split() returns
 * may be called at the same time as this one.
 */
public abstract class Transport {
  /**
   * The element types of reductions. The last two (binary16, bfloat16) are those of compressed
   * gradients.
   */
  public enum Number {
    F32(4), F64(8), I32(4), I64(8), F16(2), BF16(2);

    private final int bytes;

    Number(int bytes) { this.bytes = bytes; }

    public int bytes() { return bytes; }
  }

  /** The kinds of reductions. */
  public enum Reduction { SUM, MIN, MAX }

  /** Ranks are dead, frozen or unreachable. */
  public static final class RankLost extends EchoTrainException {
    private static final long serialVersionUID = 1;
    private final int[] missing;

    public RankLost(String message, int... missing) {
      super(Code.RANK_LOST, message, null);
      this.missing = missing.clone();
    }

    public int[] missing() { return missing.clone(); }
  }

  private final int rank;
  private final int size;
  volatile double timeout = 60;

  protected Transport(int rank, int size) {
    if (rank < 0 || rank >= size) {
      throw new IllegalArgumentException(
          "rank " + rank + " of " + size + ": ranks are numbered from 0 to the size minus 1");
    }
    this.rank = rank;
    this.size = size;
  }

  public final int rank() { return rank; }

  public final int size() { return size; }

  /** Returns the time limit of the method that is being called, in seconds. */
  public final double timeout() { return timeout; }

  /**
   * Replaces each number in {@code data} by its reduction over all ranks, with the same bits on all
   * of them.
   */
  public void allReduce(ByteBuffer data, Number number, Reduction reduction) throws Exception { throw lacks("allReduce"); }

  /**
   * Reduces {@code data} over all ranks and writes this rank's part of it to {@code part}; the
   * parts have {@code counts} numbers.
   */
  public void reduceScatter(ByteBuffer data, long[] counts, ByteBuffer part, Number number, Reduction reduction)
      throws Exception {
    throw lacks("reduceScatter");
  }

  /**
   * Concatenates the parts of all ranks, which have {@code sizes} bytes, in {@code data}, in rank
   * order.
   */
  public void allGather(ByteBuffer part, long[] sizes, ByteBuffer data) throws Exception { throw lacks("allGather"); }

  /** Copies {@code data} from the rank {@code root} to all ranks. */
  public void broadcast(ByteBuffer data, int root) throws Exception { throw lacks("broadcast"); }

  /** Returns when all ranks have called it. */
  public void barrier() throws Exception { throw lacks("barrier"); }

  /**
   * Sends to another rank. The n-th send with a tag matches the n-th {@link #receive} with that
   * tag.
   */
  public void send(ByteBuffer data, int to, int tag) throws Exception { throw lacks("send"); }

  public void receive(ByteBuffer data, int from, int tag) throws Exception { throw lacks("receive"); }

  /**
   * Returns a new transport between the ranks that pass the same colour, ordered by key, then by
   * rank; null for a negative colour. All ranks call it.
   */
  public Transport split(int colour, int key) throws Exception { throw lacks("split"); }

  /**
   * Makes methods that are waiting, here and on other ranks, throw. It is called on another thread.
   * Without it, the other ranks notice only by their time-outs that this rank is gone.
   */
  public void abort(String reason) throws Exception {}

  /** Called once, at the end. Waits until the other ranks have received what this one sent. */
  public void close() throws Exception {}

  private EchoTrainException lacks(String function) {
    return new EchoTrainException(EchoTrainException.Code.UNSUPPORTED,
        getClass().getName() + " has no function " + function, null);
  }
}

package io.echotrain;

import java.nio.ByteBuffer;

/**
 * One rank's end of a group of processes, over whatever moves data between them. Override what follows, and give an object of
 * your class to {@link Job#run(Device, Job.Start, Transport)}, on all ranks at the same time. Data-parallel training takes
 * {@link #allReduce}, {@link #allGather}, {@link #broadcast} and {@link #split}; what needs another function says so.
 *
 * <p>All ranks call the same functions in the same order. Buffers are direct, in native order, and lie in the library's memory:
 * they are valid during the call only. A function returns when its work is done; it should end within {@link #timeout} seconds.
 * What it throws ends the run: it is the cause of the exception that the run throws, of the code RANK_LOST where it is a {@link
 * RankLost}, an {@link java.io.IOException} or a {@link java.util.concurrent.TimeoutException}. After that only {@link #abort} and
 * {@link #close} are called.
 *
 * <p>Functions are called on threads of the library's, one at a time; a transport that split() makes is called at the same time as
 * this one.
 */
public abstract class Transport {
  /** What a reduction works on. The last two are what compressed gradients travel as (binary16, bfloat16). */
  public enum Number {
    F32(4), F64(8), I32(4), I64(8), F16(2), BF16(2);

    private final int bytes;

    Number(int bytes) { this.bytes = bytes; }

    public int bytes() { return bytes; }
  }

  /** What becomes of the ranks' numbers. */
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
      throw new IllegalArgumentException("rank " + rank + " of " + size + ": ranks count from 0 to the size less one");
    }
    this.rank = rank;
    this.size = size;
  }

  public final int rank() { return rank; }

  public final int size() { return size; }

  /** Of the function that is being called, in seconds. */
  public final double timeout() { return timeout; }

  /** Every number in {@code data} becomes the reduction of that of all ranks, with the same bits on all of them. */
  public void allReduce(ByteBuffer data, Number number, Reduction reduction) throws Exception { throw lacks("allReduce"); }

  /** {@code part} becomes this rank's part of the reduction of {@code data}, whose parts have {@code counts} numbers. */
  public void reduceScatter(ByteBuffer data, long[] counts, ByteBuffer part, Number number, Reduction reduction)
      throws Exception {
    throw lacks("reduceScatter");
  }

  /** {@code data} becomes the parts of all ranks, which have {@code sizes} bytes, in their order. */
  public void allGather(ByteBuffer part, long[] sizes, ByteBuffer data) throws Exception { throw lacks("allGather"); }

  /** {@code data} becomes that of the rank {@code root}. */
  public void broadcast(ByteBuffer data, int root) throws Exception { throw lacks("broadcast"); }

  /** Returns when all ranks have called it. */
  public void barrier() throws Exception { throw lacks("barrier"); }

  /** The n-th send with a tag meets the n-th {@link #receive} with it. */
  public void send(ByteBuffer data, int to, int tag) throws Exception { throw lacks("send"); }

  public void receive(ByteBuffer data, int from, int tag) throws Exception { throw lacks("receive"); }

  /**
   * A new transport between the ranks that give the same colour, ordered by key, then by rank; null for a negative colour. All
   * ranks call it.
   */
  public Transport split(int colour, int key) throws Exception { throw lacks("split"); }

  /**
   * Lets the function that waits, here and on other ranks, throw. Called on another thread. Without it the others learn by their
   * time-outs that this rank is gone.
   */
  public void abort(String reason) throws Exception {}

  /** Called once, at the end: waits until the other ranks have what this one sent. */
  public void close() throws Exception {}

  private EchoTrainException lacks(String function) {
    return new EchoTrainException(EchoTrainException.Code.UNSUPPORTED,
        getClass().getName() + " has no function " + function, null);
  }
}
